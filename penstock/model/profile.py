"""A demand profile: how much of each resource a container wants over time, in slots (Elasecutor §III.B)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec

Amounts = tuple[Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)], ...]


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One value per slot of ``slot_s`` seconds; a resource without any is left as it is limited.

    Behind its last value a resource keeps it. Rates are limits for reading and for writing each, and for what is sent.
    ``stages`` are the slots at whose end a stage is predicted to end, rising; without any, the whole is one stage.
    """

    slot_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 3.0
    cpu_cores: tuple[Annotated[float, msgspec.Meta(gt=0, le=65536)], ...] = ()
    memory_bytes: Amounts = ()
    disk_bytes_per_s: Amounts = ()
    network_bytes_per_s: Amounts = ()
    stages: tuple[Annotated[int, msgspec.Meta(gt=0, le=2**31)], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError: nothing to follow, or ends of stages that do not rise."""
        if not self.slots:
            raise ValueError("a profile needs at least one value of one resource")
        if any(later <= end for end, later in pairwise(self.stages)):
            raise ValueError("stages: the slots at which stages end must rise")

    @property
    def slots(self) -> int:
        """How many slots it has: as many as its longest resource."""
        return max(map(len, (self.cpu_cores, self.memory_bytes, self.disk_bytes_per_s, self.network_bytes_per_s)))

    def slot(self, elapsed_s: float) -> int:
        """Which slot it is after so many seconds; a boundary that rounding puts a hair away is that boundary."""
        return int(elapsed_s / self.slot_s + 1e-6)

    def demand(self, slot: int) -> dict[str, Any]:
        """Resource → what it wants in a slot (from 0), only those that the profile names."""
        series = {
            "cpu_cores": self.cpu_cores,
            "memory_bytes": self.memory_bytes,
            "disk_bytes_per_s": self.disk_bytes_per_s,
            "network_bytes_per_s": self.network_bytes_per_s,
        }
        return {name: values[min(slot, len(values) - 1)] for name, values in series.items() if values}

    def next_change_s(self, elapsed_s: float) -> float | None:
        """Seconds from its start to the next boundary of a slot after ``elapsed_s``; None: none is left."""
        following = self.slot(elapsed_s) + 1
        return following * self.slot_s if following < self.slots else None

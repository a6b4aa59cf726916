"""A demand profile: a container's demand for each resource over time, in slots (Elasecutor §III.B)."""

from __future__ import annotations

from itertools import pairwise
from typing import Annotated, Any

import msgspec

#: The resources of a profile.
RESOURCES = ("cpu_cores", "memory_bytes", "disk_bytes_per_s", "network_bytes_per_s")
_Series = tuple[Annotated[int, msgspec.Meta(gt=0, le=2**63 - 1)], ...]


class Profile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """One value per slot of ``slot_s`` seconds; resources without values keep their limits.

    A resource's last value holds from then on. Rates apply to reading and to writing separately, and to sending.
    ``stages`` are the slots at whose end a stage is predicted to end, ascending; without any there is one stage.
    """

    slot_s: Annotated[float, msgspec.Meta(ge=0.1, le=3600)] = 3.0
    cpu_cores: tuple[Annotated[float, msgspec.Meta(gt=0, le=65536)], ...] = ()
    memory_bytes: _Series = ()
    disk_bytes_per_s: _Series = ()
    network_bytes_per_s: _Series = ()
    stages: tuple[Annotated[int, msgspec.Meta(gt=0, le=2**31)], ...] = ()

    def __post_init__(self) -> None:
        """Raises ValueError: the profile has no values, or the ends of stages do not ascend."""
        if not self.slots:
            raise ValueError("a profile needs at least one value of one resource")
        if any(later <= end for end, later in pairwise(self.stages)):
            raise ValueError("stages: the slots at which stages end must rise")

    @property
    def slots(self) -> int:
        """The number of slots: that of its longest resource."""
        return max(
            len(self.cpu_cores), len(self.memory_bytes), len(self.disk_bytes_per_s), len(self.network_bytes_per_s)
        )

    def slot(self, elapsed_s: float) -> int:
        """Return the slot at ``elapsed_s`` seconds; within rounding error of a boundary, the slot after it."""
        return int(elapsed_s / self.slot_s + 1e-6)

    def demand(self, slot: int) -> dict[str, Any]:
        """Return resource → demand in a slot (from 0), for the resources in the profile."""
        series = ((name, getattr(self, name)) for name in RESOURCES)
        return {name: values[min(slot, len(values) - 1)] for name, values in series if values}

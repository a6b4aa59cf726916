"""The first step of a round: the resources now promised by reservations (Rayon §5.2, plan follower)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Promised:
    """A reservation's present promise: cores and bytes of memory, in ``bundles`` bundles.

    The plan also counts disks and network, but tasks have slots of those, and no rates that could be guaranteed.
    """

    cores: float
    memory_bytes: float
    bundles: int


class Plan(Protocol):
    """Access to the reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """Return reservation → its promise at Unix time ``at``; a reservation without a promise then is left out."""
        ...

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Note, after each round (Unix time), the reservations that lack part of their promise and have ready tasks."""


class NothingPromised:
    """The plan of a cluster without reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """Return no promise."""
        return {}

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Ignore the report."""

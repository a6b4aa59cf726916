"""The first step of a round: what is promised now, by reservations made ahead of time (Rayon §5.2, plan follower)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Promised:
    """To one reservation, now: cores and bytes of memory, in so many bundles. What it is promised of disks and network
    the plan counts; tasks have slots of those, and no rates that could be guaranteed."""

    cores: float
    memory_bytes: float
    bundles: int


class Plan(Protocol):
    """Knows the reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """Reservation → what it is promised at this time (Unix); those without a promise then are not in it."""
        ...

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """After each round (Unix time): the reservations that lack some of what they are promised, with tasks ready."""


class NothingPromised:
    """The plan of a cluster without reservations."""

    def promised(self, at: float) -> Mapping[str, Promised]:
        """None."""
        return {}

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Nobody has one."""

"""The parts of a round: kinds of work with their cost, series of recurring work, jobs. Pure."""

from __future__ import annotations

from dataclasses import dataclass

#: No host has such users of its own, nor the slices that are named after them (``ways.py``).
USERS = ("penstockmix-alice", "penstockmix-bob", "penstockmix-carol")


@dataclass(frozen=True)
class Cost:
    """The cost of a kind of work alone on the machine: a fixed part, and a part for each unit of size.

    ``base_cpu_s`` and ``unit_cpu_s`` are CPU time, ``base_s`` and ``unit_s`` the time from start to end.
    """

    base_cpu_s: float
    unit_cpu_s: float
    base_s: float = 0.0
    unit_s: float = 0.0

    def cpu_s(self, units: float) -> float:
        """Return the CPU time of a job of this size."""
        return self.base_cpu_s + self.unit_cpu_s * units

    def alone_s(self, units: float) -> float:
        """Return the time that a job of this size takes alone."""
        return self.base_s + self.unit_s * units


@dataclass(frozen=True)
class Kind:
    """A kind of work. ``share`` is its part of arrivals. A kind that is not ``sized`` has one unit each time."""

    name: str
    share: float
    sized: bool = True


@dataclass(frozen=True)
class Job:
    """One arrival. ``application`` is the name by which a scheduler may recognize recurring work.

    ``cpu_s`` and ``alone_s`` are its times alone on the machine. ``memory_bytes`` is the memory that its user promises
    to keep to, 0 where the user states none. ``deadline_s`` is counted from the round's beginning, 0 where there is
    none. The end of a job on ``leftovers`` is not urgent.
    """

    number: int
    user: str
    kind: str
    application: str
    recurring: bool
    units: float
    cpu_s: float
    alone_s: float
    arrival_s: float
    memory_bytes: int = 0
    deadline_s: float = 0.0
    leftovers: bool = False


@dataclass(frozen=True)
class Series:
    """Recurring work of one user: a kind, and its typical size."""

    application: str
    user: str
    kind: str
    units: float

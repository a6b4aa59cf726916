"""Needs of recurring jobs in earlier runs: used as a job's R until the job has reported its own (Ursa §4.2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from master.changes import Changes
from penstock.model import KINDS

#: (user, name of the job): equal names of different users are different jobs.
Name = tuple[str, str]
#: A length is predicted from at least this many runs, from at most this many latest runs, with an error up to this
#: factor.
_LEAST_RUNS, _LATEST_RUNS, _ERRS_BY = 2, 5, 2.0


@dataclass(frozen=True, slots=True)
class Needed:
    """The needs of a whole job: bytes per kind of its placed tasks, and container-seconds received.

    ``lengths_s`` are the known times from admission to the end of the latest runs.
    """

    work: tuple[float, ...] = (0.0,) * len(KINDS)
    service_s: float = 0.0
    lengths_s: tuple[float, ...] = ()

    def ends_after_s(self, elapsed_s: float) -> float:
        """Return the least time left after ``elapsed_s``, by half of the shortest length; 0: unknown."""
        return max(0.0, min(self.lengths_s) / _ERRS_BY - elapsed_s) if self._known else 0.0

    @property
    def ends_within_s(self) -> float:
        """Return the longest expected time of the next run: twice the longest length; inf: unknown."""
        return max(self.lengths_s) * _ERRS_BY if self._known else math.inf

    @property
    def is_valid(self) -> bool:
        """Return whether there is an amount for each kind, and all are finite and not negative."""
        amounts = (*self.work, self.service_s, *self.lengths_s)
        return len(self.work) == len(KINDS) and all(0 <= amount < math.inf for amount in amounts)

    @property
    def _known(self) -> bool:
        return len(self.lengths_s) >= _LEAST_RUNS


class History:
    """A bounded store; the least recently used name is removed first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._known: dict[Name, Needed] = {}
        self.unstored = Changes[Name, Needed]()

    def of(self, name: Name) -> Needed | None:
        """Return the needs of a job of this name; None where they are unknown."""
        return self._known.get(name)

    def learn(self, name: Name, needed: Needed) -> None:
        """Learn from a finished job. The last run weighs as much as all earlier ones: inputs grow and shrink."""
        before = self._known.pop(name, None)
        if before is not None:
            work = tuple((old + new) / 2 for old, new in zip(before.work, needed.work, strict=True))
            lengths_s = (before.lengths_s + needed.lengths_s)[-_LATEST_RUNS:]
            needed = Needed(work, (before.service_s + needed.service_s) / 2, lengths_s)
        elif len(self._known) >= self._most:
            gone = next(iter(self._known))
            del self._known[gone]
            self.unstored[gone] = None
        self.unstored.pop(name, None)  # keep the order of use
        self._known[name] = self.unstored[name] = needed

    def restore(self, kept: Iterable[tuple[Name, Needed]]) -> None:
        """Restore the entries stored by an earlier master; skip invalid ones."""
        self._known |= {name: needed for name, needed in kept if needed.is_valid}

"""What recurring jobs needed before: their R until they have said it themselves (Ursa §4.2.2)."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model import KINDS

#: (user, name of the job): the same name of another user is another job.
Name = tuple[str, str]
#: A length is foretold from so many runs at least, the latest ones, and is taken to be wrong by up to this factor.
_LEAST_RUNS, _LATEST_RUNS, _ERRS_BY = 2, 5, 2.0


@dataclass(frozen=True, slots=True)
class Needed:
    """Of a whole job: bytes per kind of the tasks that were placed, and container-seconds that it received.

    ``lengths_s`` are the times from admission to the end of the latest runs, those that are known.
    """

    work: tuple[float, ...] = (0.0,) * len(KINDS)
    service_s: float = 0.0
    lengths_s: tuple[float, ...] = ()

    def ends_after_s(self, elapsed_s: float) -> float:
        """Return how long a run that has lasted so long goes on at least: half of the shortest; 0: nobody knows."""
        return max(0.0, min(self.lengths_s) / _ERRS_BY - elapsed_s) if self._known else 0.0

    @property
    def ends_within_s(self) -> float:
        """Return how long the next run takes at most: twice the longest; inf: nobody knows."""
        return max(self.lengths_s) * _ERRS_BY if self._known else math.inf

    @property
    def is_valid(self) -> bool:
        """Whether there is an amount for each kind, and all are finite and not negative."""
        amounts = (*self.work, self.service_s, *self.lengths_s)
        return len(self.work) == len(KINDS) and all(0 <= amount < math.inf for amount in amounts)

    @property
    def _known(self) -> bool:
        return len(self.lengths_s) >= _LEAST_RUNS


class History:
    """Bounded: the name that was used the longest ago is forgotten first."""

    def __init__(self, most: int = 1024) -> None:
        self._most = most
        self._known: dict[Name, Needed] = {}
        self._changed: dict[Name, Needed | None] = {}

    def of(self, name: Name) -> Needed | None:
        """What a job of this name needed, as far as is known."""
        return self._known.get(name)

    def learn(self, name: Name, needed: Needed) -> None:
        """A job of this name is done. The last run counts as much as all before it: inputs grow and shrink."""
        before = self._known.pop(name, None)
        if before is not None:
            work = tuple((old + new) / 2 for old, new in zip(before.work, needed.work, strict=True))
            lengths_s = (before.lengths_s + needed.lengths_s)[-_LATEST_RUNS:]
            needed = Needed(work, (before.service_s + needed.service_s) / 2, lengths_s)
        elif len(self._known) >= self._most:
            gone = next(iter(self._known))
            del self._known[gone]
            self._changed[gone] = None
        self._changed.pop(name, None)  # in the order in which they were used
        self._known[name] = self._changed[name] = needed

    def take_changes(self) -> dict[Name, Needed | None]:
        """Return what is to be written down since the last call; None: forgotten."""
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, kept: Iterable[tuple[Name, Needed]]) -> None:
        """Take over what an earlier master wrote down; what cannot be calculated with is left out."""
        self._known |= {name: needed for name, needed in kept if needed.is_valid}

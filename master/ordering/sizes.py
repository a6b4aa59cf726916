"""The sizes of ended jobs, by user and application: what is known of a job's size before it ends.

Sizes are counted in cells of a logarithmic grid, so that a kind of job costs the same few bytes however often it ran.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
#: ``(user, application)``, ``(user,)`` or ``()``: the jobs of an application of a user, of a user, or all jobs.
Kind = tuple[str, ...]

#: The upper bound of the first cell in container-seconds; jobs below it are all alike.
LEAST = 0.01
#: Cells for each doubling of the size, and cells in all: up to 0.01 · 2^34 = 1.7e8 container-seconds.
PER_DOUBLING = 2
CELLS = 34 * PER_DOUBLING + 1
#: Cell ``i`` is from ``EDGES[i]`` to ``EDGES[i + 1]``.
EDGES: Floats = np.concatenate(([0.0], LEAST * 2.0 ** (np.arange(CELLS) / PER_DOUBLING)))
#: A job counts ``1 − 1 ÷ MEMORY[n]`` as much with each later job of its kind, for a kind of ``n`` names.
MEMORY = (1000.0, 1000.0, 100.0)
#: So many jobs of a kind are expected as the more general kind has them, before any of its own is known.
PRIOR = 0.3
#: The part of a job that is counted in each of the two cells beside its own, as the next one will not be just as large.
SPREAD = 0.25
#: Bound of the evidence for or against a kind (natural logarithm of the odds): a kind that changes is believed soon.
MOST_ODDS = 6.0
#: … before there is any: what recurs is believed from its first job on. With :data:`PRIOR` one job of a kind counts for
#: 0.56 of what is expected of the next, 0.25 with 1 and 0; the mean response is 0 to 1.2 % shorter on the mixes of
#: ``bench/order_of_jobs.py`` (load 0.9, three seeds each).
FIRST_ODDS = 1.0


#: Where nothing is known, no end is.
_NOTHING_KNOWN: Floats = np.zeros(CELLS)


def cell_of(size: float) -> int:
    """Return the cell of a size in container-seconds."""
    if size <= LEAST:
        return 0
    return min(CELLS - 1, math.ceil(math.log2(size / LEAST) * PER_DOUBLING))


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """What is known of a kind of job: jobs by cell, later ones counting more. ``odds`` is the logarithm of how much
    better the kind's own jobs have predicted its next one than the jobs of the more general kind have."""

    kind: Kind
    cells: dict[int, float] = field(default_factory=dict)
    odds: float = FIRST_ODDS

    def with_one(self, cell: int, evidence: float) -> KnownSizes:
        """Return what is known after one more job."""
        kept = 1.0 - 1.0 / MEMORY[len(self.kind)]
        cells = {at: count * kept for at, count in self.cells.items() if count * kept > 1e-3}
        cells[cell] = cells.get(cell, 0.0) + 1.0
        return KnownSizes(self.kind, cells, max(-MOST_ODDS, min(MOST_ODDS, self.odds + evidence)))

    @property
    def weight(self) -> float:
        """The probability that the kind's own jobs predict the next one better than the general kind's do."""
        return 1.0 / (1.0 + math.exp(-self.odds))


class JobSizes:
    """What is known of the sizes of all kinds of jobs, bounded: the kind that was used the longest ago goes first.

    The kinds are mixed by context-tree weighting (Willems, Shtarkov and Tjalkens 1995): an application of a user, the
    user and all jobs each count as much as they have predicted well. There is no number of jobs from which on a kind is
    believed.
    """

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._known: dict[Kind, KnownSizes] = {}
        self._changed: dict[Kind, KnownSizes | None] = {}
        self._counts: dict[Kind, tuple[Floats, float, float]] = {}  # as long as they are true

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, user: str, application: str, service: float) -> None:
        """Count a job that ended, having received ``service`` container-seconds.

        One that no node has served tells nothing.
        """
        if not 0 < service < math.inf:
            return
        cell = cell_of(service)
        near = slice(max(0, cell - 1), cell + 2)
        general = _NOTHING_KNOWN
        for kind in _kinds(user, application):
            counts, own, weight = self._of(kind)
            predicted = (counts[near].sum() + PRIOR * general[near].sum()) * own
            evidence = math.log((predicted + 1e-9) / (general[near].sum() + 1e-9))
            general = _mix(counts, own, weight, general)
            known = self._known.pop(kind, None) or KnownSizes(kind)
            self._known[kind] = self._changed[kind] = known.with_one(cell, evidence)
            self._counts.pop(kind, None)
        while len(self._known) > self._most:
            gone = next(iter(self._known))
            del self._known[gone]
            self._counts.pop(gone, None)
            self._changed[gone] = None

    def probabilities(self, jobs: Sequence[tuple[str, str]]) -> Floats:
        """Return the probability of each cell for the sizes of jobs of these users and applications, row by row.

        The sum of a row is below 1: the rest is larger than anything that the grid has.
        """
        everybody = _mix(*self._of(()), _NOTHING_KNOWN)
        users = {user: _mix(*self._of((user,)), everybody) for user in {user for user, _ in jobs}}
        rows = {kind: row for row, kind in enumerate(dict.fromkeys(jobs))}
        of = [self._of(kind) for kind in rows]
        counts, own, weight = (np.array(column) for column in zip(*of, strict=True))
        mixed = _mix(counts, own[:, None], weight[:, None], np.array([users[user] for user, _ in rows]))
        return np.asarray(mixed[[rows[kind] for kind in jobs]])

    def count(self, user: str, application: str) -> tuple[float, float, float]:
        """Return how many jobs are known of the application, of the user, and of all; earlier ones count less."""
        everybody, of_user, of_application = (1.0 / self._of(kind)[1] - PRIOR for kind in _kinds(user, application))
        return of_application, of_user, everybody

    def of(self, jobs: Iterable[tuple[str, str]]) -> list[KnownSizes]:
        """Return what is known of these users' applications, and of the kinds that they are mixed with."""
        kinds = dict.fromkeys(kind for user, application in jobs for kind in _kinds(user, application))
        return [self._known[kind] for kind in kinds if kind in self._known]

    def take_changes(self) -> dict[Kind, KnownSizes | None]:
        """Return what is to be written down since the last call; None: forgotten."""
        changed, self._changed = self._changed, {}
        return changed

    def restore(self, kept: Iterable[KnownSizes]) -> None:
        """Take over what an earlier master wrote down."""
        self._known |= {known.kind: known for known in kept if _sound(known)}
        self._counts.clear()

    def _of(self, kind: Kind) -> tuple[Floats, float, float]:
        """Return the jobs by cell, what one of them counts beside one of the more general kind, and their weight."""
        found = self._counts.get(kind)
        if found is None:
            known = self._known.get(kind)
            if known is None:
                return _NO_JOBS
            found = _spread(known.cells), 1.0 / (sum(known.cells.values()) + PRIOR), known.weight
            self._counts[kind] = found
        return found


def _kinds(user: str, application: str) -> tuple[Kind, Kind, Kind]:
    return (), (user,), (user, application)


def _mix(counts: Floats, own: Any, weight: Any, general: Floats) -> Floats:
    """Return the probabilities from a kind's own jobs and one job as the general kind has it, mixed with the latter."""
    return np.asarray((weight * own) * counts + (weight * own * PRIOR + 1.0 - weight) * general)


def _sound(known: KnownSizes) -> bool:
    cells = all(0 <= cell < CELLS and 0 <= count < math.inf for cell, count in known.cells.items())
    return cells and len(known.kind) < len(MEMORY) and abs(known.odds) <= MOST_ODDS


def _spread(cells: Mapping[int, float]) -> Floats:
    """Return the jobs by cell, a part of each in the two cells beside its own."""
    counts = np.zeros(CELLS + 2)
    counts[np.fromiter(cells, np.int64, len(cells)) + 1] = np.fromiter(cells.values(), np.float64, len(cells))
    counts[1:-1] += SPREAD * (counts[:-2] - 2 * counts[1:-1] + counts[2:])
    return counts[1:-1]


_NO_JOBS = (np.zeros(CELLS), 1.0 / PRIOR, 0.5)

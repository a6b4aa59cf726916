"""The sizes of ended jobs, by user and application, which predict the size of a job before it ends.

Sizes are counted in cells of a logarithmic grid, so a kind of job takes the same few bytes for any number of runs.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from master.changes import Changes

Floats = npt.NDArray[np.float64]
Number = TypeVar("Number", float, Floats)
#: ``(user, application)``, ``("", "", application)``, ``(user,)`` or ``()``: the jobs of an application of a user, of
#: an application of any user, of a user, or all jobs.
Kind = tuple[str, ...]

#: The upper bound of the first cell in container-seconds; smaller jobs are not distinguished.
LEAST = 0.01
#: Cells for each doubling of the size, and cells in all: up to 0.01 · 2^34 = 1.7e8 container-seconds.
PER_DOUBLING = 2
CELLS = 34 * PER_DOUBLING + 1
#: Cell ``i`` is from ``EDGES[i]`` to ``EDGES[i + 1]``.
EDGES: Floats = np.concatenate(([0.0], LEAST * 2.0 ** (np.arange(CELLS) / PER_DOUBLING)))
#: Each later job of a kind of ``n`` parts reduces an earlier job's count by the factor ``1 − 1 ÷ MEMORY[n]``.
MEMORY = (1000.0, 1000.0, 100.0, 100.0)
#: An application of all users counts as soon as it has this number of jobs more than the user has jobs and commands of
#: that name: before, the jobs of the one user would count twice.
OTHERS = 0.5
#: The applications of a user beyond which its commands of no job add no more.
MOST_BY_COMMANDS = 256
#: The weight of the more general kind in a kind's distribution, as a number of jobs.
PRIOR = 0.3
#: The part of a job that is counted in each of the two cells beside its own, as sizes vary between runs.
SPREAD = 0.25
#: The known sizes of a user and of all jobs are blurred over the logarithm of the size, the less the more are known:
#: with one known job of 20 s, all jobs would be expected to end at 20 s, and a new one, which may be short, would go
#: behind each that has begun. The deviation in cells is that of the known sizes, reduced by jobs^−NARROWING (rule of
#: thumb for kernels: −1/5; Silverman 1986, 3.4); before sizes are known it is FIRST_DEVIATION, which counts as
#: FIRST_WEIGHT jobs. Runs of one application are alike and are not blurred.
FIRST_DEVIATION = 8.0
FIRST_WEIGHT = 2.0
NARROWING = 0.4
#: The bound of the evidence for or against a kind (natural logarithm of the odds), so that a changed kind is soon
#: weighted anew.
MOST_ODDS = 6.0
#: The odds without evidence: recurring jobs are predicted from the first job on. With :data:`PRIOR` one job of a kind
#: has a weight of 0.56 in the prediction of the next (0.25 with a prior of 1 and odds of 0). The mean response is 0 to
#: 1.2 % shorter on the mixes of ``bench/order_of_jobs.py`` (load 0.9, three seeds each).
FIRST_ODDS = 1.0


#: The distribution without known jobs: the probability of an end is 0 in every cell.
_NOTHING_KNOWN: Floats = np.zeros(CELLS)


def cell_of(size: float) -> int:
    """Return the cell of a size in container-seconds."""
    if size <= LEAST:
        return 0
    return min(CELLS - 1, math.ceil(math.log2(size / LEAST) * PER_DOUBLING))


@dataclass(frozen=True, slots=True)
class KnownSizes:
    """The known sizes of a kind of job: counts by cell, later jobs counting more.

    ``odds`` is the natural logarithm of the odds that the kind's own jobs predict its next job better than the jobs of
    the more general kind do.
    """

    kind: Kind
    cells: dict[int, float] = field(default_factory=dict)
    odds: float = FIRST_ODDS

    def with_one(self, cell: int, evidence: float) -> KnownSizes:
        """Return the known sizes after one more job."""
        kept = 1.0 - 1.0 / MEMORY[len(self.kind)]
        cells = {at: count * kept for at, count in self.cells.items() if count * kept > 1e-3}
        cells[cell] = cells.get(cell, 0.0) + 1.0
        return KnownSizes(self.kind, cells, max(-MOST_ODDS, min(MOST_ODDS, self.odds + evidence)))

    @property
    def weight(self) -> float:
        """Return the probability that the kind's own jobs predict the next one better than the general kind's do."""
        return 1.0 / (1.0 + math.exp(-self.odds))


class JobSizes:
    """The known sizes of all kinds of jobs, in bounded memory: the kind whose last job ended first is dropped first.

    Kinds restored after a restart of the master count as older than those learnt since, in the order of their names.

    The kinds are mixed by context-tree weighting (Willems, Shtarkov and Tjalkens 1995): the weights of a user's
    application, of the application, of the user and of all jobs follow from the quality of their predictions. A kind
    needs no minimum number of jobs.
    """

    def __init__(self, most: int = 8192) -> None:
        self._most = most
        self._known: dict[Kind, KnownSizes] = {}
        self._of_user: dict[str, dict[Kind, None]] = {}  # user → its applications, in the order of their last jobs
        self.unstored = Changes[Kind, KnownSizes]()
        self._counts: dict[Kind, tuple[Floats, float, float]] = {}  # cache of `_of`, dropped when a kind changes
        self._blurred_counts: dict[Kind, tuple[Floats, float, float]] = {}  # and of `_blurred`
        #: The last answer of :meth:`probabilities`: the same jobs are ranked several times a second.
        self._answered: tuple[list[tuple[str, str]], Floats] | None = None

    def __len__(self) -> int:
        return len(self._known)

    def learn(self, user: str, application: str, service: float) -> None:
        """Count a job that ended with ``service`` container-seconds received.

        A job without service has no size and is ignored.
        """
        self._learn(user, application, service, _kinds(user, application))

    def learn_command(self, user: str, application: str, cpu_s: float) -> None:
        """Count a command of no job, for its user only: anybody can run many of any name and size.

        Beyond :data:`MOST_BY_COMMANDS` applications of the user, a new one drops the one whose last run ended first.
        """
        new = (user, application) not in self._known
        self._learn(user, application, cpu_s, ((user,), (user, application)))
        own = self._of_user.get(user, {})
        if new and len(own) > MOST_BY_COMMANDS:
            self._remove(next(iter(own)))

    def _learn(self, user: str, application: str, service: float, counted: Collection[Kind]) -> None:
        if not 0 < service < math.inf:
            return
        cell = cell_of(service)
        near = range(max(0, cell - 1), min(CELLS, cell + 2))
        general = [0.0] * len(near)
        for kind in _kinds(user, application):
            counts, own, weight = self._near(kind, near)
            predicted = (sum(counts) + PRIOR * sum(general)) * own
            evidence = math.log((predicted + 1e-9) / (sum(general) + 1e-9))
            if len(kind) != 3 or 1.0 / own > 1.0 / self._near((user, application), range(0))[1] + OTHERS:
                general = [_mix(count, own, weight, other) for count, other in zip(counts, general, strict=True)]
            if kind not in counted:
                continue
            known = self._known.pop(kind, None) or KnownSizes(kind)
            self._known[kind] = self.unstored[kind] = known.with_one(cell, evidence)
            self._drop(kind)
        own_kinds = self._of_user.setdefault(user, {})
        own_kinds.pop((user, application), None)
        own_kinds[user, application] = None
        while len(self._known) > self._most:
            self._remove(next(iter(self._known)))

    def probabilities(self, jobs: Sequence[tuple[str, str]]) -> Floats:
        """Return the probability of each cell for the sizes of jobs of these users and applications, row by row.

        The sum of a row is below 1: the rest is the probability of sizes beyond the grid. The array is read-only.
        """
        if self._answered is None or self._answered[0] != jobs:
            found = self._probabilities(jobs)
            found.setflags(write=False)
            self._answered = [*jobs], found
        return self._answered[1]

    def _probabilities(self, jobs: Sequence[tuple[str, str]]) -> Floats:
        everybody = _mix(*self._blurred(()), _NOTHING_KNOWN)
        users = {user: _mix(*self._blurred((user,)), everybody) for user in {user for user, _ in jobs}}
        rows = {kind: row for row, kind in enumerate(dict.fromkeys(jobs))}
        mixed = np.array([users[user] for user, _ in rows])
        of_own = [self._of(job) for job in rows]
        of_all = [self._of(("", "", application)) for _, application in rows]
        others = [1.0 / all_[1] > 1.0 / own[1] + OTHERS for all_, own in zip(of_all, of_own, strict=True)]
        if any(others):
            of = (found if run else _NO_JOBS for found, run in zip(of_all, others, strict=True))
            counts, own, weight = (np.array(column) for column in zip(*of, strict=True))
            mixed = _mix(counts, own[:, None], weight[:, None], mixed)
        counts, own, weight = (np.array(column) for column in zip(*of_own, strict=True))
        mixed = _mix(counts, own[:, None], weight[:, None], mixed)
        return np.asarray(mixed[[rows[kind] for kind in jobs]])

    def largest(self, user: str, application: str) -> float:
        """Return the size that no known job of this application of the user exceeds; −∞: none is known."""
        known = self._known.get((user, application))
        return float(EDGES[max(known.cells) + 1]) if known is not None else -math.inf

    def count(self, user: str, application: str) -> tuple[float, float, float]:
        """Return the numbers of known jobs of the user's application, of the user, and of all; earlier jobs count less.

        How many jobs of the application others have run is not told: it would tell users the names of others' jobs.
        """
        known = (self._known.get(kind) for kind in ((user, application), (user,), ()))
        of_application, of_user, everybody = (sum(each.cells.values()) if each else 0.0 for each in known)
        return of_application, of_user, everybody

    def of(self, jobs: Iterable[tuple[str, str]]) -> list[KnownSizes]:
        """Return the known sizes of these users' applications, and of the kinds that they are mixed with."""
        kinds = dict.fromkeys(kind for user, application in jobs for kind in _kinds(user, application))
        return [self._known[kind] for kind in kinds if kind in self._known]

    def restore(self, kept: Iterable[KnownSizes]) -> None:
        """Take over the sizes that an earlier master stored."""
        self._known |= {known.kind: known for known in kept if _sound(known)}
        for kind in self._known:
            if len(kind) == 2:
                self._of_user.setdefault(kind[0], {})[kind] = None
        self._counts.clear()
        self._blurred_counts.clear()
        self._answered = None

    def _remove(self, kind: Kind) -> None:
        """Drop a kind and what follows from it."""
        del self._known[kind]
        self._drop(kind)
        self.unstored[kind] = None
        if len(kind) == 2:
            own = self._of_user[kind[0]]
            del own[kind]
            if not own:
                del self._of_user[kind[0]]

    def _drop(self, kind: Kind) -> None:
        """Drop what follows from the kind's known sizes."""
        self._counts.pop(kind, None)
        self._blurred_counts.pop(kind, None)
        self._answered = None

    def _of(self, kind: Kind) -> tuple[Floats, float, float]:
        """Return the jobs by cell, the factor that turns a count into a probability, and the kind's weight."""
        found = self._counts.get(kind)
        if found is None:
            known = self._known.get(kind)
            if known is None:
                return _NO_JOBS
            found = _spread(known.cells), 1.0 / (sum(known.cells.values()) + PRIOR), known.weight
            self._counts[kind] = found
        return found

    def _near(self, kind: Kind, cells: range) -> tuple[list[float], float, float]:
        """Return what :meth:`_of` does, for a few cells, without arrays: each ended job changes all its kinds."""
        known = self._known.get(kind)
        if known is None:
            return [0.0] * len(cells), *_NO_JOBS[1:]
        jobs = known.cells.get
        counts = [
            jobs(cell, 0.0) + SPREAD * (jobs(cell - 1, 0.0) - 2 * jobs(cell, 0.0) + jobs(cell + 1, 0.0))
            for cell in cells
        ]
        return counts, 1.0 / (sum(known.cells.values()) + PRIOR), known.weight

    def _blurred(self, kind: Kind) -> tuple[Floats, float, float]:
        """Return what :meth:`_of` does, with the jobs by cell blurred."""
        found = self._blurred_counts.get(kind)
        if found is None:
            counts, own, weight = self._of(kind)
            known = self._known.get(kind)
            if known is None:
                return counts, own, weight
            found = self._blurred_counts[kind] = _blur(counts, sum(known.cells.values())), own, weight
        return found


def _kinds(user: str, application: str) -> tuple[Kind, Kind, Kind, Kind]:
    """Return the kinds that a job is of, the most general first."""
    return (), (user,), ("", "", application), (user, application)


def _mix(counts: Number, own: Any, weight: Any, general: Number) -> Number:
    """Return a kind's probabilities, from its own jobs and the prior, mixed by weight with the general kind's."""
    return cast(Number, (weight * own) * counts + (weight * own * PRIOR + 1.0 - weight) * general)


def _sound(known: KnownSizes) -> bool:
    cells = all(0 <= cell < CELLS and 0 <= count < math.inf for cell, count in known.cells.items())
    cells &= sum(known.cells.values()) >= 1.0  # the latest job counts as one
    return cells and len(known.kind) < len(MEMORY) and abs(known.odds) <= MOST_ODDS


def _spread(cells: Mapping[int, float]) -> Floats:
    """Return the jobs by cell, with a part of each job in the two cells beside its own.

    The part below the first cell is not counted: with it the mean response on the trace *swim*, most of whose jobs are
    in the first cell, was 6 % longer (load 0.9, 24 seeds).
    """
    counts = np.zeros(CELLS + 2)
    counts[np.fromiter(cells, np.int64, len(cells)) + 1] = np.fromiter(cells.values(), np.float64, len(cells))
    counts[1:-1] += SPREAD * (counts[:-2] - 2 * counts[1:-1] + counts[2:])
    return counts[1:-1]


def _blur(counts: Floats, jobs: float) -> Floats:
    """Return the counts of so many jobs by cell, blurred by a normal kernel."""
    # What `_spread` has added to the variance counts for the kernel.
    variance = _deviation(counts, jobs) ** 2 * jobs ** (-2 * NARROWING) - 2 * SPREAD
    if variance <= 0:
        return counts
    reach = math.ceil(4 * math.sqrt(variance))
    kernel = np.exp(-0.5 * np.arange(-reach, reach + 1.0) ** 2 / variance)
    blurred = np.convolve(counts, kernel / kernel.sum())
    blurred[reach] += blurred[:reach].sum()  # no size is below the first cell; those above the last are not known
    return blurred[reach : reach + CELLS]


def _deviation(counts: Floats, jobs: float) -> float:
    """Return the standard deviation of the jobs' sizes in cells, with :data:`FIRST_DEVIATION` mixed in."""
    cells = np.arange(CELLS)
    mean = float(counts @ cells) / jobs
    return math.sqrt((FIRST_WEIGHT * FIRST_DEVIATION**2 + float(counts @ (cells - mean) ** 2)) / (FIRST_WEIGHT + jobs))


_NO_JOBS = (np.zeros(CELLS), 1.0 / PRIOR, 0.5)

"""Placement of tasks by peak demands, as compared in Ursa §5.1.2: Tetris, Tetris2 and YARN's Capacity.

Each replaces Algorithm 1 and leaves the order of jobs to the ranking. A placed task holds its peak until it ends, even
when some of its monotasks have ended: "but let the worker wait until the entire task finishes".
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from master.ordering import Key, Ranking
from master.placement.scoring import Stage
from master.placement.ursa import Account, Placement
from master.placement.workers import CPU, DISK, MEMORY, NETWORK, Floats, Need
from penstock.model import ResourceKind

#: The resources each one considers. YARN knows cores and memory; Tetris2 is Tetris "by ignoring the network demand".
COUNTS = {
    "tetris": (CPU, DISK, NETWORK, MEMORY),
    "tetris2": (CPU, DISK, MEMORY),
    "capacity": (CPU, MEMORY),
}
_RESOURCE_NAMES = ("cores", "disk bandwidth", "network bandwidth", "memory")
#: Tolerance for sums of fractions, relative to the capacity.
_TOLERANCE = 1e-9


@dataclass(frozen=True, slots=True)
class Peaks:
    """Estimated peaks, in place of those that the paper "collected in previous runs" without giving figures.

    A task's peak of disk and of network is ``to_mean`` times its mean over the task's life. At ``rates`` (bytes/s of
    one core, the disks, the link), the life is the time of its CPU, disk and network work in sequence.
    """

    rates: tuple[float, float, float]
    to_mean: float

    def of(self, cpu: float, disk: float, network: float) -> tuple[float, float]:
        """Return bytes/s of disk and of network of a task with this work in bytes."""
        core, disks, link = self.rates
        life_s = cpu / core + disk / disks + network / link
        scale = self.to_mean / life_s if life_s else 0.0
        return min(disk * scale, disks), min(network * scale, link)


@dataclass(slots=True, eq=False)
class Unreserved:
    """n workers: ``capacity`` and ``free`` resources (n × 4: cores, bytes/s of disk and of network, bytes of
    memory).
    """

    capacity: Floats
    free: Floats

    @classmethod
    def of(
        cls, peaks: Peaks, *, cores: Floats, cores_free: Floats, memory: Floats, memory_free: Floats, reserved: Floats
    ) -> Unreserved:
        """Return workers that differ only in cores and memory. ``reserved`` (n × 3): the cores that regular tasks use
        without a promise, which ``cores_free`` does not include, and their peaks of disk and network.
        """
        disks, link = np.full(len(cores), peaks.rates[1]), np.full(len(cores), peaks.rates[2])
        free = np.column_stack((cores_free, disks, link, memory_free))
        free[:, :MEMORY] -= reserved
        return cls(np.column_stack((cores, disks, link, memory)), free)


class PeakPlacement:
    """A round's placement by peaks; :meth:`place` consumes what is free. ``name`` is a key of :data:`COUNTS`."""

    def __init__(self, name: str, workers: Unreserved, peaks: Peaks) -> None:
        self._name = name
        self._counts = list(COUNTS[name])
        self._peaks = peaks
        self._capacity = workers.capacity[:, self._counts]
        self._share: Floats = workers.free[:, self._counts] / self._capacity  # the free fraction of the capacity

    def place(
        self,
        stages: list[Stage],
        ranking: Ranking,
        *,
        until: Key = (),
        account: Callable[[Account], None] | None = None,
    ) -> list[Placement]:
        """Place the task with the largest key, repeatedly, on the worker with the largest score, within all capacities.
        Tasks with a key below ``until`` are not placed.

        Tetris scores the dot product of demand and free resources, Capacity the sum of free resources, as fractions of
        the capacity. Free resources only fall within a round: a task that fits nowhere is dropped.
        """
        opened = [_Open(stage, self._demands(stage.needs)) for stage in stages if stage.needs and len(self._share)]
        placements: list[Placement] = []
        opened = [each for each in opened if self._score(each, ranking)]
        while opened:
            best = max(opened, key=lambda each: each.key)
            if best.key < until:
                break
            need = best.stage.needs[best.at]
            placements.append(self._placement(best, need, ranking))
            if account is not None:
                account(Account(placements[-1], best.key, best.score, False, best.scores))
            self._share[best.worker] -= self._part(best.demands[best.at])[best.worker]
            best.at += 1
            all_move = ranking.charge(need.job, need.holds)
            moved = [
                other for other in opened
                if all_move or other.stage.job == need.job or other.worker == best.worker
            ]  # fmt: skip
            for other in moved:
                if not self._score(other, ranking):
                    opened.remove(other)
        return placements

    def take(self, worker: int, need: Need) -> None:
        """Count work that was placed on a worker by another rule."""
        self._share[worker] -= self._part(self._demands([need])[0])[worker]

    def lacks(self, need: Need) -> dict[str, int]:
        """Return the reasons that bar a task, and from how many workers each."""
        short = self._part(self._demands([need])[0]) > self._share + _TOLERANCE
        said = {f"unreserved {_RESOURCE_NAMES[kind]}": int(short[:, i].sum()) for i, kind in enumerate(self._counts)}
        if need.allowed is not None:
            said["permission for it (its nodes, or an earlier refusal)"] = int((~need.allowed).sum())
        return {what: count for what, count in said.items() if count}

    def __len__(self) -> int:
        return len(self._share)

    # ------------------------------------------------------------ inside

    def _demands(self, needs: list[Need]) -> Floats:
        peaks = [(_cores(need), *self._peaks.of(*need.amounts[:MEMORY]), need.amounts[MEMORY]) for need in needs]
        demands: Floats = np.array(peaks, dtype=np.float64)[:, self._counts]
        return demands

    def _part(self, demand: Floats) -> Floats:
        """Return the demand as a fraction of each worker's capacity (n × counted)."""
        part: Floats = demand / self._capacity
        return part

    def _score(self, opened: _Open, ranking: Ranking) -> bool:
        """Find the worker for a stage's next task; return False where none of its tasks fits."""
        while opened.at < len(opened.demands):
            if not (self._part(opened.least[opened.at]) <= self._share + _TOLERANCE).all(axis=1).any():
                return False
            part = self._part(opened.demands[opened.at])
            allowed = opened.stage.needs[opened.at].allowed
            fits = (part <= self._share + _TOLERANCE).all(axis=1)
            if allowed is not None:
                fits = fits & allowed
            if fits.any():
                score = self._share.sum(axis=1) if self._name == "capacity" else (part * self._share).sum(axis=1)
                opened.scores = np.where(fits, score, -np.inf)
                opened.worker = int(opened.scores.argmax())
                opened.score = float(opened.scores[opened.worker])
                opened.key = ranking.key(opened.stage.job, opened.score)
                return True
            opened.at += 1
        return False

    def _placement(self, opened: _Open, need: Need, ranking: Ranking) -> Placement:
        worker, demand = opened.worker, self._part(opened.demands[opened.at])[opened.worker]
        free = self._share[worker]
        terms = ", ".join(
            f"{_RESOURCE_NAMES[kind]} {asked:.2g} of {there:.2g}"
            for kind, asked, there in zip(self._counts, demand, free, strict=True)
            if asked > 0
        )
        score = "free" if self._name == "capacity" else "peak demand · free"
        why = f"{self._name}: {score} = {opened.score:.3g} ({terms or 'nothing asked'}); {ranking.why(need.job)}"
        return Placement(opened.stage, need, worker, why)


def _cores(need: Need) -> float:
    """Return the cores of a task; a task with CPU work takes at least one."""
    return need.cores or float(need.amounts[CPU] > 0 or need.unknown_size is ResourceKind.CPU)


class _Open:
    """A stage during the round: its tasks from ``at`` on, and the worker for the first of them."""

    __slots__ = ("at", "demands", "key", "least", "score", "scores", "stage", "worker")

    def __init__(self, stage: Stage, demands: Floats) -> None:
        self.stage = stage
        self.demands = demands
        self.least: Floats = np.minimum.accumulate(demands[::-1])[::-1]  # the minimum over this task and all later ones
        self.at = 0
        self.worker = -1
        self.score = 0.0
        self.scores: Floats = np.empty(0)
        self.key: Key = ()

"""Dynamic reprovisioning (Elasecutor §III.C): who is late, what was seen of it, and what that makes of its plan.

The arithmetic stands apart from the node, so that simulated executors are corrected by the very same.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from agent.core.plans import NOTHING, Course, highest_soon, last_of_stage, most, predicted, predicted_s
from agent.core.profiling import Amounts
from agent.core.profiling import amounts as used_of
from agent.core.snapshot import ContainerUse
from penstock.model import Profile

#: Who used this much of all that it had of a resource was held back by it: what it used of the others is "obscured".
BOUNDED = 0.95
#: Who used this much of a rate may be held back by it. A forecast has 5 % of headroom, which leaves 0.952.
PINNED = 0.97
#: A share of the time in which memory kept a container waiting (PSI) that says that it has too little.
STALLED = 0.1
#: The same of processors. Whoever has as many threads as cores waits now and then with nobody beside it, too.
CROWDED = 0.5
_MEMORY = 3
#: Who waits all the time gets on all the same: what it foretells is a hundred times the time at most, so that a ρ above
#: that is never.
_WAITING = 0.99
#: Of what less than that was predicted (bytes/s of disk and sent) the scale stays, as of what nothing was: what is used
#: of it all the same says nothing of other stages.
_NEGLIGIBLE: Amounts = (0.0, float(256 << 10), float(32 << 10), 0.0)


def lateness(profile: Profile, course: Course, elapsed_s: float) -> float:
    """The time of the present stage ÷ what was predicted of it; 0 where nothing was."""
    length_s = predicted_s(profile, course.stage)
    return max(0.0, elapsed_s - course.since_s) / length_s if length_s else 0.0


def overdue_s(profile: Profile, course: Course, rho: float) -> float | None:
    """Seconds after its start at which the present stage is overdue, ρ × its time; None: never, or it was observed."""
    length_s = predicted_s(profile, course.stage)
    return None if length_s is None or course.observed else course.since_s + rho * length_s


def rescaled(
    before: Sequence[float], used: Sequence[float], predicted: Sequence[float], *, bounded: bool
) -> tuple[float, ...]:
    """Plan ÷ prediction for the remaining stages, per resource: u(i, *) ÷ p(i, *) (§III.C).

    Of what nothing was predicted the scale stays. Who was ``bounded`` is held back in all resources, and is only scaled
    up: scaled down by such a figure it would be starved for good.
    """
    scales = (use / want if want > 0 else old for old, use, want in zip(before, used, predicted, strict=True))
    return tuple(max(old, scale) if bounded else scale for old, scale in zip(before, scales, strict=True))


def bounds(use: ContainerUse, had: Amounts) -> list[int]:
    """The resources of which it used all that it had; of those that its profile names (more than nothing)."""
    return [index for index, amount in enumerate(had) if amount > 0 and used_of(use)[index] >= BOUNDED * amount]


def held_back(use: ContainerUse, had: Amounts) -> list[int]:
    """The resources that it lacks: rates that it uses up, and memory if that keeps it waiting, too."""
    return [index for index in bounds(use, had) if index != _MEMORY or use.memory_stalled > STALLED]


def crowded(use: ContainerUse) -> bool:
    """Whether others kept it waiting, whatever it had: what nobody placed here takes processors and memory, too."""
    return use.cpu_stalled > CROWDED or use.memory_stalled > STALLED


@dataclass(frozen=True, slots=True)
class _Sample:
    """Of processors and disk: what was used in ``seen_s``, what it had, and the share of the time that it waited."""

    seen_s: float
    used: tuple[float, float]
    had: tuple[float, float]
    waits: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Row:
    """Samples up to now in which ``lacks`` were used up. ``whole``: all of those that are kept."""

    seen_s: float = 0.0
    waited_s: float = 0.0
    lacks: tuple[int, ...] = ()
    whole: bool = False


@dataclass(slots=True)
class Hindrance:
    """For how long up to now an executor has used up its plan, in the mean of each ``period_s``, and for how long of
    that it waited for more; seconds.

    Who goes on like this takes ``seen_s`` ÷ (``seen_s`` - ``waited_s``) times as long as was predicted. The paper looks
    when ρ times the predicted time is over, and at half the speed half of that is lost by then.
    """

    period_s: float
    seen_s: float = 0.0
    waited_s: float = 0.0
    lacks: tuple[int, ...] = ()
    _latest: deque[_Sample] = field(default_factory=deque)

    def sampled(self, use: ContainerUse, had: Amounts, seen_s: float) -> None:
        """What was used in ``seen_s``, of what it had; 0 of what its plan does not hold back.

        The kernel says who waits for a processor or a disk (PSI, which counts what ``cpu.max`` takes, too), and of a
        network nothing. What it says may be 2 s old. Nor says one sample what was used up: ``cpu.max`` gives all of a
        quota at the beginning of each 100 ms, and whether that is in a sample of half a second or in the next one is
        16 % of it. What one misses the others have: only sums over several samples count.
        """
        used, waits = (use.cpu_cores, use.disk_bytes_per_s), (use.cpu_stalled, use.disk_stalled)
        self._latest.append(_Sample(seen_s, used, had[:2], waits))
        while sum(each.seen_s for each in self._latest) - self._latest[0].seen_s >= self.period_s:
            self._latest.popleft()
        row = self._row()
        if row.whole and row.lacks == self.lacks:
            self.seen_s += seen_s
            self.waited_s += seen_s * min(_WAITING, max(waits[index] for index in row.lacks))
        else:
            self.seen_s, self.waited_s, self.lacks = row.seen_s, row.waited_s, row.lacks

    def _row(self) -> _Row:
        """The longest of the latest samples, up to now, in which it used up something."""
        row, seen_s = _Row(), 0.0
        used, had, waited_s = [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]
        for number, each in enumerate(reversed(self._latest), start=1):
            seen_s += each.seen_s
            for index in (0, 1):
                used[index] += each.used[index] * each.seen_s
                had[index] += (each.had[index] or math.inf) * each.seen_s
                waited_s[index] += min(_WAITING, each.waits[index]) * each.seen_s
            if lacks := tuple(index for index in (0, 1) if used[index] >= PINNED * had[index]):
                row = _Row(seen_s, max(waited_s[index] for index in lacks), lacks, whole=number == len(self._latest))
        return row

    def foretells(self, rho: float) -> bool:
        """Whether its stage will be overdue, by more than half of a monitoring period."""
        return self.seen_s > self.period_s / 2 and self.seen_s > rho * (self.seen_s - self.waited_s)


@dataclass(slots=True)
class Observation:
    """One executor has all that is left of its host for a monitoring period; times are as ``now``.

    ``extra`` is what it was lent on top of its plan, ``had`` both. ``bounded``: in some sample it used up all of
    something, or was crowded out. ``lacks``: what held it back, where it was not late yet.
    """

    container: str
    began: float
    until: float
    extra: Amounts
    had: Amounts = NOTHING
    lacks: tuple[int, ...] = ()
    bounded: bool = False
    used: Amounts = NOTHING
    _seen_s: float = 0.0

    def sampled(self, use: ContainerUse, at: float, interval_s: float) -> None:
        """The means over the ``interval_s`` before ``at``. ``used`` is the highest: profiles are of peaks, too.

        A sample that lies half before the beginning says more of what it was denied than of what it wants.
        """
        seen_s = min(at, self.until) - max(at - interval_s, self.began)
        if seen_s <= 0 or seen_s < interval_s / 2:
            return
        self.used = most([self.used, used_of(use)])
        self._seen_s += seen_s
        self.bounded = self.bounded or bool(bounds(use, self.had)) or crowded(use)

    @property
    def period_s(self) -> float:
        """How long it is to last."""
        return self.until - self.began

    def seen(self) -> bool:
        """Whether samples cover enough of it to go by: half."""
        return self._seen_s >= self.period_s / 2 - 1e-9

    def over(self, now: float) -> bool:
        """It has been seen, or nobody looks: after twice its time what was lent goes back in any case."""
        return now >= self.until - 1e-9 and (self.seen() or now >= self.until + self.period_s - 1e-9)


def corrected(profile: Profile, course: Course, observed: Observation) -> Course:
    """What the rest of its life is planned with, by what was seen.

    Until the present stage ends it holds what it was seen to use: where in the stage it is nobody knows.
    """
    if not observed.seen():
        return course
    if observed.lacks:
        return _foreseen(profile, course, observed)
    used, wanted = observed.used, predicted(profile, course.stage)
    cores, disk, network, memory = rescaled(course.scale, used, _worth(wanted), bounded=observed.bounded)
    cpu, disks, sent, held_bytes = (use if want > 0 else 0.0 for use, want in zip(used, wanted, strict=True))
    held = (cpu, disks, sent, held_bytes)
    if observed.bounded:
        held = most([held, last_of_stage(profile, course)])
    scale = (cores, disk, network, memory)
    return msgspec.structs.replace(course, scale=scale, held=held, least=NOTHING, observed=True, count=course.count + 1)


def _foreseen(profile: Profile, course: Course, observed: Observation) -> Course:
    """Of one that was not late yet: what was seen is the least that the present stage holds, and the rest is scaled up
    by what of it is more than the stage, or the next one, was predicted to want at any time.

    Nothing is scaled down: what a stage does not want now it may want later. Nor is more scaled up: who only does
    earlier what was predicted for later needs no more in the stages to come, nor does who is in the next stage already
    while the news of that is on its way.
    """
    used, had = observed.used, observed.had
    if all(used[index] * BOUNDED <= had[index] - observed.extra[index] for index in observed.lacks):
        return msgspec.structs.replace(course, sated=True)
    highest = highest_soon(profile, course.stage)
    cores, disk, network, memory = rescaled(course.scale, used, _worth(highest), bounded=True)
    cpu, disks, sent, held_bytes = (use if want > 0 else 0.0 for use, want in zip(used, highest, strict=True))
    least = most([course.least, (cpu, disks, sent, held_bytes)])
    return msgspec.structs.replace(course, scale=(cores, disk, network, memory), least=least, count=course.count + 1)


def _worth(predicted: Amounts) -> Amounts:
    """0 where next to nothing was predicted."""
    cores, disk, network, memory = (
        want if want > little else 0.0 for want, little in zip(predicted, _NEGLIGIBLE, strict=True)
    )
    return (cores, disk, network, memory)

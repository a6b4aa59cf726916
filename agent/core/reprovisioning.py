"""Dynamic reprovisioning (Elasecutor §III.C): lateness, observations, and the corrections of plans.

This arithmetic is independent of the node, so that simulated executors are corrected by the same code.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from agent.core.plans import Course, highest_soon, last_of_stage, predicted, predicted_s
from agent.core.profiling import used_of
from agent.core.snapshot import ContainerUse
from penstock.model import Profile
from penstock.model.resource_vector import NOTHING, ResourceVector

#: A container that used this part of its amount was held back by it: then its use of other resources is "obscured".
BOUNDED = 0.95
#: A container that used this part of a rate may be held back by it. A forecast's 5 % of headroom leaves 0.952.
PINNED = 0.97
#: The fraction of time stalled on memory (PSI) above which a container has too little.
STALLED = 0.1
#: The same for processors. With as many threads as cores, some waiting occurs even on an otherwise idle host.
CROWDED = 0.5
_MEMORY = 3
#: The maximum fraction of time spent waiting: it bounds a predicted delay to a factor of 100, so a higher ρ is never
#: reached.
_WAITING = 0.99
#: Predictions below this (bytes/s of disk and sent) count as none, and leave the scale unchanged: actual use then tells
#: nothing about other stages.
_NEGLIGIBLE = ResourceVector(0.0, float(256 << 10), float(32 << 10), 0.0)


def lateness(profile: Profile, course: Course, elapsed_s: float) -> float:
    """Return the time of the present stage ÷ its prediction; 0 without a prediction."""
    length_s = predicted_s(profile, course.stage)
    return max(0.0, elapsed_s - course.since_s) / length_s if length_s else 0.0


def overdue_s(profile: Profile, course: Course, rho: float) -> float | None:
    """Return when the present stage is overdue (ρ × its time), in seconds after the start; None: never, or observed."""
    length_s = predicted_s(profile, course.stage)
    return None if length_s is None or course.state == "observed" else course.since_s + rho * length_s


def rescaled(
    before: Sequence[float], used: Sequence[float], predicted: Sequence[float], *, bounded: bool
) -> ResourceVector:
    """Return plan ÷ prediction for the remaining stages, per resource: u(i, *) ÷ p(i, *) (§III.C).

    Without a prediction the scale stays. A ``bounded`` executor was held back in all resources, and is only scaled up:
    scaled down by such a measurement, it would starve for good.
    """
    scales = (use / want if want > 0 else old for old, use, want in zip(before, used, predicted, strict=True))
    return ResourceVector._make(
        max(old, scale) if bounded else scale for old, scale in zip(before, scales, strict=True)
    )


def bounds(use: ContainerUse, had: ResourceVector) -> list[int]:
    """Return the resources, among those in its profile, of which it used all that it had."""
    return [index for index, amount in enumerate(had) if amount > 0 and used_of(use)[index] >= BOUNDED * amount]


def held_back(use: ContainerUse, had: ResourceVector) -> list[int]:
    """Return the resources that it lacks: rates used up, and memory if it also stalls on that."""
    return [index for index in bounds(use, had) if index != _MEMORY or use.memory_stalled > STALLED]


def crowded(use: ContainerUse) -> bool:
    """Return whether other work kept it waiting, regardless of its plan: work outside the plans uses the host, too."""
    return use.cpu_stalled > CROWDED or use.memory_stalled > STALLED


@dataclass(frozen=True, slots=True)
class _Sample:
    """Processors and disk: the use in ``seen_s``, the amounts it had, and the fraction of time it waited."""

    seen_s: float
    used: tuple[float, float]
    had: tuple[float, float]
    waits: tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Row:
    """Consecutive latest samples in which ``lacks`` were used up. ``whole``: all samples kept."""

    seen_s: float = 0.0
    waited_s: float = 0.0
    lacks: tuple[int, ...] = ()
    whole: bool = False


@dataclass(slots=True)
class Hindrance:
    """For how long an executor has been using up its plan, on average in each ``period_s``, and for how much of that it
    waited for more; in seconds.

    At this pace a stage takes ``seen_s`` ÷ (``seen_s`` − ``waited_s``) times its predicted time. The paper waits until
    ρ times the predicted time is over; at half the speed, half of that is lost by then.
    """

    period_s: float
    seen_s: float = 0.0
    waited_s: float = 0.0
    lacks: tuple[int, ...] = ()
    _latest: deque[_Sample] = field(default_factory=deque)

    def sampled(self, use: ContainerUse, had: ResourceVector, seen_s: float) -> None:
        """Add the use in ``seen_s``, and the amounts that it had; 0 for amounts that do not hold it back.

        The kernel reports waits for processors and disks (PSI, which includes time throttled by ``cpu.max``), but not
        for the network. Its figures may be 2 s old. A single sample does not show what was used up: ``cpu.max`` hands
        out the whole quota at the beginning of each 100 ms, so a sample of 0.5 s is off by 16 % depending on whether
        one of these beginnings falls into it. Sums over several samples do not have this error.
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
        """Return the longest series of latest samples in which it used up a resource."""
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
        """Return whether its stage will be overdue, by more than half of a monitoring period."""
        return self.seen_s > self.period_s / 2 and self.seen_s > rho * (self.seen_s - self.waited_s)


@dataclass(slots=True)
class Observation:
    """An executor that is lent all that is left of its host for one monitoring period; times are on the clock of
    ``now``.

    ``extra`` is lent on top of its plan, ``had`` is both. ``bounded``: in some sample it used up all of a resource, or
    other work kept it waiting. ``lacks``: the resources that held it back, if it was not late yet.
    """

    container: str
    began: float
    until: float
    extra: ResourceVector
    had: ResourceVector = NOTHING
    lacks: tuple[int, ...] = ()
    bounded: bool = False
    used: ResourceVector = NOTHING
    _seen_s: float = 0.0

    def sampled(self, use: ContainerUse, at: float, interval_s: float) -> None:
        """Add the means over the ``interval_s`` before ``at``. ``used`` is the maximum, because profiles are of peaks,
        too.

        A sample that lies half before the beginning shows the old limits rather than the demand.
        """
        seen_s = min(at, self.until) - max(at - interval_s, self.began)
        if seen_s <= 0 or seen_s < interval_s / 2:
            return
        self.used = ResourceVector.highest([self.used, used_of(use)])
        self._seen_s += seen_s
        self.bounded = self.bounded or bool(bounds(use, self.had)) or crowded(use)

    @property
    def period_s(self) -> float:
        """The intended duration."""
        return self.until - self.began

    def seen(self) -> bool:
        """Return whether samples cover enough of it to be used: half."""
        return self._seen_s >= self.period_s / 2 - 1e-9

    def over(self, now: float) -> bool:
        """Return whether it is complete, or has passed twice its time without samples: then the loan ends anyway."""
        return now >= self.until - 1e-9 and (self.seen() or now >= self.until + self.period_s - 1e-9)


def corrected(profile: Profile, course: Course, observed: Observation) -> Course:
    """Return the corrected course for the rest of its life.

    Until the present stage ends, it holds the observed use, because its place within the stage is unknown.
    """
    if not observed.seen():
        return course
    if observed.lacks:
        return _corrected_early(profile, course, observed)
    used, wanted = observed.used, predicted(profile, course.stage)
    scale = rescaled(course.scale, used, _worth(wanted), bounded=observed.bounded)
    held = ResourceVector._make(use if want > 0 else 0.0 for use, want in zip(used, wanted, strict=True))
    if observed.bounded:
        held = ResourceVector.highest([held, last_of_stage(profile, course)])
    return course.after("corrected", scale=scale, held=held, least=NOTHING, count=course.count + 1)


def _corrected_early(profile: Profile, course: Course, observed: Observation) -> Course:
    """Correct an executor that is not late yet: the observed use is the minimum for the present stage, and later stages
    are scaled up by the excess over the highest prediction for this stage and the next.

    Nothing is scaled down: a stage may need later what it does not need now. The scale grows by no more, because an
    executor that merely does early what was predicted for later needs no more in later stages, and neither does one
    that is already in the next stage before the report of that has arrived.
    """
    used, had = observed.used, observed.had
    if all(used[index] * BOUNDED <= had[index] - observed.extra[index] for index in observed.lacks):
        return course.after("wants no more")
    highest = highest_soon(profile, course.stage)
    scale = rescaled(course.scale, used, _worth(highest), bounded=True)
    seen = ResourceVector._make(use if want > 0 else 0.0 for use, want in zip(used, highest, strict=True))
    least = ResourceVector.highest([course.least, seen])
    return course.after("corrected", scale=scale, least=least, count=course.count + 1)


def _worth(predicted: ResourceVector) -> ResourceVector:
    """Return the predictions, with 0 for negligible ones."""
    return ResourceVector._make(
        want if want > little else 0.0 for want, little in zip(predicted, _NEGLIGIBLE, strict=True)
    )

"""The resources that executors are planned to hold over time, and their progress on the profile (Elasecutor §III.B).

Amounts are 0 for the resources that a profile does not name.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import msgspec
import numpy as np
import numpy.typing as npt

from agent.core import life_cycles
from penstock.model import Profile
from penstock.model.life_cycle import next_state
from penstock.model.resource_vector import NOTHING, RESOURCES, ResourceVector

Floats = npt.NDArray[np.float64]
_UNSCALED = ResourceVector(1.0, 1.0, 1.0, 1.0)  # factors
#: Boundaries closer than this part of a slot are the same; they differ by rounding only.
_SAME = 1e-6


@dataclass(frozen=True, slots=True)
class Plan:
    """Amounts held slot by slot; ``elapsed_s`` of the first slot have passed.

    The last slot's amounts hold for ever: an executor that is predicted to end has ``NOTHING`` in it.
    """

    slot_s: float
    elapsed_s: float
    amounts: tuple[ResourceVector, ...]

    def slot(self, after_s: float) -> int:
        """Return the slot at this many seconds from now, at most the last one."""
        passed = (self.elapsed_s + after_s) / self.slot_s + _SAME
        return max(0, int(min(passed, len(self.amounts) - 1)))

    def advanced(self, passed_s: float) -> Plan:
        """Return the plan as it is ``passed_s`` seconds later."""
        slot = self.slot(passed_s)
        elapsed_s = max(0.0, self.elapsed_s + passed_s - slot * self.slot_s)
        return Plan(self.slot_s, elapsed_s, self.amounts[slot:])

    def highest(self, begin_s: float, end_s: float) -> ResourceVector:
        """Return the maximum of each resource in the slots that overlap this time, both ends included."""
        return ResourceVector.highest(self.amounts[self.slot(begin_s) : self.slot(end_s) + 1])

    def steps_s(self) -> list[float]:
        """Return the seconds from now to each boundary at which the amounts change."""
        return [
            number * self.slot_s - self.elapsed_s
            for number, (before, after) in enumerate(pairwise(self.amounts), start=1)
            if before != after
        ]

    def held(self) -> Held:
        """Return the plan as an array."""
        return Held(self.slot_s, self.elapsed_s, np.array(self.amounts))

    def within(self, other: Plan) -> Plan:
        """Return the smaller amounts of this plan and another one of the same slots."""
        each = zip(self.amounts, other.amounts, strict=True)
        return Plan(self.slot_s, self.elapsed_s, tuple(ResourceVector._make(map(min, *both)) for both in each))

    def with_extra(self, extra: ResourceVector, for_s: float) -> Plan:
        """Return a plan with ``extra`` in the slots of the next ``for_s`` seconds, except after a predicted end."""
        last = self.slot(for_s * (1 - _SAME))
        raised = (
            amounts.plus(extra) if slot <= last and amounts != NOTHING else amounts
            for slot, amounts in enumerate(self.amounts)
        )
        return Plan(self.slot_s, self.elapsed_s, tuple(raised))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A plan as an array, slots × resources, for sums over many plans."""

    slot_s: float
    elapsed_s: float
    rows: Floats

    def highest(self, begins_s: Floats, ends_s: Floats) -> Floats:
        """Return :meth:`Plan.highest` for many times."""
        last = len(self.rows) - 1
        first = np.clip((self.elapsed_s + begins_s) / self.slot_s + _SAME, 0, last).astype(np.intp)
        until = np.clip((self.elapsed_s + ends_s) / self.slot_s + _SAME, 0, last).astype(np.intp)
        found: Floats = self.rows[first]
        for step in range(1, int((until - first).max(initial=0)) + 1):
            found = np.maximum(found, self.rows[np.minimum(first + step, until)])
        return found


@dataclass(frozen=True, slots=True)
class Room:
    """The resources available to one executor: the ``whole`` minus those that ``others`` hold; infinite if the capacity
    is unknown. Times are seconds from now.
    """

    whole: ResourceVector
    others: list[Held]

    def free(self, begin_s: float, end_s: float) -> ResourceVector:
        """Return the amounts free throughout this time."""
        return ResourceVector._make(self._free(np.array([begin_s]), np.array([end_s]))[0].tolist())

    def allows(self, plan: Plan) -> Plan:
        """Return the part of a plan that there is room for, slot by slot and resource by resource."""
        begins_s = plan.slot_s * np.arange(len(plan.amounts), dtype=np.float64) - plan.elapsed_s
        ends_s: Floats = begins_s + plan.slot_s * (1 - 2 * _SAME)
        wanted = np.array(plan.amounts)
        free = self._free(np.maximum(0.0, begins_s), ends_s)
        if (wanted <= free).all():
            return plan
        amounts = tuple(map(ResourceVector._make, np.minimum(wanted, free).tolist()))
        return Plan(plan.slot_s, plan.elapsed_s, amounts)

    def _free(self, begins_s: Floats, ends_s: Floats) -> Floats:
        free = np.tile(np.array(self.whole), (len(begins_s), 1))
        for held in self.others:
            free -= held.highest(begins_s, ends_s)
        least: Floats = np.maximum(free, 0.0)
        return least


class Course(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An executor's progress and the results of its observations; seconds are since its start.

    ``before`` is the number of its job's stages that had ended when it started, ``stage`` the number that ended since,
    and ``since_s`` the start of the present stage. ``scale`` multiplies the rest of the profile; ``held`` replaces the
    demand of the present stage after an observation (§III.C). ``least`` is a lower bound on the present stage's demand,
    from an observation before the stage was late. ``count`` is the total number of its reprovisionings. ``state``
    changes by :meth:`after`.
    """

    before: int = 0
    stage: int = 0
    since_s: float = 0.0
    scale: ResourceVector = _UNSCALED
    held: ResourceVector | None = None
    least: ResourceVector = NOTHING
    count: int = 0
    state: life_cycles.ExecutorState = "on plan"

    @property
    def as_admitted(self) -> Course:
        """The progress without the results of observations."""
        return Course(before=self.before, stage=self.stage, since_s=self.since_s)

    def next_stage(self, stage: int, now_s: float) -> Course:
        """Return the progress after ``stage`` stages have ended."""
        state = next_state(life_cycles.EXECUTOR, self.state, "stage ended")
        return Course(before=self.before, stage=stage, since_s=now_s, scale=self.scale, count=self.count, state=state)

    def after(self, event: life_cycles.ExecutorEvent, **found: object) -> Course:
        """Return the progress after an event in the present stage, with what was ``found``. Raises: TransitionError."""
        return msgspec.structs.replace(self, state=next_state(life_cycles.EXECUTOR, self.state, event), **found)


def demand(profile: Profile, slot: int) -> ResourceVector:
    """Return the demand in one slot; after a resource's last value, that value holds."""
    named = profile.demand(slot)
    return ResourceVector._make(float(named.get(name, 0)) for name in RESOURCES)


def unnamed(profile: Profile, promise: ResourceVector) -> ResourceVector:
    """Return the part of a promise for the resources that a profile does not name."""
    each = zip(RESOURCES, promise, strict=True)
    return ResourceVector._make(0.0 if getattr(profile, name) else amount for name, amount in each)


@lru_cache(maxsize=256)
def _demands(profile: Profile) -> tuple[ResourceVector, ...]:
    """Return the demands of all slots up to the end of the last stage."""
    return tuple(demand(profile, slot) for slot in range(ends_of(profile)[-1]))


def ends_of(profile: Profile) -> tuple[int, ...]:
    """Return the slots at whose end stages end; the last one is the end of the profile."""
    ends = profile.stages
    return ends if ends and ends[-1] >= profile.slots else (*ends, profile.slots)


def timeless(profile: Profile) -> bool:
    """Return whether the profile has no time in it: a reservation of the peak, of any duration (§IV.C)."""
    return ends_of(profile) == (1,)


def predicted_s(profile: Profile, stage: int) -> float | None:
    """Return a stage's predicted time; None: there is no prediction."""
    ends = ends_of(profile)
    if timeless(profile) or stage >= len(ends):
        return None
    return (ends[stage] - _begin(ends, stage)) * profile.slot_s


def predicted(profile: Profile, stage: int) -> ResourceVector:
    """Return a stage's mean demand, p(i, *) of §III.C: the place of a late executor within its stage is unknown."""
    ends = ends_of(profile)
    slots = range(_begin(ends, stage), ends[stage])
    sums = [sum(column) for column in zip(*(demand(profile, slot) for slot in slots), strict=True)]
    return ResourceVector._make(total / len(slots) for total in sums)


def highest_soon(profile: Profile, stage: int) -> ResourceVector:
    """Return the highest predicted demand for each resource in a stage and the next one."""
    ends = ends_of(profile)
    return ResourceVector.highest(_demands(profile)[_begin(ends, stage) : ends[min(stage + 1, len(ends) - 1)]])


def last_of_stage(profile: Profile, course: Course) -> ResourceVector:
    """Return the demand in the last slot of the present stage."""
    ends = ends_of(profile)
    return _scaled(course, demand(profile, ends[min(course.stage, len(ends) - 1)] - 1))


def ahead(profile: Profile, course: Course, elapsed_s: float) -> Plan:
    """Return an executor's demand from now on, ``elapsed_s`` after its start.

    A stage that takes longer than predicted keeps the demand of its last slot until its end is reported, and the next
    one begins there. The report takes time, so in the first late slot the next stage's first demand counts, too. The
    executor is predicted to end at the end of the profile.
    """
    ends = ends_of(profile)
    if timeless(profile):
        return Plan(profile.slot_s, elapsed_s % profile.slot_s, (_scaled(course, demand(profile, 0)),))
    in_stage_s = max(0.0, elapsed_s - course.since_s)
    late = slot = int(in_stage_s / profile.slot_s + _SAME)
    slot_s = profile.slot_s
    begin = _begin(ends, course.stage)
    last = ends[course.stage] - 1 if course.stage < len(ends) else begin
    late -= last - begin
    rest = _demands(profile)[min(begin + slot, last) :] or _demands(profile)[-1:]  # `or`: it outlives its profile
    amounts = [_scaled(course, amounts) for amounts in rest] if course.scale != _UNSCALED else list(rest)
    if course.least != NOTHING:
        of_stage = max(1, last + 1 - (begin + slot))
        amounts[:of_stage] = [ResourceVector.highest([amounts, course.least]) for amounts in amounts[:of_stage]]
    if late >= 1 and course.held is not None:
        amounts[0] = course.held
    elif late == 1 and len(amounts) > 1:
        amounts[0] = ResourceVector.highest(amounts[:2])
    return Plan(slot_s, max(0.0, in_stage_s - slot * slot_s), (*amounts, NOTHING))


def extend_at_s(profile: Profile, course: Course, elapsed_s: float) -> float | None:
    """Return when, in seconds after the start, a plan made now must be renewed, unless a stage ends before."""
    if timeless(profile):
        return None
    length = predicted_s(profile, course.stage) or 0.0
    late = int((elapsed_s - course.since_s) / profile.slot_s + _SAME)
    return course.since_s + max(length, (late + 1) * profile.slot_s)


def _begin(ends: tuple[int, ...], stage: int) -> int:
    return ends[min(stage, len(ends)) - 1] if stage else 0


def _scaled(course: Course, amounts: ResourceVector) -> ResourceVector:
    return ResourceVector._make(amount * scale for amount, scale in zip(amounts, course.scale, strict=True))

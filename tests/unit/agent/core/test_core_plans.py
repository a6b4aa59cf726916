"""Plans over time, and where on its profile an executor is."""

from __future__ import annotations

import math

from agent.core.plans import Course, Plan, Room, ahead, ends_of, extend_at_s, predicted, predicted_s, timeless
from penstock.model import Profile
from penstock.model.resource_vector import NOTHING, ResourceVector

#: Stages of two, one and two slots.
PROFILE = Profile(slot_s=3.0, cpu_cores=(1.0, 2.0, 3.0, 4.0, 5.0), stages=(2, 3, 5))


def cores(*amounts: float) -> tuple[ResourceVector, ...]:
    return tuple(map(ResourceVector, amounts))


def of(plan: Plan) -> list[float]:
    return [amounts[0] for amounts in plan.amounts]


def test_time_passes_slot_by_slot_and_the_last_one_stays() -> None:
    plan = Plan(3.0, 1.0, cores(1, 2, 3))
    assert plan.advanced(1.0) == Plan(3.0, 2.0, cores(1, 2, 3))
    assert plan.advanced(2.0) == Plan(3.0, 0.0, cores(2, 3))
    assert plan.advanced(100.0).amounts == cores(3)
    assert plan.advanced(2.0 - 1e-6) == Plan(3.0, 0.0, cores(2, 3)), "a boundary missed by a rounding is passed"


def test_steps_are_where_something_changes() -> None:
    assert Plan(3.0, 1.0, cores(1, 1, 2, 2, 1)).steps_s() == [5.0, 11.0]


def test_plans_of_others_are_not_free() -> None:
    others = [Plan(3.0, 0.0, cores(6, 2)), Plan(2.0, 1.0, cores(1, 4))]
    room = Room(ResourceVector(8.0, math.inf, 0.0, 0.0), [plan.held() for plan in others])
    assert room.free(0.0, 0.9)[:2] == (1.0, math.inf)
    assert room.free(0.0, 2.0)[0] == 0.0  # 6 and 4: at some time within
    assert room.free(3.0, 9.0)[0] == 2.0
    wanted = Plan(3.0, 0.0, cores(5, 5, 5))
    assert of(room.allows(wanted)) == [0.0, 2.0, 2.0]
    assert Room(ResourceVector(100.0, 0.0, 0.0, 0.0), room.others).allows(wanted) is wanted


def test_what_others_hold_from_the_end_of_a_slot_on_is_there_within_it() -> None:
    room = Room(ResourceVector(8.0, 0.0, 0.0, 0.0), [Plan(3.0, 1.0, cores(2, 6)).held()])
    wanted = Plan(3.0, 1.0, cores(6, 2))
    assert room.allows(wanted) is wanted


def test_extra_is_for_a_time_and_not_behind_the_end() -> None:
    plan = Plan(3.0, 2.0, (*cores(1, 1, 1), NOTHING))
    assert of(plan.with_extra(ResourceVector(5.0), 3.0)) == [6, 6, 1, 0]
    assert of(plan.with_extra(ResourceVector(5.0), 4.0)) == [6, 6, 1, 0]
    assert of(plan.with_extra(ResourceVector(5.0), 60.0)) == [6, 6, 6, 0]


# ---------------------------------------------------------------- stages


def test_a_late_executor_keeps_the_last_slot_of_the_stage_and_the_next_begins_behind_it() -> None:
    late = ahead(PROFILE, Course(), 6.5)
    assert of(late) == [3, 3, 4, 5, 0]  # the news of the end may be under way: the first demand of the next counts, too
    assert late.elapsed_s == 0.5
    assert of(ahead(PROFILE, Course(), 9.5)) == [2, 3, 4, 5, 0]
    assert of(ahead(PROFILE, Course(), 60.0)) == [2, 3, 4, 5, 0]


def test_a_plan_is_made_anew_at_the_end_of_the_stage_and_then_with_every_slot() -> None:
    assert extend_at_s(PROFILE, Course(), 0.0) == 6.0
    assert extend_at_s(PROFILE, Course(), 6.0) == 9.0
    assert extend_at_s(PROFILE, Course(), 10.0) == 12.0
    assert extend_at_s(PROFILE, Course().next_stage(1, 7.0), 7.0) == 10.0


def test_what_is_held_since_it_was_seen_holds_until_the_stage_ends_and_the_scale_for_the_rest() -> None:
    seen = Course(scale=ResourceVector(2.0, 1.0, 1.0, 1.0), held=ResourceVector(7.0, 0.0, 0.0, 0.0), state="observed")
    assert of(ahead(PROFILE, seen, 7.0)) == [7, 6, 8, 10, 0]
    assert of(ahead(PROFILE, seen.next_stage(1, 7.0), 7.0)) == [6, 8, 10, 0]


def test_without_stages_the_whole_is_one() -> None:
    profile = Profile(slot_s=2.0, memory_bytes=(1, 2, 3))
    assert ends_of(profile) == (3,)
    assert predicted_s(profile, 0) == 6.0
    assert predicted_s(profile, 1) is None
    assert ends_of(Profile(cpu_cores=(1.0, 1.0), stages=(1,))) == (1, 2)
    assert ends_of(Profile(cpu_cores=(1.0,), stages=(1, 4))) == (1, 4)


def test_one_slot_is_a_reservation_without_a_time() -> None:
    profile = Profile(slot_s=3.0, cpu_cores=(4.0,))
    assert timeless(profile)
    assert predicted_s(profile, 0) is None
    assert extend_at_s(profile, Course(), 50.0) is None
    assert ahead(profile, Course(), 50.0) == Plan(3.0, 2.0, cores(4))


def test_the_mean_of_a_stage_is_its_prediction() -> None:
    assert predicted(PROFILE, 0)[0] == 1.5
    assert predicted(PROFILE, 2)[0] == 4.5

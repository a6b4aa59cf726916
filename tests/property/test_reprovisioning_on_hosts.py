"""Reprovisioning on a model of a host, over random applications and random truths."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core.plans import Course, ahead, ends_of, highest_soon
from agent.core.reprovisioning import Observation, corrected
from agent.core.snapshot import ContainerUse
from bench.reprovisioning import Host, Stage, profile_of, takes_s, wider
from penstock.model import Profile
from penstock.model.resource_vector import ResourceVector

NEVER = 1e9
cores = st.sampled_from([0.5, 1.0, 1.5, 2.0, 3.0])
seconds = st.integers(9, 40).map(float)
applications = st.lists(
    st.builds(lambda threads, long_s: Stage(threads * long_s, threads), cores, seconds), min_size=1, max_size=4
)


@settings(max_examples=20)
@given(stages=applications)
def test_twice_the_input_takes_at_most_1_15_times_as_long_as_with_exact_limits(stages: list[Stage]) -> None:
    truth = wider(stages)
    exact_s = takes_s(truth, profile_of(truth), NEVER)
    assert takes_s(truth, profile_of(stages)) <= 1.15 * exact_s


@settings(max_examples=15)
@given(stages=applications)
def test_an_executor_that_follows_its_prediction_is_never_observed(stages: list[Stage]) -> None:
    host = Host(news_s=0.5)  # a stage of 9 s without news for a second has taken 1.1 times its time
    host.start(stages, profile_of(stages))
    host.until_ended()
    assert not host.explained


@settings(max_examples=10)
@given(first=applications, second=applications, whole=st.sampled_from([6.0, 8.0, 12.0]))
def test_two_on_one_host_never_hold_more_than_it_has(first: list[Stage], second: list[Stage], whole: float) -> None:
    host = Host(cores=whole)
    for stages in (first, second):
        host.start(wider(stages), profile_of(stages))
    while any(one.ended_at == math.inf for one in host.running):
        host.step()
        held = [plan.amounts[0][0] for plan in host.node.elasticity.plans(host.now).values()]
        assert sum(held) <= whole + 1e-9


amounts = st.floats(0.1, 8.0)


@st.composite
def profiles(draw: st.DrawFn) -> Profile:
    slots = draw(st.lists(amounts, min_size=2, max_size=8))
    ends = sorted(draw(st.sets(st.integers(1, len(slots)), min_size=1, max_size=3)) | {len(slots)})
    return Profile(slot_s=3.0, cpu_cores=tuple(slots), memory_bytes=(100,), stages=tuple(ends))


@given(profile=profiles(), seen=st.lists(amounts, min_size=3, max_size=3), data=st.data())
def test_before_it_is_late_a_plan_only_rises_and_no_further_than_was_seen(
    profile: Profile, seen: list[float], data: st.DataObject
) -> None:
    stage = data.draw(st.integers(0, len(ends_of(profile)) - 1))
    before = Course().next_stage(stage, 50.0)
    had = data.draw(amounts)
    watched = Observation(
        "c", 60.0, 63.0, ResourceVector(9.0), ResourceVector(had + 9.0, memory_bytes=100.0), lacks=(0,)
    )
    for number, used in enumerate(seen):
        watched.sampled(ContainerUse(cpu_cores=used, memory_bytes=90), 61.0 + number, 1.0)
    after = corrected(profile, before, watched)
    now, then = ahead(profile, before, 51.0), ahead(profile, after, 51.0)
    for slot, (was, amount) in enumerate(zip(now.amounts, then.amounts, strict=True)):
        assert amount[0] >= was[0]
        assert amount[3] >= was[3]
        most = max(max(seen), was[0] * max(1.0, max(seen) / highest_soon(profile, stage)[0]))
        assert amount[0] <= most + 1e-9, f"slot {slot}"
    assert then.amounts[-1] == now.amounts[-1], "its end is where it was"

"""Reprovisioning (Elasecutor §III.C): the arithmetic, and executors on a model of a host."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from msgspec import structs

from agent.core.plans import Course
from agent.core.reprovisioning import (
    Hindrance,
    Observation,
    bounds,
    corrected,
    held_back,
    lateness,
    overdue_s,
    rescaled,
)
from agent.core.snapshot import ContainerUse
from bench.reprovisioning import Host, Stage, longer, profile_of, takes_s, wider
from penstock.model import Profile
from penstock.model.resource_vector import ResourceVector

PROFILE = Profile(slot_s=3.0, cpu_cores=(2.0, 4.0, 1.0), memory_bytes=(100,), stages=(2, 3))
STAGES = [Stage(60, 2.0), Stage(18, 1.0), Stage(90, 3.0), Stage(10.5, 0.5), Stage(60, 2.0), Stage(24, 1.0)]
NEVER = 1e9


def test_an_executor_that_was_held_back_is_only_scaled_up() -> None:
    assert rescaled((1, 1.5, 1, 1), (4, 1, 3, 2), (2, 2, 0, 4), bounded=True) == (2, 1.5, 1, 1)


def test_a_stage_is_overdue_after_rho_times_its_time_once() -> None:
    assert overdue_s(PROFILE, Course(), 1.1) == pytest.approx(6.6)
    assert overdue_s(PROFILE, Course().next_stage(1, 10.0), 1.1) == pytest.approx(13.3)
    assert overdue_s(PROFILE, Course(state="observed"), 1.1) is None
    assert overdue_s(PROFILE, Course().next_stage(2, 10.0), 1.1) is None
    assert lateness(PROFILE, Course(), 12.0) == 2.0
    assert lateness(PROFILE, Course().next_stage(2, 10.0), 50.0) == 0.0


def test_the_resource_that_it_used_up_bounds_it() -> None:
    use = ContainerUse(cpu_cores=1.95, memory_bytes=99, disk_bytes_per_s=7.0)
    assert bounds(use, (2.0, 0.0, 5.0, 100.0)) == [0, 3]
    assert held_back(use, (2.0, 0.0, 5.0, 100.0)) == [0]  # memory that keeps nobody waiting is not short
    assert held_back(structs.replace(use, memory_stalled=0.5), (2.0, 0.0, 5.0, 100.0)) == [0, 3]


def observe(*samples: float, at: float = 101.0, lacks: tuple[int, ...] = (), **more: float) -> Observation:
    """Let it be lent 6 cores and so have 8, of which it uses so many, second by second; ``more`` is used, too."""
    seen = Observation("c", 100.0, 103.0, ResourceVector(6.0), ResourceVector(8.0, memory_bytes=100.0), lacks=lacks)
    for number, cores in enumerate(samples):
        seen.sampled(ContainerUse(cpu_cores=cores, memory_bytes=50, **more), at + number, 1.0)
    return seen


def test_the_highest_of_the_samples_within_the_period_counts() -> None:
    seen = observe(4.0, 6.0, 3.0, 99.0)
    assert (seen.used[0], seen.bounded) == (6.0, False)
    assert observe(99.0, 2.0, 2.0, at=100.4).used[0] == 2.0  # more than half of that sample lies before


def test_an_executor_that_is_late_because_others_have_the_processors_is_not_scaled_down() -> None:
    course = Course(state="observed")
    for seen in (observe(1.0, 1.0, 1.0, cpu_stalled=0.8), observe(1.0, 1.0, 1.0, memory_stalled=0.3)):
        assert corrected(PROFILE, course, seen).scale == (1.0, 1.0, 1.0, 1.0)
    assert corrected(PROFILE, course, observe(1.0, 1.0, 1.0)).scale[0] < 1.0


def test_it_ends_when_it_was_seen_and_in_any_case_after_twice_its_time() -> None:
    assert not observe(1.0, 1.0).over(102.9)
    assert observe(1.0, 1.0).over(103.0)
    assert not observe(1.0).over(103.0)
    assert observe(1.0).over(106.0)
    assert corrected(PROFILE, Course(state="observed"), observe(1.0)) == Course(state="observed")


def test_the_present_stage_holds_the_observed_use_and_the_rest_is_scaled() -> None:
    course = corrected(PROFILE, Course(state="observed"), observe(6.0, 6.0, 6.0))
    assert course.held == (6.0, 0.0, 0.0, 50.0)
    assert course.scale == (2.0, 1.0, 1.0, 0.5)  # 6 of a stage's mean of 3 cores
    assert course.count == 1
    bounded = corrected(PROFILE, Course(state="observed"), observe(8.0, 8.0, 8.0))
    assert bounded.held == (8.0, 0.0, 0.0, 100.0)
    assert bounded.scale == (8 / 3, 1.0, 1.0, 1.0)


def hindered(*samples: tuple[float, float], had: float = 2.0) -> Hindrance:
    seen = Hindrance(3.0)
    for cores, waited in samples:
        seen.sampled(ContainerUse(cpu_cores=cores, cpu_stalled=waited), ResourceVector(had), 1.0)
    return seen


def test_an_executor_that_uses_up_its_plan_and_waits_for_more_will_be_late() -> None:
    assert hindered((2.0, 0.5), (1.96, 0.5)).foretells(1.1)
    assert not hindered((2.0, 0.5)).foretells(1.1), "one sample is less than half of a monitoring period"
    assert not hindered((2.0, 0.09), (2.0, 0.09)).foretells(1.1), "a tenth longer it does not take"
    assert hindered((2.0, 0.1), (2.0, 0.1)).foretells(1.1)
    assert hindered((2.0, 0.0), (2.0, 1.0)).foretells(1.1), "the kernel's figures of pressure may be 2 s old"
    assert not hindered((2.0, 0.9), (1.8, 0.9), (2.0, 0.9)).foretells(1.1), "on the whole it did not use it up"
    assert hindered((2.0, 0.9), (1.9, 0.9), (2.0, 0.9)).foretells(1.1), "on the whole it did"
    assert not hindered(*[(2.0, 0.9)] * 4, (1.0, 0.0), (2.0, 0.9)).foretells(1.1), "that was before"
    assert not hindered(*[(2.0, 0.0)] * 10, (2.0, 0.9)).foretells(1.1), "all of the row counts: news may be late"
    assert not hindered((2.0, 0.9), (2.0, 0.9), had=0.0).foretells(1.1), "it is not held back by its plan"
    disk = Hindrance(3.0)
    for _ in range(2):
        disk.sampled(ContainerUse(disk_bytes_per_s=10e6, disk_stalled=0.6), (2.0, 10e6, 0.0, 0.0), 1.0)
    assert (disk.lacks, disk.foretells(1.1)) == ((1,), True)


def observed_after_s(plan: float, sample_s: float, late_s: float, seed: int, waits: float = 1.0) -> float:
    """A thread under ``cpu.max``: it gets its quota at the beginning of each 100 ms. Looks come late, at random."""
    rng, seen, period_s = random.Random(seed), Hindrance(3.0), 0.1
    began = before = due = 10 + rng.random() * period_s

    def used_s(at: float) -> float:
        periods, passed_s = divmod(at, period_s)
        return periods * plan * period_s + min(passed_s, plan * period_s)

    while before < began + 60:
        due += sample_s
        at = due + rng.random() * late_s
        cores = (used_s(at) - used_s(before)) / (at - before)
        seen.sampled(ContainerUse(cpu_cores=cores, cpu_stalled=waits * (1 - cores)), ResourceVector(plan), at - before)
        before = at
        if seen.foretells(1.1):
            return at - began
    return math.inf


@pytest.mark.parametrize(("plan", "sample_s"), [(0.2, 0.5), (0.2, 1.0), (0.525, 0.5), (0.9, 0.5), (0.05, 1.0)])
def test_late_samples_do_not_hide_an_executor_that_is_held_back(plan: float, sample_s: float) -> None:
    """Each may be off by 16 % of a plan; after a monitoring period and a sample chance plays no part."""
    worst = max(observed_after_s(plan, sample_s, late_s, seed) for late_s in (0.05, 0.1) for seed in range(25))
    assert worst <= 3.0 + 2 * (sample_s + 0.1)
    assert observed_after_s(plan, sample_s, 0.1, 0, waits=0.09) == math.inf, "it hardly waits"


def foreseen(*samples: float) -> Course:
    return corrected(PROFILE, Course(), observe(*samples, lacks=(0,)))


def test_before_it_is_late_only_use_above_the_maximum_of_a_stage_scales_the_rest() -> None:
    more = foreseen(8.0, 7.0, 6.0)  # the stage was predicted to want four at most
    assert (more.scale, more.least, more.count) == ((2.0, 1.0, 1.0, 1.0), (8.0, 0.0, 0.0, 50.0), 1)
    earlier = foreseen(3.5, 3.5, 3.5)  # in its first slot it does the work predicted for the second
    assert (earlier.scale, earlier.least) == ((1.0, 1.0, 1.0, 1.0), (3.5, 0.0, 0.0, 50.0))
    assert more.state == "on plan", "at rho times its time it is observed as any other"
    assert more.next_stage(1, 9.0) == Course(stage=1, since_s=9.0, scale=(2.0, 1.0, 1.0, 1.0), count=1)


def test_an_executor_that_wants_no_more_than_it_had_is_not_observed_again_in_this_stage() -> None:
    assert foreseen(2.0, 2.1, 2.0) == Course(state="sated")
    assert foreseen(2.0) == Course(), "its use was not measured"


def test_with_almost_no_prediction_the_scale_stays() -> None:
    predicted = Profile(slot_s=3.0, cpu_cores=(2.0, 2.0), disk_bytes_per_s=(1, 20_000_000), stages=(1, 2))
    for lacks in ((), (1,)):
        seen = Observation("c", 100.0, 103.0, ResourceVector(6.0, 9e6), ResourceVector(8.0, 9e6), lacks=lacks)
        for number in range(3):
            seen.sampled(ContainerUse(cpu_cores=2.0, disk_bytes_per_s=8e6), 101.0 + number, 1.0)
        course = corrected(predicted, Course(), seen)
        assert course.scale == (1.0, 1.0, 1.0, 1.0)
        assert (course.held or course.least)[1] == 8e6, "but the stage gets it"


# ---------------------------------------------------------------- on a model host


def test_on_time_nothing_is_corrected_and_each_change_is_one_write() -> None:
    host = Host()
    one = host.start(STAGES, profile_of(STAGES))
    host.until_ended()
    assert one.ended_at == pytest.approx(takes_s(STAGES, profile_of(STAGES), NEVER))
    assert not host.explained
    assert host.writes <= 2 * len(STAGES)


def test_one_stage_alone_keeps_to_that_too_with_its_reason() -> None:
    host = Host()
    one = host.start(wider(STAGES[:1]), profile_of(STAGES[:1]))
    host.until_ended()
    assert one.ended_at <= 1.15 * 30.0
    assert [said.what for said in host.explained] == ["observed", "reprovisioned"]
    assert host.explained[0].facts["why"] == (
        "stage 0 has used up cpu_cores for 2.0 s and waited for 1.0 s of them (ρ 1.1)"
    )
    assert host.explained[1].facts["scale"] == {
        "cpu_cores": 2.0, "disk_bytes_per_s": 1.0, "network_bytes_per_s": 1.0, "memory_bytes": 1.0,
    }  # fmt: skip


def test_an_executor_that_requested_no_more_than_its_plan_is_not_held_back_by_it() -> None:
    host = Host()
    one = host.start(wider(STAGES[:1]), profile_of(STAGES[:1]), asked_cores=2.0)
    while host.now < 30.0:
        host.step()
    assert not host.explained
    assert one.limit == 2.0


def test_it_is_observed_once_a_stage_and_the_executor_and_reason_are_reported() -> None:
    host = Host()
    host.start(longer(STAGES), profile_of(STAGES))
    host.until_ended()
    said = [one.what for one in host.explained]
    assert said == ["observed", "reprovisioned"] * len(STAGES)
    first, then = host.explained[0].facts, host.explained[1].facts
    assert first["why"] == "stage 0 has taken 1.10 of its time (ρ 1.1)"
    assert first["lent"] == {"cpu_cores": 6.0}
    assert then["used"] == {"cpu_cores": 2.0}
    assert host.node.elasticity.plans(host.now) == {}


def test_one_at_a_time_and_loans_come_back() -> None:
    host = Host(cores=12.0)
    for _ in range(3):
        host.start(wider(STAGES), profile_of(STAGES))
    while any(one.ended_at == math.inf for one in host.running):
        host.step()
        held = [plan.amounts[0][0] for plan in host.node.elasticity.plans(host.now).values()]
        assert sum(held) <= 12.0 + 1e-9
        if len(host.explained) % 2 == 0:  # no executor is observed
            assert max(held, default=0.0) <= 6.0 + 1e-9, "more than any of them ever wants"
    said = [one.what for one in host.explained]
    assert said == ["observed", "reprovisioned"] * (len(said) // 2)
    assert len(said) >= 6


def test_on_a_full_host_an_executor_that_is_held_back_and_late_is_stuck() -> None:
    host = Host(cores=4.0)
    flat = [Stage(60.0, 2.0)]
    late = host.start([Stage(120.0, 4.0)], profile_of(flat))
    host.start([Stage(600.0, 2.0)], Profile(slot_s=3.0, cpu_cores=(2.0,)))  # reserves its peak
    while host.now < 35.0:
        host.step()
    behind, stuck = host.node.elasticity.lateness(late.container)
    assert stuck
    assert behind == pytest.approx(34.0 / 30.0, abs=0.04)
    assert not host.explained, "nothing is left to lend"
    host.until_ended()
    assert late.ended_at == pytest.approx(60.0, abs=0.5)
    assert host.node.elasticity.lateness(late.container) == (0.0, False)


def test_an_early_end_of_a_stage_takes_the_plan_on() -> None:
    host = Host(news_s=0.5)
    short = [replace(STAGES[0], work=12.0), *STAGES[1:]]
    one = host.start(short, profile_of(STAGES))
    host.until_ended()
    assert one.ended_at == pytest.approx(takes_s(short, profile_of(short), NEVER), rel=0.02)


@pytest.mark.parametrize("early", [0.0, 8.0], ids=["on time", "early"])
def test_late_news_does_not_inflate_the_next_stages(early: float) -> None:
    predicted = profile_of([Stage(30, 1.0), Stage(120, 4.0), Stage(60, 2.0)])
    host = Host(news_s=5.0)
    host.start([Stage(30 - early, 1.0), Stage(120, 4.0), Stage(60, 2.0)], predicted)
    while host.running[0].ended_at == math.inf:
        host.step()
        scales = [one.record.course.scale[0] for one in host.node.elasticity._following.values()]
        assert all(scale <= 1.0 for scale in scales), host.now

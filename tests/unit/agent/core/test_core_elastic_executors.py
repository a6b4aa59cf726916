"""The kernel settings of an executor: floors, bounds, sizing, memory by observed use, and no write without a change."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from agent.core import events as e
from agent.core import instructions as i
from agent.core.confinement import Confinement
from agent.core.memory_levels import with_margin
from agent.core.plans import Course
from agent.core.rank_weights import unpromised_weight
from agent.core.records import ContainerRecord
from agent.core.snapshot import ContainerUse
from penstock.model import Executor, KindAmounts, Limits, Profile, Sizing
from penstock.model.resource_vector import NOTHING
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Resize
from penstock.wire.errors import RpcError
from penstock.wire.master_api import TellStages
from tests.fakes.node_bed import GIB, MIB, NodeBed

#: The capacity of the host.
RATES = {"disk_bytes_per_s": 100 * MIB, "link_bytes_per_s": 100 * MIB}
FOUR = Profile(
    cpu_cores=(1.0, 2.0),
    memory_bytes=(GIB, 2 * GIB),
    disk_bytes_per_s=(20 * MIB,),
    network_bytes_per_s=(10 * MIB,),
    stages=(1, 2),
)


class Bed(NodeBed):
    """A node with one executor that runs, and a kernel that keeps its settings."""

    def __init__(
        self, profile: Profile, *, sizing: Sizing = Sizing.HARD, rates: dict[str, int] = RATES, **spec: Any
    ) -> None:
        super().__init__(**{**RATES, **rates})
        self.now = 100.0
        self.assign("a", profile, sizing, **spec)
        (self.container,) = self.node.containers.live
        self.begin(self.container)

    @property
    def record(self) -> ContainerRecord:
        return self.node.containers.live[self.container]

    def assign(self, task: str, profile: Profile, sizing: Sizing = Sizing.HARD, **spec: Any) -> None:
        executor = Executor(application="sort", sizing=sizing)
        self.command(task, spec=spec, usage=KindAmounts(), executor=executor, profile=profile)

    def take_limits(self) -> list[Confinement]:
        """Return the limits since the last call."""
        done, self.done = self.done, []
        return [one.confinement for one in done if isinstance(one, i.Confine) and one.container == self.container]

    def until(self, time: float, use: ContainerUse | None = None) -> None:
        """Wake when it asked to, and look once a second."""
        while self.now < time:
            due = self.node.elasticity.due(self.now)
            look = int(self.now) + 1.0
            self.now = min(look, time) if due is None else min(look, time, max(due, self.now))
            if due is not None and self.now >= due:
                self.send(e.Woken(self.now))
            if self.now == look:
                self.look(use or ContainerUse(memory_bytes=100 * MIB))

    def look(self, use: ContainerUse) -> None:
        self.sampled({self.container: use})

    def stages(self, ended: int) -> None:
        self.decide(TellStages(job=self.JOB, ended=ended))
        self.send(e.Woken(self.now))


def test_a_long_flat_profile_is_one_write() -> None:
    bed = Bed(Profile(cpu_cores=(1.0,) * 200, disk_bytes_per_s=(5 * MIB,)))
    bed.until(100.0 + 590.0)
    assert len(bed.take_limits()) == 1


def test_hard_limits_and_guarantees_follow_ahead_of_a_rise_and_after_a_fall() -> None:
    bed = Bed(msgspec.structs.replace(FOUR, cpu_cores=(1.0, 3.0, 2.0), stages=()))
    (first,) = bed.take_limits()
    assert first == Confinement(
        cpu_cores=1.0, cpu_weight=100, memory_low_bytes=GIB, disk_weight=1000, disk_read_bytes_per_s=20 * MIB,
        disk_write_bytes_per_s=20 * MIB, network_rate_bytes_per_s=10 * MIB, network_egress_bytes_per_s=10 * MIB,
    )  # fmt: skip
    bed.until(102.5)
    (seen,) = bed.take_limits()
    assert seen == replace(first, memory_high_bytes=GIB)  # since a sample has seen it
    bed.until(102.71)
    (rises,) = bed.take_limits()
    assert (rises.cpu_cores, rises.cpu_weight, rises.memory_high_bytes, rises.memory_low_bytes) == (
        3.0, 300, 2 * GIB, 2 * GIB,
    )  # fmt: skip
    bed.until(106.2)
    assert bed.take_limits() == []
    bed.until(106.31)
    (falls,) = bed.take_limits()
    assert (falls.cpu_cores, falls.cpu_weight) == (2.0, 200)


def test_shared_sizing_moves_guarantees_and_leaves_limits_alone() -> None:
    bed = Bed(msgspec.structs.replace(FOUR, stages=()), sizing=Sizing.SHARED, limits=Limits(cpu_cores=3.5))
    bed.until(104.0)
    told = bed.take_limits()
    assert told[-1].cpu_weight == 200 + unpromised_weight(4.0, 2.0), "its promise, and all that is not promised"
    assert sorted({one.memory_low_bytes for one in told}) == [GIB, 2 * GIB]
    assert {one.network_rate_bytes_per_s for one in told} == {10 * MIB}
    for one in told:
        assert (one.cpu_cores, one.memory_high_bytes, one.disk_read_bytes_per_s, one.network_egress_bytes_per_s) == (
            3.5, None, None, None,
        )  # fmt: skip


@pytest.mark.parametrize(("sizing", "early"), [(Sizing.HARD, True), (Sizing.SHARED, False)])
def test_only_a_plan_that_is_a_limit_is_observed_before_a_stage_is_late(sizing: Sizing, early: bool) -> None:
    """An executor that shares idle resources waits for them beside others, and may still have all that its plan has."""
    bed = Bed(Profile(cpu_cores=(1.0,) * 20, memory_bytes=(GIB,), stages=(20,)), sizing=sizing)

    def observed() -> bool:
        return any(isinstance(one, i.Explain) and one.what == "observed" for one in bed.done)

    waits = ContainerUse(cpu_cores=1.0, cpu_stalled=0.8, memory_bytes=100 * MIB)
    bed.until(130.0, waits)
    assert observed() is early
    bed.until(100.0 + 1.1 * 60 + 1, waits)
    assert observed(), "it is late"


@pytest.mark.parametrize(("link", "asked", "promised"), [(100 * MIB, 0, 10 * MIB), (0, 0, 0), (0, 5 * MIB, 5 * MIB)])
def test_of_a_link_of_unknown_rate_a_part_is_promised_only_on_request(link: int, asked: int, promised: int) -> None:
    """Else the kernel refuses, again and again, a promise without a request: an executor that uses only loopback."""
    bed = Bed(FOUR, rates={"link_bytes_per_s": link}, network_bytes_per_s=asked)
    bed.until(103.0)
    told = bed.take_limits()
    assert {one.network_rate_bytes_per_s for one in told} == {promised}
    assert {one.network_egress_bytes_per_s for one in told} == {10 * MIB}, "a limit needs no rate of the link"


def test_the_limit_that_its_user_sets_binds() -> None:
    bound = Limits(cpu_cores=0.5, memory_max_bytes=3 * GIB, disk_read_bytes_per_s=5 * MIB)
    bed = Bed(FOUR, limits=bound)
    bed.until(102.0)
    told = bed.take_limits()[-1]
    assert (told.cpu_cores, told.memory_max_bytes, told.memory_high_bytes) == (0.5, 3 * GIB, GIB)
    assert (told.disk_read_bytes_per_s, told.disk_write_bytes_per_s) == (5 * MIB, 20 * MIB)


def test_a_tiny_fall_is_not_worth_a_write_and_any_rise_is() -> None:
    bed = Bed(Profile(cpu_cores=(1.0, 0.96, 0.94, 0.95)))
    bed.until(108.5)
    assert [one.cpu_cores for one in bed.take_limits()] == [1.0, 0.94]
    bed.until(111.0)
    assert [one.cpu_cores for one in bed.take_limits()] == [0.95]


@pytest.mark.parametrize(
    ("disk", "link", "least"),
    [(100 * MIB, 40 * MIB, (5 * MIB, 2 * MIB)), (2 * MIB, 0, (2 * MIB // 20, 128 << 10)), (0, 0, (MIB, 128 << 10))],
)
def test_nothing_is_limited_to_nothing(disk: int, link: int, least: tuple[int, int]) -> None:
    rates = {"disk_bytes_per_s": disk, "link_bytes_per_s": link}
    bed = Bed(Profile(cpu_cores=(0.001,), disk_bytes_per_s=(1,), network_bytes_per_s=(1,)), rates=rates)
    (told,) = bed.take_limits()
    assert (told.cpu_cores, told.disk_read_bytes_per_s, told.network_egress_bytes_per_s) == (0.05, *least)


@pytest.fixture
def bed() -> Bed:
    return Bed(FOUR)


def used(memory_bytes: int, cache_bytes: int, stalled: float = 0.0) -> ContainerUse:
    return ContainerUse(
        memory_bytes=memory_bytes,
        memory_cache_bytes=cache_bytes,
        memory_unreclaimable_bytes=memory_bytes - cache_bytes,
        memory_stalled=stalled,
    )


def test_memory_is_not_limited_below_the_part_that_cannot_be_reclaimed(bed: Bed) -> None:
    bed.now = 101.0
    held = used(3 * GIB // 2, MIB)
    bed.look(held)
    assert bed.take_limits()[-1].memory_high_bytes == int(with_margin(1.5 * GIB - MIB))
    bed.look(held)
    assert bed.take_limits() == []


def test_an_executor_that_stalls_for_memory_gets_more_as_far_as_there_is_room() -> None:
    bed = Bed(Profile(memory_bytes=(GIB,)))
    bed.now = 101.0
    bed.look(used(GIB // 2, GIB // 4))
    assert bed.take_limits()[-1].memory_high_bytes == GIB
    bed.look(used(GIB, 3 * GIB // 4, stalled=0.5))
    assert bed.take_limits()[-1].memory_high_bytes == int(with_margin(GIB))
    bed.assign("b", Profile(memory_bytes=(5 * GIB // 2,)))
    bed.look(used(3 * GIB // 2, GIB, stalled=0.5))
    assert bed.take_limits()[-1].memory_high_bytes == 3 * GIB // 2  # of 4 GiB, b has 2.5


def test_the_end_of_a_stage_moves_the_limits_at_once(bed: Bed) -> None:
    bed.take_limits()
    bed.now = 101.0
    bed.stages(1)
    assert [one.cpu_cores for one in bed.take_limits()] == [2.0]
    assert bed.record.course == Course(stage=1, since_s=1.0)
    bed.stages(1)  # a repetition
    assert bed.record.course == Course(stage=1, since_s=1.0)


def test_a_profile_without_stages_knows_none() -> None:
    bed = Bed(msgspec.structs.replace(FOUR, stages=()))
    bed.stages(1)
    assert bed.record.course == Course()
    assert bed.record.limits.cpu_cores == 1.0


def test_stages_that_ended_before_an_executor_began_are_not_its_own(bed: Bed) -> None:
    bed.stages(1)
    bed.assign("b", Profile(cpu_cores=(1.0, 0.5), stages=(1, 2)))
    later = next(one for one in bed.node.containers.live.values() if one.container != bed.container)
    assert later.course == Course(before=1)
    bed.now = 101.0
    bed.stages(2)
    assert later.course == Course(before=1, stage=1, since_s=1.0)


def test_an_executor_that_outlives_its_profile_keeps_its_last_slot(bed: Bed) -> None:
    bed.stages(2)
    bed.take_limits()
    bed.until(130.0)
    assert bed.record.limits.cpu_cores == 2.0
    version = bed.node.elasticity.version
    plan = bed.node.elasticity.plans(bed.now)[bed.container]
    assert plan.amounts == ((2.0, 20.0 * MIB, 10.0 * MIB, 2.0 * GIB), NOTHING)
    bed.until(134.0)
    assert bed.node.elasticity.version > version  # its end is somewhere else now


def test_the_plan_ends_where_the_profile_does_and_time_changes_nothing_about_it(bed: Bed) -> None:
    version = bed.node.elasticity.version
    bed.until(102.0)
    plan = bed.node.elasticity.plans(bed.now)[bed.container]
    assert (plan.elapsed_s, len(plan.amounts), plan.amounts[-1]) == (2.0, 3, NOTHING)
    assert bed.node.elasticity.version == version


def test_a_late_executor_is_planned_around_the_holdings_of_others() -> None:
    """Its second slot falls into one in which the other has most of the host."""
    bed = Bed(Profile(cpu_cores=(3.0, 1.0), stages=(1, 2)))
    bed.assign("b", Profile(cpu_cores=(1.0, 3.0, 3.0), stages=(3,)))
    bed.until(104.0)
    plans = bed.node.elasticity.plans(bed.now)
    assert plans[bed.container].amounts[0][0] == 1.0  # the other's 3 of 4 were there before
    assert bed.record.limits.cpu_cores == 1.0


def test_no_other_request_changes_its_limits(bed: Bed) -> None:
    bed.open()
    with pytest.raises(RpcError, match="is an executor"):
        bed.send(e.Requested(m.RESIZE, 1, Resize(container=bed.container, limits={"cpu_cores": 1.0})))
    with pytest.raises(RpcError, match="is an executor"):
        bed.send(e.FollowRequested(1, bed.container, None, 0.0))


def test_a_restarted_agent_goes_on_in_the_stage_that_it_was_in(bed: Bed) -> None:
    bed.now = 101.0
    bed.stages(1)
    bed.restart(bed.container, after_s=2.0, now=7.0)  # another boot's clock
    assert bed.take_limits()[-1].memory_high_bytes is None  # it may hold more than its plan: the next sample shows it
    plan = bed.node.elasticity.plans(bed.now)[bed.container]
    assert (plan.amounts[0][0], plan.elapsed_s) == (2.0, 2.0)


def test_a_smaller_rho_wakes_the_node_when_the_stage_is_late_by_that() -> None:
    bed = Bed(FOUR)
    bed.done.clear()
    bed.send(e.Reconfigured(dataclasses.replace(bed.node.settings, reprovision_rho=0.5), bed.now))
    assert [one.at for one in bed.done if isinstance(one, i.Wake)] == [bed.node.elasticity.due(bed.now)] == [101.5]

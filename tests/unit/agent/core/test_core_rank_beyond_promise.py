"""Containers with promised cores that may use more: use beyond their promise goes by the rank of their job."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core.confinement import DISK_WEIGHT, WEIGHT_PER_CORE, Confinement
from agent.core.rank_weights import STEP, nice_of, unpromised_weight
from agent.core.snapshot import ContainerUse
from penstock.model import Executor, Limits, Profile, Sizing
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Resize
from tests.unit.agent.core.ranks_bed import Bed, told_order

QUARTER = round(0.25 * WEIGHT_PER_CORE)


def settings(bed: Bed, container: str) -> Confinement:
    """Return the kernel settings of a running container; a weight of 0 if it has not changed since the start."""
    told = bed.node.containers.live[container].confine().confinement
    assert bed.weights[container] in {0, told.cpu_weight}
    return told


def executor(bed: Bed, task: str, job: str, *, profile: Profile | None = None, sizing: Sizing = Sizing.SHARED) -> str:
    """Start an executor of a quarter of a core, which no limit holds back but its profile's."""
    spec = {"cpu_cores": 0.25, "memory_bytes": 1000}
    said = Executor(application="sort", sizing=sizing)
    refused = bed.command(task, spec=spec, job=job, memory_bytes=1000, executor=said, profile=profile)
    assert refused == []
    container = bed.container(task, job)
    bed.begin(container, next(bed.pids))
    bed.used_s[container] = 0.0
    return container


@pytest.mark.parametrize(
    ("spec", "ranked"),
    [
        ({"cpu_cores": 0.5}, True),
        ({"cpu_cores": 0.5, "limits": Limits(cpu_cores=2.0)}, True),
        ({"cpu_cores": 0.5, "limits": Limits(cpu_cores=0.5)}, False),
        ({"cpu_cores": 0.5, "limits": Limits(cpu_cores=0.54)}, False),
        ({"cpu_cores": 0.01, "limits": Limits(cpu_cores=0.05)}, False),
        ({"cpu_cores": 0.5, "opportunistic": True}, False),
    ],
)
def test_whether_a_promise_is_the_most_that_it_may_use_decides_whether_it_is_ranked(
    bed: Bed, spec: dict[str, Any], ranked: bool
) -> None:
    container = bed.launch(**spec)
    bed.sample()
    assert (container in bed.node.ranks.standings) is ranked
    record = bed.node.containers.live[container]
    assert (bed.node.ranks.described(record) is not None) is ranked
    if not ranked and not record.opportunistic:
        assert settings(bed, container).cpu_weight == round(WEIGHT_PER_CORE * record.promised_cores)


def test_each_weighs_its_promise_and_the_remainder_goes_by_rank(bed: Bed) -> None:
    first, second = bed.launch(cpu_cores=0.25), bed.launch(cpu_cores=0.25)
    bed.sample()
    beyond = [settings(bed, each).cpu_weight - QUARTER for each in (first, second)]
    assert sum(beyond) == unpromised_weight(2.0, 0.5)
    assert beyond[0] / beyond[1] == pytest.approx(STEP, rel=0.2)
    bed.used_s[first] = 10.0
    bed.sample()
    assert [settings(bed, each).cpu_weight - QUARTER for each in (second, first)] == beyond


def test_no_promise_weighs_less_than_its_cores_among_all(bed: Bed) -> None:
    """With any others that compute, a container has at least its promised part of the processors."""
    promises = {bed.launch(cpu_cores=cores): cores for cores in (0.25, 0.5, 0.25)}
    promises[bed.launch(cpu_cores=0.5, limits=Limits(cpu_cores=0.5))] = 0.5
    for _ in range(10):
        bed.launch()
    bed.sample()
    weights = {container: settings(bed, container).cpu_weight for container in bed.node.containers.live}
    for container, cores in promises.items():
        assert weights[container] / sum(weights.values()) >= 0.99 * cores / 2


def test_on_disks_on_the_network_and_by_nice_values_they_are_as_the_first(bed: Bed) -> None:
    containers = [bed.launch(cpu_cores=0.25) for _ in range(3)]
    bed.sample()
    for container in containers:
        told = settings(bed, container)
        assert (told.disk_weight, told.rank, bed.nice[container]) == (DISK_WEIGHT, 0, nice_of(0, 3))
    before = len(bed.done)
    bed.sample()
    assert len(bed.done) == before, "nothing has changed"


def test_a_limit_that_moves_takes_it_in_and_out_of_the_ranks(bed: Bed) -> None:
    moving, other = bed.launch(cpu_cores=0.5), bed.launch()
    bed.sample()
    for cores, ranked in ((0.5, False), (1.5, True), (0.5, False)):
        bed.send(e.Requested(m.RESIZE, bed.eve, Resize(container=moving, limits={"cpu_cores": cores})))
        bed.sample(**{other: 0.001})
        assert (moving in bed.node.ranks.standings) is ranked
        assert (settings(bed, moving).cpu_weight > WEIGHT_PER_CORE // 2) is ranked


def test_executors_are_in_the_master_s_order_and_those_of_a_job_have_one_rank() -> None:
    bed = Bed(has_master=True)
    one, two, other = executor(bed, "1", "a"), executor(bed, "2", "a"), executor(bed, "1", "b")
    for jobs in (["a", "b"], ["b", "a"]):
        told_order(bed, jobs)
        beyond = {each: settings(bed, each).cpu_weight - QUARTER for each in (one, two, other)}
        assert {job: bed.node.ranks.standings[job].rank for job in jobs} == {jobs[0]: 0, jobs[1]: 1}
        assert beyond[one] == beyond[two]
        of_first, of_second = (beyond[one] + beyond[two], beyond[other])[:: 1 if jobs[0] == "a" else -1]
        assert of_first > 0.8 * STEP * of_second
    bed.sample(**{one: 7.0, two: 4.0, other: 1.0})
    assert {use.job: use.service_s for use in bed.node.load(bed.now).jobs} == {"a": 11.0, "b": 1.0}


def test_its_profile_moves_its_promise_and_a_limit_that_follows_it_leaves_nothing_to_rank() -> None:
    bed = Bed(has_master=True)
    profile = Profile(slot_s=100.0, cpu_cores=(0.5, 1.0))
    shared = executor(bed, "1", "a", profile=profile)
    hard = executor(bed, "1", "b", profile=profile, sizing=Sizing.HARD)
    bed.sample()
    assert (settings(bed, hard).cpu_cores, settings(bed, hard).cpu_weight) == (0.5, WEIGHT_PER_CORE // 2)
    assert settings(bed, shared).cpu_weight == WEIGHT_PER_CORE // 2 + unpromised_weight(2.0, 1.0)
    bed.sample(100.0)
    bed.sample(**{shared: 0.001})
    assert settings(bed, hard).cpu_weight == WEIGHT_PER_CORE
    assert settings(bed, shared).cpu_weight == WEIGHT_PER_CORE + unpromised_weight(2.0, 2.0)


def test_a_job_weighs_as_much_as_its_containers_together_and_the_next_one_gets_a_part_of_its_rank() -> None:
    bed = Bed(has_master=True)
    containers = [executor(bed, str(number), "a") for number in range(2)]
    bed.sample()
    weights = [settings(bed, each).cpu_weight for each in containers]
    described = bed.node.ranks.described_job("a")
    assert described is not None and described.weight == sum(weights)
    assert [bed.said(each).weight for each in containers] == weights
    before = sum(weights)
    third = executor(bed, "3", "a")
    started = bed.node.containers.live[third]
    assert started.rank_weight == (before - 2 * QUARTER) // 3


def test_the_next_agent_gives_the_kernel_the_same() -> None:
    bed = Bed(has_master=True)
    one, other = executor(bed, "1", "a"), executor(bed, "1", "b")
    bed.sample()
    before = {each: settings(bed, each).cpu_weight for each in (one, other)}
    bed.weights.clear()
    bed.restart(one, other)
    bed.sampled({one: ContainerUse(cpu_seconds=1.0), other: ContainerUse(cpu_seconds=1.0)})
    assert {each: settings(bed, each).cpu_weight for each in (one, other)} == before

"""The kernel settings of a rank: a weight, and a nice value where there is no cpu controller."""

from __future__ import annotations

import msgspec
import pytest

from agent.core import events as e
from agent.core.confinement import WEIGHT_PER_CORE
from agent.core.instructions import Confine, Renice
from agent.core.rank_weights import STEP, divide, nice_of, unpromised_weight
from penstock.model import Executor, Limits, Profile, Sizing
from penstock.wire.master_api import SetPriority
from tests.unit.agent.core.ranks_bed import Bed


def test_neighbours_are_a_factor_apart_and_together_they_weigh_the_whole() -> None:
    weights = divide(200_000, [1, 1, 1, 1])
    assert weights[1] / weights[2] == pytest.approx(STEP, rel=0.02) and weights[2] / weights[3] == pytest.approx(
        STEP, rel=0.02
    )
    assert sum(weights) == 200_000
    assert divide(100, [1] * 10) == [86, 6, *[1] * 8]


def test_nice_values_order_jobs_and_keep_their_share_of_the_host() -> None:
    for jobs in (1, 2, 3, 5, 9):
        values = [nice_of(rank, jobs) for rank in range(jobs)]
        assert values == sorted(values) and values[-1] <= 15
        together = sum(1.25**-value for value in values)
        assert together == pytest.approx(jobs, rel=0.15), values
    assert [nice_of(rank, 3) for rank in range(4)] == [-5, 7, 15, 15]
    assert nice_of(0, 1000) == -10


def test_each_container_weighs_something_however_many_there_are() -> None:
    assert divide(10, [3, 40]) == [3, 40]
    assert divide(10, []) == []


def test_nothing_is_written_while_the_order_is_the_same(bed: Bed) -> None:
    containers = [bed.launch() for _ in range(5)]
    bed.sample()
    before, bed.weights = dict(bed.weights), {}
    bed.sample(seconds=1.0)
    assert not bed.weights
    assert set(before) == set(containers)


def test_a_command_that_is_alone_has_its_weight_from_the_start(bed: Bed) -> None:
    container = bed.launch()
    bed.sample()
    assert not bed.given(Confine)
    assert bed.nice == {container: 0}
    assert bed.weights[container] == unpromised_weight(2, 0)


def test_the_containers_of_a_job_share_its_weight_by_their_requests(bed: Bed) -> None:
    one, two, other = bed.launch(), bed.launch(limits=Limits(cpu_weight=30)), bed.launch()
    job = bed.register(bed.connect(one))
    bed.register(bed.connect(two), job=job)
    bed.sample()
    assert bed.weights[two] / bed.weights[one] == pytest.approx(3, rel=0.05)
    assert (bed.weights[one] + bed.weights[two]) / bed.weights[other] == pytest.approx(STEP, rel=0.1)


def test_a_promise_weighs_as_before_and_leaves_the_ranked_less(bed: Bed) -> None:
    promised = bed.launch(cpu_cores=0.5, limits=Limits(cpu_cores=0.5))
    ranked = [bed.launch() for _ in range(10)]
    bed.sample()
    assert bed.node.containers.live[promised].confine().confinement.cpu_weight == WEIGHT_PER_CORE // 2
    assert sum(bed.weights[each] for each in ranked) <= WEIGHT_PER_CORE * 3 // 2
    assert promised not in bed.node.ranks.standings


def test_a_promise_that_begins_in_a_ranked_job_leaves_the_ranked_less_at_once() -> None:
    bed = Bed(has_master=True)
    bed.command("ranked")
    bed.begin(bed.container("ranked"))
    bed.command("promised", spec={"cpu_cores": 1.5, "limits": Limits(cpu_cores=1.5)})
    assert bed.weights[bed.container("ranked")] == unpromised_weight(2.0, 1.5)


def test_a_guarantee_that_rises_leaves_the_ranked_less_at_once() -> None:
    bed = Bed(has_master=True)
    ranked = bed.launch()
    executor = Executor(application="sort", sizing=Sizing.HARD)
    bed.command("executor", executor=executor, profile=Profile(slot_s=3.0, cpu_cores=(0.5, 1.5)))
    bed.begin(bed.container("executor"))
    assert bed.weights[ranked] == unpromised_weight(2.0, 0.5)
    bed.now += 3.0
    bed.send(e.Woken(bed.wall_s))
    assert bed.record("executor").promised_cores == 1.5
    assert bed.weights[ranked] == unpromised_weight(2.0, 1.5)


def test_no_container_of_a_new_job_keeps_the_weight_that_it_starts_with() -> None:
    """All of the node's: its job is ranked while the second is still starting."""
    bed = Bed(has_master=True)
    first = bed.launch()
    bed.decide(SetPriority(job=bed.register(bed.connect(first)), priority=1.0))
    bed.command("one")
    bed.command("two")
    for task in ("one", "two"):
        bed.begin(bed.container(task))
    assert bed.weights[first] == unpromised_weight(2.0, 0.0) - 12
    assert [bed.weights[bed.container(task)] for task in ("one", "two")] == [6, 6]


def test_after_a_restart_the_kernel_gets_it_again(bed: Bed) -> None:
    """The nice values that an earlier agent has set are not in the journal."""
    containers = [bed.launch() for _ in range(3)]
    bed.sample()
    records = [msgspec.structs.replace(bed.node.containers.live[each], nice=0) for each in containers]
    again = Bed()
    running = {record.container: record.pid for record in records}
    again.send(e.Recovered([], [], records, running, frozenset(), again.now))
    again.used_s = dict.fromkeys(containers, 0.0)
    again.sample()
    assert again.nice == {each: nice_of(rank, 3) for rank, each in enumerate(containers)}
    assert again.order() == containers


# ---------------------------------------------------------------- where no cpu controller weighs


def test_opportunistic_work_is_below_every_rank_by_its_policy_and_its_nice_value(bed: Bed) -> None:
    slack = bed.launch(opportunistic=True)
    for _ in range(5):
        bed.launch()
    bed.sample()
    (told,) = (each for each in bed.done if isinstance(each, Renice) and each.container == slack)
    assert told.opportunistic
    ranked = [each for each in bed.done if isinstance(each, Renice) and each != told]
    assert told.nice > max(each.nice for each in ranked) and {each.opportunistic for each in ranked} == {None}


@pytest.mark.parametrize("limits", [Limits(), Limits(cpu_cores=0.5)])
def test_a_promise_has_the_nice_value_of_the_first(bed: Bed, limits: Limits) -> None:
    promised = bed.launch(cpu_cores=0.5, limits=limits)
    for _ in range(10):
        bed.launch()
    bed.sample()
    assert bed.nice[promised] == nice_of(0, 10) == min(bed.nice.values())


def test_on_a_host_of_many_cores_no_weight_exceeds_the_kernel_s_maximum() -> None:
    bed = Bed(cores=256)
    container = bed.launch()
    assert bed.node.containers.live[container].confine().confinement.cpu_weight == 10_000
    assert bed.said(container).weight == 10_000

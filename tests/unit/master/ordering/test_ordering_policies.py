"""Each ordering by hand."""

from __future__ import annotations

import math
from typing import Any

import pytest

from master.ordering import (
    NAMES,
    ClusterView,
    Guarantee,
    JobView,
    Multilevel,
    OrderingSettings,
    Ranking,
    StageView,
    guarantees_first,
    ordering_of,
)
from master.ordering.las_mq import service
from master.ordering.srjf import priority_score
from penstock.model.resource_vector import SlotVector

TEN = ClusterView(now=100.0, capacity=SlotVector(10.0, 10.0, 10.0, 1000.0), containers=10.0)
ONE = SlotVector(1.0, memory_bytes=10.0)


def job(name: str, **values: Any) -> JobView:
    return JobView(name, sequence=sum(map(ord, name)), **values)


def rank(name: str, *jobs: JobView, cluster: ClusterView = TEN, **settings: Any) -> Ranking:
    return ordering_of(OrderingSettings(name, **settings)).rank(jobs, cluster)


def filled(ranking: Ranking, *jobs: JobView, count: int, taken: tuple[float, ...] = ONE) -> dict[str, int]:
    """Return how many containers of ``count`` each job gets, one after the other for the first in order."""
    given = {each.job: 0 for each in jobs}
    for _ in range(count):
        first = max(given, key=lambda name: ranking.key(name, 0.0))
        ranking.charge(first, taken)
        given[first] += 1
    return given


def test_every_ordering_gives_reasons_and_orders_all() -> None:
    jobs = [job("a", submitted_at=2.0, tenant="x/y"), job("b", submitted_at=1.0), job("c", submitted_at=3.0)]
    for name in NAMES:
        ranking = rank(name, *jobs)
        assert sorted(ranking.order()) == ["a", "b", "c"]
        assert all(ranking.why(each.job).startswith(name) for each in jobs)
        assert len({ranking.key(each.job, 1.0) for each in jobs}) == 3 or name == "srjf"
        assert ranking.key("a", 2.0) > ranking.key("a", 1.0), "within a job the better score goes first"


def test_an_unknown_ordering_is_reported() -> None:
    with pytest.raises(ValueError, match="'best' is none of fifo, fair"):
        ordering_of(OrderingSettings("best"))


def test_no_jobs_are_no_failure() -> None:
    for name in NAMES:
        assert rank(name).order() == []


def test_fifo_is_strict_and_ejf_is_not() -> None:
    old, young = job("old", submitted_at=98.0), job("young", submitted_at=99.0)
    fifo, ejf = rank("fifo", young, old), rank("ejf", young, old)
    assert fifo.order() == ejf.order() == ["old", "young"]
    assert fifo.key("old", 0.0) > fifo.key("young", 4.0)
    assert ejf.key("old", 0.0) < ejf.key("young", 1.5)
    assert ejf.key("old", 1.0) > ejf.key("young", 1.5)


# ---------------------------------------------------------------- srjf


def test_the_priority_score_is_the_inverse_of_the_load_that_goes_with_the_job() -> None:
    # L = (4, 2): (2L − R)·R = (8 − 1)·1 + (4 − 1)·1 = 10 of L·L = 20; |L|² − |L − R|² = 20 − (9 + 1) = 10
    assert priority_score((1, 1), (4, 2)) == pytest.approx(2.0)
    assert priority_score((4, 2), (4, 2)) == pytest.approx(1.0), "all of the load"
    assert priority_score((0, 0), (4, 2)) == 1e6


def test_a_heavily_demanded_kind_weighs_more() -> None:
    cpu, network = job("cpu", remaining=(2.0, 0.0, 0.0)), job("network", remaining=(0.0, 0.0, 2.0))
    many = job("others", remaining=(50.0, 0.0, 1.0))
    assert rank("srjf", cpu, network, many).order() == ["network", "cpu", "others"]


def test_the_default_weight_orders_jobs_that_differ_by_a_fifth_however_they_fit() -> None:
    small, large = job("small", remaining=(5.0, 0, 0)), job("large", remaining=(6.0, 0, 0))
    ranking = rank("srjf", large, small)
    assert ranking.order() == ["small", "large"]
    assert ranking.key("small", 0.0) > ranking.key("large", 4.0)
    assert ranking.key("small", 0.0) < ranking.key("large", 1e9), "a plan that is whole still goes first"


def test_a_job_without_reports_is_taken_for_a_mean_one() -> None:
    jobs = [job("large", remaining=(9.0, 0, 0)), job("small", remaining=(1.0, 0, 0)), job("who", needs=math.inf)]
    assert rank("srjf", *jobs).order() == ["small", "who", "large"]
    recurring = job("who", needs=math.inf, remaining=(0.5, 0, 0))
    assert rank("srjf", *jobs[:2], recurring).order()[0] == "who", "of this one something is remembered"


# ---------------------------------------------------------------- fair, las, drf


def test_fair_fills_by_weight() -> None:
    a, b = job("a", weight=3.0), job("b", weight=1.0)
    assert filled(rank("fair", a, b), a, b, count=8) == {"a": 6, "b": 2}
    held = job("a", containers=5)
    b = job("b", containers=1)
    assert filled(rank("fair", held, b), held, b, count=4) == {"a": 0, "b": 4}
    assert rank("fair", held, b).room("b") == 4.0


def test_fair_takes_turns_by_service() -> None:
    fair = ordering_of(OrderingSettings("fair"))
    assert fair.rank([job("a", service=50.0), job("b", service=0.0)], TEN).order() == ["a", "b"], "none since it came"
    assert fair.rank([job("a", service=55.0), job("b", service=1.0)], TEN).order() == ["b", "a"]
    assert fair.rank([job("a", service=55.0), job("b", service=8.0)], TEN).order() == ["a", "b"]
    late = fair.rank([job("a", service=55.0), job("b", service=8.0), job("c", service=0.0)], TEN).order()
    assert late.index("c") < late.index("b"), "a newcomer is level with the job of the least service"


def test_las_serves_the_job_with_the_least_service() -> None:
    a, b = job("a", service=10.0), job("b", service=7.0)
    ranking = rank("las", a, b)
    assert ranking.order() == ["b", "a"]
    assert filled(ranking, a, b, count=5) == {"a": 1, "b": 4}


def test_drf_as_in_its_paper() -> None:
    """9 cores, 18 GB; tasks of A <1 core, 4 GB>, of B <3 cores, 1 GB>: three of A, two of B (Ghodsi et al., Fig. 3)."""
    cluster = ClusterView(capacity=SlotVector(9.0, 0.0, 0.0, 18.0), containers=9.0)
    a, b = job("a"), job("b")
    ranking = rank("drf", a, b, cluster=cluster)
    given = {"a": 0, "b": 0}
    asks = {"a": SlotVector(1.0, memory_bytes=4.0), "b": SlotVector(3.0, memory_bytes=1.0)}
    for _ in range(5):
        first = max(given, key=lambda name: ranking.key(name, 0.0))
        ranking.charge(first, asks[first])
        given[first] += 1
    assert given == {"a": 3, "b": 2}


def test_drf_is_hierarchical_and_weighted() -> None:
    jobs = [job("r1", tenant="research/eve"), job("r2", tenant="research/bob"), job("p", tenant="production")]
    assert filled(rank("drf", *jobs), *jobs, count=8) == {"r1": 2, "r2": 2, "p": 4}
    weighted = rank("drf", *jobs, weights={"production": 3.0, "research/eve": 3.0})
    assert filled(weighted, *jobs, count=16) == {"r1": 3, "r2": 1, "p": 12}
    assert "research 0.4 of cores, research/eve 0.3 of cores, job 0.3 of cores" in weighted.why("r1")


# ---------------------------------------------------------------- las_mq


def test_stage_awareness_from_a_tenth_on() -> None:
    """§3.2: 10 container-seconds at 10 % make 100; earlier stages count exactly."""
    done = StageView("map", tasks=10, done=10, service=30.0)
    assert service(job("j", service=40.0, stages=(done, StageView("r", 10, 1, 10.0)))) == pytest.approx(130.0)
    assert service(job("j", service=40.0, stages=(done, StageView("r", 100, 9, 10.0)))) == 40.0
    unaware = rank("las_mq", job("j", service=40.0, stages=(StageView("r", 10, 1, 40.0),)), las_mq_stage_aware=False)
    assert "queue 1, 40 " in unaware.why("j")


def test_jobs_sink_and_within_a_queue_the_fewest_containers_go_first() -> None:
    jobs = [
        job("many", service=5.0, needs=50.0, wants=50.0),
        job("few", service=90.0, needs=3.0, wants=3.0),
        job("sunk", service=101.0, needs=1.0, wants=1.0),
    ]
    ranking = rank("las_mq", *jobs)
    assert ranking.order() == ["few", "many", "sunk"]
    assert ranking.why("sunk").startswith("las_mq: queue 2, 101 container-seconds (up to 1000), its tasks need 1")


def test_the_queues_share_and_nothing_is_left_unused() -> None:
    """Two queues of ten containers: 6.67 and 3.33 by these weights; the rest of one goes to the other."""
    levels = Multilevel(queues=2, weights=(2, 1))
    large, sunk = job("large", needs=50.0, wants=50.0), job("sunk", service=500.0, needs=50.0, wants=50.0)
    ranking = rank("las_mq", large, sunk, las_mq=levels)
    assert (ranking.room("large"), ranking.room("sunk")) == (pytest.approx(20 / 3), pytest.approx(10 / 3))
    assert filled(ranking, large, sunk, count=11) == {"large": 7, "sunk": 4}
    small = job("small", needs=1.0, wants=1.0)
    ranking = rank("las_mq", small, sunk, las_mq=levels)
    ranking.charge("small", ONE)
    assert filled(ranking, small, sunk, count=4)["sunk"] == 4


def test_demand_is_that_of_the_stages_that_can_run() -> None:
    """§3.4: of 50 tasks left only two can run, so the next in the queue gets the rest."""
    first, second = job("first", needs=20.0, wants=2.0), job("second", needs=50.0, wants=50.0)
    ranking = rank("las_mq", first, second)
    assert (ranking.room("first"), ranking.room("second")) == (2.0, 8.0)


@pytest.mark.parametrize("weights", [(2.0, 1.0), (1.0, 0.1, 0.01)])
@pytest.mark.parametrize("look", [0.04, 40.0])
def test_queues_take_turns_at_the_hosts(weights: tuple[float, ...], look: float) -> None:
    """Agents know an order and no shares: the weights, however different, come of turns, however long."""
    levels = Multilevel(queues=len(weights), first_threshold=1e6, weights=weights)
    las_mq = ordering_of(OrderingSettings("las_mq", las_mq=levels))
    began = {f"queue {queue}": service for queue, service in enumerate((0.0, 2e6, 2e7)[: len(weights)])}
    received, turns = dict(began), []
    for _ in range(2000):
        jobs = [job(name, service=done, needs=1.0) for name, done in received.items()]
        turns.append(las_mq.rank(jobs, TEN).order()[0])
        received[turns[-1]] += look
    assert turns[0] == "queue 0"
    for queue, weight in enumerate(weights):
        assert turns.count(f"queue {queue}") / len(turns) == pytest.approx(weight / sum(weights), abs=0.01)
        assert f"queue {queue}" in turns[: round(2.5 * sum(weights) / min(weights))], "no queue starves"


def test_a_new_job_is_not_delayed_by_one_of_little_weight() -> None:
    """A small job is done before a large one has its turn, though that one has received nothing since it came."""
    las_mq = ordering_of(OrderingSettings("las_mq", las_mq=Multilevel(queues=2, first_threshold=1.0)))
    for received in (0.0, 0.3, 0.6):
        jobs = [job("large", service=9.0, needs=9.0), job("small", service=received, needs=9.0)]
        assert las_mq.rank(jobs, TEN).order() == ["small", "large"]


def test_inside_a_queue_jobs_are_ordered_by_their_demand_or_by_their_arrival_in_it() -> None:
    """Fig. 3's cases 3 and 4 against 1 and 2."""
    levels = Multilevel(queues=2, first_threshold=10.0)
    many, few = job("many", submitted_at=1.0, needs=9.0), job("few", submitted_at=2.0, needs=1.0)
    assert rank("las_mq", many, few, las_mq=levels).order() == ["few", "many"]
    fifo = ordering_of(OrderingSettings("las_mq", las_mq=levels, las_mq_inside="fifo"))
    first = fifo.rank([many, few], TEN)
    assert first.order() == ["many", "few"]
    assert first.why("few").endswith("first come, place 2 in the queue")
    sunk = [job("many", submitted_at=1.0, needs=9.0), job("few", submitted_at=2.0, needs=1.0, service=11.0)]
    assert fifo.rank(sunk, TEN).key("many", 0.0) > fifo.rank(sunk, TEN).key("few", 0.0)
    both = [job("many", submitted_at=1.0, needs=9.0, service=12.0), job("few", submitted_at=2.0, service=12.0)]
    assert fifo.rank(both, TEN).order() == ["few", "many"], "few was in the second queue first"


# ---------------------------------------------------------------- promises


def guarantee(cores: float, bundles: int, held: float = 0.0, memory: float = 0.0) -> Guarantee:
    return Guarantee(SlotVector(cores, 0.0, 0.0, memory), [held, 0.0, 0.0, 0.0], bundles)


def test_promises_come_first() -> None:
    jobs = [job("a", submitted_at=1.0), job("b", submitted_at=2.0, containers=1)]
    plain = rank("fifo", *jobs)
    assert guarantees_first(plain, {}, {}) is plain
    ranking = guarantees_first(plain, {"b": "r"}, {"r": guarantee(3.0, 3, held=1.0)})
    assert ranking.order() == ["b", "a"]
    assert "2 of 3 bundles of r are lacking" in ranking.why("b")
    assert not ranking.whole_stages
    assert filled(ranking, *jobs, count=5) == {"a": 3, "b": 2}, "until it has its promise"
    assert ranking.whole_stages
    assert ranking.why("b") == plain.why("b")


def test_jobs_that_share_a_reservation_share_its_promise() -> None:
    jobs = [job("a", submitted_at=1.0), job("b", submitted_at=2.0), job("c", submitted_at=3.0)]
    ranking = guarantees_first(rank("fifo", *jobs), {"b": "r", "c": "r"}, {"r": guarantee(2.0, 1)})
    assert ranking.order() == ["b", "c", "a"]
    assert not ranking.charge("b", ONE)
    assert ranking.charge("c", ONE), "b's place changes with it"
    assert ranking.order() == ["a", "b", "c"]


def test_no_resource_of_a_promise_is_exceeded() -> None:
    jobs = [job("a"), job("b")]
    ranking = guarantees_first(rank("fifo", *jobs), {"b": "r"}, {"r": guarantee(4.0, 4, memory=4.0)})
    assert ranking.room("b") == float("inf")
    assert filled(ranking, *jobs, count=9, taken=(1.0, 0.0, 0.0, 2.0)) == {"a": 7, "b": 2}, "its memory is used up"


def test_work_before_its_time_goes_last() -> None:
    jobs = [job("a", submitted_at=1.0), job("b", submitted_at=2.0), job("c", submitted_at=3.0)]
    ranking = guarantees_first(rank("fifo", *jobs), {"a": "later", "c": "r"}, {"r": guarantee(1.0, 1)})
    assert ranking.order() == ["c", "b", "a"]
    assert ranking.why("a").startswith("later is promised nothing now")
    assert filled(ranking, *jobs, count=3) == {"a": 0, "b": 2, "c": 1}


# ---------------------------------------------------------------- without weight (Ursa §5.2, Table 6: "MO")


@pytest.mark.parametrize(("ordering", "order"), [("ejf", ["early", "late"]), ("srjf", ["late", "early"])])
def test_without_weight_placement_does_not_see_the_order_and_the_queues_do(ordering: str, order: list[str]) -> None:
    early = job("early", submitted_at=0.0, remaining=(9.0, 0.0, 0.0), needs=9.0)
    late = job("late", submitted_at=5.0, remaining=(1.0, 0.0, 0.0), needs=1.0)
    ranking = rank(ordering, early, late, cluster=ClusterView(now=9.0), ejf_weight=0.0, srjf_weight=0.0)
    assert ranking.order() == order
    assert ranking.key("early", 1.5) == ranking.key("late", 1.5) == (1.5,)

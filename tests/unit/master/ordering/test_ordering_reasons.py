"""The reason for a job's place as people see it: each policy in its own words, with the numbers it used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.ordering import (
    NAMES,
    ClusterView,
    Guarantee,
    JobSizes,
    JobView,
    Multilevel,
    OrderingSettings,
    Ranking,
    Reason,
    StageView,
    guarantees_first,
    ordering_of,
)
from master.ordering.gittins import medians_left
from master.ordering.sizes import CELLS, EDGES
from penstock.model.resource_vector import SlotVector

TEN = ClusterView(now=100.0, capacity=SlotVector(10.0, 10.0, 10.0, 1000.0), containers=10.0)


def job(name: str, **values: Any) -> JobView:
    return JobView(name, **{"user": "ann", "application": "sort", "sequence": sum(map(ord, name)), **values})


def rank(name: str, *jobs: JobView, sizes: JobSizes | None = None, **settings: Any) -> Ranking:
    return ordering_of(OrderingSettings(name, **settings), sizes).rank(jobs, TEN)


def known(*sizes: float, user: str = "ann", application: str = "sort") -> JobSizes:
    found = JobSizes()
    for size in sizes:
        found.learn(user, application, size)
    return found


@pytest.mark.parametrize("name", NAMES)
def test_every_ordering_has_a_reason_for_each_of_its_jobs(name: str) -> None:
    ranking = rank(name, job("a", service=3.0), job("b", service=7.0, tenant="x/y"), sizes=known(10.0))
    for each in ranking.order():
        said = ranking.reason(each).said
        assert said and said.isprintable() and not said.endswith("."), "it goes on in a sentence"
        assert name not in said, "the policy is named beside it"


def test_by_submission_it_is_the_age_of_the_job() -> None:
    first = job("a", submitted_at=7.0)
    assert rank("fifo", first).reason("a") == Reason("submitted 1 min 33 s ago, and the earlier job goes first")
    assert rank("ejf", first).reason("a").said.startswith("submitted 1 min 33 s ago, and the earlier job goes first, ")
    assert rank("fifo", job("a", submitted_at=107.0)).reason("a").said.startswith("submitted 0.0 s ago"), (
        "clocks differ"
    )


def test_by_service_it_is_the_service() -> None:
    ranking = rank("las", job("a", service=41.2))
    assert ranking.reason("a") == Reason("41 s of service so far, and the job with the least goes first")


def test_by_work_left_it_is_the_kinds_of_which_some_is_left_or_that_nothing_is_known() -> None:
    ranking = rank(
        "srjf", job("a", remaining=(3.0, 0.0, 0.0)), job("b", remaining=(9.0, 0.0, 1.0)), job("c", needs=math.inf)
    )
    assert ranking.reason("a").said == (
        "of the work that all jobs have left, as times of the whole cluster, it has 3.0 s of 18 s of cpu, "
        "0.0 s of 1.5 s of network; the job with the least goes first"
    )
    assert ranking.reason("c").said == "nothing is known of its work, so that it counts as a mean job"
    assert rank("srjf", job("a")).reason("a").said == "no job has work left; the job with the least goes first"


def test_the_reason_by_shares_has_service_and_holdings() -> None:
    fair = ordering_of(OrderingSettings("fair"))
    fair.rank([job("a"), job("b")], TEN)
    ranking = fair.rank([job("a", service=5.0, containers=1), job("b", service=0.0, weight=3.0)], TEN)
    assert ranking.reason("a").said == (
        "5.0 s more service than the job that received the least; it holds 1 container and its share is 2.5"
    )
    assert ranking.reason("b").said == (
        "no job has received less, for its weight of 3; it holds 0 containers and its share is 7.5"
    )
    drf = rank("drf", job("a", tenant="research/ann", holds=SlotVector(4.0, 0.0, 0.0, 100.0)))
    assert drf.reason("a").said == (
        "research holds 40 % of the cores, research/ann holds 40 % of the cores, it holds 40 % of the cores, "
        "and the smallest share goes first"
    )


def test_las_mq_names_the_queue_and_the_reason_for_it() -> None:
    ranking = rank(
        "las_mq",
        job("small", service=41.0, needs=3.0),
        job("who", service=2.0, needs=math.inf),
        job("aware", service=40.0, needs=9.0, stages=(StageView("map", 10, 1, 20.0),)),
        job("last", service=5000.0, needs=1.0),
        las_mq=Multilevel(queues=3),
    )
    assert ranking.order() == ["small", "who", "aware", "last"]
    assert ranking.reason("small") == Reason(
        "41 s of service so far, queue 1 (up to 1 min 40 s), place 1 in it, as its tasks need 3 containers", queue=1
    )
    assert ranking.reason("who").said.endswith("place 2 in it, as its tasks are not known")
    assert ranking.reason("aware") == Reason(
        "40 s of service so far, 3 min 40 s when its stages under way end, queue 2 (up to 16 min 40 s), place 1 in it, "
        "as its tasks need 9 containers; it is the turn of queue 1",
        queue=2,
    )
    assert ranking.reason("last").said.startswith("1 h 23 min of service so far, queue 3, "), (
        "the last has no threshold"
    )
    alone = rank("las_mq", job("a", service=1.0), las_mq_inside="fifo").reason("a").said
    assert alone == "1.0 s of service so far, queue 1 (up to 1 min 40 s)"


def test_gittins_gives_the_remainder_of_similar_jobs_and_their_number() -> None:
    reason = rank("gittins", job("a", service=4.0), sizes=known(*[10.0] * 20)).reason("a")
    assert reason.left_s is not None and reason.known_jobs == 18, "earlier ones count less"
    assert reason.left_s == pytest.approx(6.0, rel=0.25)
    assert reason.said == (
        f"4.0 s of service so far; half of the jobs like it that received as much ended within {reason.left_s:.1f} s "
        "more (known: 18 jobs of sort by ann)"
    )


def test_gittins_names_the_most_special_kind_of_which_it_knows_a_job() -> None:
    def reason_of(sizes: JobSizes) -> str:
        return rank("gittins", job("a"), sizes=sizes).reason("a").said

    assert reason_of(known(5.0)).endswith("(known: 1 job of sort by ann)")
    assert reason_of(known(5.0, 6.0, application="other")).endswith("(known: 2 jobs by ann)")
    others = reason_of(known(5.0, user="bob"))
    assert others.endswith("(known: 1 job by others)"), "which names the jobs of others have is not told"


def test_gittins_reports_where_nothing_is_known_or_no_known_job_was_so_large() -> None:
    nothing = rank("gittins", job("a", service=41.0)).reason("a")
    assert nothing == Reason("41 s of service so far, queue 8: no job like it is known", queue=8, known_jobs=0)
    few = rank("gittins", job("a", service=41.0), sizes=known(1.0)).reason("a")
    assert few.said == "41 s of service so far; what is left of it cannot be told (known: 1 job of sort by ann)"
    assert (few.queue, few.left_s, few.known_jobs) == (None, None, 1)
    beyond = rank("gittins", job("a", service=300_000.0), sizes=known(1.0)).reason("a")
    assert beyond.said.startswith("3 d 11 h of service so far, queue 21, more than any job like it (known: 1 job")
    assert (beyond.queue, beyond.left_s, beyond.known_jobs) == (21, None, 1)


def test_promises_are_named_before_the_policy_s_reason() -> None:
    jobs = [job("a", service=1.0), job("b", service=2.0), job("c", service=3.0)]
    guarantee = Guarantee(SlotVector(4.0), [1.0, 0.0, 0.0, 0.0], bundles=4)
    ranking = guarantees_first(rank("las", *jobs), {"b": "r-1", "c": "r-2"}, {"r-1": guarantee})
    assert ranking.reason("b").said.startswith("3 of 4 bundles of r-1 are lacking; 2.0 s of service so far")
    assert ranking.reason("c").said.startswith("r-2 is promised nothing now; 3.0 s of service")
    assert ranking.reason("a").said.startswith("1.0 s of service")


@given(st.lists(st.integers(0, CELLS - 1), min_size=1, max_size=6), st.floats(0.0, 0.99), st.floats(0.0, 1e4))
def test_a_median_divides_the_jobs_that_are_not_over(cells: list[int], never: float, attained: float) -> None:
    """As many end before it as after it; infinite where most of those outlast all that is known."""
    probabilities = np.zeros((1, CELLS))
    for cell in cells:
        probabilities[0, cell] += (1.0 - never) / len(cells)

    def ended_by(service: float) -> float:
        parts = np.clip((service - EDGES[:-1]) / np.diff(EDGES), 0.0, 1.0)
        return float((probabilities[0] * parts).sum())

    [left] = medians_left(probabilities, np.array([attained]))
    over = ended_by(attained)
    if math.isinf(left):
        assert ended_by(float(EDGES[-1])) - over <= (1.0 - over) / 2 + 1e-9
    else:
        assert left >= 0
        assert ended_by(attained + left) - over == pytest.approx((1.0 - over) / 2, abs=1e-9)

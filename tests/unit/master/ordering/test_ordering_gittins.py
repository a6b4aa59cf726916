"""The order that learns: the mixture of kinds of jobs, the stored samples, and the order from these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from random import Random

import pytest

from master.ordering import ClusterView, JobSizes, JobView, KnownSizes, OrderingSettings, ordering_of
from master.ordering.sizes import LEAST, Floats, cell_of
from penstock.model.resource_vector import SlotVector


def order(sizes: JobSizes, *jobs: JobView) -> list[str]:
    return ordering_of(OrderingSettings("gittins"), sizes).rank(jobs, ClusterView()).order()


def job(name: str, application: str = "", service: float = 0.0, user: str = "eve", at: float = 0.0) -> JobView:
    return JobView(name, user=user, application=application, service=service, submitted_at=at)


def learnt(*ended: tuple[str, str, float], times: int = 1) -> JobSizes:
    sizes = JobSizes()
    for _ in range(times):
        for user, application, size in ended:
            sizes.learn(user, application, size)
    return sizes


def announcing(name: str, cpu_s: float, service: float = 0.0, tasks: int = 4, application: str = "") -> JobView:
    return JobView(name, user="eve", application=application, service=service, needs=tasks, remaining=(cpu_s, 0.0, 0.0))


NOTHING = JobSizes()
ONCE = learnt(("eve", "long", 1000.0), ("eve", "short", 10.0))
TWO = learnt(("eve", "long", 1000.0), ("eve", "short", 10.0), times=10)
THREE = learnt(("eve", "short", 10.0), ("eve", "middle", 100.0), ("eve", "long", 1000.0), times=20)


@pytest.mark.parametrize(
    ("sizes", "jobs", "expected"),
    [
        # Recurring work is ordered by its earlier sizes, as exactly as the cells are; one run is worth something.
        (TWO, [job("a", "long"), job("b", "short")], "b a"),
        (TWO, [job("a", "long", 950.0), job("b", "short")], "b a"),
        (ONCE, [job("a", "long"), job("b", "short")], "b a"),
        # Of jobs that are alike the one that has begun is ended first, and else the one that came first.
        (learnt(("eve", "long", 1000.0), times=10), [job("b", "long"), job("a", "long", 500.0)], "a b"),
        (learnt(("eve", "a", 10.0), times=20), [job("second", "a", at=2.0), job("first", "a", at=1.0)], "first second"),
        # A job that took longer than its like goes behind those that have not, unless its announced tasks need less.
        (THREE, [job("late", "short", 15.0), job("m", "middle")], "m late"),
        (THREE, [announcing("l", 1.0, 15.0, application="short"), announcing("m", 100.0, application="middle")], "l m"),
        # Earlier runs weigh more than announcements, which count where no run is known.
        (TWO, [announcing("a", 1.0, application="long"), announcing("b", 100.0, application="short")], "b a"),
        (NOTHING, [announcing("large", 30.0), announcing("small", 3.0)], "small large"),
        (NOTHING, [announcing("old", 30.0), announcing("nearly-done", 2.0, 28.0)], "nearly-done old"),
        # A job that announces little and takes much goes behind, as one does that announces only its next stage.
        (NOTHING, [announcing("liar", 0.1, 100.0), announcing("honest", 20.0)], "honest liar"),
        # A job that announces nothing is expected to need as much again; tasks of unknown length are no announcement.
        (NOTHING, [announcing("announced", 5.0), job("new")], "new announced"),
        (NOTHING, [announcing("announced", 5.0), job("begun", service=6.0)], "announced begun"),
        (NOTHING, [job("second", at=1.0), announcing("first", 0.0)], "first second"),
        (NOTHING, [], ""),
    ],
)
def test_the_order(sizes: JobSizes, jobs: list[JobView], expected: str) -> None:
    assert order(sizes, *jobs) == expected.split()


def test_an_unknown_application_is_like_others_of_its_user_and_an_unknown_user_like_all() -> None:
    sizes = learnt(("eve", "a", 1000.0), ("eve", "b", 1100.0), ("bob", "c", 10.0), ("bob", "d", 11.0), times=20)
    assert order(sizes, job("e", "new"), job("b", "new", user="bob")) == ["b", "e"]
    between = order(sizes, job("e", "new"), job("b", "new", user="bob"), job("z", "new", user="zoe"))
    assert between[-1] == "e", "half of all jobs are small"


def test_an_application_new_to_its_user_is_as_it_is_for_the_others() -> None:
    sizes = learnt(
        ("eve", "sort", 1000.0), ("bob", "sort", 1100.0), ("bob", "grep", 10.0), ("eve", "grep", 11.0), times=5
    )
    assert order(sizes, job("s", "sort", user="zoe"), job("g", "grep", user="zoe")) == ["g", "s"]
    own = learnt(("eve", "sort", 1000.0), ("bob", "grep", 100.0), ("zoe", "sort", 10.0), times=5)
    assert order(own, job("g", "grep", user="zoe"), job("s", "sort", user="zoe")) == ["s", "g"], "hers tell more"


def test_a_job_that_outlasted_its_like_is_not_expected_to_end_where_jobs_of_other_applications_do() -> None:
    sizes = learnt(("eve", "sort", 1.0), ("eve", "copy", 20.0), ("eve", "grep", 10.0), times=20)
    late, fresh = job("late", "sort", 18.0), job("fresh", "grep", at=1.0)
    assert order(sizes, late, fresh) == ["fresh", "late"]
    ranking = ordering_of(OrderingSettings("gittins"), sizes).rank((late, fresh), ClusterView())
    assert ranking.reason("late").said == (
        "18 s of service so far, queue 7, more than any job like it (known: 18 jobs of sort by eve)"
    )
    assert ranking.why("late") == (
        "gittins: index 0.0625, as it has received 18 container-seconds, more than the 18 known jobs of sort"
    )


def test_a_new_job_goes_before_those_that_have_begun_while_few_sizes_are_known() -> None:
    sizes = learnt(("eve", "a", 20.0))
    assert order(sizes, job("begun", "b", 6.0), job("further", "c", 25.0), job("new", "d", at=1.0))[0] == "new"


def test_many_jobs_that_are_alike_are_known_as_exactly_as_the_cells_are() -> None:
    sizes = learnt(*[("eve", str(application), 10.0) for application in range(300)])
    ends = sizes.probabilities([("eve", "new")])[0]
    assert ends[cell_of(10.0) - 3 : cell_of(10.0) + 4].sum() > 0.9 * ends.sum()
    assert ends.sum() > 0.99, "and no part of them is lost"


def test_a_kind_that_predicts_better_than_all_jobs_is_believed_and_one_that_does_not_is_not() -> None:
    random = Random(1)
    sizes = JobSizes()
    for _ in range(60):
        sizes.learn("eve", "steady", 100.0)
        for application in ("x", "y", "z"):
            sizes.learn("bob", application, random.paretovariate(1.2))
    by_kind = {known.kind: known.weight for known in sizes.of([("eve", "steady"), ("bob", "x")])}
    assert by_kind["eve",] > 0.9, "it is the user that runs nothing else"
    assert by_kind["bob", "x"] < 0.5 < by_kind[()]


def test_announced_work_counts_in_container_seconds() -> None:
    ranking = ordering_of(OrderingSettings("gittins"), learnt(("eve", "steady", 30.0), times=20)).rank(
        [announcing("new", 10.0), job("known", "steady")],
        ClusterView(capacity=SlotVector(8.0, 8.0, 8.0, 1.0), containers=8.0),
    )
    assert ranking.order() == ["known", "new"], "10 s of eight cores are 80 container-seconds"


def test_the_reason_has_the_demand_of_its_announced_tasks() -> None:
    jobs = [announcing("j", 12.0, 3.0), job("other")]
    ranking = ordering_of(OrderingSettings("gittins"), JobSizes()).rank(jobs, ClusterView())
    reason = ranking.reason("j")
    assert reason.said == "3.0 s of service so far; the tasks that it has announced need about 12 s more"
    assert (reason.left_s, reason.known_jobs) == (12.0, 0)
    assert "its announced tasks leave 12" in ranking.why("j")


def test_the_reason_has_the_deciding_service_though_tasks_are_announced() -> None:
    ranking = ordering_of(OrderingSettings("gittins"), JobSizes()).rank([announcing("j", 1.0, 30.0)], ClusterView())
    reason = ranking.reason("j")
    assert reason.said == "30 s of service so far, queue 7: more than was expected of its announced tasks"
    assert (reason.queue, reason.left_s) == (7, None)


@pytest.mark.parametrize("size", [0.0, -1.0, float("inf"), float("nan")])
def test_a_job_that_no_node_has_served_teaches_nothing(size: float) -> None:
    sizes = learnt(("eve", "a", size))
    assert len(sizes) == 0
    assert sizes.unstored.take() == {}


def test_sizes_below_the_least_and_beyond_the_grid_are_counted_at_its_ends() -> None:
    assert [cell_of(size) for size in (LEAST / 100, LEAST, 1e30)] == [0, 0, cell_of(1e31)]


def test_the_kinds_that_were_used_the_longest_ago_are_dropped() -> None:
    sizes = JobSizes(most=8)
    for application in "abcd":
        sizes.learn("eve", application, 1.0)
    sizes.learn("eve", "a", 1.0)
    sizes.learn("eve", "e", 1.0)
    changes = sizes.unstored.take()
    of_all_users = {("", "", "b"), ("", "", "c")}
    assert {kind for kind, known in changes.items() if known is None} == {("eve", "b"), ("eve", "c")} | of_all_users
    assert len(sizes) == 8


def test_a_size_that_has_not_been_seen_for_very_many_runs_is_dropped() -> None:
    sizes = learnt(("eve", "a", 1000.0), ("eve", "a", 1.0))
    assert sizes.largest("eve", "a") > 1000.0
    for _ in range(700):
        sizes.learn("eve", "a", 1.0)
    assert 1.0 < sizes.largest("eve", "a") < 2.0


def test_impossible_sizes_are_not_taken_over() -> None:
    sizes = JobSizes()
    sizes.restore([
        KnownSizes(("eve",), {-1: 1.0}), KnownSizes(("a", "b", "c", "d"), {1: 1.0}),
        KnownSizes((), {1: 1.0}, float("nan")), KnownSizes(("bob",), {1: -1.0}), KnownSizes((), {}),
        KnownSizes(("eve",), {1: 0.0}),
    ])  # fmt: skip
    assert len(sizes) == 0
    assert order(sizes, job("a", "x")) == ["a"]


def test_the_reason_has_the_numbers() -> None:
    sizes = learnt(("eve", "a", 10.0), times=3)
    ordering, view = ordering_of(OrderingSettings("gittins"), sizes), job("j", "a", 2.0)
    why = ordering.rank([view, job("k", "a")], ClusterView()).why("j")
    assert why.startswith("gittins: index 0.1")
    assert why.endswith("after 2 container-seconds; known are 3 jobs of a, 3 of eve, 3 of all")


def test_an_only_job_has_no_index_but_the_same_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes, asked = learnt(("eve", "a", 10.0), times=3), list[object]()
    probabilities = sizes.probabilities

    def asking(jobs: Sequence[tuple[str, str]]) -> Floats:
        asked.append(jobs)
        return probabilities(jobs)

    monkeypatch.setattr(sizes, "probabilities", asking)
    ordering, view = ordering_of(OrderingSettings("gittins"), sizes), job("j", "a", 2.0)
    alone = ordering.rank([view], ClusterView())
    assert (alone.order(), alone.room("j"), alone.whole_stages) == (["j"], math.inf, True)
    assert alone.key("j", 2.0) > alone.key("j", 1.0)
    assert alone.why("j") == "gittins: the only job, after 2 container-seconds"
    assert not asked
    assert alone.reason("j") == ordering.rank([view, job("k", "a")], ClusterView()).reason("j")


def test_no_jobs_are_no_order() -> None:
    assert order(JobSizes()) == []

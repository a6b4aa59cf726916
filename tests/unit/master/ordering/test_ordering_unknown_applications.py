"""Jobs of one application of which no run is known: the first goes ahead, in places that the others leave it."""

from __future__ import annotations

import pytest

from master.ordering import ClusterView, JobSizes, JobView, OrderingSettings, Ranking, ordering_of

NOTHING = JobSizes()


def job(name: str, service: float, application: str = "train", user: str = "eve", at: float = 0.0) -> JobView:
    return JobView(name, submitted_at=at, service=service, user=user, application=application)


def announcing(name: str, service: float, left: float, at: float = 0.0) -> JobView:
    return JobView(
        name,
        submitted_at=at,
        service=service,
        user="eve",
        application="train",
        needs=4.0,
        remaining=(left, 0.0, 0.0),
    )


def ranked(*jobs: JobView, sizes: JobSizes = NOTHING) -> Ranking:
    return ordering_of(OrderingSettings("gittins"), sizes).rank(jobs, ClusterView())


def learnt(*ended: tuple[str, str, float]) -> JobSizes:
    sizes = JobSizes()
    for user, application, size in ended:
        sizes.learn(user, application, size)
    return sizes


@pytest.mark.parametrize(
    ("jobs", "expected"),
    [
        # The first goes ahead up to 2.5 times the service of another one, by queues it would be the last.
        ([job("first", 14.0), job("second", 6.0, at=1.0)], "first second"),
        ([job("first", 16.0), job("second", 6.0, at=1.0)], "second first"),
        ([job("first", 14.0), job("b", 5.0, at=1.0), job("c", 6.0, at=2.0)], "b first c"),
        # The others are ordered by queues.
        ([job("first", 14.0), job("b", 12.0, at=1.0), job("c", 6.0, at=2.0)], "first c b"),
        # Jobs of other applications, of other users and without a name keep their places.
        ([job("first", 14.0), job("other", 7.0, "sort", at=2.0), job("second", 6.0, at=1.0)], "first other second"),
        ([job("mine", 14.0), job("yours", 6.0, user="bob", at=1.0)], "yours mine"),
        ([job("a", 14.0, ""), job("b", 6.0, "", at=1.0)], "b a"),
        # Announced tasks tell more, unless the job has received more than they told.
        ([announcing("first", 14.0, 90.0), announcing("second", 6.0, 80.0, at=1.0)], "second first"),
        ([announcing("first", 14.0, 1.0), announcing("second", 6.0, 1.0, at=1.0)], "first second"),
    ],
)
def test_the_order(jobs: list[JobView], expected: str) -> None:
    assert ranked(*jobs).order() == expected.split()


@pytest.mark.parametrize("user", ["eve", "bob"])
def test_a_known_run_of_any_user_ends_the_rule(user: str) -> None:
    first, second = job("first", 14.0), job("second", 6.0, at=1.0)
    others = learnt(("eve", "sort", 4.0), ("bob", "sort", 4.0))
    assert ranked(first, second, sizes=others).order() == ["first", "second"]
    known = learnt(("eve", "sort", 4.0), ("bob", "sort", 4.0), (user, "train", 7.0))
    assert ranked(first, second, sizes=known).order() == ["second", "first"]


def test_the_reasons_tell_the_rule() -> None:
    ranking = ranked(job("first", 14.0), job("b", 5.0, at=1.0), job("c", 6.0, at=2.0), job("other", 1.0, "sort"))
    assert ranking.reason("first").said == (
        "14 s of service so far, queue 6: no job like it is known; it is the first of 3 jobs of train, and goes ahead "
        "of the others until it has received 2.5 times as much"
    )
    assert ranking.reason("b").said.endswith("; the first of 3 jobs of train has received more than 2.5 times as much")
    after = "; the first of 3 jobs of train goes ahead until it has received 2.5 times as much"
    assert ranking.reason("c").said.endswith(after)
    assert ranking.why("c") == f"gittins: index 0{after}"
    assert "first of" not in ranking.reason("other").said

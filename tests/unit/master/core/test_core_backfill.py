"""A job passes the first that waits for memory if that one starts no later."""

from __future__ import annotations

import math

import pytest

from master.core import events as e
from master.core.history import History, Needed
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from tests.unit.master.cluster_bed import MB, Bed, bed


def admitted(b: Bed) -> list[str]:
    return [name for name, job in b.cluster.jobs.items() if job.admitted]


def ran(b: Bed, name: str, *lengths_s: float) -> None:
    """Runs of this name come, are done after these times, and end."""
    for number, length_s in enumerate(lengths_s):
        job = f"{name}-{number}"
        b.job("a", job, 1 * MB, at=b.now, name=name)
        b.now += length_s
        done = Progress(job=job, stages=[StageProgress(stage="s", tasks=1, done=1)])
        b.serve(e.Received("a", done))
        b.serve(e.Received("a", api.JobEnded(job=job)))


def test_memory_that_the_first_does_not_need_when_it_starts_may_be_lent() -> None:
    b = bed("a")
    b.job("a", "first", 600 * MB, at=1)
    b.job("a", "large", 900 * MB, at=2)
    b.job("a", "small", 100 * MB, at=3)
    assert admitted(b) == ["first", "small"], "when first ends, large has its 900 MB"
    assert b.decisions_of(api.AdmitJob)[-1][1].why.endswith("; job large (large) before it starts no later")
    b.job("a", "more", 1 * MB, at=4)
    assert "more" not in admitted(b)
    b.serve(e.Received("a", api.JobEnded(job="first")))
    assert admitted(b) == ["large", "small"]


def test_whichever_of_the_running_jobs_ends_first() -> None:
    b = bed("a")
    b.job("a", "little", 200 * MB, at=1)
    b.job("a", "much", 700 * MB, at=1)
    b.job("a", "waits", 300 * MB, at=2)
    b.job("a", "passes", 50 * MB, at=3)
    assert "passes" not in admitted(b), "little may end first, and gives back just the lacking memory"
    b.serve(e.Received("a", api.JobEnded(job="little")))
    assert admitted(b) == ["much", "waits"], "passes no longer has room"


@pytest.mark.parametrize("restarted", [False, True])
@pytest.mark.parametrize(("long_s", "passes"), [((100.0, 120.0), True), ((30.0, 120.0), False), ((100.0,), False)])
def test_a_job_that_surely_ends_before_passes_though_all_of_its_memory_is_needed(
    long_s: tuple[float, ...], passes: bool, restarted: bool
) -> None:
    """Twice the longest run of short, 20 s, is less than half of the shortest one of long; two runs are needed.

    A master that is restarted knows how long jobs take.
    """
    b = bed("a")
    ran(b, "long", *long_s)
    ran(b, "short", 8.0, 10.0)
    if restarted:
        b = b.successor()
        b.node("a")
    b.job("a", "first", 600 * MB, at=b.now, name="long")
    b.job("a", "waits", 1000 * MB, at=b.now + 1)
    b.job("a", "passing", 400 * MB, at=b.now + 2, name="short")
    assert admitted(b) == (["first", "passing"] if passes else ["first"])


def test_lengths_that_cannot_be_calculated_with_are_not_taken_over() -> None:
    history = History()
    history.restore([(("u", "a"), Needed((1.0,))), (("u", "b"), Needed(lengths_s=(math.nan,)))])
    assert history.of(("u", "a")) is history.of(("u", "b")) is None


def test_a_job_that_has_waited_too_long_is_not_passed() -> None:
    b = bed("a", admission_wait_max_s=5.0)
    b.job("a", "first", 600 * MB, at=1)
    b.job("a", "large", 900 * MB, at=2)
    b.round(6.0)
    b.job("a", "small", 100 * MB, at=3)
    assert admitted(b) == ["first"]


def test_of_the_same_user_one_place_is_left_to_the_first() -> None:
    b = bed("a", user_max_jobs=2)
    b.job("a", "first", 600 * MB, at=1)
    b.job("a", "large", 900 * MB, at=2)
    b.job("a", "small", 50 * MB, at=3)
    b.job("a", "other", 50 * MB, at=4, user="eve")
    assert admitted(b) == ["first", "other"]

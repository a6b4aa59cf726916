"""The bounds of the ended jobs: the job that ended first is removed first, of the users who have the most."""

from __future__ import annotations

import sys

import pytest

from master.core.finished_jobs import FinishedJob, FinishedJobs
from penstock.wire.jobs_api import JobView


def past(job: str, user: str, ended_at: float) -> FinishedJob:
    view = JobView(job=job, name="n", user=user, origin="a", state="ended", submitted_at=0.0, ended_at=ended_at)
    return FinishedJob(view)


def listed(jobs: FinishedJobs) -> set[str]:
    return {each.view.job for each in jobs}


def test_the_short_jobs_of_a_user_do_not_remove_those_of_others() -> None:
    jobs = FinishedJobs(most_of_a_user=4, most=5)
    for number in range(2):
        jobs.add(past(f"m{number}", "mia", number))
    for number in range(10):
        jobs.add(past(f"e{number}", "eve", 10.0 + number))
    assert listed(jobs) == {"m0", "m1", "e7", "e8", "e9"}


def test_for_a_user_without_jobs_the_user_with_the_most_makes_room() -> None:
    jobs = FinishedJobs(most_of_a_user=4, most=5)
    jobs.add(past("m0", "mia", 0.0))
    for number in range(4):
        jobs.add(past(f"e{number}", "eve", 10.0 + number))
    jobs.add(past("u0", "uma", 20.0))
    jobs.add(past("u1", "uma", 21.0))
    assert listed(jobs) == {"m0", "e2", "e3", "u0", "u1"}


def test_of_users_with_as_many_jobs_the_one_that_ended_first_is_removed() -> None:
    jobs = FinishedJobs(most_of_a_user=4, most=3)
    for user, ended_at in (("mia", 3.0), ("eve", 1.0), ("uma", 2.0)):
        jobs.add(past(user, user, ended_at))
    jobs.add(past("zoe", "zoe", 4.0))
    assert listed(jobs) == {"mia", "uma", "zoe"}


@pytest.mark.parametrize(
    ("user", "ended_at", "has_room"),
    [("eve", 5.0, False), ("eve", 10.5, True), ("mia", 5.0, True), ("uma", 0.0, True)],
)
def test_an_end_that_is_reported_late_has_no_room_if_it_is_the_first_to_be_removed(
    user: str, ended_at: float, has_room: bool
) -> None:
    jobs = FinishedJobs(most_of_a_user=4, most=5)
    jobs.add(past("m0", "mia", 1.0))
    for number in range(4):
        jobs.add(past(f"e{number}", "eve", 10.0 + number))
    assert jobs.has_room(user, ended_at) is has_room
    jobs.add(past("late", user, ended_at))
    assert ("late" in listed(jobs)) is has_room


def test_the_next_master_removes_the_same_jobs_of_a_longer_list() -> None:
    former = FinishedJobs(most_of_a_user=4, most=8)
    for number in range(4):
        for user in ("mia", "eve"):
            former.add(past(f"{user}{number}", user, number))
    former.add(past("zoe0", "zoe", 0.5))
    following = FinishedJobs(most_of_a_user=4, most=5)
    following.restore(former)
    assert listed(following) == {"mia2", "mia3", "eve2", "eve3", "zoe0"}
    assert {job for job, one in following.unstored.items() if one is None} == listed(former) - listed(following)


def test_a_further_job_takes_as_many_calls_whatever_the_number_of_users() -> None:
    jobs = FinishedJobs()
    for number in range(2000):
        jobs.add(past(f"j{number}", f"u{number}", number))
    further = past("more", "zoe", 3000.0)
    calls: list[str] = []

    def watch(_frame: object, event: str, _arg: object) -> None:
        if event in {"call", "c_call"}:
            calls.append(event)

    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        jobs.add(further)
    finally:
        sys.setprofile(before)
    assert (len(jobs), jobs.get("j0")) == (2000, None)
    assert len(calls) < 100

"""The service of a job that was lost with its host: that of all its hosts, each counted once, whenever they report."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from master.core import events as e
from master.core.finished_jobs import FinishedJob
from penstock.wire import master_api as api
from penstock.wire.job_end_api import JobAtEnd
from tests.unit.master.cluster_bed import Bed, bed, load

JOB = "a-1f2e3d4c-1"  # an id made by the agent of ``a``


def served(node: str, service_s: float, *, last: bool = False) -> e.Received:
    """Return a node's report of all service of the job there."""
    use = api.JobUse(job=JOB, service_s=service_s, last=last)
    return e.Received(node, api.Heartbeat(load=load(jobs=[use])))


def pass_time(made: Bed, heartbeats: int = 10) -> None:
    """Let the connected nodes report nothing, for longer than a finished job waits for reports."""
    for _ in range(heartbeats):
        for name, node in made.cluster.nodes.items():
            if node.connected:
                made.heartbeat(name, 0)
        made.round(1.0)


def lost(**settings: Any) -> Bed:
    """Return a master that has lost a job's origin ``a``, after reports of 3 s of service there and 4 s on ``b``; it
    has a job of the same user, and one of another.
    """
    made = bed("a", "b", **{"ordering": "gittins", **settings})
    made.job("b", "k", at=1.0)
    made.job("b", "m", at=1.0, user="v")
    made.job("a", JOB, at=2.0, name="j")
    made.serve(e.Received("b", api.JoinJob(job=JOB, user="u")))
    made.round()
    made.serve(served("a", 3.0))
    made.serve(served("b", 4.0))
    made.round()
    made.serve(e.NodeAway("a"))
    made.now += made.cluster.settings.node_timeout_s + 1.0
    made.heartbeat("b")
    made.round()
    assert (made.listed(JOB).outcome, made.listed(JOB).service_container_s) == ("lost", 7.0)
    return made


def restarted(made: Bed, **changed: Any) -> Bed:
    """Return the next master, to which ``b`` has registered; ``changed``: other values in its record of the job."""
    records = [replace(past, **changed) for past in made.kept().jobs.values() if past is not None]
    after = Bed(ordering="gittins")
    after.now = made.now
    after.serve(e.StateRestored({}, records))
    after.node("b")
    return after


def stored_s(made: Bed) -> float:
    """Return the service of the job that the next master would know."""
    past = made.kept().jobs[JOB]
    assert past is not None
    return past.view.service_container_s


def ends(made: Bed, service_s: float = 5.0, *, last: bool = True) -> None:
    """The origin is back without the job, and reports its end, with all service of the job there."""
    made.node("a")
    at_end = JobAtEnd(name="j", user="u", submitted_at=2.0, ended_at=made.now)
    use = api.JobUse(job=JOB, service_s=service_s, last=last)
    made.serve(e.Received("a", api.JobEnded(job=JOB, done=True, use=use, at_end=at_end)))
    assert made.listed(JOB).outcome == "succeeded"


@pytest.mark.parametrize("waits", [0, 10], ids=["at once", "later"])
@pytest.mark.parametrize("dies", [False, True], ids=["the same master", "the next master"])
def test_its_end_adds_what_its_origin_had_not_reported(waits: int, dies: bool) -> None:
    made = lost()
    pass_time(made, waits)
    made = restarted(made) if dies else made
    ends(made)
    pass_time(made)
    assert made.listed(JOB).service_container_s == 9.0
    needed = made.cluster.history.of(("u", "j"))
    assert needed is not None
    assert needed.service_s == 9.0


@pytest.mark.parametrize("first", ["the origin", "the other host"])
@pytest.mark.parametrize("waits", [0, 10], ids=["at once", "later"])
def test_the_last_report_of_another_host_counts_before_and_after_the_end(first: str, waits: int) -> None:
    made = lost()
    pass_time(made, waits)
    if first == "the origin":
        ends(made)
    made.serve(served("b", 6.0, last=True))
    pass_time(made)
    if first == "the other host":
        assert made.listed(JOB).service_container_s == 9.0
        ends(made)
        pass_time(made)
    assert made.listed(JOB).service_container_s == 11.0


@pytest.mark.parametrize("waits", [0, 10], ids=["at once", "later"])
@pytest.mark.parametrize("dies", [False, True], ids=["the same master", "the next master"])
def test_the_last_report_of_its_origin_may_come_before_the_end(waits: int, dies: bool) -> None:
    """A container of the job has outlived it."""
    made = lost()
    pass_time(made, waits)
    made = restarted(made) if dies else made
    made.node("a")
    made.serve(served("a", 5.0, last=True))
    ends(made, 4.5, last=False)
    pass_time(made)
    assert made.listed(JOB).service_container_s == 9.0


def test_a_last_report_counts_once() -> None:
    made = lost()
    pass_time(made)
    for _ in range(2):
        made.serve(served("b", 6.0, last=True))
    assert made.listed(JOB).service_container_s == 9.0


@pytest.mark.parametrize("first", ["the origin", "the other host"])
def test_the_service_before_a_restart_of_its_agent_counts_though_the_job_was_over(first: str) -> None:
    """It counts from 0 then."""
    made = lost()
    pass_time(made)
    made.serve(served("b", 5.5))
    if first == "the origin":
        ends(made)
    made.serve(served("b", 1.0, last=True))
    if first == "the other host":
        assert made.listed(JOB).service_container_s == 9.5
        ends(made)
    pass_time(made)
    assert made.listed(JOB).service_container_s == 11.5


def test_a_report_before_the_last_is_not_stored_and_is_in_the_last() -> None:
    made = lost()
    pass_time(made)
    made.serve(served("b", 5.5))
    made.serve(served("b", 0.0))  # of an agent that is linked again: its last report is to follow
    assert (made.listed(JOB).service_container_s, stored_s(made)) == (8.5, 7.0)
    made.serve(served("b", 6.0, last=True))
    assert (made.listed(JOB).service_container_s, stored_s(made)) == (9.0, 9.0)


def test_a_node_without_a_part_in_the_job_reports_nothing_of_it() -> None:
    made = lost()
    made.node("c")
    made.serve(served("c", 100.0, last=True))
    pass_time(made)
    made.serve(served("c", 100.0, last=True))
    assert made.listed(JOB).service_container_s == 7.0


def test_a_host_that_was_away_at_the_loss_reports_the_rest_when_it_is_back() -> None:
    made = bed("a", "b", ordering="gittins")
    made.job("a", JOB, at=2.0, name="j")
    made.serve(e.Received("b", api.JoinJob(job=JOB, user="u")))
    made.serve(served("b", 4.0))
    made.serve(e.NodeAway("b"))
    at_end = api.JobEnded(job=JOB, done=True, use=api.JobUse(job=JOB, service_s=5.0))
    made.serve(e.Received("a", at_end))
    made.node("b")
    made.serve(served("b", 6.0, last=True))
    made.serve(served("a", 5.5, last=True))
    assert made.listed(JOB).service_container_s == 11.5


def test_its_tenant_is_charged_once_for_each_part() -> None:
    made = lost(ordering="fifo", weights={"u": 1.0})
    pass_time(made)
    made.serve(served("b", 6.0, last=True))
    ends(made)
    pass_time(made)
    assert made.listed(JOB).service_container_s == 11.0
    assert "has received 11 s more service" in made.cluster.order.rank(made.now).reason("k").said


def test_of_a_record_by_an_older_master_the_service_at_the_origin_is_counted_once() -> None:
    """It lacks what each node had reported."""
    made = restarted(lost(), expected_reports_s=None)
    ends(made)
    assert made.listed(JOB).service_container_s == 5.0


def test_a_job_whose_origin_reported_its_end_expects_no_later_report() -> None:
    made = lost()
    ends(made)
    pass_time(made)
    past = made.cluster.past.get(JOB)
    assert isinstance(past, FinishedJob)
    assert past.expected_reports_s == {}

"""A job that ended while its origin had no link to the master is listed with its outcome, and counted once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from master.core import events as e
from master.core.finished_jobs import MOST_OF_A_USER
from penstock.model import EndedBy
from penstock.wire import master_api as api
from penstock.wire.agent_api import StageProgress
from penstock.wire.errors import RpcError
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.jobs_api import JobView, TaskFailure
from tests.unit.master.cluster_bed import Bed, bed, command, task

JOB = "a-1f2e3d4c-1"  # an id made by the agent of ``a``
ENDED_AT = 7.5
FAILURE = TaskFailure(task="t", stage="s", node="a", by=EndedBy.EXIT.value, exit_status=3)
#: The report of an end, the origin's knowledge, and the outcome.
ENDS: list[tuple[dict[str, Any], dict[str, Any], tuple[str, str]]] = [
    ({"done": True}, {}, ("succeeded", "")),
    ({}, {}, ("succeeded", "")),
    ({"failed": "1 task refused"}, {}, ("failed", "1 task refused")),
    ({"why": "its client x disconnected"}, {"undone": True}, ("disconnected", "its client x disconnected")),
    ({"done": True}, {"undone": True}, ("cancelled", "its framework ended it before it was done")),
    (
        {"done": True},
        {"tasks_ended": 1, "tasks_failed": 1, "failures": [FAILURE]},
        ("failed", "1 task failed; first t: exit status 3"),
    ),
    (
        {"done": True},
        {"tasks_ended": 2, "tasks_cancelled": 2},
        ("cancelled", "its framework cancelled 2 of its tasks"),
    ),
    (
        {},
        {"stages": [StageProgress(stage="map", tasks=10, done=3)]},
        ("cancelled", "its framework ended it before it was done"),
    ),
]


def ended(at_end: dict[str, Any] | None = None, *, service_s: float = 5.0, **how: Any) -> e.Received:
    """Return the report of the end of :data:`JOB` that its origin sends right behind its registration."""
    known = JobAtEnd(**{"name": "j", "user": "u", "submitted_at": 2.0, "ended_at": ENDED_AT, **(at_end or {})})
    use = api.JobUse(job=JOB, service_s=service_s, last=True)
    return e.Received("a", api.JobEnded(**{"job": JOB, "use": use, "at_end": known, **how}))


def running(*, tasks: bool = True) -> Bed:
    """Return a master with the job of ``a``, which has received 3 s of service, and its running task."""
    made = bed("a", "b", ordering="gittins")
    made.job("a", JOB, at=2.0, name="j")
    if tasks:
        made.ready("a", task("t", nodes=("a",)), job=JOB)
        made.round()
    made.heartbeat("a", jobs=[api.JobUse(job=JOB, service_s=3.0)])
    return made


def back(made: Bed, message: e.Received) -> JobView:
    """The origin, which was away, registers without the job, and reports its end."""
    if "a" in made.cluster.nodes:
        made.serve(e.NodeAway("a"))
    made.now += ENDED_AT
    made.node("a")
    made.serve(message)
    return made.listed(JOB)


def learnt(made: Bed) -> float:
    """Return how many jobs of the name have been counted."""
    return made.cluster.sizes.count("u", "j")[0]


@pytest.mark.parametrize(("how", "at_end", "outcome"), ENDS)
@pytest.mark.parametrize("known", [True, False], ids=["the master knew it", "another master knew it"])
def test_it_is_listed_with_its_outcome(
    known: bool, how: dict[str, Any], at_end: dict[str, Any], outcome: tuple[str, str]
) -> None:
    made = running() if known else bed("b", ordering="gittins")
    view = back(made, ended(at_end, **how))
    assert (view.state, view.outcome, view.why) == ("ended", *outcome)
    assert (view.name, view.user, view.origin) == ("j", "u", "a")
    assert (view.submitted_at, view.ended_at) == (2.0, ENDED_AT)
    assert view.service_container_s == 5.0
    assert not made.cluster.jobs
    assert not made.cluster.unlearnt.jobs
    assert made.kept().jobs[JOB] == made.cluster.past.get(JOB), "the next master knows it, too"


@pytest.mark.parametrize("known", [True, False], ids=["the master knew it", "another master knew it"])
@pytest.mark.parametrize(("undone", "counted"), [(False, 1), (True, 0)])
def test_a_job_that_was_complete_is_counted_once_and_no_other(known: bool, undone: bool, counted: int) -> None:
    made = running() if known else bed("b", ordering="gittins")
    back(made, ended({"undone": undone}))
    made.round(10.0)
    assert learnt(made) == counted


def test_tasks_that_were_done_meanwhile_count_as_work_of_the_job() -> None:
    made = running()
    made.serve(e.NodeAway("a"))
    made.node("a")
    made.serve(e.Received("a", api.TasksDone(job=JOB, tasks=["t"])))
    made.serve(ended({"tasks_ended": 1}, done=True))
    assert made.listed(JOB).tasks_done == 1
    needed = made.cluster.history.of(("u", "j"))
    assert needed is not None
    assert needed.work == (1e6, 0.0, 0.0)
    assert needed.lengths_s == (), "the time of its end is another clock's"


def test_an_unknown_job_of_placed_tasks_teaches_nothing() -> None:
    """The bytes of the tasks are unknown."""
    made = bed("b", ordering="gittins")
    assert back(made, ended({"tasks_ended": 4}, done=True)).tasks_done == 4
    assert learnt(made) == 0
    assert made.cluster.history.of(("u", "j")) is None


def old(number: int) -> e.Received:
    """Return the report of a job that ended at second ``number``."""
    at_end = JobAtEnd(name="j", user="u", submitted_at=1.0, ended_at=float(number))
    use = api.JobUse(job=f"a-1-{number}", service_s=1.0, last=True)
    return e.Received("a", api.JobEnded(job=use.job, done=True, at_end=at_end, use=use))


def test_old_ends_do_not_displace_later_ones() -> None:
    made = bed("a", "b", ordering="gittins")
    made.now = 1000.0
    for number in range(MOST_OF_A_USER):
        made.job("b", f"new-{number}")
        made.serve(e.Received("b", api.JobEnded(job=f"new-{number}", done=True)))
    for number in range(MOST_OF_A_USER):
        made.serve(old(number))
    assert {past.view.origin for past in made.cluster.past} == {"b"}
    assert learnt(made) == 0


def test_of_ends_before_and_after_an_outage_the_latest_are_listed() -> None:
    made = bed("a", "b", ordering="gittins")
    for number in range(MOST_OF_A_USER):
        made.now = 2.0 * number + 1.0
        made.job("b", f"new-{number}")
        made.serve(e.Received("b", api.JobEnded(job=f"new-{number}", done=True)))
    for number in range(MOST_OF_A_USER):
        made.serve(old(2 * number))
    times = sorted(past.view.ended_at or 0.0 for past in made.cluster.past)
    assert times == [float(second) for second in range(MOST_OF_A_USER, 2 * MOST_OF_A_USER)]


def test_ends_that_are_repeated_after_they_were_displaced_are_counted_no_more() -> None:
    made = bed("a", "b", ordering="gittins")
    made.now = 1000.0
    counted = []
    for _ in range(2):
        for number in range(MOST_OF_A_USER + 50):
            made.serve(old(number))
        counted.append(learnt(made))
    assert counted[0] == counted[1] > 0


def test_no_job_ended_later_than_now() -> None:
    """The clock of its origin is ahead."""
    made = bed("b", ordering="gittins")
    assert back(made, ended({"ended_at": 1e9})).ended_at == made.cluster.clock.unix(made.now)


@pytest.mark.parametrize("known", [True, False], ids=["the master knew it", "another master knew it"])
def test_a_report_that_is_repeated_changes_nothing(known: bool) -> None:
    """Its answer was lost with the connection."""
    made = running() if known else bed("b", ordering="gittins")
    first = back(made, ended({"tasks_failed": 1, "failures": [FAILURE]}))
    assert back(made, ended({}, service_s=9.0, done=True)) == first
    made.round(10.0)
    assert made.listed(JOB) == first


def test_it_has_not_ended_for_its_users_until_the_outcome_is_reported() -> None:
    """A command that waits for the end of the job would take the provisional outcome for the final one."""
    made = running()
    made.serve(e.NodeAway("a"))
    made.node("a")
    assert made.listed(JOB).state == "ending"
    made.serve(ended(done=True))
    assert made.listed(JOB).state == "ended"


@pytest.mark.parametrize("how", [{"done": True}, {"failed": "1 task refused"}], ids=["succeeded", "failed"])
@pytest.mark.parametrize("tasks", [True, False], ids=["with a task", "without tasks"])
@pytest.mark.parametrize("dies", [False, True], ids=["the same master", "the next master"])
def test_a_report_that_comes_late_corrects_the_outcome_and_counts_nothing(
    dies: bool, tasks: bool, how: dict[str, Any]
) -> None:
    made = running(tasks=tasks)
    made.serve(e.NodeAway("a"))
    made.node("a")
    if not dies:
        made.round(10.0)
        assert made.listed(JOB).state == "ended", "it is not waited for for long"
    assert (made.listed(JOB).outcome, made.listed(JOB).why) == (
        "disconnected",
        "its job ended while its origin was away",
    )
    assert learnt(made) == 0
    if dies:
        stored = [past for past in made.kept().jobs.values() if past is not None]
        made = Bed(ordering="gittins")
        made.serve(e.StateRestored({}, stored))
    assert back(made, ended(**how)).outcome == ("failed" if "failed" in how else "succeeded")
    assert learnt(made) == 0


def test_an_end_that_was_reported_at_once_is_not_changed_by_its_repetition() -> None:
    made = running()
    made.serve(e.Received("a", api.TasksDone(job=JOB, tasks=["t"])))
    made.serve(e.Received("a", api.JobEnded(job=JOB, done=True, use=api.JobUse(job=JOB, service_s=5.0, last=True))))
    before = made.listed(JOB)
    assert learnt(made) == 1
    assert back(made, ended(done=True)) == before
    assert learnt(made) == 1


def test_a_repetition_to_the_next_master_counts_the_job_no_more() -> None:
    made = running()
    back(made, ended(done=True))
    after = Bed(ordering="gittins")
    jobs = [past for past in made.kept().jobs.values() if past is not None]
    sizes = [known for known in made.kept().sizes.values() if known is not None]
    after.serve(e.StateRestored({}, jobs, sizes))
    assert back(after, ended(done=True)) == made.listed(JOB)
    assert learnt(after) == 1


@pytest.mark.parametrize("waits_s", [0.0, 10.0], ids=["at once", "later"])
def test_a_job_that_was_lost_with_its_host_is_listed_as_it_ended_once_the_host_is_back(waits_s: float) -> None:
    made = bed("a", "b", ordering="gittins")
    made.job("a", JOB, at=2.0, name="j")
    made.heartbeat("a", jobs=[api.JobUse(job=JOB, service_s=3.0)])
    made.serve(e.NodeAway("a"))
    made.now += made.cluster.settings.node_timeout_s + 1.0
    made.heartbeat("b")
    made.round()
    assert made.listed(JOB).outcome == "lost"
    assert learnt(made) == 0, "it is not known to be complete"
    for _ in range(int(waits_s)):
        made.heartbeat("b")
        made.round(1.0)
    assert back(made, ended(done=True)).outcome == "succeeded"
    assert learnt(made) == 1


@pytest.mark.parametrize("away_s", [0.0, 60.0], ids=["reported late", "lost"])
def test_its_tenant_is_charged_once_for_its_service(away_s: float) -> None:
    made = bed("a", "b", ordering="fifo", weights={"u": 1.0})
    made.job("b", "k", at=1.0)
    made.job("b", "m", at=1.0, user="v")
    made.job("a", JOB, at=2.0, name="j")
    for service_s in (0.0, 3.0):
        made.heartbeat("a", jobs=[api.JobUse(job=JOB, service_s=service_s)])
        made.round()
    made.serve(e.NodeAway("a"))
    made.now += away_s
    made.heartbeat("b")
    made.round()
    if not away_s:
        made.node("a")
        for _ in range(10):
            made.heartbeat("b")
            made.round(1.0)
    assert made.listed(JOB).outcome == ("lost" if away_s else "disconnected")
    assert back(made, ended(done=True)).service_container_s == 5.0
    made.heartbeat("b")
    made.round()
    assert "has received 5.0 s more service" in made.cluster.order.rank(made.now).reason("k").said


def test_another_node_cannot_report_the_end() -> None:
    made = running()
    made.serve(e.NodeAway("a"))
    made.node("a")
    message = ended(done=True).message
    assert made.serve(e.Received("b", message)) == []
    assert made.listed(JOB).outcome == "disconnected", "as far as the registration shows"


def test_another_node_cannot_report_the_end_of_a_job_that_no_master_remembers() -> None:
    made = bed("a", "b", ordering="gittins")
    with pytest.raises(RpcError, match="belongs to node 'a'") as caught:
        made.serve(e.Received("b", ended(done=True).message))
    assert caught.value.body.field == "job"
    assert made.cluster.past.get(JOB) is None
    assert learnt(made) == 0


def test_the_hosts_of_a_lost_job_serve_it_until_its_end_is_reported() -> None:
    """It may come back until then."""
    made = bed("a", "b")
    made.job("a", JOB, at=2.0, name="j")
    made.serve(e.Received("b", api.JoinJob(job=JOB, user="u")))
    made.serve(e.NodeAway("a"))
    made.now += made.cluster.settings.node_timeout_s + 1.0
    made.heartbeat("b")
    made.round()
    assert made.listed(JOB).outcome == "lost"
    assert made.cluster.nodes["b"].serves == {JOB}
    back(made, ended(done=True))
    assert made.cluster.nodes["b"].serves == set()


def test_the_work_of_a_job_that_was_merged_into_another_is_listed_there() -> None:
    made = running()
    made.serve(e.NodeAway("a"))
    made.node("a")
    made.serve(ended(done=True, merged_into="k"))
    assert made.cluster.past.get(JOB) is None
    assert learnt(made) == 0


def test_a_cancelled_job_stays_cancelled() -> None:
    made = running()
    made.serve(e.NodeAway("a"))
    made.serve(e.CancelRequested(JOB, "ann"))
    view = back(made, ended(why="its client x disconnected"))
    assert (view.outcome, view.why) == ("cancelled", "cancelled by ann")


@pytest.mark.parametrize("at_end", [{}, {"undone": True}], ids=["no task", "unfinished tasks"])
@pytest.mark.parametrize("known", [True, False], ids=["the master knew it", "another master knew it"])
def test_a_job_that_was_cancelled_by_a_former_master_stays_cancelled(known: bool, at_end: dict[str, Any]) -> None:
    """That master was killed before it had stored the end."""
    made = running() if known else bed("b", ordering="gittins")
    view = back(made, ended({**at_end, "cancelled_by": "ann"}, why="cancelled by ann"))
    assert (view.outcome, view.why) == ("cancelled", "cancelled by ann")
    assert learnt(made) == 0
    with pytest.raises(RpcError, match="was cancelled by ann") as caught:
        made.serve(e.Received("b", api.JoinJob(job=view.job, user="u")))
    assert caught.value.body.cancelled_by == "ann", "so its clients on other nodes get the cancellation"


def test_an_older_agent_reports_the_service_only() -> None:
    made = running()
    view = back(made, e.Received("a", api.JobEnded(job=JOB, use=api.JobUse(job=JOB, service_s=5.0, last=True))))
    assert (view.outcome, view.why) == ("disconnected", "its job ended while its origin was away")
    assert view.service_container_s == 5.0
    assert learnt(made) == 0


def test_a_cancelled_job_whose_end_was_not_reported_stays_cancelled() -> None:
    made = running()
    made.serve(e.NodeAway("a"))
    made.serve(e.CancelRequested(JOB, "ann"))
    made.node("a")
    made.round(10.0)
    assert back(made, ended(done=True)).outcome == "cancelled"


def test_its_commands_stop_with_the_registration() -> None:
    made = bed("a", "b")
    made.job("a", JOB, name="j")
    made.ready("a", command("t", nodes=("b",)), job=JOB)
    made.round()
    back(made, ended({"undone": True}, why="its client x disconnected"))
    assert [(node, each.task) for node, each in made.decisions_of(api.Withdraw)] == [("b", "t")]


@pytest.mark.parametrize("field", ["submitted_at", "ended_at"])
def test_a_time_that_is_none_is_refused(field: str) -> None:
    made = running()
    with pytest.raises(RpcError, match="not a time") as caught:
        made.serve(ended({field: math.inf}))
    assert caught.value.body.field == f"at_end.{field}"
    assert JOB in made.cluster.jobs

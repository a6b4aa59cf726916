"""The session of a job without I/O: its registration at one agent after the other, and the requests that are
repeated.
"""

from __future__ import annotations

import pytest

from penstock.client.job_session import JobSession
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.model.container import Ended, EndedBy
from penstock.wire.agent_api import JobAdmitted, JobRegistered, RegisterJob, TaskEnded, TaskPlaced
from penstock.wire.errors import RpcError, bad_request, refused

OK = Ended(by=EndedBy.EXIT, exit_status=0)


@pytest.fixture
def job() -> JobSession:
    return JobSession(RegisterJob(name="j"))


def request_tasks(job: JobSession, *tasks: str, command: bool = True, confirmed: bool = True) -> None:
    """Request commands, or tasks of the framework, which may run on slack; let the agent accept them."""
    usage, spec = KindAmounts(cpu=1.0), ContainerSpec(argv=("true",)) if command else None
    requests = [TaskRequest(task=task, usage=usage, command=spec) for task in tasks]
    names, _ = job._request("s", requests, not command)
    if confirmed:
        job._tasks.confirm(names)


def test_a_refused_first_registration_is_final(job: JobSession) -> None:
    assert job.registration().job == ""
    with pytest.raises(RpcError, match="no such reservation"):
        job.registration_after(bad_request("no such reservation"))


def test_a_registered_job_is_joined_and_registered_anew_where_it_is_unknown(job: JobSession) -> None:
    job.registered(JobRegistered(job="j-1", admitted=True))
    assert job.registration() == RegisterJob(name="j", job="j-1")
    assert job.registration_after(bad_request("unknown job")) == RegisterJob(name="j")
    with pytest.raises(RpcError, match="was cancelled"):
        job.registration_after(refused("was cancelled"))


@pytest.mark.parametrize("by_message", [False, True])
def test_outstanding_tasks_are_requested_once_when_a_restarted_agent_has_admitted_the_job(
    job: JobSession, by_message: bool
) -> None:
    job.registered(JobRegistered(job="j-1", admitted=True))
    request_tasks(job, "waits", "runs", "ended")
    request_tasks(job, "waits-too", "ours", command=False)
    request_tasks(job, "being-asked", confirmed=False)
    for task in ("runs", "ended", "ours"):
        assert job._record(TaskPlaced(job="j-1", task=task, node="n"))
    assert job._record(TaskEnded(job="j-1", task="ended", node="n", ended=OK))
    assert job.requests_to_repeat() == []
    job.registered(JobRegistered(job="j-2", admitted=not by_message))
    if by_message:
        assert job.requests_to_repeat() == []
        assert job._record(JobAdmitted(job="j-2"))
    repeated = job.requests_to_repeat()
    assert [
        (asked.job, asked.stage, asked.opportunistic, [each.task for each in asked.tasks]) for asked in repeated
    ] == [("j-2", "s", False, ["waits", "runs"]), ("j-2", "s", True, ["waits-too"])]
    assert job.requests_to_repeat() == []
    assert not job._record(JobAdmitted(job="j-2")), "it is known"


@pytest.mark.parametrize("then", ["nothing", "a message admits it", "it is joined again, and is admitted"])
@pytest.mark.parametrize("accepted", [True, False])
def test_a_request_before_the_admission_is_no_reason_to_repeat_those_after_it_early(
    job: JobSession, then: str, *, accepted: bool
) -> None:
    job.registered(JobRegistered(job="j-1", admitted=False))
    request_tasks(job, "first", confirmed=accepted)
    if not accepted:
        job._tasks.withdraw(["first"])
    if then == "a message admits it":
        assert job._record(JobAdmitted(job="j-1"))
    elif then != "nothing":
        job.registered(JobRegistered(job="j-1", admitted=True))
    if then != "nothing":
        request_tasks(job, "later")
    job.registered(JobRegistered(job="j-2", admitted=False))
    assert bool(job.requests_to_repeat()) == (then == "nothing" and accepted)
    job._record(JobAdmitted(job="j-2"))
    assert bool(job.requests_to_repeat()) == (then != "nothing")


def test_tasks_that_a_restarted_agent_refuses_end_once(job: JobSession) -> None:
    request_tasks(job, "a", "b")
    [asked] = job._tasks.to_ask_again("j")
    assert job._record(TaskEnded(job="j", task="a", node="n", ended=OK))
    [(name, ended)] = job._tasks.refused_again(asked, refused("no room"))
    assert (name, ended.by) == ("b", EndedBy.REFUSED)
    assert "the restarted agent refused it" in ended.reason and "no room" in ended.reason


def test_a_job_ends_once(job: JobSession) -> None:
    assert job._finish(None)
    assert not job._finish(RuntimeError("late"))
    assert job.over and job.failure is None

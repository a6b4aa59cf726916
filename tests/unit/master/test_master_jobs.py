"""Requests about jobs that agents relay: the jobs that a user sees, the users who may stop them, and the answer where
there is none.
"""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
import pytest

from master import jobs
from master.core import events as e
from master.explain.why import JobExplainer
from master.http_documents import EndedJobExplained, JobExplained
from penstock.wire import jobs_api as api
from penstock.wire import master_api
from penstock.wire.agent_api import Result
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command

T = TypeVar("T")


@pytest.fixture
def made() -> Bed:
    """Jobs of eve and max; one of eve's is over."""
    made = bed("a")
    for name, user in (("e1", "eve"), ("e2", "eve"), ("m1", "max")):
        made.job("a", name, user=user)
    made.ready("a", command("t"), job="e1")
    made.ready("a", command("t", nodes=("nowhere",)), job="m1")
    made.round()
    made.serve(jobs_event("e2"))
    return made


def jobs_event(job: str) -> Any:
    return e.Received("a", master_api.JobEnded(job=job))


def ask(made: Bed, call: str, user: str = "eve", operator: bool = False, **params: Any) -> Result:
    asked = OnBehalf(user=user, operator=operator, call=call, params=params)
    cluster = made.cluster
    return jobs.answer(cluster.listing, JobExplainer.of(cluster), cluster.nodes, made.serve, asked, made.now)


def listed(answer: Result) -> list[str]:
    assert isinstance(answer, api.Jobs)
    return [view.job for view in answer.jobs]


def test_users_see_their_own_jobs_and_operators_all(made: Bed) -> None:
    assert listed(ask(made, "jobs")) == ["e2", "e1"], "the job that ended first"
    assert listed(ask(made, "jobs", ended=False)) == ["e1"]
    assert listed(ask(made, "jobs", "max")) == ["m1"]
    assert listed(ask(made, "jobs", "root", True)) == []
    assert listed(ask(made, "jobs", "root", True, everybody=True)) == ["e2", "e1", "m1"]
    with pytest.raises(RpcError, match="only operators see everybody's jobs"):
        ask(made, "jobs", everybody=True)


def test_named_jobs_are_distinguished_from_foreign_and_unknown_ones(made: Bed) -> None:
    answer = ask(made, "jobs", jobs=["m1", "e1", "nobody-1", "e2"])
    assert isinstance(answer, api.Jobs)
    assert listed(answer) == ["e1", "e2"]
    assert (answer.unknown, answer.foreign) == (["nobody-1"], {"m1": "max"})
    assert [stage.stage for stage in answer.jobs[0].progress] == ["s"]
    assert listed(ask(made, "jobs", "root", True, jobs=["m1", "e1"])) == ["m1", "e1"]


@pytest.mark.parametrize(
    ("call", "job", "code", "said"),
    [
        ("cancel_job", "m1", ErrorCode.REFUSED, "job 'm1' belongs to max"),
        ("cancel_job", "e2", ErrorCode.REFUSED, "job 'e2' has ended: succeeded"),
        ("cancel_job", "nobody-1", ErrorCode.BAD_REQUEST, "there is no job 'nobody-1'"),
        ("explain_job", "m1", ErrorCode.REFUSED, "job 'm1' belongs to max"),
        ("explain_job", "nobody-1", ErrorCode.BAD_REQUEST, "there is no job 'nobody-1'"),
        ("forget_job", "e1", ErrorCode.BAD_REQUEST, "no call 'forget_job'"),
    ],
)
def test_actions_that_are_refused(made: Bed, call: str, job: str, code: ErrorCode, said: str) -> None:
    before = len(made.sent)
    with pytest.raises(RpcError) as caught:
        ask(made, call, job=job)
    assert caught.value.code is code
    assert said in str(caught.value)
    assert len(made.sent) == before, "and no message was sent"


def test_one_s_own_is_stopped_and_by_operators_any(made: Bed) -> None:
    assert ask(made, "cancel_job", job="e1") == api.Cancellation(job="e1")
    assert ask(made, "cancel_job", "root", True, job="m1") == api.Cancellation(job="m1")
    assert [(decision.job, decision.by) for _, decision in made.decisions_of(master_api.CancelJob)] == [
        ("e1", "eve"),
        ("m1", "root"),
    ]


def test_one_s_own_are_put_first_and_by_operators_any(made: Bed) -> None:
    made.job("a", "e3", user="eve")
    assert ask(made, "order_jobs", jobs=["e3", "e1", "e3"]) == api.JobsOrdered(jobs=["e3", "e1"], of_all=False)
    assert made.cluster.order.rank(made.now).order() == ["e3", "m1", "e1"]
    assert ask(made, "order_jobs", "root", True, jobs=["m1"]) == api.JobsOrdered(jobs=["m1"], of_all=True)
    assert made.cluster.order.rank(made.now).order() == ["m1", "e3", "e1"]
    assert ask(made, "order_jobs", jobs=[]) == api.JobsOrdered(jobs=[], of_all=False)
    assert made.cluster.order.rank(made.now).order() == ["m1", "e1", "e3"]


@pytest.mark.parametrize(
    ("job", "said"), [("m1", "belongs to max"), ("e2", "has ended: succeeded"), ("nobody-1", "there is no job")]
)
def test_with_one_job_that_cannot_be_put_first_none_is(made: Bed, job: str, said: str) -> None:
    made.job("a", "e3", user="eve")
    with pytest.raises(RpcError, match=said):
        ask(made, "order_jobs", jobs=["e3", job])
    assert made.cluster.order.rank(made.now).order() == ["e1", "m1", "e3"]


def test_a_host_that_is_away_is_named(made: Bed) -> None:
    made.serve(e.NodeAway("a"))
    assert ask(made, "cancel_job", job="e1") == api.Cancellation(job="e1", away="a")


def explained(made: Bed, job: str, of: type[T], user: str = "eve") -> T:
    """Return the explanation as its document, which has every key and no other."""
    answer = ask(made, "explain_job", user, job=job)
    assert isinstance(answer, api.Explained)
    return msgspec.convert(msgspec.to_builtins(answer.explained), of)


def test_where_its_tasks_were_placed_and_by_which_numbers(made: Bed) -> None:
    said = explained(made, "e1", JobExplained)
    assert (said.placed, said.ended, said.cancelled_by) == ({"a": 1}, None, "")
    [task] = said.last_placed
    assert (task.task, task.stage, task.node, task.opportunistic) == ("t", "s", "a", False)
    assert task.why.startswith("ursa: F = ")
    waiting = explained(made, "m1", JobExplained, "max")
    assert waiting.placed == {}
    assert waiting.stages[0].waits.startswith("task t: ")


def test_of_one_that_is_over_how_it_ended(made: Bed) -> None:
    made.serve(e.Received("a", master_api.CommandEnded(job="e1", task="t", origin="a", ended=EXIT)))
    made.serve(jobs_event("e1"))
    said = explained(made, "e1", EndedJobExplained)
    assert (said.name, said.ended.outcome, said.ended.tasks_done) == ("e1", "succeeded", 1)

"""A master that has just started knows neither the decisions of the former one nor the ends since: no work that ran is
run again.
"""

from __future__ import annotations

import pytest

from master.core import events as e
from master.core.instructions import AcknowledgeEnd
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state, placed_task, task

PREEMPTED = Ended(by=EndedBy.PREEMPTED, reason="memory was wanted")


def holding(task: str) -> api.PlacedTask:
    """Return a node's report of a running command."""
    return placed_task(task, remaining=command(task).usage)


def ran_on_b(b: Bed, ended: Ended = EXIT) -> None:
    """Return b's reports behind its registration."""
    b.serve(e.Received("b", api.CommandEnded(job="j", task="t", origin="a", ended=ended)))


def origin_registers(b: Bed, *, told: bool = True, **more: object) -> None:
    """The origin registers and waits for a command that is on b by a former message; or it does not know yet that it
    was placed.
    """
    awaited = [api.AwaitedTask(job="j", stage="s", request=command("t"), node="b")]
    ready = [api.ReadyTasks(job="j", stage="s", tasks=[command("t")])]
    b.node("a", jobs=[job_state("j")], awaited=awaited if told else [], ready=[] if told else ready, **more)


@pytest.mark.parametrize("told", [True, False])
@pytest.mark.parametrize("other", [False, True], ids=["nothing of the job is known", "another command of it runs"])
def test_an_end_is_kept_for_an_origin_that_has_yet_to_register(told: bool, other: bool) -> None:
    b = bed("c")
    if other:
        b.node("c", placed=[holding("other")])
    b.node("b")
    ran_on_b(b)
    origin_registers(b, told=told)
    assert [(node, said.task, said.node, said.ended) for node, said in b.decisions_of(api.TellEnded)] == [
        ("a", "t", "b", EXIT)
    ]
    assert b.round() == []
    assert "t" not in b.cluster.jobs["j"].tasks


def test_a_framework_s_task_that_its_restarted_origin_has_journaled_is_lost_with_its_node() -> None:
    """The node does not come back: nobody else would report that the task is over."""
    b = bed(node_timeout_s=5.0)
    awaited = api.AwaitedTask(job="j", stage="s", request=task("t"), node="b")
    b.node("a", jobs=[job_state("j", admitted=True)], awaited=[awaited], complete=False)
    for _ in range(2):
        b.round(4.0)
        b.heartbeat("a")
    [(node, told)] = b.decisions_of(api.TellEnded)
    assert (node, told.task, told.node, told.ended.by) == ("a", "t", "b", EndedBy.LOST)


def test_a_task_stopped_before_the_origin_registered_runs_again() -> None:
    b = bed("b")
    ran_on_b(b, PREEMPTED)
    origin_registers(b)
    assert [task for task, _ in b.round()] == ["t"]


def test_a_command_that_its_restarted_origin_has_cancelled_ends_though_its_node_registers_later() -> None:
    b = bed("c")
    b.node("a", jobs=[job_state("j")], complete=False)
    b.serve(e.Received("a", api.TasksCancelled(job="j", tasks=["t"])))
    b.node("b", placed=[holding("t"), holding("other")])
    assert [(node, said.task) for node, said in b.decisions_of(api.Withdraw)] == [("b", "t")]
    assert list(b.cluster.jobs["j"].tasks) == ["other"]


def test_an_end_of_a_job_that_its_origin_no_longer_has_is_dropped() -> None:
    b = bed("b")
    ran_on_b(b)
    b.node("a")
    assert b.cluster.jobs == {} and b.decisions_of(api.TellEnded) == []
    ran_on_b(b)
    assert b.cluster.jobs == {}, "its origin is here, and does not know it"


def test_an_end_without_an_origin_is_dropped_with_it() -> None:
    b = bed("b")
    ran_on_b(b)
    b.heartbeat("b")
    for _ in range(4):
        b.now += 4.0
        b.heartbeat("b")
        b.round()
    assert b.cluster.jobs == {} and set(b.cluster.nodes) == {"b"}


def origin_that_has_not_heard() -> Bed:
    """Of a command that has ended on b."""
    b = bed("a", "b")
    b.job("a")
    b.ready("a", command("t", nodes=("b",)))
    b.round()
    b.answering = False
    ran_on_b(b)
    return b


def test_the_report_of_a_command_s_end_is_answered_when_its_origin_has_it() -> None:
    b = origin_that_has_not_heard()
    number = b.numbers["a"]
    assert b.cluster.end_is_unconfirmed(("j", "t")) and acknowledged_ends(b) == []
    b.serve(e.Answered("a", number, []))
    assert not b.cluster.end_is_unconfirmed(("j", "t")) and acknowledged_ends(b) == [AcknowledgeEnd("j", "t")]
    b.serve(e.Answered("a", number, []))
    assert acknowledged_ends(b) == [AcknowledgeEnd("j", "t")], "once"


def test_an_origin_whose_job_is_over_is_not_waited_for() -> None:
    b = origin_that_has_not_heard()
    b.serve(e.Received("a", api.JobEnded(job="j")))
    assert acknowledged_ends(b) == [AcknowledgeEnd("j", "t")] and not b.cluster.end_is_unconfirmed(("j", "t"))


def acknowledged_ends(b: Bed) -> list[object]:
    """Return the ends that were reported as known to their origin."""
    return [said for said in b.other if isinstance(said, AcknowledgeEnd)]


@pytest.mark.parametrize("returns", [True, False])
def test_nothing_is_placed_before_every_node_can_have_reported_its_holdings(returns: bool) -> None:
    """The former master had placed it, and ended before it reported that to the origin."""
    b = bed(gather_s=5.0)
    origin_registers(b, told=False)
    b.node("c")
    for _ in range(4):
        assert b.round(1.0) == []
    if returns:
        b.node("b", placed=[holding("t")])
    placed_anew = [task for _ in range(2) for task, _ in b.round(1.0)]
    assert placed_anew == ([] if returns else ["t"])
    assert [node for node, _ in b.decisions_of(api.TellPlaced)] == ["a"]


def test_a_first_master_places_at_once() -> None:
    b = bed("a", gather_s=5.0)
    b.job("a")
    b.ready("a", command("t"))
    assert b.round() == [("t", "a")]
    b.node("a")
    b.node("b", jobs=[job_state("k")], ready=[api.ReadyTasks(job="k", stage="s", tasks=[command("u")])])
    assert [task for task, _ in b.round()] == ["u"], "and goes on at once when another node brings its jobs"

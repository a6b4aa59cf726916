"""A node's messages about another one's job: none is accepted, unless it takes part in it.

Every message of the wire is tried.
"""

from __future__ import annotations

from typing import Any

import pytest

from master.core import events as e
from master.core.usage import UsageReports
from penstock.model import Capacity
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress, StageProgress
from penstock.wire.errors import ErrorCode, RpcError
from tests.master_invariants import broken
from tests.unit.master.cluster_bed import EXIT, MB, Bed, bed, command, job_state, load, placed_task, task

JOB = "a-1f-1"
STATE = job_state(JOB)
ALL = ["held", "run", "waits"]


def registration(**more: Any) -> api.Register:
    capacity = Capacity(cores=4, memory_bytes=1000 * MB)
    values: dict[str, Any] = {"capacity": capacity, "load": load(), "complete": True, **more}
    return api.Register(protocol=1, node="stranger", version="0", **values)


def claim(name: str) -> api.PlacedTask:
    return placed_task(name, JOB, command=name != "held")


def awaited(name: str) -> api.AwaitedTask:
    return api.AwaitedTask(job=JOB, stage="s", request=task(name), node="stranger")


#: Method → a stranger's messages about the job, and the refusal; "": it is accepted, as far as it concerns the
#: stranger.
SAID: dict[str, list[tuple[e.Message, str]]] = {
    "register": [
        (registration(jobs=[STATE]), "belongs to node 'a'"),
        (registration(ready=[api.ReadyTasks(job=JOB, stage="s", tasks=[task("new")])]), "not among `jobs`"),
        (registration(awaited=[awaited("held")]), "not among `jobs`"),
        (registration(placed=[claim(name) for name in (*ALL, "new")]), ""),
    ],
    "heartbeat": [
        (api.Heartbeat(load=load(jobs=[api.JobUse(job=JOB, service_s=1e9, running=9)])), ""),
        (api.Heartbeat(load=load(), executors=[api.ExecutorUse(job=JOB, task="run", slot_s=3.0, stuck=True)]), ""),
    ],
    "job_submitted": [(STATE, "belongs to node 'a'")],
    "join_job": [(api.JoinJob(job=JOB, user="other"), "belongs to u")],
    "job_ended": [(api.JobEnded(job=JOB), "belongs to node 'a'")],
    "tasks_ready": [(api.ReadyTasks(job=JOB, stage="s", tasks=[task("new")]), "belongs to node 'a'")],
    "tasks_done": [(api.TasksDone(job=JOB, tasks=ALL), "'stranger' has neither joined it nor a task of it")],
    "tasks_cancelled": [(api.TasksCancelled(job=JOB, tasks=ALL), "belongs to node 'a'")],
    "progress": [(Progress(job=JOB, stages=[StageProgress(stage="s", tasks=1, done=1)]), "belongs to node 'a'")],
    "command_ended": [(api.CommandEnded(job=JOB, task=name, origin="a", ended=EXIT), "") for name in ALL],
}


def working() -> Bed:
    """A job of a with a command and a framework's task on b, and a task that waits."""
    made = bed("a", "b", "stranger")
    made.job("a", JOB)
    made.ready("a", command("run", nodes=("b",)), task("held", nodes=("b",)), task("waits", nodes=("no",)), job=JOB)
    assert sorted(made.round()) == [("held", "b"), ("run", "b")]
    return made


def lose(made: Bed, *all_but: str) -> None:
    """Let the master get messages of these nodes only, until the others are lost."""
    for second in range(1, 14):
        made.now = float(second)
        for node in all_but:
            made.heartbeat(node)
        made.round(0.0)


def seen(made: Bed) -> tuple[str, str, str]:
    nodes = made.cluster.nodes
    return repr(made.cluster.jobs), repr(nodes["a"].held), repr(nodes["b"].held)


def test_every_message_of_the_wire_is_tried() -> None:
    assert SAID.keys() == api.REQUESTS.keys()
    for method, (message, _) in ((method, one) for method, some in SAID.items() for one in some):
        assert type(message) is api.REQUESTS[method].params


@pytest.mark.parametrize(("message", "refused"), [one for some in SAID.values() for one in some])
def test_a_node_cannot_speak_for_another_one_s_job(message: e.Message, refused: str) -> None:
    made = working()
    before, since = seen(made), len(made.sent)
    made.now = 1.0
    if refused:
        with pytest.raises(RpcError, match=refused) as caught:
            made.serve(e.Received("stranger", message))
        assert caught.value.code in (ErrorCode.REFUSED, ErrorCode.BAD_REQUEST)
    else:
        made.serve(e.Received("stranger", message))
    assert seen(made) == before
    assert {node for node, _ in made.sent[since:]} <= {"stranger"}, "it gets the answer that its task is not wanted"
    assert broken(made.cluster) == []


@pytest.mark.parametrize("who", ["origin", "joined", "holder"])
def test_a_participant_in_a_job_reports_that_its_tasks_are_done(who: str) -> None:
    made = working()
    if who == "joined":
        made.serve(e.Received("stranger", api.JoinJob(job=JOB, user="u")))
    made.serve(
        e.Received({"origin": "a", "joined": "stranger", "holder": "b"}[who], api.TasksDone(job=JOB, tasks=["held"]))
    )
    assert set(made.cluster.jobs[JOB].tasks) == {"run", "waits"}
    assert broken(made.cluster) == []


def test_a_former_participant_takes_part_after_a_restart_of_the_master_in_any_order_of_registrations() -> None:
    made = bed()
    made.node("b", load=load(jobs=[api.JobUse(job=JOB, service_s=1.0)]))
    ready = [api.ReadyTasks(job=JOB, stage="s", tasks=[task("t"), task("u")])]
    made.node("a", jobs=[STATE], ready=ready)
    made.serve(e.Received("b", api.TasksDone(job=JOB, tasks=["t"])))
    assert [(node, d.task, d.ended.by) for node, d in made.decisions_of(api.TellEnded)] == [("a", "t", EXIT.by)]
    made.now = 1.0
    made.serve(e.Received("b", api.Heartbeat(load=load(jobs=[api.JobUse(job=JOB, service_s=3.0)]))))
    assert made.cluster.jobs[JOB].work.service_s == 3.0


def test_a_node_with_assigned_work_takes_part_when_the_job_s_origin_was_lost_and_is_back() -> None:
    made = working()
    lose(made, "b", "stranger")
    assert "a" not in made.cluster.nodes and JOB not in made.cluster.jobs
    made.node("a", jobs=[STATE], ready=[api.ReadyTasks(job=JOB, stage="s", tasks=[task("t")])])
    with pytest.raises(RpcError, match="neither joined it"):
        made.serve(e.Received("stranger", api.TasksDone(job=JOB, tasks=["t"])))
    made.serve(e.Received("b", api.TasksDone(job=JOB, tasks=["t"])))
    assert made.cluster.jobs[JOB].tasks == {}


def test_a_node_s_reports_before_it_had_to_let_go_count_though_it_has_lost_its_part() -> None:
    made = working()
    lose(made, "a", "stranger")
    assert "b" not in made.cluster.nodes
    made.serve(e.Received("a", api.TasksCancelled(job=JOB, tasks=["held"])))
    made.answering = False  # its withdrawal is on its way
    made.node("b", placed=[claim("held")])
    assert made.cluster.nodes["b"].held[JOB, "held"].leaving
    made.serve(e.Received("b", api.TasksDone(job=JOB, tasks=["held"])))
    assert made.cluster.nodes["b"].held == {}
    assert broken(made.cluster) == []


def test_after_a_restart_of_the_master_the_job_is_its_origin_s_whoever_comes_first() -> None:
    made = bed()
    made.node("stranger", jobs=[STATE])
    made.node("a", jobs=[STATE])
    assert made.cluster.jobs[JOB].origin == "a"
    made = bed()
    made.node("b", placed=[claim("run")])
    with pytest.raises(RpcError, match="belongs to node 'a'"):
        made.serve(e.Received("stranger", registration(jobs=[STATE])))
    made.node("a", jobs=[STATE], complete=False)
    assert (made.cluster.jobs[JOB].origin, made.cluster.jobs[JOB].tasks["run"].node) == ("a", "b")


def test_a_placed_task_that_went_astray_is_taken_back_on_its_node() -> None:
    """The node was lost, and is back with its assigned work: nothing of that is done twice."""
    made = working()
    lose(made, "a", "stranger")
    assert made.cluster.jobs[JOB].tasks["run"].node == ""
    made.node("b", placed=[claim("run")])
    assert made.cluster.jobs[JOB].tasks["run"].node == "b"
    assert made.decisions_of(api.Withdraw) == []


def test_a_stuck_executor_is_reported_by_its_own_node() -> None:
    """Reported by another one it would be no news when its node reports it."""
    reports, late = UsageReports(), api.ExecutorUse(job=JOB, task="run", slot_s=3.0, stuck=True)
    reports.reported("b", api.ExecutorUse(job=JOB, task="run", slot_s=3.0), held=True)
    assert not reports.gets_stuck("stranger", late)
    assert reports.gets_stuck("b", late)

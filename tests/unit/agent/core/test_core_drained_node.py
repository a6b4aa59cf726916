"""A node that is drained: what it gives back, what it keeps, what it remembers, and what it says still runs."""

from __future__ import annotations

import pytest

from agent.core import Node, draining
from agent.core import events as e
from agent.core import instructions as i
from penstock.model import ContainerSpec, EndedBy, KindAmounts, MonotaskSpec, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, RegisterJob, Submit
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.master_api import Assign, CommandEnded, Drain
from tests.unit.agent.core.test_core_slack import CPU, JOB, Bed

ROOT = Draining("root", 1000.0)


def back(bed: Bed) -> list[tuple[str, EndedBy]]:
    """What went back to the master."""
    told = [one.params for one in bed.done if isinstance(one, i.TellMaster)]
    return [(one.task, one.ended.by) for one in told if isinstance(one, CommandEnded)]


def test_what_others_can_do_goes_back_at_once_and_the_rest_ends_by_itself() -> None:
    bed = Bed(opportunistic_queue=1)
    bed.assign("slack")
    for name in ("runs", "runs, too", "waits for a core"):
        bed.assign(name, opportunistic=False)
    bed.assign("waits for slack", memory=900)
    assert bed.started() == ["slack", "runs", "runs, too"]
    for task in ("slack", "runs", "runs, too"):
        bed.send(e.ContainerStarted(bed.container(task), 7, {}, 0.0))
    killed, runs = bed.container("slack"), [bed.container("runs"), bed.container("runs, too")]
    assert bed.decide(Drain(draining=ROOT)) == []
    assert back(bed) == [("waits for a core", EndedBy.PREEMPTED), ("waits for slack", EndedBy.PREEMPTED)]
    assert [one for one in bed.done if isinstance(one, i.KillContainer)] == [
        i.KillContainer(killed, "n is drained by root")
    ]
    bed.send(e.ContainerExited(killed, None, 9, 0.0, 0, 0, 0.0))
    assert back(bed)[2:] == [("slack", EndedBy.PREEMPTED)]
    status = bed.node.drain.status()
    assert status is not None
    assert (status["state"], status["count"]) == ("draining", 2)
    assert status["remaining"][0] == {"kind": "command", "id": f"{JOB}/runs", "name": JOB, "user": "eve"}
    for container in runs:
        bed.send(e.ContainerExited(container, 0, None, 0.0, 0, 0, 0.0))
    assert back(bed)[3:] == [("runs", EndedBy.EXIT), ("runs, too", EndedBy.EXIT)]
    assert not bed.node.held.by_key and not bed.node.jobs
    status = bed.node.drain.status()
    assert status is not None and status["state"] == "drained"


@pytest.mark.parametrize("opportunistic", [False, True])
def test_it_refuses_work_until_it_is_undrained(opportunistic: bool) -> None:
    bed = Bed()
    bed.decide(Drain(draining=ROOT))
    assert bed.assign("t", opportunistic=opportunistic) == [draining.REFUSAL]
    request = TaskRequest(task="f", usage=KindAmounts(cpu=1.0))
    assign = Assign(job=JOB, stage="s", user="eve", origin="o", priority=0.0, request=request)
    assert bed.decide(assign) == [draining.REFUSAL]
    bed.decide(Drain(draining=None))
    assert bed.assign("t", opportunistic=opportunistic) == []
    assert bed.node.drain.status() is None


def test_what_its_own_users_run_goes_on_and_is_named() -> None:
    bed = Bed()
    bed.send(e.Asked(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("sleep", "9")))))
    registered = bed.send(e.JobRegistered(1, RegisterJob(name="gates"), 0.0))
    specs = [MonotaskSpec(id=n, kind=CPU, input_bytes=1) for n in range(5)]
    bed.send(e.Asked(m.SUBMIT, 1, Submit(job=registered.job, monotasks=specs)))
    bed.assign("regular", opportunistic=False)
    assert bed.node.heartbeat(0.0).own == [], "nobody asks before it is drained"
    bed.decide(Drain(draining=ROOT))
    (container,) = bed.node.containers.live
    assert bed.node.heartbeat(0.0).own == [
        Remaining("container", container, "sleep", "eve"),
        Remaining("slots", registered.job, "gates (2)", "eve"),
    ]
    later = bed.send(e.Asked(m.LAUNCH, 1, Launch(container=ContainerSpec(argv=("true",)))))
    assert {each.id for each in bed.node.heartbeat(0.0).own} >= {container, later}


def test_it_remembers_over_a_restart_and_goes_on_giving_back() -> None:
    bed = Bed()
    bed.assign("slack")
    bed.send(e.ContainerStarted(bed.container("slack"), 7, {}, 0.0))
    bed.decide(Drain(draining=ROOT))
    kept = [one for one in bed.done if isinstance(one, i.Record) and one.room == draining.ROOM]
    assert kept == [i.Record(draining.ROOM, "draining", ROOT)]
    bed.done.clear()
    before = bed.node
    container = bed.container("slack")
    records = list(before.containers.live.values())
    jobs = [job.record for job in before.jobs.values()]
    bed.node = Node(before.settings)
    bed.send(e.Recovered(jobs, list(before.held), records, {container: 7}, frozenset(), 0.0, ROOT))
    assert [one.container for one in bed.done if isinstance(one, i.KillContainer)] == [container], "once"
    assert bed.assign("t") == [draining.REFUSAL]
    bed.decide(Drain(draining=None))
    assert bed.done[-2] == i.Record(draining.ROOM, "draining", None)

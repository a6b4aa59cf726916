"""A command that was preempted goes back to its job's queue and is placed again; one nobody wants any more ends."""

from __future__ import annotations

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.core.instructions import SendDecisions
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import master_api as api

PREEMPTED = Ended(by=EndedBy.PREEMPTED, reason="memory was wanted")


def feed(cluster: Cluster, event: e.Event, now: float) -> list[api.AnyDecision]:
    """Everything that is decided, each request answered at once."""
    decided: list[api.AnyDecision] = []
    todo = [event]
    while todo:
        for instruction in cluster.handle(todo.pop(0), now):
            if isinstance(instruction, SendDecisions):
                decided += instruction.decisions
                todo.append(e.Answered(instruction.node, instruction.number, []))
    return decided


def placed_command() -> Cluster:
    cluster = Cluster(MasterSettings())
    load = api.Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(2, 1, 2))
    capacity = Capacity(cores=2, memory_bytes=1000)
    feed(cluster, e.Said("n", api.Register(protocol=1, node="n", version="", capacity=capacity, load=load)), 0.0)
    job = api.JobState(job="j", name="j", user="u", memory_bytes=0, priority=0.0, submitted_at=0.0)
    feed(cluster, e.Said("n", job), 0.0)
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",)))
    ready = api.ReadyTasks(job="j", stage="s", tasks=[request], opportunistic=True)
    feed(cluster, e.Said("n", ready), 0.0)
    assert any(isinstance(decision, api.Assign) for decision in feed(cluster, e.RoundDue(0.1), 0.1))
    return cluster


def ended(cluster: Cluster, now: float) -> list[api.AnyDecision]:
    told = api.CommandEnded(job="j", task="t", origin="n", ended=PREEMPTED)
    return feed(cluster, e.Said("n", told), now)


def test_preempted_work_is_placed_again() -> None:
    cluster = placed_command()
    assert not [d for d in ended(cluster, 1.0) if isinstance(d, api.TellEnded)]
    again = [d for d in feed(cluster, e.RoundDue(1.2), 1.2) if isinstance(d, api.Assign)]
    assert [decision.request.task for decision in again] == ["t"]


def test_preempted_work_that_was_cancelled_meanwhile_ends() -> None:
    cluster = placed_command()
    feed(cluster, e.Said("n", api.TasksCancelled(job="j", tasks=["t"])), 0.5)
    (told,) = [d for d in ended(cluster, 1.0) if isinstance(d, api.TellEnded)]
    assert (told.task, told.ended.by) == ("t", EndedBy.CANCELLED)
    assert not feed(cluster, e.RoundDue(1.2), 1.2)

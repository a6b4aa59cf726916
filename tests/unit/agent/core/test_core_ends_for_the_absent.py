"""A task ended while its framework was away: whichever part dies, the framework gets the end, and nothing runs
again.
"""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.events import EndUnread
from agent.core.records import TaskEnd
from agent.core.tasks import awaited
from penstock.model import ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, Place, TaskEnded, TaskPlaced, TaskRefs
from tests.fakes.node_bed import NodeBed

REQUEST = TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=ContainerSpec(argv=("x",)))
EXIT = Ended(by=EndedBy.EXIT, exit_status=3)


class Bed(NodeBed):
    """Agents of one host, one after the other, of which the journal alone outlives each."""

    def joins(self, job: str = "") -> str:
        """Register a job of a framework, or join it again."""
        self.open()
        return self.register(job=job)

    def asks(self, job: str) -> list[i.Instruction]:
        return self.handle(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[REQUEST], opportunistic=False)))

    def master_tells(self, job: str) -> list[i.Instruction]:
        return self.handle(e.Decided(1, [api.TellEnded(job=job, task="t", node="other", ended=EXIT)], 0.0))


def told(done: list[i.Instruction]) -> list[object]:
    return [one.params for one in done if isinstance(one, i.Notify)]


def to_master(done: list[i.Instruction]) -> list[i.ToMaster]:
    return [one.params for one in done if isinstance(one, i.SendToMaster)]


@pytest.mark.parametrize("deaths", [0, 1, 2])
def test_the_framework_gets_the_end_when_it_asks_again(bed: Bed, deaths: int) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    assert told(bed.master_tells(job)) == []
    for _ in range(deaths):
        bed.restart()
    bed.joins(job)
    again = bed.asks(job)
    assert told(again) == [
        TaskPlaced(job=job, task="t", node="other"),
        TaskEnded(job=job, task="t", node="other", ended=EXIT),
    ]
    assert to_master(again) == [], "it would be run again"
    assert told(bed.master_tells(job)) == [], "it ends once"


def test_a_task_that_the_master_names_before_its_framework_is_registered_as_what_it_is(bed: Bed) -> None:
    """As a task of its framework's, a command of a lost node would end instead of running again."""
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    bed.decide(api.TellPlaced(job=job, task="t", node="other"))
    bed.joins(job)
    bed.done.clear()
    bed.asks(job)
    [task] = awaited(bed.node.jobs[job])
    assert task == api.AwaitedTask(job=job, stage="s", request=REQUEST, node="other", opportunistic=False)
    [ready] = bed.to_master(api.ReadyTasks)
    assert (ready.stage, ready.tasks) == ("s", [REQUEST]), "a master that was restarted meanwhile has no request"


def test_a_task_whose_request_is_not_known_is_not_registered(bed: Bed) -> None:
    """A framework does not ask again for a placed task that it executes itself; an empty request would replace it."""
    job = bed.joins()
    bed.restart()
    bed.decide(api.TellPlaced(job=job, task="own", node="other"))
    bed.joins(job)
    assert awaited(bed.node.jobs[job]) == []
    assert bed.node.jobs[job].recovered, "so the registration is not complete, and the master keeps the task"


OWN = TaskRequest(task="own", usage=KindAmounts(cpu=1.0), memory_bytes=7)


def placed(bed: Bed) -> str:
    """Register a job with a placed task that its framework executes itself."""
    job = bed.joins()
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[OWN], opportunistic=True)))
    bed.decide(api.TellPlaced(job=job, task="own", node="former"))
    bed.decide(api.TellPlaced(job=job, task="own", node="other"))
    return job


@pytest.mark.parametrize("deaths", [1, 2])
def test_a_task_that_its_framework_executes_itself_is_registered_by_the_next_agent(bed: Bed, deaths: int) -> None:
    """Otherwise a master that was restarted, too, would not know that the task is lost with its node."""
    job = placed(bed)
    for _ in range(deaths):
        bed.restart()
    [task] = awaited(bed.node.jobs[job])
    assert task == api.AwaitedTask(job=job, stage="s", request=OWN, node="other", opportunistic=True)
    bed.joins(job)
    lost = Ended(by=EndedBy.LOST)
    bed.decide(api.TellEnded(job=job, task="own", node="other", ended=lost))
    assert TaskEnded(job=job, task="own", node="other", ended=lost) in told(bed.done)
    assert awaited(bed.restart().node.jobs[job]) == []


@pytest.mark.parametrize("method", [m.TASKS_DONE, m.CANCEL_TASKS])
def test_one_that_its_framework_gives_back_is_not(bed: Bed, method: Any) -> None:
    job = placed(bed)
    bed.send(e.Requested(method, 1, TaskRefs(job=job, tasks=["own"])))
    bed.decide(api.TellPlaced(job=job, task="own", node="third"))  # the two messages have crossed
    assert awaited(bed.restart().node.jobs[job]) == []


def test_one_that_a_framework_asks_for_again_is_from_then_on(bed: Bed) -> None:
    """The former agent died before it had received the placement, or an earlier version did not journal it."""
    job = bed.joins()
    bed.restart()
    bed.decide(api.TellPlaced(job=job, task="own", node="other"))
    bed.joins(job)
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[OWN])))
    [task] = awaited(bed.restart().node.jobs[job])
    assert (task.request, task.node) == (OWN, "other")


def test_its_record_goes_with_its_job(bed: Bed) -> None:
    job = placed(bed)
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    assert bed.journal == {}
    placed(bed)
    del bed.journal["jobs", next(iter(bed.node.jobs))]
    bed.restart()
    assert bed.journal == {}


def test_an_end_for_the_absent_replaces_its_record(bed: Bed) -> None:
    job = placed(bed)
    bed.restart()
    kept = dict(bed.journal)
    bed.decide(api.TellEnded(job=job, task="own", node="other", ended=EXIT))
    assert not bed.of("awaited")
    bed.journal |= kept  # as if the agent died between the two records
    bed.restart()
    assert awaited(bed.node.jobs[job]) == bed.of("awaited") == []
    assert bed.node.jobs[job].tasks["own"].ended == EXIT


@pytest.mark.parametrize("deaths", [0, 1, 2])
@pytest.mark.parametrize("away", [False, True])
def test_the_end_of_one_is_told_to_who_joins_its_job_again(bed: Bed, away: bool, deaths: int) -> None:
    """Its framework, which may not have read it, asks for it no more, and would wait for it for ever."""
    job = placed(bed)
    if away:
        bed.restart()
    lost = Ended(by=EndedBy.LOST)
    bed.decide(api.TellEnded(job=job, task="own", node="other", ended=lost))
    assert bed.of("awaited") == []
    for _ in range(deaths):
        bed.restart()
    bed.open(2)
    bed.done.clear()
    bed.register(2, job=job)
    assert told(bed.done) == [TaskEnded(job=job, task="own", node="other", ended=lost)]
    bed.send(e.Requested(m.END_JOB, 2, EndJob(job=job)))
    assert bed.journal == {}


def test_the_end_of_one_that_was_cancelled_is_not_kept_for_a_framework_that_is_there(bed: Bed) -> None:
    """It cancels it again at the next agent, which then reports the end."""
    job = placed(bed)
    bed.send(e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=job, tasks=["own"])))
    bed.decide(api.TellEnded(job=job, task="own", node="other", ended=Ended(by=EndedBy.CANCELLED)))
    assert bed.of("ends") == bed.of("awaited") == []


def test_a_present_framework_gets_it_at_once(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    assert told(bed.master_tells(job)) == [TaskEnded(job=job, task="t", node="other", ended=EXIT)]
    assert bed.of("ends") == []


def test_a_present_framework_that_does_not_read_gets_it_from_the_next_agent(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.master_tells(job)
    bed.send(EndUnread(job, "t"))
    assert bed.handle(EndUnread(job, "t")) == [], "it is kept once"
    bed.restart()
    bed.joins(job)
    again = bed.asks(job)
    assert TaskEnded(job=job, task="t", node="other", ended=EXIT) in told(again)
    assert to_master(again) == [], "it would be run again"
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    assert bed.journal == {}
    assert bed.handle(EndUnread(job, "t")) == [], "nothing is left of it"


def test_a_task_that_has_ended_keeps_its_end_where_its_framework_reports_it_as_done(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.master_tells(job)
    bed.send(e.Requested(m.TASKS_DONE, 1, TaskRefs(job=job, tasks=["t"])))
    [kept] = [one.value for one in bed.handle(EndUnread(job, "t")) if isinstance(one, i.Record)]
    assert isinstance(kept, TaskEnd)
    assert kept.ended == EXIT


def test_it_is_dropped_with_the_job(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    bed.master_tells(job)
    bed.restart()
    bed.joins(job)
    assert bed.of("ends")
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    assert bed.journal == {}


def test_an_agent_that_died_while_it_dropped_the_job_leaves_nothing_of_it(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    bed.master_tells(job)
    del bed.journal["jobs", job]
    bed.restart()
    assert bed.journal == {}


def test_a_task_that_only_an_earlier_agent_knew_ends_once_its_framework_cancels_it(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    bed.joins(job)
    done = bed.handle(e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=job, tasks=["t"])))
    [over] = told(done)
    assert isinstance(over, TaskEnded)
    assert over.ended.by is EndedBy.CANCELLED
    assert to_master(done) == [api.TasksCancelled(job=job, tasks=["t"])]


def test_a_task_that_was_cancelled_before_it_was_asked_for_is_placed(bed: Bed) -> None:
    """Names that the agent does not know must not use its memory either."""
    job = bed.joins()
    bed.handle(e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=job, tasks=["t"])))
    assert to_master(bed.asks(job)) == [api.ReadyTasks(job=job, stage="s", tasks=[REQUEST])]


def test_a_kept_end_is_repeated_for_a_framework_that_had_cancelled_the_task(bed: Bed) -> None:
    job = bed.joins()
    bed.asks(job)
    bed.restart()
    bed.master_tells(job)
    bed.joins(job)
    done = bed.handle(e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=job, tasks=["t"])))
    assert told(done) == [TaskEnded(job=job, task="t", node="other", ended=EXIT)]

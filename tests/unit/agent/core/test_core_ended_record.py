"""The end of a job is reported with a record of the job, for a master without one."""

from __future__ import annotations

import pytest

from agent.core import events as e
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.model.work import StageProgress
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, Place, Progress, TaskRefs
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.jobs_api import MOST_FAILURES, TaskFailure
from tests.fakes.node_bed import NodeBed

STAGES = [StageProgress(stage="map", tasks=4, done=3)]


@pytest.fixture
def bed() -> NodeBed:
    made = NodeBed()
    made.open()
    return made


def ask(bed: NodeBed, job: str, *names: str) -> None:
    """Let the framework ask for places for its tasks."""
    tasks = [TaskRequest(task=name, usage=KindAmounts(cpu=1.0)) for name in names]
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=tasks)))


def placed(bed: NodeBed, job: str, **ends: Ended | None) -> None:
    """Let the framework have tasks placed, of which these end so."""
    ask(bed, job, *ends)
    bed.decide(*(api.TellPlaced(job=job, task=name, node="b") for name in ends))
    over = [(name, ended) for name, ended in ends.items() if ended is not None]
    bed.decide(*(api.TellEnded(job=job, task=name, node="b", ended=ended) for name, ended in over))


def at_end(bed: NodeBed) -> JobAtEnd:
    [ended] = bed.to_master(api.JobEnded)
    assert ended.at_end is not None
    return ended.at_end


def test_it_names_the_job_and_counts_its_tasks(bed: NodeBed) -> None:
    job = bed.register(reservation="r-1")
    submitted_at = bed.wall_s
    bed.now = 60.0
    fails, stopped = Ended(by=EndedBy.EXIT, exit_status=3), Ended(by=EndedBy.CANCELLED)
    placed(bed, job, good=Ended(by=EndedBy.EXIT, exit_status=0), bad=fails, stopped=stopped)
    bed.send(e.Requested(m.PROGRESS, 1, Progress(job=job, stages=STAGES)))
    bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    assert at_end(bed) == JobAtEnd(
        name="j",
        user="eve",
        submitted_at=submitted_at,
        reservation="r-1",
        stages=STAGES,
        tasks_ended=3,
        tasks_failed=1,
        tasks_cancelled=1,
        failures=[TaskFailure(task="bad", stage="s", node="b", by="exit", exit_status=3)],
    )


def test_a_task_that_has_not_ended_leaves_the_job_undone(bed: NodeBed) -> None:
    job = bed.register()
    placed(bed, job, done=None, runs=None)
    bed.send(e.Requested(m.TASKS_DONE, 1, TaskRefs(job=job, tasks=["done"])))
    bed.send(e.SessionClosed(1))
    assert (at_end(bed).undone, at_end(bed).tasks_ended) == (True, 1)


def test_it_names_who_cancelled_the_job(bed: NodeBed) -> None:
    job = bed.register()
    bed.decide(api.CancelJob(job=job, by="ann"))
    assert at_end(bed).cancelled_by == "ann"


def test_of_many_failures_the_first_are_named(bed: NodeBed) -> None:
    job = bed.register()
    lost = Ended(by=EndedBy.LOST, reason="x" * 2000)
    placed(bed, job, **{f"t{number}": lost for number in range(MOST_FAILURES + 5)})
    bed.send(e.SessionClosed(1))
    assert at_end(bed).tasks_failed == MOST_FAILURES + 5
    assert [failure.task for failure in at_end(bed).failures] == [f"t{number}" for number in range(MOST_FAILURES)]
    assert {len(failure.reason) for failure in at_end(bed).failures} == {1000}


@pytest.mark.parametrize("returns", [True, False])
def test_a_restarted_agent_knows_that_all_is_done_only_from_the_framework(bed: NodeBed, returns: bool) -> None:
    job = bed.register()
    ask(bed, job, "waits")
    bed.restart()
    if returns:
        bed.open()
        bed.register(job=job)
        bed.send(e.Requested(m.END_JOB, 1, EndJob(job=job)))
    else:
        bed.now += bed.settings.rejoin_s + 1.0
        bed.sampled()
    assert at_end(bed).undone == (not returns)

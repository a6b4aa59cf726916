"""A job of commands over a blocking connection, and an agent that is restarted and has dropped it."""

from __future__ import annotations

import pytest

from penstock.client.errors import JobCancelled
from penstock.client.session import Session
from penstock.client.task_job import TaskJob
from penstock.model import ContainerSpec, KindAmounts, TaskRequest
from penstock.model.container import Ended, EndedBy
from penstock.model.work import StageProgress
from penstock.opgraph import Started, TaskEnded, TaskPlaced
from penstock.wire.agent_api import RegisterJob
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent_thread import AgentThread


@pytest.mark.parametrize("by_message", [False, True], ids=["by the answer", "by a message that comes with it"])
def test_a_job_that_the_agent_dropped_is_placed_again_once_it_is_admitted(agent: AgentThread, by_message: bool) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        agent.agent.admits_by_message = by_message
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        while not job.is_admitted:
            job.next(60)
        assert isinstance(job.next(60), Started)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        assert job.next(60) == TaskPlaced("t", "fake")
        before = job.id
        agent.stop()
        agent.agent.admits_by_message = by_message
        agent.agent._ids = 10  # so that the job has another id
        agent.start()
        assert isinstance(job.next(60), Started)
        assert agent.do(lambda fake: [asked.job for asked in fake.called("place")]) == [job.id] != [before]


def test_a_task_that_was_asked_for_before_the_admission_is_asked_for_again_before_it(agent: AgentThread) -> None:
    """No node may be able to hold it, and the job may wait long for its memory."""
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        agent.agent.admits = agent.agent.places = False
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        agent.stop()
        agent.agent.admits = False
        agent.start()
        news = (job.next(60) for _ in range(3))
        assert next(each for each in news if each is not None) == TaskPlaced("t", "fake")
        assert not job.is_admitted


def test_a_task_that_was_asked_for_before_the_admission_is_asked_for_once(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        agent.agent.admits = agent.agent.places = False
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        agent.do(lambda fake: fake.admit(job.id))
        assert isinstance(job.next(60), Started)
        agent.do(lambda fake: fake.end_task(job.id, "t", Ended(by=EndedBy.EXIT, exit_status=0)))
        assert isinstance(job.next(60), TaskEnded)
        assert len(agent.do(lambda fake: fake.called("place"))) == 1


@pytest.mark.parametrize("dropped", [False, True], ids=["joined", "registered anew"])
def test_a_command_being_killed_is_cancelled_again_at_the_next_agent(agent: AgentThread, dropped: bool) -> None:
    """In a new job it has ended: older agents report no end of a task that they do not know."""
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        agent.agent.kills = False
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        assert isinstance(job.next(60), Started)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        assert job.next(60) == TaskPlaced("t", "fake")
        job.cancel_tasks(["t"])
        agent.stop()
        if dropped:
            agent.agent._ids = 10  # so that the job has another id
        agent.agent.kills = not dropped
        agent.start()
        news = [job.next(60), job.next(60)]
        [ended] = [one for one in news if isinstance(one, TaskEnded)]
        assert (ended.task, ended.ended.by) == ("t", EndedBy.CANCELLED)
        assert agent.do(lambda fake: fake.called("place")) == []


def test_a_job_that_was_cancelled_while_the_agent_was_away_is_over(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        assert isinstance(job.next(60), Started)
        agent.stop()
        agent.agent.refuse["register_job"] = refused("was cancelled by ann", field="job", cancelled_by="ann")
        agent.start()
        with pytest.raises(JobCancelled, match="job 'j' was cancelled by ann"):
            job.next(60)
        assert job.over


def test_a_task_whose_cancellation_was_refused_is_asked_for_again(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        assert isinstance(job.next(60), Started)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        assert job.next(60) == TaskPlaced("t", "fake")
        agent.agent.refuse["cancel_tasks"] = refused("not now")
        with pytest.raises(RpcError, match="not now"):
            job.cancel_tasks(["t"])
        agent.stop()
        agent.start()
        assert isinstance(job.next(60), Started)
        assert agent.do(lambda fake: [task.task for asked in fake.called("place") for task in asked.tasks]) == ["t"]
        assert agent.do(lambda fake: fake.called("cancel_tasks")) == []


@pytest.mark.parametrize("asks", [False, True], ids=["waiting", "in a request"])
def test_a_job_that_was_cancelled_when_the_agent_died_is_not_registered_anew(agent: AgentThread, asks: bool) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        assert isinstance(job.next(60), Started)
        command = ContainerSpec(argv=("true",))
        job.place("s", [TaskRequest(task="t", usage=KindAmounts(cpu=1.0), command=command)], False)
        assert job.next(60) == TaskPlaced("t", "fake")
        agent.agent.kills = False
        job.cancel_tasks(["t"])
        agent.stop()
        agent.agent.cancelled[job.id] = "ann"
        agent.start()
        with pytest.raises(JobCancelled, match="job 'j' was cancelled by ann"):
            if asks:
                job.place("s", [TaskRequest(task="u", usage=KindAmounts(cpu=1.0), command=command)], False)
            else:
                job.next(60)
        assert agent.do(lambda fake: [asked.job for asked in fake.called("register_job")]) == [job.id]
        assert agent.do(lambda fake: fake.called("place") + fake.called("cancel_tasks")) == []


@pytest.mark.parametrize("reads", [True, False], ids=["present agent", "older agent"])
def test_only_an_agent_that_reads_them_is_told_of_skipped_tasks(agent: AgentThread, reads: bool) -> None:
    agent.agent.reads_skipped = reads
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        job = TaskJob(session, RegisterJob(name="j"), lambda linked: None)
        job.progress([StageProgress(stage="s", tasks=3, done=2, skipped=1)])
        agent.until(lambda fake: fake.called("progress"))
    [told] = agent.do(lambda fake: fake.called("progress"))
    assert told.stages == [StageProgress(stage="s", tasks=3, done=2, skipped=int(reads))]

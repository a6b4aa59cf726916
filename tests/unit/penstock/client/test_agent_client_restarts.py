"""The asyncio client while its agent is away and when it is back: its slots and requests go on, or are over."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import AgentClient, AgentUnavailable, JobCancelled, Monotask
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.work import StageProgress
from penstock.transport import RpcPeer
from penstock.wire.agent_api import JobRegistered, RegisterJob
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent import FakeAgent
from tests.unit.penstock.client.conftest import request_of


async def test_queued_and_granted_monotasks_survive_a_restart(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("survivor")
    first, second, third = (job.submit("cpu", n) for n in (1, 2, 3))
    await first.granted
    await fake.stop()
    second.cancel()
    late = job.submit("cpu", 4)
    await fake.start()
    await fake.until(lambda: len(fake.called("submit")) == 2)
    again = fake.called("submit")[1]
    assert [(spec.id, spec.running) for spec in again.monotasks] == [
        (first.id, True),
        (third.id, False),
        (late.id, False),
    ]
    assert fake.called("register_job")[1].job == job.id
    first.complete()
    await asyncio.wait_for(third.granted, 5)
    third.complete()
    await asyncio.wait_for(late.granted, 5)
    assert fake.most_running == 1


async def test_listeners_are_notified_when_the_agent_goes_away_and_when_it_is_back(
    fake: FakeAgent, client: AgentClient
) -> None:
    told: asyncio.Queue[bool] = asyncio.Queue()
    client.on_link = told.put_nowait
    await fake.stop()
    assert await asyncio.wait_for(told.get(), 5) is False
    await fake.start()
    assert await asyncio.wait_for(told.get(), 5) is True
    assert (await client.status())["node"] == "fake" and told.empty()


async def test_submissions_during_the_reconnection_are_not_lost(
    fake: FakeAgent, client: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = [await client.register_job(name) for name in ("first", "second")]
    late: list[Monotask] = []
    register = fake._register_job

    def submit_meanwhile(peer: RpcPeer, asked: RegisterJob) -> JobRegistered:
        if asked.job == second.id:  # the first job has announced itself already
            late.append(first.submit("cpu", 1))
        return register(peer, asked)

    monkeypatch.setattr(fake, "_register_job", submit_meanwhile)
    await fake.stop()
    await fake.start()
    await fake.until(lambda: bool(fake.called("submit")))
    await asyncio.wait_for(late[0].granted, 5)


async def test_a_monotask_that_ended_while_the_agent_was_away_needs_no_message(
    fake: FakeAgent, client: AgentClient
) -> None:
    job = await client.register_job("meanwhile")
    only = job.submit("cpu", 1)
    await only.granted
    await fake.stop()
    assert only.complete()
    await fake.start()
    async with asyncio.timeout(5), job.monotask("cpu", 2):
        assert [spec.id for spec in fake.called("submit")[-1].monotasks] == [only.id + 1]
    await fake.until(lambda: not fake.running)


async def test_a_job_that_the_agent_dropped_is_registered_anew(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("forgotten", memory_bytes=9)
    before = job.id
    waiting = [job.submit("cpu", n) for n in (1, 2)]
    await waiting[0].granted
    await fake.stop()
    fake.known_jobs.clear()
    await fake.start()
    await fake.until(lambda: len(fake.called("submit")) == 2)
    assert job.id != before
    assert fake.called("submit")[1].job == job.id
    waiting[0].complete()
    await asyncio.wait_for(waiting[1].granted, 5)


async def test_placements_are_asked_for_again(fake: FakeAgent, client: AgentClient) -> None:
    fake.places = False
    job = await client.register_job("again")
    await job.place("map", [request_of("m1", "true"), request_of("m2"), request_of("m3")])
    await job.tasks_done(["m3"])
    ended = asyncio.ensure_future(job.ended("m1"))
    await asyncio.sleep(0)
    await fake.stop()
    fake.places = True
    await fake.start()
    assert await asyncio.wait_for(job.placed("m2"), 5) == "fake"
    assert [request.task for request in fake.called("place")[1].tasks] == ["m1", "m2"]
    fake.end_task(job.id, "m1", Ended(by=EndedBy.EXIT, exit_status=0))
    assert (await asyncio.wait_for(ended, 5)).ok


@pytest.mark.parametrize("dropped", [False, True], ids=["joined", "registered anew"])
async def test_a_cancelled_command_is_cancelled_again_instead_of_being_asked_for(
    fake: FakeAgent, client: AgentClient, dropped: bool
) -> None:
    """In a new job it has ended: older agents report no end of a task that they do not know."""
    fake.kills = False
    job = await client.register_job("again")
    await job.place("map", [request_of("m1", "true"), request_of("m2", "true")])
    await asyncio.wait_for(job.placed("m1"), 5)
    await job.cancel_tasks(["m1"])
    ended = asyncio.ensure_future(job.ended("m1"))
    await asyncio.sleep(0)
    assert not ended.done(), "it is being killed"
    await fake.stop()
    if dropped:
        fake.known_jobs.clear()
    fake.kills = not dropped
    await fake.start()
    assert (await asyncio.wait_for(ended, 5)).by is EndedBy.CANCELLED
    await fake.until(lambda: len(fake.called("place")) == 2)
    assert [request.task for request in fake.called("place")[1].tasks] == ["m2"]
    assert [call.job for call in fake.called("cancel_tasks")][1:] == ([] if dropped else [job.id])


async def test_a_task_cancelled_while_the_agent_is_away_is_not_placed_once_it_is_back(
    fake: FakeAgent, client: AgentClient
) -> None:
    job = await client.register_job("again")
    await fake.stop()
    placed = asyncio.ensure_future(job.place("map", [request_of("m1", "true"), request_of("m2", "true")]))
    cancelled = asyncio.ensure_future(job.cancel_tasks(["m1"]))
    await asyncio.sleep(0)
    await fake.start()
    await asyncio.wait_for(asyncio.gather(placed, cancelled), 5)
    assert [[request.task for request in call.tasks] for call in fake.called("place")] == [["m2"]]
    assert (await asyncio.wait_for(job.ended("m1"), 5)).by is EndedBy.CANCELLED


async def test_a_task_whose_cancellation_was_refused_is_asked_for_again(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("again")
    await job.place("map", [request_of("m1", "true"), request_of("m2", "true")])
    fake.kills = False
    await job.cancel_tasks(["m2"])
    fake.refuse["cancel_tasks"] = refused("not now")
    with pytest.raises(RpcError, match="not now"):
        await job.cancel_tasks(["m1", "m2"])
    await fake.stop()
    del fake.refuse["cancel_tasks"]
    await fake.start()
    again = fake.until(lambda: len(fake.called("place")) == 2 and len(fake.called("cancel_tasks")) == 3)
    await asyncio.wait_for(again, 5)
    assert [request.task for request in fake.called("place")[1].tasks] == ["m1"]
    assert fake.called("cancel_tasks")[2].tasks == ["m2"]


@pytest.mark.parametrize("others", [[], ["m2"]])
async def test_a_task_that_was_not_asked_for_ends_even_if_its_cancellation_is_refused(
    fake: FakeAgent, client: AgentClient, others: list[str]
) -> None:
    job = await client.register_job("again")
    fake.refuse["cancel_tasks"] = refused("not now")
    lost: asyncio.Queue[bool] = asyncio.Queue()
    client.on_link = lost.put_nowait
    await fake.stop()
    await asyncio.wait_for(lost.get(), 5)
    placed = asyncio.ensure_future(job.place("map", [request_of(name, "true") for name in ["m1", *others]]))
    cancelled = asyncio.ensure_future(job.cancel_tasks(["m1"]))
    await asyncio.sleep(0)
    ended = asyncio.ensure_future(job.ended("m1"))
    await fake.start()
    await asyncio.wait_for(placed, 5)
    with pytest.raises(RpcError, match="not now"):
        await asyncio.wait_for(cancelled, 5)
    assert [request.task for call in fake.called("place") for request in call.tasks] == others
    assert (await asyncio.wait_for(ended, 5)).by is EndedBy.CANCELLED


async def test_who_waits_for_a_task_that_the_agent_refuses_hears_of_it(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("refused")
    fake.refuse["place"] = refused("no room")
    placing = asyncio.ensure_future(job.place("map", [request_of("m1", "true")]))
    await asyncio.sleep(0)
    waiting = [asyncio.ensure_future(wait) for wait in (job.placed("m1"), job.ended("m1"))]
    with pytest.raises(RpcError, match="no room"):
        await asyncio.wait_for(placing, 5)
    for each in waiting:
        with pytest.raises(KeyError, match="m1"):
            await asyncio.wait_for(each, 5)


async def test_placements_wait_for_the_admission_after_a_restart(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("again")
    await job.place("map", [request_of("m1", "true")])
    await job.placed("m1")
    await fake.stop()
    fake.admits = False
    await fake.start()
    await fake.until(lambda: len(fake.called("register_job")) == 2)
    assert len(fake.called("place")) == 1
    fake.admit(job.id)
    await fake.until(lambda: len(fake.called("place")) == 2)


async def test_an_admission_that_comes_with_the_answer_to_a_dropped_job_counts(
    fake: FakeAgent, client: AgentClient
) -> None:
    jobs = [await client.register_job(name) for name in ("one", "two")]
    for job in jobs:
        await job.place("map", [request_of("m1", "true")])
        await job.placed("m1")
    await fake.stop()
    fake.known_jobs.clear()
    fake.admits_by_message = True
    await fake.start()
    async with asyncio.timeout(5):
        await fake.until(lambda: len(fake.called("place")) == 4)
    assert {asked.job for asked in fake.called("place")[2:]} == {job.id for job in jobs}


async def test_containers_are_attached_to_again(fake: FakeAgent, client: AgentClient) -> None:
    lives = await client.launch(ContainerSpec(argv=("sleep", "1")))
    ended = await client.launch(ContainerSpec(argv=("sleep", "1")))
    forgotten = await client.launch(ContainerSpec(argv=("sleep", "1")))
    await fake.stop()
    fake.containers[ended.id].ended = Ended(by=EndedBy.EXIT, exit_status=4)
    del fake.containers[forgotten.id]
    await fake.start()
    assert (await asyncio.wait_for(ended.wait(), 5)).exit_status == 4
    assert (await asyncio.wait_for(forgotten.wait(), 5)).by is EndedBy.LOST
    await asyncio.wait_for(lives.kill(), 5)
    assert (await lives.wait()).by is EndedBy.CANCELLED


async def test_calls_wait_for_the_agent_to_come_back(fake: FakeAgent, client: AgentClient) -> None:
    await fake.stop()
    status = asyncio.ensure_future(client.status())
    await asyncio.sleep(0)
    await fake.start()
    assert (await asyncio.wait_for(status, 5))["node"] == "fake"


async def test_every_listener_is_notified_when_the_agent_stays_away(fake: FakeAgent) -> None:
    async with await AgentClient.connect(fake.socket, reconnect_s=0.05) as client:
        job = await client.register_job("orphan")
        granted, queued = job.submit("cpu", 1), job.submit("cpu", 2)
        await granted.granted
        container = await client.launch(ContainerSpec(argv=("sleep", "1")))
        fake.places = False
        await job.place("map", [request_of("m1")])
        waiting = [asyncio.ensure_future(c) for c in (container.wait(), job.placed("m1"), job.ended("m1"))]
        await asyncio.sleep(0)
        await fake.stop()
        results = await asyncio.wait_for(asyncio.gather(queued.granted, *waiting, return_exceptions=True), 5)
        assert all(isinstance(result, AgentUnavailable) for result in results), results
        assert granted.complete() is False
        with pytest.raises(AgentUnavailable, match="penstock up"):
            await client.status()
        with pytest.raises(AgentUnavailable):
            job.submit("cpu", 1)


@pytest.mark.parametrize("by", ["ann", ""])
async def test_a_job_that_was_cancelled_while_the_agent_was_away_is_not_registered_anew(
    fake: FakeAgent, client: AgentClient, by: str
) -> None:
    """An older master's refusal does not name the user but in its text."""
    job = await client.register_job("doomed")
    waiting = [job.submit("cpu", 1), job.submit("cpu", 1)][1]
    await fake.stop()
    fake.refuse["register_job"] = refused("job 'job-1' was cancelled by ann", field="job", cancelled_by=by)
    await fake.start()
    with pytest.raises(JobCancelled if by else RpcError, match="cancelled by ann"):
        await waiting.granted
    assert len(fake.called("register_job")) == 2, "once to begin with, and once to join it again"


async def test_a_client_that_is_closed_while_it_reconnects_can_be_cancelled(fake: FakeAgent) -> None:
    client = await AgentClient.connect(fake.socket, "test", reconnect_s=600.0)
    lost = asyncio.Event()
    client.on_link = lambda linked: lost.set()
    await fake.stop()
    await asyncio.wait_for(lost.wait(), 10)
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)  # it waits for the end of the attempts to reconnect
    assert closing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await closing
    await client.close()


async def test_a_close_that_is_cancelled_after_a_reconnection_closes_the_connection(fake: FakeAgent) -> None:
    client = await AgentClient.connect(fake.socket, "test", reconnect_s=600.0)
    back = asyncio.Event()
    client.on_link = lambda linked: back.set() if linked else None
    await fake.stop()
    await fake.start()
    await asyncio.wait_for(back.wait(), 10)
    peer = client._link.peer()
    closing = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    closing.cancel()
    await asyncio.wait([closing])
    assert peer is not None and peer.closed


async def test_of_several_jobs_only_the_one_that_was_cancelled_during_the_restart_is_over(
    fake: FakeAgent, client: AgentClient
) -> None:
    doomed, other = [await client.register_job(name) for name in ("doomed", "other")]
    first, waiting = doomed.submit("cpu", 1), other.submit("cpu", 1)
    await first.granted
    await doomed.place("map", [request_of("m1", "true")])
    fake.kills = False
    await doomed.cancel_tasks(["m1"])
    ended = asyncio.ensure_future(doomed.ended("m1"))
    await fake.stop()
    late = asyncio.ensure_future(doomed.place("map", [request_of("m2", "true")]))
    await asyncio.sleep(0)
    fake.known_jobs.discard(doomed.id)
    fake.cancelled[doomed.id] = "ann"
    await fake.start()
    for refused_one in (ended, late):
        with pytest.raises(JobCancelled, match="job 'doomed' was cancelled by ann"):
            await asyncio.wait_for(refused_one, 5)
    await asyncio.wait_for(waiting.granted, 5)
    assert [asked.job for asked in fake.called("register_job")] == ["", "", doomed.id, other.id]
    assert [asked.job for asked in fake.called("submit")][2:] == [other.id]
    assert len(fake.called("place")) == len(fake.called("cancel_tasks")) == 1, "nothing is asked about a cancelled job"


async def test_a_client_that_joins_a_cancelled_job_gets_the_cancellation(fake: FakeAgent, client: AgentClient) -> None:
    fake.cancelled["job-7"] = "ann"
    job = await client.register_job("late", job="job-7")
    with pytest.raises(JobCancelled, match="job 'late' was cancelled by ann"):
        job.submit("cpu", 1)


async def test_only_an_agent_that_reads_them_is_told_of_skipped_tasks_also_after_a_restart(
    fake: FakeAgent, client: AgentClient
) -> None:
    job = await client.register_job("older and newer agents")
    for reads in (True, False, True):
        fake.calls.clear()
        await fake.stop()
        fake.reads_skipped = reads
        await fake.start()
        await client.status()
        assert client.welcome.skipped_tasks is reads
        job.progress([StageProgress(stage="s", tasks=3, done=2, skipped=1)])
        job.flush_progress()
        await fake.until(lambda: bool(fake.called("progress")))
        [told] = fake.called("progress")
        assert told.stages == [StageProgress(stage="s", tasks=3, done=2, skipped=int(reads))]

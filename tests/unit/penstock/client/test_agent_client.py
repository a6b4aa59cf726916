"""The asyncio client against an agent in the same loop, which dies and comes back on demand."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from penstock.client import AgentClient, AgentUnavailable, JobCancelled, Monotask, NotPlaced
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import TaskRequest
from penstock.transport import RpcPeer
from penstock.wire.agent_api import JobRegistered, RegisterJob
from penstock.wire.errors import RpcError, refused
from penstock.wire.jobs_api import SlotTakenBack
from tests.fakes.agent import FakeAgent, FakeContainer


@pytest.fixture
async def client(fake: FakeAgent) -> AsyncIterator[AgentClient]:
    async with await AgentClient.connect(fake.socket, "test") as connected:
        yield connected


def request_of(task: str, *argv: str) -> TaskRequest:
    command = ContainerSpec(argv=argv) if argv else None
    return TaskRequest(task=task, usage=KindAmounts(cpu=1.0), command=command)


async def test_welcome_is_what_the_agent_said(fake: FakeAgent, client: AgentClient) -> None:
    assert client.welcome.node == "fake"
    [hello] = fake.called("hello")
    assert hello.client == "test"


async def test_no_agent_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable) as caught:
        await AgentClient.connect(tmp_path / "agent.sock")
    assert str(caught.value) == f"no agent at {tmp_path}/agent.sock; start one with `penstock up`"


async def test_a_refused_hello_says_what_the_agent_said(fake: FakeAgent) -> None:
    fake.refuse["hello"] = refused("protocol 1 is not spoken here", field="protocol")
    with pytest.raises(AgentUnavailable, match="protocol 1 is not spoken here"):
        await AgentClient.connect(fake.socket)


async def test_monotasks_run_one_after_the_other_in_one_slot(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("wordcount", memory_bytes=7)
    running = 0

    async def one() -> None:
        nonlocal running
        async with job.monotask("disk", 100, stage="read"):
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1

    await asyncio.gather(*(one() for _ in range(20)))
    await job.end()
    assert fake.most_running == 1
    assert sum(len(call.monotasks) for call in fake.called("complete")) == 20


async def test_what_is_submitted_in_one_turn_travels_as_one_message(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("batch")
    fake.slots = 10
    monotasks = [job.submit(ResourceKind.CPU, n) for n in range(10)]
    await asyncio.gather(*(one.granted for one in monotasks))
    for one in monotasks:
        one.complete()
    await fake.until(lambda: not fake.running)
    assert [len(call.monotasks) for call in fake.called("submit")] == [10]
    assert [len(call.monotasks) for call in fake.called("complete")] == [1, 9], "a free slot waits for nobody"


async def test_a_body_that_raises_completes_as_failed(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("failing")
    with pytest.raises(ZeroDivisionError):
        async with job.monotask("cpu", 1):
            raise ZeroDivisionError
    await fake.until(lambda: bool(fake.called("complete")))
    assert fake.called("complete")[0].monotasks[0].failed


async def test_a_cancelled_wait_cancels_the_monotask(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("impatient")
    async with job.monotask("cpu", 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.01), job.monotask("cpu", 2):
                pytest.fail("there is one slot only")
        await fake.until(lambda: not fake.queued)
    await fake.until(lambda: not fake.running)


async def test_the_grant_of_an_abandoned_wait_is_given_back(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("abandoned")
    async with job.monotask("cpu", 1):
        abandoned = job.submit("cpu", 2)
        await fake.until(lambda: bool(fake.queued))
        abandoned.granted.cancel()
    async with asyncio.timeout(5), job.monotask("cpu", 3):
        assert abandoned.cancel() is False


async def test_a_refused_submission_ends_its_monotasks(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("refused")
    fake.refuse["submit"] = refused("too many")
    with pytest.raises(RpcError, match="too many"):
        async with job.monotask("cpu", 1):
            pytest.fail("it was refused")


@pytest.mark.parametrize(("kind", "size"), [("gpu", 1), ("cpu", -1)])
async def test_nonsense_is_refused_before_it_is_sent(client: AgentClient, kind: str, size: int) -> None:
    job = await client.register_job("nonsense")
    with pytest.raises(ValueError, match=r"gpu|from 0 to"):
        job.submit(kind, size)


async def test_ending_a_job_cancels_what_waits(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("ended")
    first, second = job.submit("cpu", 1), job.submit("cpu", 2)
    await first.granted
    await job.place("map", [request_of("m1", "true")])
    await job.end()
    assert second.granted.cancelled()
    assert first.complete() is False
    assert (await job.ended("m1")).by is EndedBy.CANCELLED
    with pytest.raises(RuntimeError, match="over"):
        job.submit("cpu", 1)


async def test_a_job_waits_for_its_admission(fake: FakeAgent, client: AgentClient) -> None:
    fake.admits = False
    job = await client.register_job("big")
    waiting = asyncio.ensure_future(job.admitted())
    await asyncio.sleep(0)
    assert not waiting.done()
    fake.admit(job.id)
    await asyncio.wait_for(waiting, 5)


async def test_tasks_are_placed_and_end(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("dag")
    await job.place("map", [request_of("m1", "true"), request_of("m2")], opportunistic=True)
    assert await job.placed("m1") == "fake"
    fake.end_task(job.id, "m1", Ended(by=EndedBy.EXIT, exit_status=3))
    assert (await job.ended("m1")).exit_status == 3
    await job.tasks_done(["m2"])
    assert (await job.ended("m2")).ok
    assert fake.called("place")[0].opportunistic
    with pytest.raises(ValueError, match="m1"):
        await job.place("map", [request_of("m1", "true")])


async def test_cancelled_tasks_end(fake: FakeAgent, client: AgentClient) -> None:
    fake.places = False
    job = await client.register_job("cancelled")
    await job.place("map", [request_of("m1", "true")])
    placed = asyncio.ensure_future(job.placed("m1"))
    await asyncio.sleep(0)
    await job.cancel_tasks(["m1"])
    with pytest.raises(NotPlaced) as caught:
        await placed
    assert caught.value.ended.by is EndedBy.CANCELLED


async def test_a_refused_placement_leaves_nothing_behind(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("refused")
    fake.refuse["place"] = refused("no such stage")
    with pytest.raises(RpcError):
        await job.place("map", [request_of("m1")])
    del fake.refuse["place"]
    await job.place("map", [request_of("m1")])


# ---------------------------------------------------------------- containers


async def test_a_container_that_ends_at_once_is_not_missed(fake: FakeAgent, client: AgentClient) -> None:
    fake.on_launch = lambda made: fake.end_container(made, Ended(by=EndedBy.EXIT, exit_status=0))
    container = await client.launch(ContainerSpec(argv=("true",)))
    assert (await asyncio.wait_for(container.wait(), 5)).ok


async def test_signals_kills_and_output(fake: FakeAgent, client: AgentClient) -> None:
    fake.outputs["stdout"] = b"more than one answer holds"
    first = await client.launch(ContainerSpec(argv=("cat",)))
    assert await first.output() == b"more than one answer holds"
    assert await first.output("stderr") == b""
    await first.signal(15)
    assert (await first.wait()).exit_status == 143
    second = await client.launch(ContainerSpec(argv=("cat",)))
    await second.kill()
    assert (await second.wait()).by is EndedBy.CANCELLED


async def test_descriptors_reach_the_agent(fake: FakeAgent, client: AgentClient) -> None:
    def write_to_it(made: FakeContainer) -> None:
        os.write(made.stdio[1], b"out")
        os.write(made.stdio[2], b"err")
        fake.end_container(made, Ended(by=EndedBy.EXIT, exit_status=0))

    fake.on_launch = write_to_it
    read_end, write_end = os.pipe()
    try:
        container = await client.launch(ContainerSpec(argv=("x",)), stdio=(read_end, write_end, write_end))
        await container.wait()
    finally:
        os.close(write_end)
    assert os.read(read_end, 100) == b"outerr"
    assert os.read(read_end, 100) == b""  # nobody holds a copy any more
    os.close(read_end)


# ---------------------------------------------------------------- restarts of the agent


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


async def test_who_wants_to_know_is_told_when_the_agent_goes_away_and_when_it_is_back(
    fake: FakeAgent, client: AgentClient
) -> None:
    told: asyncio.Queue[bool] = asyncio.Queue()
    client.on_link = told.put_nowait
    await fake.stop()
    assert await asyncio.wait_for(told.get(), 5) is False
    await fake.start()
    assert await asyncio.wait_for(told.get(), 5) is True
    assert (await client.status())["node"] == "fake" and told.empty()


async def test_what_is_submitted_during_the_reconnection_is_not_forgotten(
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


async def test_what_ended_while_the_agent_was_away_needs_no_message(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("meanwhile")
    only = job.submit("cpu", 1)
    await only.granted
    await fake.stop()
    assert only.complete()
    await fake.start()
    async with asyncio.timeout(5), job.monotask("cpu", 2):
        assert [spec.id for spec in fake.called("submit")[-1].monotasks] == [only.id + 1]
    await fake.until(lambda: not fake.running)


async def test_a_job_that_the_agent_forgot_is_registered_anew(fake: FakeAgent, client: AgentClient) -> None:
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


async def test_an_admission_that_comes_with_the_answer_to_a_forgotten_job_counts(
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


async def test_everybody_hears_when_the_agent_stays_away(fake: FakeAgent) -> None:
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


async def test_a_closed_client_says_so(fake: FakeAgent) -> None:
    client = await AgentClient.connect(fake.socket)
    job = await client.register_job("closed")
    waiting = [job.submit("cpu", n) for n in (1, 2)]
    await waiting[0].granted
    await client.close()
    with pytest.raises(AgentUnavailable, match="closed"):
        await waiting[1].granted
    with pytest.raises(AgentUnavailable, match="closed"):
        await client.status()
    await fake.until(lambda: not fake.running)


async def test_a_cancelled_job_is_over_for_whoever_waits_and_the_error_names_who_did_it(
    fake: FakeAgent, client: AgentClient
) -> None:
    fake.places = False
    job, other = await client.register_job("doomed"), await client.register_job("other")
    running, waiting = job.submit("cpu", 1), job.submit("cpu", 1)
    await running.granted
    await job.place("s", [request_of("t", "true")])
    placed = asyncio.ensure_future(job.placed("t"))
    await asyncio.sleep(0)
    fake.cancel_job(job.id, "ann")
    for each in (waiting.granted, placed, job.admitted(), job.place("s", [request_of("u")])):
        with pytest.raises(JobCancelled, match="job 'doomed' was cancelled by ann") as caught:
            await each
        assert caught.value.by == "ann"
    running.complete()
    await job.end()
    assert not fake.called("end_job"), "it is over; there is nothing to end"
    await other.submit("disk", 1).granted


async def test_a_job_that_was_cancelled_while_the_agent_was_away_is_not_registered_anew(
    fake: FakeAgent, client: AgentClient, tmp_path: Path
) -> None:
    job = await client.register_job("doomed")
    waiting = [job.submit("cpu", 1), job.submit("cpu", 1)][1]
    await fake.stop()
    fake.refuse["register_job"] = refused("job 'job-1' was cancelled by ann", field="job")
    await fake.start()
    with pytest.raises(RpcError, match="cancelled by ann"):
        await waiting.granted
    assert len(fake.called("register_job")) == 2, "once to begin with, and once to join it again"


async def test_a_slot_that_was_taken_back_is_told_and_its_monotask_completes(
    fake: FakeAgent, client: AgentClient
) -> None:
    job = await client.register_job("long")
    told: asyncio.Queue[SlotTakenBack] = asyncio.Queue()
    job.on_slot_taken_back = told.put_nowait
    monotask = job.submit("cpu", 1)
    await monotask.granted
    taken = SlotTakenBack(job=job.id, id=monotask.id, kind=ResourceKind.CPU, why="it was held for 61 s")
    for peer in fake._peers:
        peer.notify("slot_taken_back", taken)
    assert await asyncio.wait_for(told.get(), 10) == taken
    assert monotask.complete()


async def test_a_submission_that_cannot_be_sent_fails_and_the_others_do_not(
    fake: FakeAgent, client: AgentClient
) -> None:
    job, other = await client.register_job("a"), await client.register_job("b")
    with pytest.raises(ValueError, match="from 0 to"):
        job.submit("cpu", 2**63)
    broken = job.submit("cpu", 1, stage="\ud800")  # no UTF-8
    fine = other.submit("cpu", 1)
    with pytest.raises(ValueError, match="surrogates not allowed"):
        await asyncio.wait_for(broken.granted, 10)
    await asyncio.wait_for(fine.granted, 10)
    assert fine.complete()

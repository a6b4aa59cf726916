"""The asyncio client: how it connects and closes, and its monotasks, which wait for a slot and give it back."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from penstock.client import AgentClient, AgentUnavailable
from penstock.model.resources import ResourceKind
from penstock.wire.errors import RpcError, refused
from penstock.wire.jobs_api import SlotTakenBack
from tests.fakes.agent import FakeAgent


async def test_welcome_is_the_agent_s_answer(fake: FakeAgent, client: AgentClient) -> None:
    assert client.welcome.node == "fake"
    [hello] = fake.called("hello")
    assert hello.client == "test"


async def test_no_agent_is_one_line_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(AgentUnavailable) as caught:
        await AgentClient.connect(tmp_path / "agent.sock")
    assert str(caught.value) == f"no agent at {tmp_path}/agent.sock; start one with `penstock up`"


async def test_a_refused_hello_has_the_agent_s_reason(fake: FakeAgent) -> None:
    fake.refuse["hello"] = refused("protocol 1 is not spoken here", field="protocol")
    with pytest.raises(AgentUnavailable, match="protocol 1 is not spoken here"):
        await AgentClient.connect(fake.socket)


async def test_a_closed_client_raises_its_own_error(fake: FakeAgent) -> None:
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


# ---------------------------------------------------------------- monotasks


async def test_an_unknown_kind_is_refused_with_those_that_there_are(client: AgentClient) -> None:
    job = await client.register_job("kinds")
    with pytest.raises(ValueError, match="'gpu' is not a kind of resource; one of cpu, disk, network"):
        job.submit("gpu", 1)


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


async def test_submissions_of_one_turn_travel_as_one_message(fake: FakeAgent, client: AgentClient) -> None:
    job = await client.register_job("batch")
    fake.slots = 10
    monotasks = [job.submit(ResourceKind.CPU, n) for n in range(10)]
    await asyncio.gather(*(one.granted for one in monotasks))
    for one in monotasks:
        one.complete()
    await fake.until(lambda: not fake.running)
    assert [len(call.monotasks) for call in fake.called("submit")] == [10]
    assert [len(call.monotasks) for call in fake.called("complete")] == [1, 9], "a free slot waits for none"


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


async def test_a_slot_that_was_taken_back_is_reported_and_its_monotask_completes(
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
    with pytest.raises(RpcError, match="is not UTF-8"):
        await asyncio.wait_for(broken.granted, 10)
    await asyncio.wait_for(fine.granted, 10)
    assert fine.complete()

"""Jobs of the asyncio client: they are admitted, their tasks are placed, and they end or are cancelled."""

from __future__ import annotations

import asyncio

import pytest

from penstock.client import AgentClient, JobCancelled, NotPlaced
from penstock.model.container import Ended, EndedBy
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent import FakeAgent
from tests.unit.penstock.client.conftest import request_of


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


async def test_ending_a_job_cancels_waiting_monotasks(fake: FakeAgent, client: AgentClient) -> None:
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


async def test_a_cancelled_job_is_over_for_all_waiting_callers_and_the_error_names_the_user(
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

"""Containers of both clients, adopted, resized and following, against an agent that the test steers."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from penstock.client import AgentClient, AgentUnavailable
from penstock.client.blocking import BlockingAgent
from penstock.model.container import ContainerSpec, Ended, EndedBy, Limits
from penstock.model.profile import Profile
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent import FakeAgent, FakeContainer

SPEC = ContainerSpec(argv=("x",), limits=Limits(cpu_cores=1.0))
PROFILE = Profile(cpu_cores=(0.5, 1.0))


@pytest.fixture
async def client(fake: FakeAgent) -> AsyncIterator[AgentClient]:
    async with await AgentClient.connect(fake.socket, reconnect_s=0.2) as connected:
        yield connected


async def test_an_adopted_process_is_a_container_like_any_other(fake: FakeAgent, client: AgentClient) -> None:
    container = await client.adopt(1234, SPEC, tree=True)
    [call] = fake.called("adopt")
    assert (call.pid, call.tree, call.container) == (1234, True, SPEC)
    assert (container.id, container.pid, container.not_enforced) == ("c-1", 1234, {})
    await container.signal(15)
    assert (await container.wait()).exit_status == 143


@pytest.mark.parametrize("how", ["launched", "adopted"])
async def test_an_end_that_comes_with_the_answer_is_not_lost(fake: FakeAgent, client: AgentClient, how: str) -> None:
    over = Ended(by=EndedBy.EXIT, exit_status=3)
    fake.on_launch = lambda made: fake.end_container(made, over)
    container = await client.launch(SPEC) if how == "launched" else await client.adopt(1234, SPEC)
    assert await asyncio.wait_for(container.wait(), 5) == over


async def test_a_process_that_may_not_be_adopted(fake: FakeAgent, client: AgentClient) -> None:
    fake.refuse["adopt"] = refused("process 1 does not belong to eve alone")
    with pytest.raises(RpcError, match="not belong to eve alone"):
        await client.adopt(1, SPEC)


async def test_an_agent_that_goes_away_while_it_adopts_is_not_asked_again(
    fake: FakeAgent, client: AgentClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    stopping: list[asyncio.Task[None]] = []

    async def never(*_: object) -> None:
        stopping.append(asyncio.create_task(fake.stop()))
        await asyncio.Event().wait()

    monkeypatch.setattr(fake, "_adopt", never)
    with pytest.raises(AgentUnavailable, match="while it was adopting the process"):
        await client.adopt(1234, SPEC)
    await stopping[0]
    assert len(fake.called("adopt")) == 1


async def test_limits_change_and_the_rest_stays(fake: FakeAgent, client: AgentClient) -> None:
    container = await client.launch(SPEC)
    assert await container.resize(pids_max=10) == Limits(cpu_cores=1.0, pids_max=10)
    fake.not_enforced = {"cpus": "no cpuset"}
    assert await container.resize(cpu_cores=None, cpus="0-1") == Limits(pids_max=10, cpus="0-1")
    assert container.not_enforced == {"cpus": "no cpuset"}


async def test_a_profile_is_followed_until_it_is_taken_back(fake: FakeAgent, client: AgentClient) -> None:
    container = await client.launch(SPEC)
    await container.follow(PROFILE)
    assert fake.containers[container.id].profile == PROFILE
    await container.follow(None)
    assert fake.containers[container.id].profile is None


async def test_the_blocking_client_does_the_same(fake: FakeAgent) -> None:
    def use() -> tuple[str, int, Limits, dict[str, str]]:
        with BlockingAgent.connect(fake.socket) as agent:
            container = agent.adopt(1234, SPEC)
            limits = container.resize(pids_max=10)
            container.follow(PROFILE)
            return container.id, container.pid, limits, container.not_enforced

    fake.not_enforced = {"pids_max": "no pids"}
    name, pid, limits, not_enforced = await asyncio.to_thread(use)
    assert (pid, limits, not_enforced) == (1234, Limits(cpu_cores=1.0, pids_max=10), {"pids_max": "no pids"})
    assert fake.containers[name].profile == PROFILE


# ---------------------------------------------------------------- the asyncio client's containers
# Their ends, signals, output, and the descriptors that they were given.


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
    assert os.read(read_end, 100) == b""  # no process holds a copy any more
    os.close(read_end)

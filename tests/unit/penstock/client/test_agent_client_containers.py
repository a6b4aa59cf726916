"""Containers of the asyncio client: their ends, signals, output, and the descriptors that they were given."""

from __future__ import annotations

import asyncio
import os

from penstock.client import AgentClient
from penstock.model.container import ContainerSpec, Ended, EndedBy
from tests.fakes.agent import FakeAgent, FakeContainer


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

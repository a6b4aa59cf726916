"""A refused launch holds nothing of its client's: a reader of its output gets the end of file at once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.stdio import pass_stdio
from penstock.wire.errors import ErrorCode, RpcError

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]
#: More than any host has.
TOO_MUCH_BYTES = 100 * 2**40


@pytest.fixture
def pipe() -> Iterator[tuple[int, int]]:
    """A pipe; reading it does not wait. The writing end is closed by the test."""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    yield reading, writing
    os.close(reading)
    with contextlib.suppress(OSError):
        os.close(writing)


async def test_its_descriptors_are_closed_when_the_client_is_answered(
    start_agent: Start, connect: Connect, pipe: tuple[int, int]
) -> None:
    agent = start_agent()
    client = await connect(agent)
    reading, writing = pipe
    token = await asyncio.to_thread(pass_stdio, agent.socket, (writing, writing, writing))
    os.close(writing)
    with pytest.raises(BlockingIOError):
        os.read(reading, 1)  # the agent has it
    with pytest.raises(RpcError) as caught:
        await client.call("launch", container={"argv": ["true"], "stdio": token, "memory_bytes": TOO_MUCH_BYTES})
    assert caught.value.code is ErrorCode.REFUSED and "100 TiB asked" in str(caught.value)
    assert os.read(reading, 1) == b"", "the connection is open, and the pipe has ended all the same"
    await client.call("status")


async def test_those_of_a_task_are_closed_when_its_placement_is_refused(
    start_agent: Start, connect: Connect, pipe: tuple[int, int]
) -> None:
    agent = start_agent()
    client = await connect(agent)
    job = (await client.call("register_job", name="j"))["job"]
    reading, writing = pipe
    token = await asyncio.to_thread(pass_stdio, agent.socket, (writing, writing, writing))
    os.close(writing)
    task = {"task": "t", "usage": {"cpu": 1}, "nodes": ["elsewhere"], "command": {"argv": ["true"], "stdio": token}}
    with pytest.raises(RpcError, match="passed to this node"):
        await client.call("place", job=job, stage="s", tasks=[task])
    assert os.read(reading, 1) == b"", "the connection is open, and the pipe has ended all the same"
    await client.call("status")


def test_the_command_s_pipe_ends_with_the_command(start_agent: Start, pipe: tuple[int, int], tmp_path: Path) -> None:
    agent = start_agent()
    reading, writing = pipe
    command = [sys.executable, "-I", "-m", "penstock.cli.main", "run", "--memory", "100T", "true"]
    environment = {**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}
    said = tmp_path / "said"
    with said.open("w") as stderr:
        done = subprocess.run(
            command, env=environment, stdin=subprocess.DEVNULL, stdout=writing, stderr=stderr, check=False, timeout=60
        )
    os.close(writing)
    assert done.returncode != 0 and "100 TiB asked" in said.read_text()
    assert os.read(reading, 1) == b""

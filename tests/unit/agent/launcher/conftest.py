"""A launcher of the test's own."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.launcher import Launcher
from tests.unit.agent.launcher.launcher_bed import Client, Connect, Pipe, end, launcher_pid


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Makes clients of one launcher; at the end it is stopped, and all that it runs with it."""
    clients: list[Client] = []
    pids: list[int] = []

    async def make() -> Client:
        client = Client()
        client.launcher = await Launcher.connect(
            tmp_path, client.exits.put_nowait, on_lost=client.lost.set, spawn=True, cgroup_root=None
        )
        clients.append(client)
        pids[:] = [launcher_pid(tmp_path)]
        return client

    yield make
    for client in clients:
        await client.launcher.close()
    for pid in pids:
        end(pid)


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that is closed at the end, as far as it is not."""
    made = Pipe()
    yield made
    made.close_writing()
    os.close(made.reading)

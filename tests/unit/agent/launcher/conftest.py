"""A launcher of the test's own."""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.cgroup_root import cgroup2_mount
from tests.escapes import wait_until_empty
from tests.unit.agent.launcher.launcher_bed import Client, Connect, Pipe, end, launcher_pid


@pytest.fixture
async def connect(tmp_path: Path) -> AsyncIterator[Connect]:
    """Makes clients of one launcher; at the end it is stopped, and all that it runs with it."""
    clients: list[Client] = []
    pids: list[int] = []

    async def make(leave_after_s: float = 0.0, cgroup_root: Path | None = None) -> Client:
        clients.append(await Client.connect(tmp_path, cgroup_root=cgroup_root, leave_after_s=leave_after_s))
        pids[:] = [launcher_pid(tmp_path)]
        return clients[-1]

    yield make
    for client in clients:
        await client.launcher.close()
    for pid in pids:
        end(pid)


@pytest.fixture
def cgroup() -> Iterator[Path]:
    """A cgroup of our own; processes left in it at the end are killed."""
    mount = cgroup2_mount()
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("no cgroup v2 hierarchy that we may write to")
    made = mount / f"penstock-test-{secrets.token_hex(4)}"
    made.mkdir()
    yield made
    (made / "cgroup.kill").write_text("1")
    wait_until_empty(made)
    for directory in (*made.glob("*/"), made):
        directory.rmdir()


@pytest.fixture
def pipe() -> Iterator[Pipe]:
    """A pipe that is closed at the end, as far as it is not."""
    made = Pipe()
    yield made
    made.close_writing()
    os.close(made.reading)


@pytest.fixture
async def client(connect: Connect) -> Client:
    return await connect()

"""A launcher whose agent never comes back ends as the agent's configuration defines, and not before its work ends."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from agent.cgroup_root import cgroup2_mount, own_cgroup
from tests.integration.conftest import Daemon, has_ended
from tests.unit.agent.launcher.launcher_bed import launcher_pid

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Daemon]


async def test_it_ends_after_its_last_container_and_the_next_agent_knows_how_that_ended(
    start_agent: Start, connect: Connect, tmp_path: Path
) -> None:
    agent = start_agent(launcher_leave_after_s=0.01)
    client = await connect(agent)
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    spec = {"argv": ["sh", "-c", f"cat {fifo}; exit 3"], "env": {"PATH": "/usr/bin:/bin"}, "detach": True}
    launched = await client.call("launch", container=spec)
    pid = launcher_pid(agent.socket.parent)
    mount = cgroup2_mount()
    cgroup = None if mount is None else own_cgroup(mount, Path(f"/proc/{pid}/cgroup"))
    agent.kill()
    await asyncio.to_thread(fifo.write_text, "")  # only a container that still runs reads it
    assert await asyncio.to_thread(has_ended, pid), "the launcher stays"
    assert not (agent.socket.parent / "launcher.sock").exists()
    assert cgroup is None or cgroup.name != "holder" or not cgroup.exists(), "its cgroups are gone, too"
    client = await connect(start_agent())
    containers = {row["container"]: row for row in (await client.call("status"))["status"]["containers"]}
    assert containers[launched["container"]]["ended"]["exit_status"] == 3

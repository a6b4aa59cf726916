"""The launcher is killed: its containers are seen, limited, killable and accounted for, and new work starts."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.cgroup_root import cgroup2_mount, own_cgroup
from agent.network import bpf, probe
from tests.cgroup_paths import container_cgroup
from tests.escapes import wait_until_empty
from tests.integration.conftest import Daemon, has_ended
from tests.network_bed import UPLINK, Bed
from tests.unit.agent.launcher.launcher_bed import launcher_pid

Start, Connect, Kill = Callable[..., Daemon], Callable[..., Any], Callable[[Daemon], None]
PARENT_DIED = "the launcher that could see its exit status died"
LIMIT_BYTES_PER_S = 1_000_000


@pytest.fixture
def kill_launcher() -> Iterator[Callable[[Daemon], None]]:
    """Kill an agent's launcher; at the end nothing of its cgroups is left, also if the test fails."""
    mount = cgroup2_mount()
    if mount is None or not os.access(mount, os.W_OK):
        pytest.skip("no cgroup v2 hierarchy that we may write to")
    roots: list[Path] = []

    def kill(agent: Daemon) -> None:
        pid = launcher_pid(agent.socket.parent)
        roots.append(mount / own_cgroup(mount, Path(f"/proc/{pid}/cgroup")).parent.name)
        os.kill(pid, signal.SIGKILL)
        assert has_ended(pid)

    yield kill
    for root in roots:
        if root.exists():
            (root / "cgroup.kill").write_text("1")
            wait_until_empty(root)
            for directory in (*sorted(root.rglob("*/"), reverse=True), root):
                directory.rmdir()


@pytest.fixture
def bed() -> Iterator[Bed | None]:
    """A network of our own, where there can be one."""
    made = Bed() if os.geteuid() == 0 and not probe() else None
    yield made
    if made is not None:
        made.close()


def tc(*arguments: str) -> str:
    return subprocess.run(["tc", *arguments], capture_output=True, text=True, check=True).stdout


def cgroup(container: str) -> Path | None:
    mount = cgroup2_mount()
    assert mount is not None
    return container_cgroup(mount, container)


async def launch(client: Any, *argv: str, **spec: object) -> dict[str, Any]:
    answer = await client.call("launch", container={"argv": argv, "env": {"PATH": "/usr/bin:/bin"}, **spec})
    assert isinstance(answer, dict)
    return answer


async def status(client: Any) -> tuple[dict[str, dict[str, Any]], float]:
    """The containers, and the cores that are promised."""
    seen = (await client.call("status"))["status"]
    return {row["container"]: row for row in seen["containers"]}, seen["cores"]["promised"]


async def gone(*containers: dict[str, Any]) -> None:
    """The kernel does not notify of the removal of a cgroup: poll until it is gone."""
    async with asyncio.timeout(60):
        while any(cgroup(one["container"]) for one in containers):  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_containers_go_on_and_new_ones_start(
    kill_launcher: Kill, start_agent: Start, connect: Connect, tmp_path: Path
) -> None:
    agent = start_agent()
    client = await connect(agent)
    fifo = tmp_path / "go"
    os.mkfifo(fifo)
    ends = await launch(client, "sh", "-c", f"cat {fifo}; exit 3", cpu_cores=0.5)
    killed = await launch(client, "sleep", "1000", cpu_cores=1.0)
    kill_launcher(agent)

    fresh = await launch(client, "true")
    over = (await client.recorder.wait_for("container_ended"))[0]
    assert (over["container"], over["ended"]["by"]) == (fresh["container"], "exit")
    rows, promised = await status(client)
    seen = {name: (row["state"], row["orphaned"]) for name, row in rows.items() if name != fresh["container"]}
    assert seen == {ends["container"]: ("running", True), killed["container"]: ("running", True)}
    assert promised == 1.5

    await client.call("kill", container=killed["container"])
    over = (await client.recorder.wait_for("container_ended", 2))[1]
    assert (over["container"], over["ended"]["by"]) == (killed["container"], "cancelled")
    await asyncio.to_thread(fifo.write_text, "go")
    over = (await client.recorder.wait_for("container_ended", 3))[2]
    assert (over["container"], over["ended"]["by"], over["ended"]["reason"]) == (ends["container"], "lost", PARENT_DIED)
    assert over["ended"].get("exit_status") is None
    await gone(ends, killed, fresh)
    assert (await status(client))[1] == 0


@pytest.mark.parametrize("dies", ["killed", "ends itself"])
async def test_the_next_agent_takes_them_back(
    kill_launcher: Kill, bed: Bed | None, start_agent: Start, connect: Connect, dies: str
) -> None:
    """The agent died, too, or ended itself because its launcher is a service manager's.

    A program removed the link's classes. Journal and cgroups hold all that the next agent needs.
    """
    agent = start_agent()
    if dies == "ends itself":
        agent.kill()  # its launcher stays
        agent = start_agent(spawn_launcher=False)
    client = await connect(agent)
    limits = {"network_egress_bytes_per_s": LIMIT_BYTES_PER_S} if bed is not None else {}
    one = await launch(client, "sleep", "1000", cpu_cores=1.0, detach=dies == "killed", limits=limits)
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    adopted = await client.call("adopt", pid=process.pid, container={"argv": ["sleep"], "cpu_cores": 0.5})
    assert "network_egress_bytes_per_s" not in one["not_enforced"], one
    tree = cgroup(one["container"])
    if dies == "killed":
        agent.kill()
    kill_launcher(agent)
    assert await asyncio.to_thread(agent.process.wait, 60) == (-9 if dies == "killed" else 0), agent.log.read_text()
    if bed is not None:
        tc("qdisc", "del", "dev", UPLINK, "root")

    client = await connect(start_agent())
    rows, promised = await status(client)
    assert {name: (row["state"], row["pid"], row["orphaned"]) for name, row in rows.items()} == {
        one["container"]: ("running", one["pid"], True),
        adopted["container"]: ("running", process.pid, True),
    }
    assert promised == 1.5
    if bed is not None:
        assert tree is not None and bpf.attached(tree)
        assert f"ceil {LIMIT_BYTES_PER_S * 8 // 1_000_000}Mbit" in tc("class", "show", "dev", UPLINK)
    fresh = await launch(client, "sleep", "1000")
    assert cgroup(fresh["container"]) is not None and tree is not None
    assert cgroup(fresh["container"]).parent == tree.parent, "there is one tree"  # type: ignore[union-attr]
    for container in (one, adopted):
        await client.call("attach", container=container["container"])
        await client.call("kill", container=container["container"])
    assert [over["ended"]["by"] for over in await client.recorder.wait_for("container_ended", 2)] == ["cancelled"] * 2
    assert await process.wait() == -9
    await gone(one, adopted)

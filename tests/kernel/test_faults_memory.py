"""The agent dies while it shrinks or reclaims memory: its successor finishes the one and decides anew about the other.

All other points are reached without a memory controller, in tests/integration/test_faults.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from agent.fault_injection import Point
from penstock.client import AgentClient
from penstock.model import ContainerSpec, Limits
from tests.integration.conftest import Daemon, start
from tests.kernel.host_bed import assert_cgroups_go, python

pytestmark = pytest.mark.timeout(600)
CGROUPS = Path("/sys/fs/cgroup")
MIB = 1 << 20
#: Read a file twice, so that its cache counts as in use; hold some memory; print a line. The file is on the disk: while
#: its pages are dirty reclaim cannot take them, and the container that has them is preempted.
CACHE = """
    import os, time
    with open("/scratch/{name}", "wb+") as f:
        f.write(b"y" * ({cached} << 20))
        f.flush()
        os.fsync(f.fileno())
        for _ in range(3):
            f.seek(0)
            while f.read(1 << 20):
                pass
    held = bytearray(b"x" * ({anonymous} << 20))
    open("/scratch/{name}.ready", "w").close()
    time.sleep(1000)
    """
SETTINGS = {
    "node": "test", "http": "127.0.0.1:0", "memory_bytes": 256 * MIB, "t_preempt_memory": 0.5, "t_alloc": 2.0,
    "sample_interval_s": 0.2,
}  # fmt: skip


class Host:
    """Agents, one after the other, of one host."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._started: list[Daemon] = []

    def start(self, point: Point | None) -> Daemon:
        own = {"runtime_dir": self._directory / "run", "state_dir": self._directory / "state"}
        arguments = [part for key, value in {**SETTINGS, **own}.items() for part in ("--set", f"{key}={value}")]
        environment = {"PENSTOCK_DIE_AT": point.value} if point is not None else {}
        daemon = start("agent", self._directory, *arguments, environment=environment)
        self._started.append(daemon)
        return daemon

    def close(self) -> None:
        for daemon in self._started:
            if daemon.process.poll() is None:
                assert daemon.stop() == 0, daemon.log.read_text()


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    made = Host(tmp_path)
    yield made
    made.close()
    assert_cgroups_go("penstock-*/containers/*")


async def holding(agent: AgentClient, name: str, cached: int, anonymous: int, **spec: Any) -> Any:
    """Start a container that holds the memory that it was asked to hold."""
    ready = Path(f"/scratch/{name}.ready")
    ready.unlink(missing_ok=True)
    script = python(CACHE.format(name=name, cached=cached, anonymous=anonymous))
    container = await agent.launch(ContainerSpec(argv=tuple(script), name=name, detach=True, **spec))
    await eventually(ready.exists)
    return container


async def eventually(true: Any) -> None:
    """Poll until the condition is true: neither files nor the status notify of their changes."""
    async with asyncio.timeout(120):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.05)


def file_of(container: str, name: str) -> str:
    (path,) = CGROUPS.glob(f"**/containers/**/{container}/{name}")
    return path.read_text().strip()


async def died(daemon: Daemon) -> None:
    await asyncio.to_thread(daemon.process.wait, 120)  # the event loop cannot end while a thread waits
    assert daemon.process.returncode == -9, daemon.log.read_text()


async def test_dead_while_shrinking(host: Host) -> None:
    daemon = host.start(Point.CONFINE_MEMORY_SHRUNK)
    async with await AgentClient.connect(daemon.socket) as agent:
        container = await holding(agent, "shrinking", 60, 20, limits=Limits(memory_max_bytes=200 * MIB))
        asking = asyncio.ensure_future(container.resize(memory_max_bytes=50 * MIB))
        await died(daemon)
        asking.cancel()
        await asyncio.gather(asking, return_exceptions=True)
    daemon = host.start(None)
    await eventually(lambda: file_of(container.id, "memory.max") == str(50 * MIB))
    await eventually(lambda: file_of(container.id, "memory.high") == "max")
    async with await AgentClient.connect(daemon.socket) as agent:
        again = await agent.attach(container.id)
        await again.kill()
        assert (await again.wait()).by == "cancelled"  # it had lived until then


@pytest.mark.parametrize("point", [Point.RECLAIM_ASKED, Point.RECLAIM_DONE])
async def test_dead_while_reclaiming(host: Host, point: Point) -> None:
    daemon = host.start(point)
    async with await AgentClient.connect(daemon.socket) as agent:
        cache = await holding(agent, "cache", 100, 5, opportunistic=True)
        promised = await holding(agent, "promised", 1, 60, memory_bytes=200 * MIB)
        await died(daemon)
    daemon = host.start(None)
    async with await AgentClient.connect(daemon.socket) as agent:
        both = [await agent.attach(container.id) for container in (cache, promised)]
        await eventually(lambda: int(file_of(cache.id, "memory.current")) < 90 * MIB)
        document = await agent.status()
        states = {c["container"]: c["state"] for c in document["containers"]}
        # reclaiming cache was enough: no container was preempted
        assert states == {cache.id: "running", promised.id: "running"}
        for container in both:
            await container.kill()
            await container.wait()

"""Starts and ends a second: ``/bin/true`` through the launcher, beside Python's own rate in the same minute.

With a cgroup, each start makes one, sets limits, enters it, and each end removes it. Parts that the host's kernel lacks
(no cgroup v2 tree, no controllers) are not measured, and are named.
"""

from __future__ import annotations

import asyncio
import os
import pwd
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

from agent.cgroup_root import choose_root
from agent.cgroups import CgroupTree
from agent.core.confinement import Confinement
from agent.launcher import Exited, Launcher, Start

COUNT = 400
WARM_UP = 40
IN_FLIGHT = 8
#: The least rate of starts with a cgroup each (issue 3).
BAR_PER_S = 200
COMMAND = "/bin/true"
CONFINEMENT = Confinement(cpu_cores=0.5, memory_max_bytes=64 << 20, pids_max=64)
_USER = pwd.getpwuid(os.geteuid()).pw_name
_REMOVE_TRIES = 1000


class Bed:
    """A launcher of our own, in a cgroup tree of our own where there is one."""

    def __init__(self) -> None:
        self.launcher: Launcher
        self.tree: CgroupTree | None = None
        self.degraded: list[str] = ["a cgroup v2 tree"]
        self._ends: dict[str, asyncio.Future[Exited]] = {}
        self._numbers = iter(range(1 << 30))
        self._null = os.open(os.devnull, os.O_RDWR)

    async def open(self, runtime: Path) -> None:
        """Start the launcher."""
        root = choose_root(secrets.token_hex(4))
        self.launcher = await Launcher.connect(
            runtime, self._exited, on_lost=lambda: None, spawn=True, cgroup_root=root
        )
        if self.launcher.cgroup_root is not None:
            self.tree = CgroupTree(self.launcher.cgroup_root, [])
            self.degraded = sorted(self.tree.prepare())

    async def close(self) -> None:
        """The launcher ends with us, and takes its tree with it."""
        await self.launcher.shutdown()
        await self.launcher.close()
        os.close(self._null)

    async def plain(self) -> None:
        """One start and end without a cgroup."""
        await self._run(f"bench-{next(self._numbers)}", None)

    async def confined(self) -> None:
        """One start and end in a cgroup of its own, with limits."""
        assert self.tree is not None
        container = f"bench-{next(self._numbers)}"
        cgroup = self.tree.create(container)
        cgroup.confine(CONFINEMENT, Confinement())
        procs = cgroup.open_procs()
        try:
            await self._run(container, procs)
        finally:
            os.close(procs)
        for _ in range(_REMOVE_TRIES):  # until its dead are reaped
            if cgroup.remove():
                return
            await asyncio.sleep(0)
        raise RuntimeError(f"{cgroup.path} stays populated")

    async def _run(self, container: str, procs: int | None) -> None:
        ended = self._ends[container] = asyncio.get_running_loop().create_future()
        start = Start(container=container, user=_USER, argv=[COMMAND], env={}, cwd="/")
        await self.launcher.start(start, procs_fd=procs, stdio=(self._null,) * 3)
        if (await ended).exit_status != 0:
            raise RuntimeError(f"{COMMAND} failed: {ended.result()}")
        await self.launcher.acknowledge(container)

    def _exited(self, exited: Exited) -> None:
        self._ends.pop(exited.container).set_result(exited)


def _blocking(once: Callable[[], object]) -> float:
    """How often a second."""
    for _ in range(WARM_UP):
        once()
    began = time.perf_counter()
    for _ in range(COUNT):
        once()
    return COUNT / (time.perf_counter() - began)


async def _at_once(once: Callable[[], Awaitable[None]], flights: int) -> float:
    """How often a second, with so many on their way."""

    async def fly(count: int) -> None:
        for _ in range(count):
            await once()

    await fly(WARM_UP)
    began = time.perf_counter()
    await asyncio.gather(*(fly(COUNT // flights) for _ in range(flights)))
    return COUNT / (time.perf_counter() - began)


def _posix_spawn() -> None:
    os.waitpid(os.posix_spawn(COMMAND, [COMMAND], {}), 0)


def measure(runner: asyncio.Runner, bed: Bed) -> Iterator[tuple[str, float]]:
    """Return the name and the rate per second of each; the first is the peer that the others are compared with."""
    yield "subprocess.run", _blocking(lambda: subprocess.run([COMMAND], check=True))
    yield "os.posix_spawn", _blocking(_posix_spawn)
    yield "launcher", runner.run(_at_once(bed.plain, 1))
    yield f"launcher, {IN_FLIGHT} at once", runner.run(_at_once(bed.plain, IN_FLIGHT))
    if bed.tree is not None:
        yield "launcher, cgroup", runner.run(_at_once(bed.confined, 1))
        yield f"launcher, cgroup, {IN_FLIGHT} at once", runner.run(_at_once(bed.confined, IN_FLIGHT))


def main() -> int:
    """Print the table."""
    print(f"{'started and ended':<30}{'a second':>10}{'of the first':>14}")
    peer = confined = 0.0
    bed = Bed()
    with asyncio.Runner() as runner, tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        runner.run(bed.open(Path(directory)))
        for what, rate in measure(runner, bed):
            peer = peer or rate
            confined = max(confined, rate) if "cgroup" in what else confined
            print(f"{what:<30}{rate:>10.0f}{rate / peer:>14.2f}", flush=True)
        runner.run(bed.close())
    if bed.degraded:
        print(f"not measured, because this host does not have it: {', '.join(bed.degraded)}")
    print(f"bar: {BAR_PER_S} a second with a cgroup each: {'met' if confined >= BAR_PER_S else 'NOT met'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""A launcher without free descriptors: it begins nothing, loses nothing, and goes on when there are some again."""

from __future__ import annotations

import asyncio
import itertools
import os
import resource
import select
import signal
import subprocess
import sys
from collections.abc import Awaitable
from pathlib import Path

import pytest

from agent.launcher import LauncherGone, LaunchFailed
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, Connect, Pipe, launcher_pid, opened

#: Turns of the launcher's loop after which it has served all earlier connections.
_TURNS = 8
#: More than a start takes: four arrive, two are a pipe's, one is its cgroup's.
_ENOUGH = 7


class Limited:
    """A launcher with a limit of descriptors."""

    def __init__(self, client: Client, pid: int) -> None:
        self._client = client
        self.pid = pid
        self._before = resource.prlimit(pid, resource.RLIMIT_NOFILE)

    async def used(self) -> set[int]:
        """The descriptors in use when nothing is under way."""
        for _ in range(_TURNS):
            await self._client.launcher.running()
        return {int(entry.name) for entry in Path(f"/proc/{self.pid}/fd").iterdir()}

    async def leave(self, free: int) -> None:
        """Leave so many numbers free."""
        used = await self.used()
        self.set(next(itertools.islice((number for number in itertools.count() if number not in used), free, None)))

    def set(self, limit: int) -> None:
        """With 3 nothing can be opened, even if other files are closed before."""
        resource.prlimit(self.pid, resource.RLIMIT_NOFILE, (limit, self._before[1]))

    def lift(self) -> None:
        self.set(self._before[0])


@pytest.fixture
async def limited(client: Client, tmp_path: Path) -> Limited:
    return Limited(client, launcher_pid(tmp_path))


async def _ended(pidfd: int) -> None:
    try:
        assert (await asyncio.to_thread(select.select, [pidfd], [], [], TIMEOUT_S))[0]
    finally:
        os.close(pidfd)


async def in_time(what: Awaitable[object]) -> object:
    async with asyncio.timeout(TIMEOUT_S):
        return await what


@pytest.mark.parametrize("free", range(_ENOUGH + 1))
async def test_a_start_without_descriptors_is_refused_and_nothing_is_left_of_it(
    client: Client, limited: Limited, cgroup: Path, pipe: Pipe, free: int
) -> None:
    before = await limited.used()
    await limited.leave(free)
    refused = False
    with opened(cgroup / "cgroup.procs", os.O_WRONLY) as procs:
        try:
            await client.start("a", "cat", "/proc/self/cgroup", procs_fd=procs, stdout=pipe.writing)
        except LaunchFailed as error:
            refused = True
            assert not isinstance(error, LauncherGone)
            assert "no free file descriptor" in str(error) or "Too many open files" in str(error)
    assert refused == (free < _ENOUGH - 1)  # without the cgroup's, there is another way into it
    if not refused:
        assert (await client.exited()).exit_status == 0
        assert f"0::/{cgroup.name}\n" in (await asyncio.to_thread(os.read, pipe.reading, 4096)).decode()
    await pipe.end()
    assert await client.launcher.running() == []
    assert await limited.used() == before
    limited.lift()
    assert await client.output("echo", "again") == "again\n"


async def test_connections_wait_for_descriptors(
    client: Client, limited: Limited, connect: Connect, tmp_path: Path
) -> None:
    limited.set(3)
    late = asyncio.ensure_future(connect())
    for _ in range(3 * _TURNS):
        assert await in_time(client.launcher.running()) == []
        await asyncio.sleep(0)
    assert not late.done() and not client.lost.is_set()
    limited.lift()
    again = await late
    assert launcher_pid(tmp_path) == limited.pid
    assert await again.output("echo", "again") == "again\n"


@pytest.mark.parametrize("limit", ["none free", "none opens"])
async def test_a_container_that_ends_meanwhile_is_not_lost(
    client: Client, limited: Limited, pipe: Pipe, limit: str
) -> None:
    """The rest of its session is ended with it, which takes a look at all processes."""
    pid = await client.start("a", "sh", "-c", "sleep 1000 & echo up; wait", stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    if limit == "none free":
        await limited.leave(0)
    else:
        limited.set(3)
    gone = os.pidfd_open(pid)
    os.kill(pid, signal.SIGKILL)
    await _ended(gone)
    if limit == "none opens":
        for _ in range(_TURNS):
            await in_time(client.launcher.running())
        assert client.exits.empty() and not client.lost.is_set()
        limited.lift()
    assert (await client.exited()).signal == signal.SIGKILL
    await pipe.end()


async def test_running_containers_can_be_killed(client: Client, limited: Limited, pipe: Pipe) -> None:
    await client.start("a", "bash", "-c", "set -m; sleep 1000 & echo up; wait", stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    await limited.leave(0)
    await client.launcher.kill_session("a")
    assert (await client.exited()).signal == signal.SIGKILL
    await pipe.end()


async def test_a_process_is_not_adopted_halfway(client: Client, limited: Limited, cgroup: Path) -> None:
    """Without its cgroup, which did not arrive, it would be watched, and run without limits."""
    process = await asyncio.create_subprocess_exec("sleep", "1000")
    try:
        with opened(cgroup / "cgroup.procs", os.O_WRONLY) as procs:
            for free in (0, 1):
                await limited.leave(free)
                with pytest.raises(LaunchFailed, match=r"no free file descriptor|Too many open files"):
                    await client.launcher.adopt("a", process.pid, ME, procs_fd=procs)
                assert await client.launcher.running() == [] and not client.lost.is_set()
                limited.lift()
            await limited.leave(2)
            await client.launcher.adopt("a", process.pid, ME, procs_fd=procs)
        assert Path(f"/proc/{process.pid}/cgroup").read_text().strip().endswith(cgroup.name)
    finally:
        process.kill()
        await process.wait()
    assert (await client.exited()).container == "a"


async def test_a_launcher_that_is_stopped_ends_its_containers_all_the_same(
    connect: Connect, tmp_path: Path, cgroup: Path, pipe: Pipe
) -> None:
    root = cgroup / "tree"
    client = await connect(cgroup_root=root)
    container = root / "containers" / "a"
    container.mkdir(parents=True)
    limited = Limited(client, launcher_pid(tmp_path))
    escapes = "setsid sleep 1000 & echo up; wait"
    with opened(container / "cgroup.procs", os.O_WRONLY) as procs:
        await client.start("a", "sh", "-c", escapes, procs_fd=procs, stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    await limited.leave(0)
    gone = os.pidfd_open(limited.pid)
    os.kill(limited.pid, signal.SIGTERM)
    await pipe.end()
    await _ended(gone)
    assert not root.exists()


#: The descriptors of a process with one thread, as the launcher's.
SPAWN = """
import errno, os, resource, sys
from agent.launcher import child
from agent.launcher.messages import Start

user, case = sys.argv[1:]
first, hard = 64, resource.getrlimit(resource.RLIMIT_NOFILE)[1]
resource.setrlimit(resource.RLIMIT_NOFILE, (first, hard))
spawner = child.Spawner()

def none(pid):
    raise OSError(errno.ENFILE, "Too many open files in system")

stdio = tuple(os.open("/dev/null", os.O_RDWR | os.O_CLOEXEC) for _ in range(3))
if case == "many":
    for _ in range(2 * first):
        os.dup(0)
    os.dup2(2, stdio[1], inheritable=False)
else:
    os.pidfd_open = none
try:
    _, *_, report = spawner.spawn(Start("x", user, ["sh", "-c", "ulimit -n >&1"], {}, "/", 500), None, stdio)
    while said := os.read(report, 4096):
        if b"failed" in said:
            print(said)
except OSError as error:
    print(error.strerror)
try:
    print(os.wait()[1])
except ChildProcessError:
    print("no child")
"""


def spawned(case: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-I", "-c", SPAWN, ME, case]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_S)


def test_a_child_that_cannot_be_watched_does_not_stay() -> None:
    assert spawned("none").stdout.splitlines() == ["Too many open files in system", "no child"]


def test_a_child_is_not_short_of_descriptors_below_its_own_limit() -> None:
    """With many containers the launcher has more open than the limit that it passes on."""
    done = spawned("many")
    assert (done.stdout.splitlines(), done.stderr) == (["0"], "64\n")

"""Processes that other programs started: which may be taken over, their descendants, and the knowledge of their end."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from agent.cgroup_root import container_directory
from agent.launcher import LaunchFailed, first_process, rounds
from agent.launcher import adopt as adopt_module
from agent.launcher.adopt import NotAdoptable, exit_code
from agent.launcher.messages import Adopt, Running
from tests.escapes import wait_until_empty
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, Connect, end, launcher_pid, opened

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of others")
Sleeper = Callable[..., subprocess.Popen[bytes]]


@pytest.mark.parametrize("where", ["c-9", "j-1.job/c-9", "t-1.job/j-1.job/c-9/below"])
def test_a_process_in_a_container_is_refused_with_the_container_s_id(
    monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    monkeypatch.setattr(adopt_module, "cgroup_of", lambda pid: f"/penstock/containers/{where}")
    asked = Adopt("c-1", os.getpid(), ME, os.getuid(), tree=False)
    with pytest.raises(NotAdoptable, match=rf"process {os.getpid()} is in container 'c-9' already"):
        adopt_module.adopt(asked, None, (), "/penstock/containers/")


def test_a_container_is_found_in_groups_and_beside_them(tmp_path: Path) -> None:
    there = ["a", "j-1.job/b", "Later_1/j-2.job/c", "a/below"]
    for path in there:
        (tmp_path / "containers" / path).mkdir(parents=True)
    found = {name: container_directory(tmp_path, name) for name in ("a", "b", "c", "gone", "below")}
    assert found == {
        name: tmp_path / "containers" / path for name, path in zip(found, [*there[:3], "gone", "below"], strict=True)
    }


@pytest.fixture
def process() -> Iterator[Sleeper]:
    """Makes processes that are no children of the launcher's."""
    made: list[subprocess.Popen[bytes]] = []

    def make(*argv: str, user: str | None = None) -> subprocess.Popen[bytes]:
        made.append(
            subprocess.Popen(
                argv or ("sleep", "1000"), stdin=subprocess.PIPE, stdout=subprocess.PIPE, user=user, process_group=0
            )
        )
        return made[-1]

    yield make
    for one in made:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(one.pid, signal.SIGKILL)
        one.wait(TIMEOUT_S)
        for pipe in (one.stdin, one.stdout):
            if pipe is not None:
                pipe.close()


def up(parent: subprocess.Popen[bytes]) -> subprocess.Popen[bytes]:
    """Wait until it prints that it is up."""
    assert parent.stdout is not None and parent.stdout.readline() == b"up\n"
    return parent


async def failure(client: Client, pid: int, user: str = ME) -> str:
    with pytest.raises(LaunchFailed) as caught:
        await client.launcher.adopt("a", pid, user)
    assert await client.launcher.running() == []
    return str(caught.value)


async def test_an_adopted_process_is_known_to_every_agent_until_its_end(connect: Connect, process: Sleeper) -> None:
    first = await connect()
    sleeper = process()
    await first.launcher.adopt("a", sleeper.pid, ME)
    with pytest.raises(LaunchFailed, match="'a' runs already"):
        await first.launcher.adopt("a", sleeper.pid, ME)
    (run,) = await first.launcher.running()
    assert (run.container, run.pid, run.user) == ("a", sleeper.pid, ME)
    await first.launcher.close()

    second = await connect()
    assert await second.launcher.running() == [run]
    await second.launcher.signal("a", signal.SIGTERM)
    exited = await second.exited()
    assert (exited.container, exited.cpu_seconds, exited.max_rss_bytes) == ("a", 0.0, 0)
    # Its parent, this test, has not reaped it: the kernel still has its status.
    assert (exited.exit_status, exited.signal) == (128 + signal.SIGTERM, signal.SIGTERM)
    assert sleeper.wait(TIMEOUT_S) == -signal.SIGTERM, "the launcher must not have taken it from its parent"
    assert second.exits.empty()


async def test_its_exit_status_is_that_of_a_shell(client: Client, process: Sleeper) -> None:
    shell = process("sh", "-c", "read x; exit 7")
    await client.launcher.adopt("a", shell.pid, ME)
    assert shell.stdin is not None
    shell.stdin.close()
    exited = await client.exited()
    assert (exited.exit_status, exited.signal) == (7, None)


async def test_how_one_ended_that_is_reaped_already(process: Sleeper) -> None:
    """Linux 6.15 reports it to the holder of a pidfd. Before, it is unknown, and the end has that as its reason."""
    shell = process("sh", "-c", "exit 7")
    pidfd = os.pidfd_open(shell.pid)
    try:
        shell.wait(TIMEOUT_S)
        release = tuple(map(int, os.uname().release.split("-")[0].split(".")[:2]))
        assert exit_code(shell.pid, pidfd) == (7 if release >= (6, 15) else None)
    finally:
        os.close(pidfd)


async def test_only_itself_is_killed_where_there_is_no_cgroup(client: Client, process: Sleeper) -> None:
    """Its session and process group are not ours to end."""
    parent = process("sh", "-c", "exec 3<&0; cat <&3 & echo up; wait")
    assert parent.stdin is not None and parent.stdout is not None
    assert parent.stdout.readline() == b"up\n"
    await client.launcher.adopt("a", parent.pid, ME)
    await client.launcher.kill_session("a")
    assert (await client.exited()).signal == signal.SIGKILL
    parent.stdin.write(b"its child lives\n")
    parent.stdin.flush()
    assert await asyncio.to_thread(parent.stdout.readline) == b"its child lives\n"


async def test_a_launcher_that_is_stopped_leaves_processes_that_it_only_watched(
    client: Client, process: Sleeper, tmp_path: Path
) -> None:
    sleeper = process()
    await client.launcher.adopt("a", sleeper.pid, ME)
    end(launcher_pid(tmp_path))
    async with asyncio.timeout(TIMEOUT_S):
        await client.lost.wait()
    os.kill(sleeper.pid, signal.SIGUSR1)  # not SIGINT: a shell's background job has that ignored
    assert sleeper.wait(TIMEOUT_S) == -signal.SIGUSR1


# ---------------------------------------------------------------- refused processes


async def test_there_is_none(client: Client, process: Sleeper) -> None:
    gone = process("true")
    gone.wait(TIMEOUT_S)
    for pid in (gone.pid, 2**31, 2**63 - 1):
        assert await failure(client, pid) == f"there is no process {pid}"
    assert "user 'no-such-user' is not known" in await failure(client, os.getppid(), "no-such-user")


async def test_one_that_has_ended_and_waits_for_its_parent(client: Client, process: Sleeper) -> None:
    zombie = process("true")
    pidfd = os.pidfd_open(zombie.pid)
    assert await asyncio.to_thread(select.select, [pidfd], [], [], TIMEOUT_S) != ([], [], [])
    os.close(pidfd)
    assert await failure(client, zombie.pid) == f"process {zombie.pid} has ended"


async def test_a_thread(client: Client, process: Sleeper) -> None:
    script = "import threading; t = threading.Thread(target=input); t.start(); print(t.native_id, flush=True)"
    threads = process(sys.executable, "-ISc", script)
    assert threads.stdout is not None
    thread = int(threads.stdout.readline())
    assert await failure(client, thread) == f"{thread} is a thread; name its process"


async def test_penstock_itself_and_init(client: Client, tmp_path: Path) -> None:
    for pid in (1, launcher_pid(tmp_path), os.getpid()):  # we are the agent
        assert await failure(client, pid) == f"process {pid} is the host's init or Penstock's own"


@root_only
async def test_a_process_of_another_user(client: Client, process: Sleeper) -> None:
    mine, theirs = process(), process(user="daemon")
    assert await failure(client, mine.pid, "daemon") == f"process {mine.pid} does not belong to daemon alone"
    await client.launcher.adopt("theirs", theirs.pid, "daemon")
    await client.launcher.adopt("roots", process(user="daemon").pid, "root")  # root may do as it likes


@root_only
async def test_one_that_is_two_users_at_once(client: Client, process: Sleeper) -> None:
    """A set-user-ID program is such: the user who started it may not set its limits."""
    script = "import os; os.setresuid(1, 1, 0); print('up', flush=True); input()"
    both = up(process(sys.executable, "-ISc", script))
    assert await failure(client, both.pid, "daemon") == f"process {both.pid} does not belong to daemon alone"


@root_only
async def test_the_kernels_own(connect: Connect) -> None:
    if Path("/proc/2/comm").read_text() != "kthreadd\n":
        pytest.skip("elsewhere: no kernel threads to be seen from this pid namespace")
    assert await failure(await connect(), 2) == "process 2 is a kernel thread"


@root_only
async def test_one_in_a_pid_namespace_of_its_own(client: Client, process: Sleeper) -> None:
    outer = up(process("unshare", "--pid", "--fork", "sh", "-c", "echo up; read x"))
    (inner,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
    assert await failure(client, int(inner)) == f"process {inner} is in a pid namespace (a container) of its own"


async def test_a_descriptor_that_is_no_cgroup(client: Client, process: Sleeper) -> None:
    sleeper = process()
    with (
        opened(os.devnull, os.O_RDONLY) as nothing,
        pytest.raises(LaunchFailed, match=f"process {sleeper.pid} cannot be moved: Bad file descriptor"),
    ):
        await client.launcher.adopt("a", sleeper.pid, ME, procs_fd=nothing)


def test_a_tree_that_forks_for_ever_delays_no_other(
    process: Sleeper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its descendants are listed again and again: each list has one more that is not there any longer."""
    monkeypatch.setattr(adopt_module, "descendants", lambda pids, apart: [2**22 + len(apart)])
    sleeper = process()
    asked = Adopt("a", sleeper.pid, ME, os.geteuid(), tree=True)
    before = len(list(Path("/proc/self/fd").iterdir()))
    with (
        opened(tmp_path / "procs", os.O_WRONLY | os.O_CREAT) as procs,
        pytest.raises(NotAdoptable, match=f"the descendants of process {sleeper.pid} fork faster"),
    ):
        adopt_module.adopt(asked, procs, (), None)
    assert len(list(Path("/proc/self/fd").iterdir())) == before


@pytest.mark.parametrize(
    ("lists", "done", "found"),
    [
        ([[1], [1, 2], [2]], [1, 2], True),
        ([[1], [2], [3], []], [1, 2, 3], True),  # slow lists, of a group at rest
        ([[1], [2], [3], [4]], [1, 2, 3], False),
    ],
)
def test_each_process_is_acted_on_once_until_none_is_new_or_the_time_is_over(
    lists: list[list[int]], done: list[int], found: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = itertools.count()  # a list takes longer than all may
    monkeypatch.setattr(rounds.time, "monotonic", lambda: next(clock))
    acted: list[int] = []
    assert rounds.each_once(lambda known: lists.pop(0), acted.append, longest_s=0.5) == found
    assert acted == done


# ---------------------------------------------------------------- into a cgroup


async def adopt(client: Client, cgroup: Path, pid: int, user: str = ME, *, tree: bool = False) -> None:
    with opened(cgroup / "cgroup.procs", os.O_WRONLY) as procs:
        await client.launcher.adopt("a", pid, user, procs_fd=procs, tree=tree)


def members(cgroup: Path) -> set[int]:
    return set(map(int, (cgroup / "cgroup.procs").read_text().split()))


async def test_threads_come_along_and_children_do_not(client: Client, process: Sleeper, cgroup: Path) -> None:
    script = """
import os, threading
if os.fork() == 0:
    input()
threading.Thread(target=input).start()
print("up", flush=True)
"""
    parent = up(process(sys.executable, "-ISc", script))
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    await adopt(client, cgroup, parent.pid)
    assert members(cgroup) == {parent.pid}
    assert cgroup.name not in Path(f"/proc/{child}/cgroup").read_text()
    tasks = list(Path(f"/proc/{parent.pid}/task").iterdir())
    assert len(tasks) == 2
    assert all((task / "cgroup").read_text().endswith(f"/{cgroup.name}\n") for task in tasks)


async def test_a_whole_tree_comes_along(client: Client, process: Sleeper, cgroup: Path) -> None:
    script = "sleep 1000 & sh -c 'sleep 1000 & setsid sleep 1000 & echo up; wait' & wait"
    parent, other = up(process("sh", "-c", script)), process()
    await adopt(client, cgroup, parent.pid, tree=True)
    assert len(members(cgroup)) == 5 and parent.pid in members(cgroup) and other.pid not in members(cgroup)
    (cgroup / "cgroup.kill").write_text("1")
    assert (await client.exited()).signal == signal.SIGKILL
    await asyncio.to_thread(wait_until_empty, cgroup)
    assert client.exits.empty(), "its end is told once"


async def test_a_tree_that_forks_meanwhile_is_caught(client: Client, process: Sleeper, cgroup: Path) -> None:
    forks = "while :; do sh -c 'sleep 0.01'; done"
    parent = up(process("sh", "-c", f"({forks}) & ({forks}) & echo up; wait"))
    await adopt(client, cgroup, parent.pid, tree=True)
    assert len(members(cgroup)) >= 3
    (cgroup / "cgroup.kill").write_text("1")
    await client.exited()
    await asyncio.to_thread(wait_until_empty, cgroup)
    with pytest.raises(ProcessLookupError):  # its process group: nothing of it stayed outside
        while True:
            os.killpg(parent.pid, 0)
            parent.poll()


@root_only
async def test_another_users_child_stays_where_it_is(client: Client, process: Sleeper, cgroup: Path) -> None:
    script = "import os, sys; os.fork() or (os.setresuid(1, 1, 1), print('up', flush=True)); sys.stdin.read()"
    parent = up(process(sys.executable, "-ISc", script))
    (child,) = Path(f"/proc/{parent.pid}/task/{parent.pid}/children").read_text().split()
    with pytest.raises(LaunchFailed, match="not belong to daemon alone"):
        await adopt(client, cgroup, parent.pid, "daemon", tree=True)
    assert members(cgroup) == set()
    await adopt(client, cgroup, int(child), "daemon", tree=True)
    assert members(cgroup) == {int(child)}


async def test_the_end_of_a_frozen_one(client: Client, process: Sleeper, cgroup: Path) -> None:
    sleeper = process()
    await adopt(client, cgroup, sleeper.pid)
    (cgroup / "cgroup.freeze").write_text("1")
    (cgroup / "cgroup.kill").write_text("1")
    assert (await client.exited()).signal == signal.SIGKILL


async def test_the_first_process_of_a_killed_container_ends_outside_of_its_cgroup(
    client: Client, process: Sleeper, tmp_path: Path
) -> None:
    """Its cgroup is a file here, so each is elsewhere, as if another program had moved it."""
    sleeper = process()
    with opened(tmp_path / "procs", os.O_WRONLY | os.O_CREAT) as procs:
        await client.launcher.adopt("adopted", sleeper.pid, ME, procs_fd=procs)
        await client.start("started", "sleep", "1000", procs_fd=procs)
    for container in ("adopted", "started"):
        await client.launcher.kill_session(container, outside=True)
        exited = await client.exited()
        assert (exited.container, exited.signal) == (container, signal.SIGKILL)


@pytest.mark.parametrize(
    ("where", "uid", "killed"),
    [
        ("/user.slice/session-3.scope", 1000, True),
        ("/penstock/containers/c-1", 1000, False),
        ("/penstock/containers/j-1.job/c-1/below", 1000, False),
        ("/user.slice/session-3.scope", 1001, False),
        ("/user.slice/session-3.scope", 0, True),
    ],
    ids=["outside", "inside", "below", "of another user", "adopted by root"],
)
def test_only_its_user_s_process_is_killed_outside_of_its_cgroup(
    monkeypatch: pytest.MonkeyPatch, where: str, uid: int, killed: bool
) -> None:
    monkeypatch.setattr(first_process, "cgroup_of", lambda pid: where)
    monkeypatch.setattr(adopt_module, "_status", lambda pid: {"Uid": "1000\t2000\t1000\t2000"})
    running = Running("c-1", 7, "me", 0.0)
    one = first_process.FirstProcess(running, pidfd=-1, confined=True, adopted=True, uid=uid)
    assert one.is_outside() is killed


async def test_a_process_in_its_cgroup_is_left_to_the_kill_of_that(
    connect: Connect, process: Sleeper, cgroup: Path
) -> None:
    client, sleeper = await connect(cgroup_root=cgroup), process()
    directory = cgroup / "containers" / "c-1"
    directory.mkdir(parents=True)
    with opened(directory / "cgroup.procs", os.O_WRONLY) as procs:
        await client.launcher.adopt("c-1", sleeper.pid, ME, procs_fd=procs)
    await client.launcher.kill_session("c-1", outside=True)
    os.kill(sleeper.pid, signal.SIGUSR1)
    assert (await client.exited()).signal == signal.SIGUSR1
    directory.rmdir()


async def test_a_stopped_launcher_ends_adopted_processes_but_not_those_that_were_moved_out(
    connect: Connect, process: Sleeper, cgroup: Path, tmp_path: Path
) -> None:
    client = await connect(cgroup_root=cgroup)
    stays, left = process(), process("sh", "-c", "read x; exit 7")
    for name, one in (("stays", stays), ("left", left)):
        directory = cgroup / "containers" / name
        directory.mkdir(parents=True)
        with opened(directory / "cgroup.procs", os.O_WRONLY) as procs:
            await client.launcher.adopt(name, one.pid, ME, procs_fd=procs)
    (cgroup / "elsewhere").mkdir()
    (cgroup / "elsewhere" / "cgroup.procs").write_text(f"{left.pid}")
    await client.launcher.close()
    end(launcher_pid(tmp_path))
    assert stays.wait(TIMEOUT_S) == -signal.SIGKILL
    left.communicate(b"\n", TIMEOUT_S)
    assert left.returncode == 7

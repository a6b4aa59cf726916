"""How containers end, and that only the launcher's own end loses the end of a container."""

from __future__ import annotations

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from agent.launcher import Launcher, LaunchFailed
from agent.launcher.session import kill_session
from tests.escapes import ESCAPES, escape
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, Connect, Pipe, launcher_pid, opened


async def ends(pid: int) -> None:
    """Wait for the end of a process that is not ours."""
    gone = os.pidfd_open(pid)
    try:
        assert await asyncio.to_thread(select.select, [gone], [], [], TIMEOUT_S) != ([], [], []), "it does not end"
    finally:
        os.close(gone)


async def test_an_exit_is_reported_as_a_shell_would(client: Client) -> None:
    for script, status, number in (("exit 0", 0, None), ("exit 7", 7, None), ("kill -9 $$", 137, 9)):
        before = time.time()
        await client.start(script, "sh", "-c", script)
        exited = await client.exited()
        assert (exited.container, exited.exit_status, exited.signal) == (script, status, number)
        assert before <= exited.ended_at <= time.time()


async def test_its_use_is_reported(client: Client) -> None:
    await client.start(
        "a", "python3", "-ISc", "import time\nx = b'x' * 50_000_000\nwhile time.process_time() < 0.2: pass"
    )
    exited = await client.exited()
    assert exited.cpu_seconds >= 0.2
    assert exited.max_rss_bytes >= 50_000_000


async def test_an_exit_is_kept_until_it_is_acknowledged(connect: Connect, pipe: Pipe) -> None:
    first = await connect()
    await first.start("a", "sh", "-c", "sleep 1000; exit 1", stdout=pipe.writing)
    (run,) = await first.launcher.running()
    await first.launcher.close()

    second = await connect()
    assert await second.launcher.running() == [run]
    await second.launcher.signal("a", signal.SIGTERM)
    exited = await second.exited()
    assert exited.exit_status == 128 + signal.SIGTERM
    await pipe.end()
    await second.launcher.close()

    third = await connect()
    assert third.exits.get_nowait() == exited  # received before connect() returns
    await third.launcher.acknowledge("a")
    await third.launcher.close()

    fourth = await connect()
    assert fourth.exits.empty()
    assert await fourth.launcher.running() == []


def test_a_child_that_has_not_begun_its_session_is_killed() -> None:
    """The launcher may end in the moment in which it starts a container, and waits for the container's end."""
    with subprocess.Popen(["sleep", "1000"]) as child:  # in our own session
        try:
            kill_session(child.pid)
            assert child.wait(TIMEOUT_S) == -signal.SIGKILL
        finally:
            child.kill()


async def test_the_session_of_a_process_that_left_its_cgroup_ends_without_what_another_container_has_adopted(
    connect: Connect, cgroup: Path, pipe: Pipe, tmp_path: Path
) -> None:
    client, other = await connect(cgroup_root=cgroup), cgroup / "containers" / "other"
    other.mkdir(parents=True)
    with opened(tmp_path / "procs", os.O_WRONLY | os.O_CREAT) as procs:  # a file: it is in no cgroup of its own
        script = "sleep 1000 & echo $!; sleep 1000 & echo $!; wait"
        await client.start("left", "sh", "-c", script, stdout=pipe.writing, procs_fd=procs)
    with os.fdopen(os.dup(pipe.reading)) as lines:
        adopted, stays = int(lines.readline()), int(lines.readline())
    with opened(other / "cgroup.procs", os.O_WRONLY) as procs:
        await client.launcher.adopt("other", adopted, ME, procs_fd=procs)
    await client.launcher.kill_session("left", outside=True)
    assert (await client.exited()).container == "left"
    await ends(stays)
    os.kill(adopted, signal.SIGUSR1)
    exited = await client.exited()
    assert exited.container == "other"
    assert exited.signal in {signal.SIGUSR1, None}, "unknown before Linux 6.15"
    other.rmdir()


async def test_every_client_gets_it(connect: Connect) -> None:
    clients = [await connect() for _ in range(2)]
    await clients[0].start("a", "true")
    assert await clients[0].exited() == await clients[1].exited()


async def test_a_signal_reaches_the_process_group(client: Client, pipe: Pipe) -> None:
    await client.start("a", "sh", "-c", "sleep 1000 & echo up; wait", stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    await client.launcher.signal("a", signal.SIGTERM)
    assert (await client.exited()).exit_status == 128 + signal.SIGTERM
    await pipe.end()


async def test_signals_to_ended_processes_are_no_error(client: Client) -> None:
    await client.start("a", "true")
    await client.exited()
    for container in ("a", "never-there"):
        await client.launcher.signal(container, signal.SIGTERM)
        await client.launcher.kill_session(container)
        await client.launcher.acknowledge(container)


async def test_the_whole_session_is_killed(client: Client, pipe: Pipe) -> None:
    """Also processes in groups of their own, and one that forks as fast as it can."""
    script = "set -m; sleep 1000 & (while :; do sleep 0.001 & done) & echo up; sleep 1000"
    await client.start("a", "bash", "-c", script, stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    await client.launcher.kill_session("a")
    assert (await client.exited()).signal == signal.SIGKILL
    await pipe.end()


@pytest.mark.parametrize("how", ESCAPES)
async def test_nothing_escapes(client: Client, cgroup: Path, how: str) -> None:
    """Every command ends with its cgroup, with any escape: on any hierarchy, it takes no controller."""
    await escape(client.launcher, client.exits, cgroup, how)


async def test_without_a_cgroup_the_session_ends_with_its_leader(client: Client, pipe: Pipe) -> None:
    await client.start("a", "sh", "-c", "sleep 1000 & exit 5", stdout=pipe.writing)
    assert (await client.exited()).exit_status == 5
    await pipe.end()


async def test_a_launcher_that_dies_is_noticed(client: Client, tmp_path: Path) -> None:
    pid = launcher_pid(tmp_path)
    os.kill(pid, signal.SIGSTOP)
    asked = asyncio.ensure_future(client.launcher.running())
    os.kill(pid, signal.SIGKILL)
    async with asyncio.timeout(TIMEOUT_S):
        await client.lost.wait()
        with pytest.raises(LaunchFailed, match="the launcher"):
            await asked
        with pytest.raises(LaunchFailed, match="the launcher"):
            await client.launcher.running()


async def test_hanging_up_is_not_losing_it(client: Client) -> None:
    asked = asyncio.ensure_future(client.launcher.running())
    await asyncio.sleep(0)
    await client.launcher.close()
    with pytest.raises(LaunchFailed):
        await asked
    assert not client.lost.is_set()


async def test_after_shutdown_it_ends_with_its_last_container_and_client(connect: Connect, tmp_path: Path) -> None:
    client, other = await connect(), await connect()
    pid = launcher_pid(tmp_path)
    await client.start("a", "sleep", "1000")
    await client.launcher.shutdown()
    await client.launcher.close()
    await other.launcher.kill_session("a")
    assert (await other.exited()).container == "a"
    await other.launcher.acknowledge("a")
    assert await other.launcher.running() == []  # it still answers
    await other.launcher.close()
    await ends(pid)
    assert not (tmp_path / "launcher.sock").exists()


async def test_a_terminals_interrupt_is_not_for_it(client: Client, tmp_path: Path) -> None:
    os.kill(launcher_pid(tmp_path), signal.SIGINT)
    assert await client.launcher.running() == []
    assert os.getsid(launcher_pid(tmp_path)) != os.getsid(0)


async def test_a_launcher_that_is_stopped_ends_its_containers(client: Client, tmp_path: Path, pipe: Pipe) -> None:
    await client.start("a", "sh", "-c", "trap '' TERM; echo up; sleep 1000; sleep 1000", stdout=pipe.writing)
    assert os.read(pipe.reading, 3) == b"up\n"
    pid = launcher_pid(tmp_path)
    os.kill(pid, signal.SIGTERM)
    await pipe.end()
    await ends(pid)
    assert not (tmp_path / "launcher.sock").exists()


async def test_two_launchers_do_not_share_a_directory(client: Client, tmp_path: Path) -> None:
    command = [sys.executable, "-I", "-m", "agent.launcher", "--runtime-dir", str(tmp_path)]
    second = await asyncio.to_thread(subprocess.run, command, capture_output=True, text=True, check=False, timeout=60)
    assert second.returncode == 1
    assert "launcher.sock: a launcher answers there already" in second.stderr
    assert await client.launcher.running() == []


async def test_a_socket_that_a_dead_launcher_left_is_replaced(connect: Connect, tmp_path: Path) -> None:
    first = await connect()
    pid = launcher_pid(tmp_path)
    os.kill(pid, signal.SIGKILL)
    await ends(pid)
    assert (tmp_path / "launcher.sock").exists()
    assert await (await connect()).launcher.running() == []
    assert first.lost.is_set()


async def test_where_none_answers_and_none_may_be_spawned(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"no launcher answers at .*launcher.sock; start penstock-containers.service"):
        await Launcher.connect(tmp_path, print, on_lost=print, spawn=False, cgroup_root=None)


async def test_one_that_cannot_start_has_its_reason(tmp_path: Path) -> None:
    (tmp_path / "launcher.sock").mkdir()
    with pytest.raises(OSError, match=r"the launcher did not start: .*launcher.sock"):
        await Launcher.connect(tmp_path, print, on_lost=print, spawn=True, cgroup_root=None)


async def test_an_exit_outlives_launchers_that_are_killed_and_those_that_end(connect: Connect, tmp_path: Path) -> None:
    first = await connect()
    await first.start("a", "sh", "-c", "exit 5")
    exited = await first.exited()
    pid = launcher_pid(tmp_path)
    os.kill(pid, signal.SIGKILL)
    await ends(pid)
    kept = tmp_path / "exits"
    for name in ("backup", "old.new"):
        (kept / name).mkdir()
    for name in ("half.new", "junk"):
        (kept / name).write_bytes(b"\xc1")

    second = await connect()
    assert second.exits.get_nowait() == exited  # received before connect() returns
    assert second.exits.empty()
    pid = launcher_pid(tmp_path)
    for _ in range(2):  # with each request it accepts one of the two connections that asked for its pid
        await second.launcher.running()
    await second.launcher.shutdown()
    await second.launcher.close()
    await ends(pid)

    third = await connect()
    assert third.exits.get_nowait() == exited
    await third.launcher.acknowledge("a")
    assert sorted(path.name for path in kept.iterdir()) == ["backup", "junk", "old.new"], "these are not the launcher's"


async def test_without_agent_and_container_it_ends_with_its_cgroups(
    connect: Connect, tmp_path: Path, cgroup: Path
) -> None:
    root = cgroup / "tree"
    client = await connect(leave_after_s=0.1, cgroup_root=root)
    pid = launcher_pid(tmp_path)
    (root / "containers" / "a").mkdir(parents=True)  # as an agent leaves it
    await client.start("a", "sh", "-c", "sleep 0.5; exit 5")
    await client.launcher.close()
    await ends(pid)
    assert not root.exists()

    again = await connect()
    assert launcher_pid(tmp_path) != pid
    assert again.exits.get_nowait().exit_status == 5, "it was there until its container had ended, and that is kept"


async def test_with_an_agent_it_stays(connect: Connect, tmp_path: Path) -> None:
    client = await connect(leave_after_s=0.01)
    await client.start("a", "sh", "-c", "sleep 0.3")
    await client.exited()
    assert await client.launcher.running() == [] and not client.lost.is_set()


async def test_a_disk_that_takes_no_record_of_an_end_ends_no_launcher(
    client: Client, connect: Connect, tmp_path: Path
) -> None:
    """Its log is on the same disk: neither is written."""
    pid = launcher_pid(tmp_path)
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))
    await client.start("a", "sh", "-c", "exit 5")
    exited = await client.exited()
    assert exited.exit_status == 5 and not list((tmp_path / "exits").iterdir())
    await client.launcher.close()
    again = await connect()
    assert again.exits.get_nowait() == exited and launcher_pid(tmp_path) == pid

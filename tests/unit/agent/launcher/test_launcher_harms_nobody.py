"""One connection's messages, unread answers and hanging starts do not affect the others."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgpack
import pytest

from agent.launcher import LauncherGone, LaunchFailed
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, Connect, Pipe, launcher_pid, opened


def dial(runtime: Path) -> socket.socket:
    """A connection past the client; its hello has been read."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(TIMEOUT_S)
    connection.connect(str(runtime / "launcher.sock"))
    assert "hello" in msgpack.unpackb(connection.recv(4096))
    return connection


START = ["x", ME, ["true"], {}, "/"]


async def test_the_starts_of_a_dead_agent_are_in_the_answer_to_its_successor(connect: Connect, tmp_path: Path) -> None:
    """Or the successor would start it a second time."""
    await connect()
    launcher = launcher_pid(tmp_path)
    with closing(dial(tmp_path)) as dying, closing(dial(tmp_path)) as successor, opened(os.devnull) as null:
        os.kill(launcher, signal.SIGSTOP)
        try:
            successor.send(msgpack.packb({"id": 1, "do": "running"}))
            for number in range(20):
                request = {"id": number, "do": "start", "start": [f"c-{number}", ME, ["sleep", "1000"], {}, "/"]}
                socket.send_fds(dying, [msgpack.packb(request)], [null] * 3)
            dying.close()
        finally:
            os.kill(launcher, signal.SIGCONT)
        answer = msgpack.unpackb(successor.recv(1 << 16))
    assert {container for container, *_ in answer["running"]} == {f"c-{number}" for number in range(20)}


NO_REQUESTS = (
    b"\xc1",
    b"\x81",
    b"nonsense that is longer than a byte",
    msgpack.packb(7),
    msgpack.packb({}),
    msgpack.packb({"id": "x", "do": "running"}),
    msgpack.packb({"id": 1}),
    msgpack.packb({"id": 1, "do": "signal"}),
    msgpack.packb({"id": 1, "do": "signal", "container": "a", "signal": "TERM"}),
    msgpack.packb({"id": 1, "do": "start"}),
    msgpack.packb({"id": 1, "do": "start", "start": START}),  # without descriptors
    msgpack.packb({"id": 1, "do": "start", "start": ["too", "few"]}),
    msgpack.packb({"id": 1, "do": "adopt", "adopt": ["too", "few"]}),
    msgpack.packb({"id": 1, "do": "adopt", "adopt": ["x", "1234", ME, 0, False]}),
)


async def test_an_invalid_request_ends_that_connection_only(client: Client, tmp_path: Path) -> None:
    await client.start("a", "sleep", "1000")
    for data in NO_REQUESTS:
        with closing(dial(tmp_path)) as connection:
            connection.send(data)
            assert connection.recv(4096) == b"", data
        assert [run.container for run in await client.launcher.running()] == ["a"]


async def test_an_impossible_request_is_answered(client: Client, tmp_path: Path) -> None:
    await client.start("a", "sleep", "1000")
    for asked, error in (
        ({"do": "nonsense"}, "unknown request 'nonsense'"),
        ({"do": "signal", "container": "a", "signal": 1000}, "Invalid argument: signal"),
    ):
        with closing(dial(tmp_path)) as connection:
            connection.send(msgpack.packb({"id": 5, **asked}))
            assert msgpack.unpackb(connection.recv(4096)) == {"id": 5, "error": error}


async def test_a_client_that_does_not_read_delays_no_other(client: Client, tmp_path: Path) -> None:
    asked = 4_000
    with closing(dial(tmp_path)) as stuck:
        for number in range(asked):
            stuck.send(msgpack.packb({"id": number, "do": "running"}))
        await client.start("a", "true")
        assert (await client.exited()).exit_status == 0
        # None of its messages was lost, and they are in order.
        answers = [msgpack.unpackb(stuck.recv(4096)) for _ in range(asked + 1)]
        assert [answer["id"] for answer in answers if "id" in answer] == list(range(asked))


async def hang(client: Client, pipe: Pipe, container: str, command: str) -> asyncio.Task[int]:
    """Start a command on a full pipe in place of cgroup.procs: until it is read, the child hangs at its first step, as
    it would on a dead file server.
    """
    os.write(pipe.writing, b"x" * fcntl.fcntl(pipe.writing, fcntl.F_SETPIPE_SZ, 4096))
    hanging = asyncio.ensure_future(client.start(container, command, procs_fd=pipe.writing))
    await asyncio.sleep(0)  # it is sent now
    return hanging


async def test_a_start_that_hangs_delays_no_other(client: Client, connect: Connect, pipe: Pipe) -> None:
    hanging = await hang(client, pipe, "hangs", "true")
    await client.start("a", "true")
    assert (await client.exited()).container == "a"
    assert not hanging.done()
    # An agent that comes now gets it, too: otherwise it could not assign its exit.
    assert [run.container for run in await (await connect()).launcher.running()] == ["hangs"]
    os.read(pipe.reading, 1 << 20)
    async with asyncio.timeout(TIMEOUT_S):
        assert await hanging > 0
    assert (await client.exited()).container == "hangs"


async def test_a_start_whose_agent_left_is_an_exit_to_its_successor(connect: Connect, pipe: Pipe) -> None:
    first = await connect()
    hanging = await hang(first, pipe, "a", "no-such-command")
    second = await connect()
    assert [run.container for run in await second.launcher.running()] == ["a"]
    await first.launcher.close()
    with pytest.raises(Exception, match="the launcher is gone"):
        await hanging
    await second.launcher.running()
    os.read(pipe.reading, 1 << 20)
    exited = await second.exited()
    assert (exited.container, exited.exit_status) == ("a", 127)


async def test_no_other_user_may_connect(connect: Connect, tmp_path: Path) -> None:
    await connect()
    assert stat.S_IMODE((tmp_path / "launcher.sock").stat().st_mode) == 0o600


@pytest.fixture
def public(tmp_path: Path) -> Iterator[Path]:
    """A link to the launcher's socket that every user can reach."""
    directory = Path(tempfile.mkdtemp())
    directory.chmod(0o755)
    yield directory
    shutil.rmtree(directory)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
async def test_the_kernel_names_the_connecting_user(connect: Connect, tmp_path: Path, public: Path) -> None:
    await connect()
    link = public / "launcher.sock"
    link.hardlink_to(tmp_path / "launcher.sock")
    link.chmod(0o666)
    script = (
        "import socket, sys; s = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); "
        f"s.settimeout({TIMEOUT_S}); s.connect(sys.argv[1]); sys.exit(len(s.recv(9)))"
    )
    command = ["/usr/bin/env", "python3", "-ISc", script, str(link)]
    for user, answered in (("daemon", False), ("root", True)):
        done = await asyncio.to_thread(subprocess.run, command, user=user, check=False, timeout=TIMEOUT_S)
        assert (done.returncode > 0) == answered


#: More than the kernel accepts as a name, and more than four times as long where it is quoted; and more than fits into
#: a message.
_ENDLESS = {"a program": ("\x01" * 1_100_000,), "a directory": ("true",), "arguments": ("true", *["a" * 100_000] * 33)}


@pytest.mark.parametrize("what", _ENDLESS)
async def test_a_start_that_is_too_large_fails_alone(client: Client, what: str) -> None:
    where = {"cwd": "/" + "\x01" * 1_100_000} if what == "a directory" else {}
    with pytest.raises(LaunchFailed, match=r"too large|too long") as failed:
        await client.start("endless", *_ENDLESS[what], **where)
    assert not isinstance(failed.value, LauncherGone)
    assert len(str(failed.value)) < 1000
    assert await client.output("echo", "here") == "here\n"
    assert not client.lost.is_set()

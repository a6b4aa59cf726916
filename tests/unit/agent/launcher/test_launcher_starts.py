"""The environment of a command, and the message to its user when it cannot be started."""

from __future__ import annotations

import grp
import json
import os
import pwd
import resource
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import msgpack
import pytest

from agent import process
from agent.launcher import LaunchFailed, Start
from tests.unit.agent.launcher.launcher_bed import ME, TIMEOUT_S, Client, Connect, Pipe, launcher_pid, opened, start

root_only = pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
#: Prints its environment as JSON.
LOOK = """
import json, os
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
umask = os.umask(0)
print(json.dumps({
    "leads": os.getsid(0) == os.getpid() == os.getpgid(0), "umask": umask, "cwd": os.getcwd(),
    "descriptors": sorted(os.listdir("/proc/self/fd"))[:4], "oom": open("/proc/self/oom_score_adj").read().strip(),
    "privileges": status["NoNewPrivs"].strip(),
    "blocked": status["SigBlk"].strip(), "ignored": status["SigIgn"].strip(),
    "ids": os.getresuid() + os.getresgid(), "groups": sorted(os.getgroups()),
}))
"""


async def look(connect: Connect, user: str = ME, cwd: str = "/") -> dict[str, Any]:
    client = await connect()
    # -S -I: nothing of this environment's own; the interpreter ignores SIGPIPE and SIGXFSZ by itself.
    found: dict[str, Any] = json.loads(await client.output("/usr/bin/env", "python3", "-ISc", LOOK, user=user, cwd=cwd))
    return found


async def test_the_environment_of_a_command(connect: Connect, tmp_path: Path) -> None:
    found = await look(connect, cwd=str(tmp_path))
    assert found["leads"]
    assert (found["umask"], found["cwd"]) == (0o022, str(tmp_path))
    assert found["descriptors"] == ["0", "1", "2", "3"]  # 3 is the one that lists them
    assert found["privileges"] == "1"
    assert int(found["blocked"], 16) == 0
    # Python's own SIGPIPE and SIGXFSZ; and 32 and 33, glibc's own: no process may set them, so they are inherited.
    assert int(found["ignored"], 16) & ~(1 << 12 | 1 << 24 | 1 << 31 | 1 << 32) == 0
    assert int(found["oom"]) >= 0


async def test_a_second_command_of_the_same_user_finds_the_same(client: Client) -> None:
    """The first one asked the host's user database, the second one's launcher remembers."""
    first, second = [json.loads(await client.output("python3", "-ISc", LOOK)) for _ in "12"]
    assert first == second


async def test_work_can_be_offered_to_the_kernels_oom_killer(client: Client) -> None:
    read = ("cat", "/proc/self/oom_score_adj")
    own = int(await client.output(*read))
    assert int(await client.output(*read, oom_score_adj=1000)) == 1000
    assert int(await client.output(*read, oom_score_adj=0)) == own


async def test_the_launchers_own_limits_are_not_handed_down(client: Client, tmp_path: Path) -> None:
    """It has a descriptor for each container, so its own limit is the highest it may have."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert resource.prlimit(launcher_pid(tmp_path), resource.RLIMIT_NOFILE) == (hard, hard)
    assert (await client.output("sh", "-c", "ulimit -Sn; ulimit -Hn")).split() == [_shown(soft), _shown(hard)]


def _shown(limit: int) -> str:
    return "unlimited" if limit == resource.RLIM_INFINITY else str(limit)


#: The state that a background job's or nohup's launcher inherits.
BACKGROUND = """
import os, signal, sys
signal.signal(signal.SIGHUP, signal.SIG_IGN)
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.execv(sys.executable, [sys.executable, "-I", "-m", "agent.launcher", "--runtime-dir", sys.argv[1]])
"""


def background_launcher(runtime: Path) -> subprocess.Popen[bytes]:
    """One that listens."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as ready:
        ready.bind(str(runtime / "ready"))
        ready.settimeout(TIMEOUT_S)
        environment = {**os.environ, "NOTIFY_SOCKET": str(runtime / "ready")}
        process = subprocess.Popen([sys.executable, "-c", BACKGROUND, str(runtime)], env=environment)
        assert ready.recv(64) == b"READY=1"
    return process


async def test_signals_that_a_launcher_was_born_to_ignore_are_not_its_commands(tmp_path: Path) -> None:
    process = background_launcher(tmp_path)
    client = await Client.connect(tmp_path, spawn=False)
    try:
        found = json.loads(await client.output("python3", "-ISc", LOOK))
        assert (int(found["blocked"], 16), int(found["ignored"], 16) & 1 << signal.SIGHUP - 1) == (0, 0)
    finally:
        await client.launcher.shutdown()
        await client.launcher.close()
    assert process.wait(TIMEOUT_S) == 0


async def test_the_environment_is_the_requested_one_and_the_user_s_own(client: Client) -> None:
    user = pwd.getpwnam(ME)
    text = await client.output("/usr/bin/env", "-0", env={"GREETING": "a b\nc", "HOME": "/elsewhere"})
    found = dict(entry.split("=", 1) for entry in text.strip("\0").split("\0"))
    path = found.pop("PATH")
    assert found == {
        "GREETING": "a b\nc", "HOME": "/elsewhere", "USER": ME, "LOGNAME": ME, "SHELL": user.pw_shell or "/bin/sh",
    }  # fmt: skip
    assert path.split(":")[-1] == "/bin" and "/usr/bin" in path.split(":")


async def test_commands_are_looked_for_along_the_path_that_was_given(connect: Connect, tmp_path: Path) -> None:
    command = tmp_path / "hello"
    command.write_text("#!/bin/sh\necho hello $1\n")
    command.chmod(0o755)
    client = await connect()
    assert await client.output("hello", "you", env={"PATH": f"/nowhere:{tmp_path}"}) == "hello you\n"


async def test_a_large_environment_arrives(client: Client) -> None:
    text = await client.output("/usr/bin/env", env={f"V{n}": "x" * 1000 for n in range(100)})
    assert text.count("x" * 1000) == 100


@root_only
async def test_another_user_gets_its_ids_and_groups_and_no_more(connect: Connect, tmp_path: Path) -> None:
    other = pwd.getpwnam("daemon")
    found = await look(connect, user="daemon")
    assert found["ids"] == [other.pw_uid] * 3 + [other.pw_gid] * 3
    assert found["groups"] == sorted(set(os.getgrouplist("daemon", other.pw_gid)))
    assert grp.getgrnam("root").gr_gid not in found["groups"]
    assert found["privileges"] == "1"


@root_only
async def test_a_directory_is_entered_as_the_user(connect: Connect, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    client = await connect()
    with pytest.raises(LaunchFailed, match=f"cannot enter directory '{tmp_path}': Permission denied"):
        await client.start("a", "true", user="daemon", cwd=str(tmp_path))


@pytest.mark.skipif(os.geteuid() == 0, reason="elsewhere: root may become anybody")
async def test_a_launcher_without_root_cannot_start_work_for_others(client: Client) -> None:
    with pytest.raises(LaunchFailed, match="not root cannot start work as 'root'"):
        await client.start("a", "true", user="root")


#: A command line, other parts of its request, the line with the error, and the exit status.
NOT_STARTED: tuple[tuple[list[str], dict[str, Any], str, int | None], ...] = (
    (["no-such-command"], {}, "command not found: 'no-such-command'", 127),
    (["no-such-command"], {"env": {"PATH": "/etc/passwd:/bin"}}, "command not found: 'no-such-command'", 127),
    (["true"], {"env": {"PATH": ""}, "cwd": "/proc"}, "command not found: 'true'", 127),
    (["/no/such/file"], {}, "cannot run '/no/such/file': No such file or directory", 127),
    (["/etc/passwd"], {}, "cannot run '/etc/passwd': Permission denied", 126),
    (["group"], {"env": {"PATH": "/nowhere:/etc:/bin"}}, "cannot run 'group': Permission denied", 126),
    (["/tmp"], {}, "cannot run '/tmp': Permission denied", 126),
    (["true"], {"cwd": "/nowhere"}, "cannot enter directory '/nowhere': No such file or directory", None),
    (["true"], {"cwd": "/etc/passwd"}, "cannot enter directory '/etc/passwd': Not a directory", None),
    (["true"], {"user": "no-such-user"}, "user 'no-such-user' is not known on this host", None),
    (["true", "a\0b"], {}, "cannot run 'true': embedded null byte", None),
    (["true"], {"env": {"A=B": "c"}}, "cannot run 'true': illegal environment variable name", None),
    (["x" * 10_000], {}, "cannot run '" + "x" * 100, 126),
)


async def test_a_command_that_cannot_be_started_has_its_reason(client: Client) -> None:
    for argv, fields, line, status in NOT_STARTED:
        with pytest.raises(LaunchFailed) as caught:
            await client.start("a", *argv, **fields)
        assert str(caught.value).startswith(line)
        assert caught.value.exit_status == status
        assert await client.launcher.running() == []
    # The same id can be tried again: nothing of the failures is left, and they are no exits that a client waits for.
    await client.start("a", "true")
    assert (await client.exited()).exit_status == 0
    assert client.exits.empty()


async def test_a_cgroup_that_cannot_be_entered(client: Client) -> None:
    with (
        opened(os.devnull, os.O_RDONLY) as nothing,
        pytest.raises(LaunchFailed, match="cannot enter its cgroup: Bad file descriptor"),
    ):
        await client.start("a", "true", procs_fd=nothing)


async def test_a_container_runs_once_at_a_time(client: Client) -> None:
    pid = await client.start("a", "sleep", "1000")
    with pytest.raises(LaunchFailed, match="'a' runs already"):
        await client.start("a", "true")
    assert [(run.container, run.pid, run.user) for run in await client.launcher.running()] == [("a", pid, ME)]


async def test_descriptors_that_are_numbered_like_the_standard_ones(client: Client, pipe: Pipe) -> None:
    """Each goes to its place, whatever its number on arrival."""
    script = [sys.executable, "-ISc", "import os; os.write(2, b'err'); os.write(1, os.read(0, 9))"]
    source, feed = os.pipe()
    os.write(feed, b"in")
    os.close(feed)
    try:
        await client.launcher.start(start("a", *script), procs_fd=None, stdio=(source, pipe.writing, pipe.writing))
    finally:
        os.close(source)
    await client.exited()
    assert os.read(pipe.reading, 100) == b"errin"


async def test_containers_have_the_descriptors_that_the_agent_was_started_with(
    connect: Connect, pipe: Pipe, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent raises its own limit, and may start another launcher later."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setattr(process, "STARTED_WITH", (777, most))
    client = await connect()
    await client.start("a", "sh", "-c", "ulimit -Sn", stdout=pipe.writing)
    await client.exited()
    assert os.read(pipe.reading, 100) == b"777\n"


def test_a_request_is_packed_without_a_copy_of_its_environment() -> None:
    wanted = Start("c-1", ME, ["true"], {"NAME": "value"}, "/")
    assert Start(*msgpack.unpackb(msgpack.packb(wanted))) == wanted

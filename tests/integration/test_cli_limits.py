"""run, adopt, resize and follow as their user types them, against a real agent."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client import AgentClient
from penstock.model.container import EndedBy
from tests import warm_commands
from tests.integration.conftest import Daemon
from tests.integration.conftest import penstock as command_on

COMMAND = (warm_commands.penstock(),)
TIMEOUT_S = 60
Start = Callable[..., Daemon]
Penstock = Callable[..., Awaitable[subprocess.CompletedProcess[str]]]


@pytest.fixture(scope="module")
def agent(start_shared_agent: Start) -> Daemon:
    return start_shared_agent()


@pytest.fixture
def penstock(agent: Daemon) -> Penstock:
    async def run(*argv: str) -> subprocess.CompletedProcess[str]:
        return await asyncio.to_thread(command_on, agent, *argv)

    return run


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    """A process of our user's that no agent has started."""
    process = subprocess.Popen(["sleep", "1000"], stdin=subprocess.DEVNULL)
    yield process
    with contextlib.suppress(ProcessLookupError):
        process.kill()
    process.wait(TIMEOUT_S)


async def shown(penstock: Penstock, name: str) -> dict[str, Any]:
    """A container in the status, by its name."""
    document = json.loads((await penstock("status", "--json")).stdout)
    return next(dict(container) for container in document["containers"] if container["name"] == name)


_SAYS_WHICH = """
import signal, sys
for number in (signal.SIGTERM, signal.SIGINT):
    signal.signal(number, lambda number, frame: print(number, flush=True))
print("ready", flush=True)
while True:
    signal.pause()
"""


async def test_signals_reach_the_command_of_run_and_a_second_interrupt_kills_it(agent: Daemon) -> None:
    process = await asyncio.create_subprocess_exec(
        *COMMAND, "run", "--", sys.executable, "-c", _SAYS_WHICH,
        env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)}, stdout=subprocess.PIPE,
        # The tests themselves may run as a shell's job in the background, which ignores this signal.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )  # fmt: skip
    assert process.stdout is not None
    async with asyncio.timeout(TIMEOUT_S):
        assert await process.stdout.readline() == b"ready\n"
        for number in (signal.SIGTERM, signal.SIGINT):
            process.send_signal(number)
            assert await process.stdout.readline() == b"%d\n" % number
        process.send_signal(signal.SIGINT)
        assert await process.wait() == 128 + signal.SIGKILL


@pytest.mark.parametrize(
    ("argv", "status", "line"),
    [
        (["no-such-command"], 127, "penstock run: command not found: 'no-such-command'\n"),
        (["/etc/passwd"], 126, "penstock run: cannot run '/etc/passwd': Permission denied\n"),
        (["sh", "-c", "exit 127"], 127, ""),
    ],
)
async def test_a_command_that_cannot_be_run_ends_as_in_a_shell(
    penstock: Penstock, argv: list[str], status: int, line: str
) -> None:
    done = await penstock("run", *argv)
    assert (done.returncode, done.stdout, done.stderr) == (status, "", line)


async def test_every_limit_can_be_asked_for(penstock: Penstock) -> None:
    """Each limit that this host cannot enforce is reported on a line of its own, and the command runs."""
    limits = ["--cpu", "0.5", "--burst", "10ms", "--cpus", "0", "--memory", "64M", "--disk", "10M", "--disk-ops", "100"]
    more = ["--net", "80Mbit/s", "--net-in", "80Mbit/s", "--pids", "64", "--oom-group"]
    done = await penstock("run", *limits, *more, "--", "echo", "hello")
    assert (done.returncode, done.stdout) == (0, "hello\n")
    lines = done.stderr.splitlines()
    assert all(line.startswith("penstock run: --") and " is not enforced: " in line for line in lines), lines
    assert len(lines) == len({line.partition(" is not enforced: ")[0] for line in lines}), lines


async def test_a_process_is_adopted_shown_and_killed_like_any_container(
    agent: Daemon, penstock: Penstock, sleeper: subprocess.Popen[bytes]
) -> None:
    done = await penstock("adopt", str(sleeper.pid), "--name", "adopted", "--opportunistic")
    assert (done.returncode, done.stdout.count("\n")) == (0, 1), done.stderr
    container = done.stdout.strip()
    found = await shown(penstock, "adopted")
    assert (found["container"], found["pid"]) == (container, sleeper.pid)

    again = await penstock("adopt", str(sleeper.pid))
    assert again.returncode == 1
    assert again.stderr.count("\n") == 1

    async with await AgentClient.connect(agent.socket) as client:
        attached = await client.attach(container)
        await attached.kill()
        async with asyncio.timeout(TIMEOUT_S):
            ended = await attached.wait()
    assert ended.by is EndedBy.CANCELLED
    assert await asyncio.to_thread(sleeper.wait, TIMEOUT_S) == -signal.SIGKILL


async def test_an_adopted_process_survives_the_agent(start_agent: Start, sleeper: subprocess.Popen[bytes]) -> None:
    first = start_agent()
    container = (await asyncio.to_thread(command_on, first, "adopt", str(sleeper.pid))).stdout.strip()
    first.kill()
    second = start_agent()
    async with await AgentClient.connect(Path(second.socket)) as client:
        attached = await client.attach(container)
        assert sleeper.poll() is None
        sleeper.terminate()
        async with asyncio.timeout(TIMEOUT_S):
            ended = await attached.wait()
    assert ended.by is EndedBy.SIGNAL  # it is not reaped yet: the kernel still has its status
    assert ended.exit_status == 128 + signal.SIGTERM


async def test_processes_that_may_not_be_adopted(agent: Daemon, penstock: Penstock) -> None:
    done = await penstock("adopt", "1")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "penstock adopt: process 1 is the host's init or Penstock's own\n"


async def test_limits_change_while_it_runs(agent: Daemon, penstock: Penstock) -> None:
    container = (await penstock("run", "--detach", "--cpu", "1", "--name", "it", "--", "sleep", "1000")).stdout.strip()
    assert (await penstock("resize", container, "--cpu", "0.5", "--pids", "100")).returncode == 0
    limits = (await shown(penstock, "it"))["limits"]
    assert (limits["cpu_cores"], limits["pids_max"]) == (0.5, 100)
    assert (await penstock("resize", container, "--pids", "none")).returncode == 0
    limits = (await shown(penstock, "it"))["limits"]
    assert limits["cpu_cores"] == 0.5
    assert limits.get("pids_max") is None
    done = await penstock("resize", "no-such-container", "--cpu", "1")
    line = (
        "there is no container 'no-such-container' on this host, or it ended too long ago"
        " (see `penstock status`, for jobs `penstock jobs`)"
    )
    assert (done.returncode, done.stdout, done.stderr) == (4, "", f"penstock resize: {line}\n")


async def test_limits_follow_a_profile(agent: Daemon, penstock: Penstock, tmp_path: Path) -> None:
    container = (await penstock("run", "--detach", "--name", "follows", "--", "sleep", "1000")).stdout.strip()
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"slot_s": 3600, "cpu_cores": [0.25, 1]}))
    done = await penstock("follow", container, str(profile))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert (await shown(penstock, "follows"))["limits"]["cpu_cores"] == 0.25
    assert (await penstock("follow", container, "none")).returncode == 0


async def test_strict_limits_that_the_host_cannot_enforce_keep_everything_as_it_was(
    penstock: Penstock, sleeper: subprocess.Popen[bytes], tmp_path: Path
) -> None:
    limit, marker = ("--memory", "64M"), tmp_path / "marker"
    lenient = await penstock("run", *limit, "--", "true")
    assert lenient.returncode == 0, lenient
    if "not enforced" not in lenient.stderr:
        pytest.skip("elsewhere: this host enforces --memory; agent/shell/test_strict_launch.py has hosts that do not")
    ran = await penstock("run", "--strict", *limit, "--", "touch", str(marker))
    adopted = await penstock("adopt", "--strict", *limit, str(sleeper.pid))
    live = (await penstock("run", "--detach", "--strict", "--", "sleep", "1000")).stdout.strip()
    resized = await penstock("resize", "--strict", live, *limit)
    profile = tmp_path / "profile.json"
    profile.write_text(json.dumps({"slot_s": 3600, "memory_bytes": [64 << 20]}))
    followed = await penstock("follow", "--strict", live, str(profile))
    for refused, named in (
        (ran, "--memory"),
        (adopted, "--memory"),
        (resized, "--memory"),
        (followed, "memory_max_bytes"),
    ):
        assert refused.returncode == 1, refused
        assert refused.stderr.count("\n") == 1, refused
        assert "limits are strict" in refused.stderr
        assert f": {named} is not enforced: " in refused.stderr
    assert not marker.exists()
    document = json.loads((await penstock("status", "--json")).stdout)
    [kept] = [one for one in document["containers"] if one["container"] == live]
    assert kept["limits"] == {}
    assert kept["follows"] is False
    assert (await penstock("follow", live, str(profile))).returncode == 0, "a warning at most without it"
    assert (await penstock("kill", live)).returncode == 0

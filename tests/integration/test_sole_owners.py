"""A second daemon on the directories of the first one is refused before it has touched anything there."""

from __future__ import annotations

import asyncio
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests import warm_commands
from tests.integration.conftest import Daemon, end_launcher, has_ended, options, start

Connect = Callable[..., Awaitable[Any]]
Start = Callable[..., Any]


def _refused(module: str, **settings: object) -> str:
    """The last line of a daemon that does not start."""
    command = [warm_commands.python(), "-I", "-m", module, *options(http="127.0.0.1:0", **settings)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 1, done.stderr
    return done.stderr.strip().splitlines()[-1]


@pytest.mark.parametrize("shared", ["runtime_dir", "socket", "state_dir"])
async def test_a_second_agent_touches_nothing_of_the_first_one(
    start_agent: Start, connect: Connect, tmp_path: Path, shared: str
) -> None:
    agent = start_agent()
    client = await connect(agent)
    launched = await client.call("launch", container={"argv": ["sleep", "600"]})
    sockets = [tmp_path / "run" / name for name in ("agent.sock", "stdio.sock", "launcher.sock")]
    before = [each.stat().st_ino for each in sockets]

    places = {
        "runtime_dir": tmp_path / "run2",
        "state_dir": tmp_path / "state2",
        "socket": tmp_path / "run2" / "agent.sock",
    }
    places |= {
        "runtime_dir": {"runtime_dir": tmp_path / "run", "socket": tmp_path / "run" / "agent2.sock"},
        "socket": {"socket": agent.socket},
        "state_dir": {"state_dir": tmp_path / "state"},
    }[shared]
    try:
        line = await asyncio.to_thread(_refused, "agent", **places)
    finally:
        end_launcher(tmp_path / "run2")
    assert line.startswith("penstock agent: an agent is running already at")
    assert f"held by process {agent.process.pid}" in line and "`state_dir` and `runtime_dir`" in line

    assert [each.stat().st_ino for each in sockets] == before
    containers = {each["container"]: each for each in (await client.call("status"))["status"]["containers"]}
    assert containers[launched["container"]]["ended"] is None
    await client.call("kill", container=launched["container"])


@pytest.mark.parametrize("key", ["runtime_dir", "state_dir", "socket"])
def test_a_place_of_the_agent_that_cannot_be_made_is_named_by_its_key(tmp_path: Path, key: str) -> None:
    (tmp_path / "file").touch()
    places = {"runtime_dir": tmp_path / "run", "state_dir": tmp_path / "state"} | {key: tmp_path / "file" / "within"}
    line = _refused("agent", **places)
    assert line.startswith(f"penstock agent: {key}: {tmp_path / 'file' / 'within'}")
    assert ": Not a directory; name another " in line


async def test_a_taken_http_port_keeps_no_work_from_running(start_agent: Start, connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = f"127.0.0.1:{taken.getsockname()[1]}"
        agent = start_agent(http=http)
    assert agent.addresses["http"] == ""
    client = await connect(agent)
    launched = await client.call("launch", container={"argv": ["true"]})
    (ended,) = await client.recorder.wait_for("container_ended")
    assert ended["container"] == launched["container"] and ended["ended"]["exit_status"] == 0
    assert f'"why": "another process has {http}; end it, or set `http` to another address"' in agent.log.read_text()
    await asyncio.to_thread(_wait_for_http, http)
    assert (await client.call("status"))["status"]["degraded"] == []


def _wait_for_http(address: str) -> None:
    deadline = time.monotonic() + 30
    while True:
        try:
            with urllib.request.urlopen(f"http://{address}/healthz", timeout=10) as answer:
                assert answer.read() == b"ok\n"
                return
        except urllib.error.URLError:
            assert time.monotonic() < deadline
            time.sleep(0.05)  # another process's port opens without an event


def test_an_agent_that_does_not_start_leaves_no_launcher(tmp_path: Path) -> None:
    runtime, state = tmp_path / "run", tmp_path / "state"
    (runtime / "stdio.sock" / "in the way").mkdir(parents=True)
    try:
        line = _refused("agent", runtime_dir=runtime, state_dir=state)
        assert f"{runtime / 'stdio.sock'}" in line
        assert (runtime / "launcher.log").exists()
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as probe:
            if probe.connect_ex(str(runtime / "launcher.sock")) == 0:  # it may be about to end
                credentials = probe.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
                probe.close()
                assert has_ended(int.from_bytes(credentials[:4], "little"))
    finally:
        end_launcher(runtime)


@pytest.fixture
def master(start_master: Callable[..., Daemon], tmp_path: Path) -> Daemon:
    return start_master(store=tmp_path / "named.db")


def test_two_masters_do_not_share_a_store(master: Daemon, tmp_path: Path) -> None:
    (tmp_path / "alias.db").symlink_to(tmp_path / "named.db")
    for name in ("named.db", "alias.db"):
        line = _refused("master", listen=tmp_path / "other.sock", store=tmp_path / name)
        assert line.startswith(f"penstock master: store: another master uses {tmp_path / 'named.db'}; stop it, or set")
        assert f"held by process {master.process.pid}" in line
    assert json.loads(master.get("/status"))["listen"]


def test_the_store_is_its_user_s_alone_wherever_it_is(master: Daemon, tmp_path: Path) -> None:
    found = {each.name: each.stat().st_mode & 0o777 for each in tmp_path.glob("named.db*")}
    assert {"named.db", "named.db-wal", "named.db-shm", "named.db.lock"} <= set(found)
    assert set(found.values()) == {0o600}, found


def test_the_first_start_makes_the_directory_of_the_store(tmp_path: Path) -> None:
    """Where no store is configured, on a host without any earlier Penstock."""
    state = tmp_path / "not" / "there"
    master = start("master", tmp_path, http="127.0.0.1:0", environment={"PENSTOCK_STATE_DIR": str(state)})
    try:
        assert b'"reservations":[]' in master.get("/reservations")
        assert (state / "master.db").exists()
    finally:
        assert master.stop() == 0

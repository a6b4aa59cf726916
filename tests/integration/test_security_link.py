"""Agents and the master of one host: no other local user takes part in their conversation, on either side."""

from __future__ import annotations

import json
import os
import pwd
import socket
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests import warm_commands
from tests.integration.conftest import Daemon, masters_in, options, until
from tests.integration.security_callers import open_directory

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act as another user")
STRANGER = pwd.getpwnam("nobody")
#: Connect to a Unix socket as another user, send every message, and print how many bytes came back.
_KNOCK = """
import os, socket, sys
os.setgid(int(sys.argv[2])); os.setuid(int(sys.argv[3]))
door = socket.socket(socket.AF_UNIX)
try:
    door.connect(sys.argv[1])
    door.sendall(sys.stdin.buffer.read())
    print(len(door.recv(4096)))
except OSError as error:
    print(type(error).__name__)
"""


def knock(path: Path, message: bytes) -> str:
    done = subprocess.run(
        [sys.executable, "-I", "-c", _KNOCK, str(path), str(STRANGER.pw_gid), str(STRANGER.pw_uid)],
        input=message, capture_output=True, check=True, timeout=30,
    )  # fmt: skip
    return done.stdout.decode().strip()


@needs_root
def test_another_user_cannot_register_a_node() -> None:
    with open_directory() as directory, masters_in(directory) as start:
        master = start()
        path = Path(master.addresses["listen"])
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
        assert knock(path, b"\x93\x02\xa5hello\x90") == "PermissionError", "the file's mode keeps strangers out"
        path.chmod(0o666)  # even where the mode does not, the kernel reports the user
        assert knock(path, b"\x93\x02\xa5hello\x90") in {"0", "ConnectionResetError", "BrokenPipeError"}
        assert _lines(master.log, "no connection")[0]["address"] == f"uid {STRANGER.pw_uid}"
        assert master.status()["nodes"] == {}


@needs_root
def test_an_agent_says_nothing_to_a_master_of_another_user(tmp_path: Path, start_agent: Callable[..., Daemon]) -> None:
    path = tmp_path / "master.sock"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        os.seteuid(STRANGER.pw_uid)  # the kernel records the user that calls listen()
        try:
            listening.listen()
        finally:
            os.seteuid(0)
        agent = start_agent(master=path)
        told = _lines(tmp_path / "agent.log", "no link to the master")
        assert "neither as root nor as you" in told[0]["why"]
        connection, _ = listening.accept()  # the agent connected before it wrote that
        with connection:
            assert connection.recv(4096) == b"", "the agent left, and sent nothing"
        assert not agent.status()["master"]["linked"]


def test_there_is_no_tcp_without_certificates_not_even_on_loopback(tmp_path: Path) -> None:
    for module, key in (("master", "listen"), ("agent", "master")):
        done = subprocess.run(
            [warm_commands.python(), "-I", "-m", module, *options(**{key: "127.0.0.1:7420"}, http="127.0.0.1:0")],
            capture_output=True, text=True, check=False, timeout=60,
        )  # fmt: skip
        assert done.returncode == 2
        (line,) = done.stderr.strip().splitlines()
        assert f"`{key}` is a TCP port" in line
        assert "/run/penstock/master.sock" in line, "the remedy on one host"


def test_a_name_that_is_taken_is_in_the_masters_log_once(
    tmp_path: Path, start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon]
) -> None:
    master = start_master(heartbeat_s=0.2)
    common = {"node": "twin", "master": master.addresses["listen"]}
    start_agent(**common)
    start_agent(**common, runtime_dir=tmp_path / "second" / "run", state_dir=tmp_path / "second" / "state")
    told = _lines(master.log, "a node was refused: its name is taken")
    assert told[0]["node"] == "twin"
    assert "`node`" in told[0]["remedy"]
    asked_again = _lines(tmp_path / "agent.log", "no link to the master")
    assert "is connected from" in asked_again[0]["why"]
    assert len(_lines(master.log, "a node was refused: its name is taken")) == 1


def _lines(log: Path, event: str) -> list[dict[str, str]]:
    """The log's records of an event, once there is one."""

    def found() -> list[dict[str, str]]:
        records = [json.loads(line) for line in log.read_text().splitlines() if line.startswith("{")]
        return [record for record in records if record["event"] == event]

    return until(found, f"no {event!r}")

"""The parts of `penstock up` that need no daemon: the scope, the log lines, the ports."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest

from penstock.cli import up
from tests.fakes.agent_thread import AgentThread
from tests.unit.penstock.cli.conftest import Fails


@pytest.fixture
def systemd(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Make a host where systemd delegates; return the units started there."""
    started: list[list[str]] = []

    def run(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        started.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(up, "_systemd_delegates", lambda: True)
    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setattr(os, "execvp", lambda file, command: started.append([file, *command]))
    monkeypatch.delenv(up._IN_SCOPE, raising=False)
    return started


@pytest.mark.parametrize(("uid", "user"), [(0, False), (1000, True)])
def test_where_systemd_rules_it_starts_again_in_a_scope(
    systemd: list[list[str]], monkeypatch: pytest.MonkeyPatch, uid: int, user: bool
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    monkeypatch.setenv(up._IN_SCOPE, "")
    monkeypatch.delenv(up._IN_SCOPE)
    up._enter_scope(["--set", "node=a"])
    probe, started = systemd
    assert probe[-1] == "true"
    assert started[0] == started[1] == "systemd-run"
    assert ("--user" in started) == user
    assert "--property=Delegate=yes" in probe
    assert "--property=Delegate=yes" not in started, "the containers are in another scope, the launcher's"
    assert started[-6:] == ["-I", "-m", "penstock.cli.main", "up", "--set", "node=a"]
    assert os.environ[up._IN_SCOPE]
    up._enter_scope([])
    assert len(systemd) == 2  # inside the scope it goes on


@pytest.mark.parametrize("key", ["runtime_dir", "state_dir"])
@pytest.mark.parametrize("place", ["file", "file/within"])
def test_a_directory_that_cannot_be_made_is_one_line(
    fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, key: str, place: str
) -> None:
    monkeypatch.setenv(up._IN_SCOPE, "none: of a test")
    (tmp_path / "file").touch()
    given = {"runtime_dir": tmp_path / "runtime", "state_dir": tmp_path / "state"} | {key: tmp_path / place}
    pairs = [part for name, directory in given.items() for part in ("--set", f"{name}={directory}")]
    line = fails(1, "up", *pairs)
    assert line == f"penstock up: {key}: {tmp_path / place}: Not a directory; name another directory"


def test_without_a_scope_it_starts_directly_and_reports_so(
    systemd: list[list[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        return subprocess.CompletedProcess(command, 1, "", "Failed to connect to bus:\n No medium found\n")

    monkeypatch.setattr(subprocess, "run", refuse)
    up._enter_scope([])
    assert systemd == []
    assert "limits may not be enforced: Failed to connect to bus: No medium found" in capsys.readouterr().err


@pytest.mark.parametrize(("controllers", "delegates"), [("cpu io memory\n", True), ("\n", False), (None, False)])
def test_only_cgroup_v2_controllers_are_delegated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, controllers: str | None, delegates: bool
) -> None:
    monkeypatch.setattr("shutil.which", lambda name: f"/usr/bin/{name}")
    file = tmp_path / "cgroup.controllers"
    if controllers is not None:
        file.write_text(controllers)
    assert up._systemd_delegates(tmp_path, file) is delegates
    assert up._systemd_delegates(tmp_path / "none", file) is False


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (
            '{"event": "started", "level": "info", "timestamp": "2026-01-02T03:04:05.6Z", "node": "a", "n": 1}',
            "agent  | 03:04:05 info     started  node=a n=1",
        ),
        (
            '{"event": "e", "level": "error", "timestamp": "2026-01-02T03:04:05Z", "exception": "Traceback\\nX"}',
            "agent  | 03:04:05 error    e\nTraceback\nX",
        ),
        (
            '{"event": "e", "level": "info", "timestamp": "2026-01-02T03:04:05Z", "job": "a\\u001b[2J\\nb"}',
            "agent  | 03:04:05 info     e  job=a�[2J�b",
        ),
        ("a\tb\x1b[2J", "agent  | a       b�[2J"),
        ("plain words", "agent  | plain words"),
        ("[1, 2]", "agent  | [1, 2]"),
        ('{"event": "no level"}', 'agent  | {"event": "no level"}'),
        ('{"event": "e", "level": "info", "timestamp": 5}', 'agent  | {"event": "e", "level": "info", "timestamp": 5}'),
    ],
)
def test_log_lines_are_shown_under_a_name(line: str, shown: str) -> None:
    assert up._pretty("agent", line) == shown


def test_a_taken_port_becomes_any_port() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert up._free_port(port) == 0
    assert up._free_port(port) == port


@pytest.mark.parametrize("quote", ["", '"', "'"])
def test_one_that_does_not_start_leaves_the_port_file_of_the_one_that_runs(
    agent: AgentThread, fails: Fails, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, quote: str
) -> None:
    monkeypatch.setenv(up._IN_SCOPE, "1")
    ports = tmp_path / "ports.json"
    ports.write_text("of the first one")
    line = fails(1, "up", "--port-file", ports, "--set", f"socket={quote}{agent.socket}{quote}")
    assert line.startswith(f"penstock up: an agent runs already at {agent.socket}")
    assert ports.read_text() == "of the first one"

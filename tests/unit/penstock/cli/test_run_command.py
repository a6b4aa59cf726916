"""``penstock run``: its requests to the agent, and its output on the answers."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgpack
import pytest

from penstock.cli.main import main
from penstock.client.signals import Signals
from penstock.model.container import Ended, EndedBy
from penstock.wire.connection import MAX_FRAME_BYTES
from penstock.wire.errors import bad_request, refused, unavailable
from tests.fakes.agent import FakeContainer
from tests.fakes.agent_thread import AgentThread


@pytest.fixture(autouse=True)
def no_signals(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Signals, "_catch", lambda self: None)


def ends(agent: AgentThread, ended: Ended) -> None:
    def end(made: FakeContainer) -> None:
        agent.agent.end_container(made, ended)

    agent.agent.on_launch = end


def test_a_command_is_started_in_the_streams_of_the_caller(agent: AgentThread) -> None:
    ends(agent, Ended(by=EndedBy.EXIT, exit_status=5))
    assert main(["run", "--cpu", "0.5", "x", "y"]) == 5
    spec = agent.agent.called("launch")[0].container
    assert (spec.argv, spec.limits.cpu_cores, bool(spec.stdio)) == (("x", "y"), 0.5, True)
    assert [call.client for call in agent.agent.called("hello")] == ["penstock run"]


@pytest.mark.parametrize(
    ("error", "status"),
    [
        (bad_request("no"), 2),
        (refused("no"), 1),
        (unavailable("no", exit_status=127), 127),
        (unavailable("no", exit_status=126), 126),
        (unavailable("no", exit_status=0), 1),
    ],
)
def test_a_refusal_is_the_commands_end(
    agent: AgentThread, error: Any, status: int, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.agent.refuse["launch"] = error
    assert main(["run", "--detach", "x"]) == status
    assert capsys.readouterr().err == "penstock run: no\n"


def test_a_command_that_does_not_fit_a_frame(agent: AgentThread, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--detach", "x" * MAX_FRAME_BYTES]) == 1
    assert "frame limit" in capsys.readouterr().err


def test_where_the_streams_are_not_taken_nothing_is_started(
    agent: AgentThread, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "stdio.sock").unlink()
    assert main(["run", "x"]) == 1
    assert "no agent at" in capsys.readouterr().err
    assert agent.agent.called("launch") == []


def test_a_restarted_agent_that_does_not_know_the_command(
    agent: AgentThread, capsys: pytest.CaptureFixture[str]
) -> None:
    agent.agent.on_launch = lambda made: restarting.start()
    restarting = threading.Thread(target=lambda: (agent.stop(), agent.start()))
    assert main(["run", "x"]) == 1
    restarting.join(60)
    said = capsys.readouterr().err
    assert said.startswith("penstock run: its end was not observed: the agent was restarted and does not know it")


@pytest.fixture
def scripted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., None]]:
    """Start an agent that sends the next of these bytes at each read, and closes the connection at the end."""
    threads: list[threading.Thread] = []
    path = tmp_path / "scripted.sock"
    monkeypatch.setenv("PENSTOCK_SOCKET", str(path))

    def make(*replies: bytes) -> None:
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with listener, listener.accept()[0] as sock:
                for reply in replies:
                    sock.recv(1 << 20)
                    sock.sendall(reply)

        threads.append(threading.Thread(target=serve))
        threads[-1].start()

    yield make
    for thread in threads:
        thread.join(30)


HELLO = msgpack.packb(
    [1, 0, None, {
        "protocol": 1, "version": "0", "node": "n", "user": "u", "capacity": {"cores": 1.0, "memory_bytes": 1},
        "network_bypass_bytes": 0, "max_frame_bytes": 1, "enforced": [], "master": False,
    }]
)  # fmt: skip


def test_it_is_unknown_whether_it_was_started(
    scripted: Callable[..., None], capsys: pytest.CaptureFixture[str]
) -> None:
    scripted(HELLO)
    assert main(["run", "--detach", "x"]) == 1
    assert "tells whether it runs" in capsys.readouterr().err


def test_an_unknown_error_is_still_reported(scripted: Callable[..., None], capsys: pytest.CaptureFixture[str]) -> None:
    scripted(HELLO, msgpack.packb([1, 1, "boom", None]))
    assert main(["run", "--detach", "x"]) == 1
    assert "boom" in capsys.readouterr().err


def test_run_needs_no_event_loop(agent: AgentThread) -> None:
    ends(agent, Ended(by=EndedBy.EXIT, exit_status=5))
    code = "import sys; from penstock.cli.main import main; s = main(['run', 'x']); print(s, *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-I", "-c", code],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PENSTOCK_SOCKET": str(agent.socket)},
        timeout=60,
    )
    status, *modules = done.stdout.split()
    assert status == "5"
    unwanted = {"asyncio", "logging", "ssl", "rich", "dataclasses", "typing_extensions", "penstock.client.agent"}
    unwanted |= {"penstock.wire.agent_api", "penstock.wire.job_api", "penstock.model.decode_errors"}
    assert not unwanted & set(modules)

"""``penstock run`` without an event loop: what it says is what the client says, and it steps back in time."""

from __future__ import annotations

import asyncio
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

from penstock.cli import direct, run
from penstock.cli.errors import CommandError
from penstock.model.container import ContainerSpec, Ended, EndedBy
from penstock.testing.agent_thread import AgentThread
from penstock.wire import connection
from penstock.wire.agent_api import PROTOCOL
from penstock.wire.errors import bad_request, refused, unavailable

SPEC = ContainerSpec(argv=("x",), detach=True)


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentThread]:
    with AgentThread(tmp_path) as running:
        yield running


def test_it_speaks_the_protocol() -> None:
    assert (direct.PROTOCOL, direct.MAX_FRAME_BYTES) == (PROTOCOL, connection.MAX_FRAME_BYTES)


def test_a_container_is_started(agent: AgentThread) -> None:
    agent.agent.not_enforced = {"pids_max": "no pids"}
    with direct.Connection(agent.socket, "test") as agent_of_ours:
        started = agent_of_ours.launch(SPEC)
    assert started == ("c-1", {"pids_max": "no pids"})
    assert agent.agent.called("launch")[0].container == SPEC
    assert agent.agent.called("hello")[0].client == "test"


@pytest.mark.parametrize(
    ("error", "status"), [(bad_request("no"), 2), (refused("no"), 1), (unavailable("no", exit_status=127), 127)]
)
def test_a_refusal_is_the_commands_end(agent: AgentThread, error: Any, status: int) -> None:
    agent.agent.refuse["launch"] = error
    with direct.Connection(agent.socket, "test") as agent_of_ours, pytest.raises(CommandError, match="no") as raised:
        agent_of_ours.launch(SPEC)
    assert raised.value.status == status


def test_what_does_not_fit_a_frame(agent: AgentThread) -> None:
    with direct.Connection(agent.socket, "test") as agent_of_ours, pytest.raises(CommandError, match="frame limit"):
        agent_of_ours.launch(ContainerSpec(argv=("x" * direct.MAX_FRAME_BYTES,)))


def test_where_hello_is_refused_somebody_else_says_so(agent: AgentThread) -> None:
    agent.agent.refuse["hello"] = refused("not you")
    with pytest.raises(direct.Undecided):
        direct.Connection(agent.socket, "test")


def test_without_an_agent_somebody_else_says_so(tmp_path: Path) -> None:
    with pytest.raises(direct.Undecided):
        direct.Connection(tmp_path / "none", "test")


def test_where_the_streams_are_not_taken_nothing_is_started(agent: AgentThread, tmp_path: Path) -> None:
    (tmp_path / "stdio.sock").unlink()
    with direct.Connection(agent.socket, "test") as agent_of_ours, pytest.raises(direct.Undecided):
        agent_of_ours.launch(SPEC, (0, 1, 2))
    assert agent.agent.called("launch") == []


@pytest.fixture
def scripted(tmp_path: Path) -> Iterator[Callable[..., Path]]:
    """An agent that says to each read the next of these bytes, and closes the connection at the end."""
    threads: list[threading.Thread] = []

    def make(*replies: bytes) -> Path:
        path = tmp_path / "scripted.sock"
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
        return path

    yield make
    for thread in threads:
        thread.join(30)


HELLO = msgpack.packb([1, 0, None, {}])
STARTED = msgpack.packb([1, 1, None, {"container": "c-1", "pid": 1, "not_enforced": {}}])


@pytest.mark.parametrize("reply", [b"\xc1", b"\x07", b"\xa3abc", b"\x91\x01", b""])
def test_nonsense_instead_of_welcome(scripted: Callable[..., Path], reply: bytes) -> None:
    with pytest.raises(direct.Undecided):
        direct.Connection(scripted(reply), "test")


def test_whether_it_was_started_nobody_knows(scripted: Callable[..., Path]) -> None:
    with direct.Connection(scripted(HELLO), "test") as agent, pytest.raises(CommandError, match="tells whether"):
        agent.launch(SPEC)


def test_an_error_that_nobody_knows_is_still_told(scripted: Callable[..., Path]) -> None:
    path = scripted(HELLO, msgpack.packb([1, 1, "boom", None]))
    with direct.Connection(path, "test") as agent, pytest.raises(CommandError, match="boom"):
        agent.launch(SPEC)


def test_an_end_that_comes_in_pieces_and_before_the_answer(scripted: Callable[..., Path]) -> None:
    ended = msgpack.packb([2, "container_ended", [{"container": "c-1", "ended": {"by": "exit", "exit_status": 3}}]])
    other = msgpack.packb([2, "job_admitted", [{"job": "j"}]])
    path = scripted(HELLO, other + ended + STARTED)
    with direct.Connection(path, "test") as agent:
        assert agent.launch(SPEC).container == "c-1"
        assert agent.wait("c-1", signals()) == Ended(by=EndedBy.EXIT, exit_status=3)


def test_a_lost_connection_is_told(scripted: Callable[..., Path]) -> None:
    with direct.Connection(scripted(HELLO, STARTED), "test") as agent:
        agent.launch(SPEC)
        with pytest.raises(direct.Lost):
            agent.wait("c-1", signals())


def signals() -> direct.Signals:
    """Without the handlers, which belong to the process of the command."""
    made = direct.Signals.__new__(direct.Signals)
    made.killed, made.interrupts = False, 0
    made.received = direct.deque()
    made._wake, made._wakes = socket.socketpair()
    made._wake.setblocking(False)
    return made


def test_a_signal_that_could_not_be_sent_comes_again() -> None:
    waiting = signals()
    waiting.received.extend([2, 15, 2, 1])
    for number in waiting.take():
        assert number == 2
        break
    assert [*waiting.take()] == [2, 15, None, None]
    assert (waiting.killed, waiting.interrupts) == (True, 2)


async def test_an_agent_that_does_not_come_back_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from penstock.client import AgentUnavailable

    monkeypatch.setenv("PENSTOCK_SOCKET", str(tmp_path / "none"))
    monkeypatch.setattr(run, "_RECONNECT_S", 0.1)
    with pytest.raises(AgentUnavailable, match=r"penstock up.* \(tried for 0.1 s\)"):
        await asyncio.wait_for(run._reconnect(), 30)


def test_run_needs_no_event_loop(agent: AgentThread) -> None:
    agent.agent.on_launch = lambda made: agent.agent.end_container(made, Ended(by=EndedBy.EXIT, exit_status=5))
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
    assert not {"asyncio", "logging", "ssl", "rich", "penstock.wire", "penstock.client"} & set(modules)

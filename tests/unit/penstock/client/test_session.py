"""The blocking connection: its error where there is no agent, and how it is kept up."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from penstock.client.errors import AgentUnavailable
from penstock.client.session import Session
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import EndJob, Nothing, RegisterJob
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent_thread import AgentThread


class Owner:
    """Notes its messages, in order."""

    def __init__(self) -> None:
        self.told: list[object] = []

    def notified(self, method: str, params: Any) -> None:
        self.told.append(method)

    def relink(self) -> None:
        self.told.append("relink")

    def linked(self, linked: bool) -> None:
        self.told.append(linked)


def test_calls_and_notifications(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test") as session:
        session.owner = owner = Owner()
        assert session.welcome.node == "fake"
        job = session.call(m.REGISTER_JOB, lambda: RegisterJob(name="j")).job
        with pytest.raises(RpcError, match="no job 'x'"):
            session.call(m.END_JOB, lambda: EndJob(job="x"))
        agent.do(lambda fake: fake.admit(job))
        while not owner.told:
            session.wait(60)
    assert owner.told == ["job_admitted"]


def test_an_agent_that_comes_back_is_asked_again_once_its_owner_has_joined(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        session.owner = owner = Owner()
        agent.stop()
        starting = threading.Timer(0.1, agent.start)
        starting.start()
        assert session.call(m.STATUS, Nothing).status["node"] == "fake"
        starting.join(60)
    assert owner.told == [False, "relink", True]


def test_a_short_absence_is_not_reported(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60, told_after_s=60) as session:
        session.owner = owner = Owner()
        agent.stop()
        agent.start()
        session.wait(60)
    assert owner.told == ["relink"]


def test_a_request_to_be_sent_once_is_not_repeated(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=60) as session:
        agent.stop()
        with pytest.raises(ConnectionResetError):
            session.call_once(m.STATUS, Nothing)
        assert not session.notify(m.STATUS, Nothing())


def test_an_agent_that_does_not_come_back_is_given_up(agent: AgentThread) -> None:
    with Session.connect(agent.socket, "test", patience_s=0.1) as session:
        agent.stop()
        with pytest.raises(AgentUnavailable, match=r"penstock up.* \(tried for 0.1 s\)"):
            session.wait(None)


def test_an_agent_that_refuses(agent: AgentThread) -> None:
    agent.agent.refuse["hello"] = refused("not you")
    with pytest.raises(AgentUnavailable, match="refuses this client: not you"):
        Session.connect(agent.socket, "test")


@pytest.mark.parametrize("reply", [b"\xc1", b"\x07", b"\xa3abc", b"\x91\x01", b""])
def test_nonsense_instead_of_welcome(tmp_path: Path, reply: bytes) -> None:
    import socket

    path = tmp_path / "scripted.sock"
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()

        def serve() -> None:
            with listener.accept()[0] as sock:
                sock.recv(1 << 20)
                sock.sendall(reply)

        serving = threading.Thread(target=serve)
        serving.start()
        with pytest.raises(AgentUnavailable, match="closed the connection"):
            Session.connect(path, "test")
        serving.join(60)

"""Messages that the other side does not wait for: they leave with the next one, or shortly."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import pytest

from penstock.transport import RpcPeer
from penstock.transport import peer as transport
from penstock.transport.peer import Delayed
from penstock.wire.connection import RpcConnection
from penstock.wire.rpc import Notification, Response


class Side:
    """A handler that answers each request with a delayed answer."""

    def __init__(self) -> None:
        self.gone = asyncio.Event()
        self.served = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        self.served.set()
        return Delayed({"job": method})

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        raise AssertionError(method)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error


class Bed:
    """A peer, and the socket at its other end."""

    def __init__(self, side: Side, peer: RpcPeer, raw: socket.socket) -> None:
        self.side, self.peer, self._raw = side, peer, raw
        self._wire = RpcConnection()

    async def asked(self, method: str) -> int:
        """Let the peer serve a request; return the request's id."""
        request, data = self._wire.send_request(method)
        self._raw.send(data)
        await asyncio.wait_for(self.side.served.wait(), 10)
        return request

    def received(self) -> list[Any]:
        """Return what has arrived: methods of notifications, ids of answered requests."""
        try:
            data = self._raw.recv(65536)
        except BlockingIOError:
            return []
        return [self._named(message) for message in self._wire.receive(data)]

    async def next_received(self) -> list[Any]:
        """Wait for what arrives next."""
        loop = asyncio.get_running_loop()
        readable = asyncio.Event()
        loop.add_reader(self._raw, readable.set)
        await asyncio.wait_for(readable.wait(), 10)
        loop.remove_reader(self._raw)
        return self.received()

    @staticmethod
    def _named(message: object) -> Any:
        if isinstance(message, Response):
            return message.id
        assert isinstance(message, Notification)
        return message.method


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    ours, raw = socket.socketpair()
    raw.setblocking(False)
    side = Side()
    _, peer = await asyncio.get_running_loop().create_connection(lambda: RpcPeer(side), sock=ours)
    yield Bed(side, peer, raw)
    peer.close()
    await asyncio.wait_for(side.gone.wait(), 10)
    raw.close()


async def test_it_leaves_before_the_next_message_in_the_same_write(bed: Bed) -> None:
    bed.peer.notify_delayed("a", "first", {})
    await asyncio.sleep(0)
    assert bed.received() == []
    bed.peer.send_together(lambda peer: peer.notify("second"))
    assert bed.received() == ["first", "second"]


async def test_a_later_one_replaces_it_and_is_the_last(bed: Bed) -> None:
    for key, method in (("a", "old"), ("b", "other"), ("a", "new")):
        bed.peer.notify_delayed(key, method, {})
    bed.peer.send_together(lambda peer: peer.notify("next"))
    assert bed.received() == ["other", "new", "next"]


async def test_it_does_not_overtake_a_message_of_the_same_turn(bed: Bed) -> None:
    bed.peer.notify_delayed("a", "replaced", {})
    bed.peer.notify_delayed("b", "before", {})
    bed.peer.notify("first")
    bed.peer.notify_delayed("a", "second", {})
    await asyncio.sleep(0)
    assert bed.received() == ["before", "first", "second"]


async def test_an_answer_waits_for_the_next_message(bed: Bed) -> None:
    request = await bed.asked("priority")
    await asyncio.sleep(0)
    assert bed.received() == []
    bed.peer.send_together(lambda peer: peer.notify("next"))
    assert bed.received() == [request, "next"]


async def test_it_leaves_alone_when_no_message_follows(bed: Bed, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transport, "DELAY_S", 0.01)
    bed.peer.notify_delayed("a", "first", {})
    assert await bed.next_received() == ["first"]
    bed.peer.notify_delayed("a", "second", {})
    assert await bed.next_received() == ["second"]


@pytest.mark.parametrize("send", [RpcPeer.push, RpcPeer.close])
async def test_it_leaves_where_all_is_sent_now(bed: Bed, send: Any) -> None:
    bed.peer.notify_delayed("a", "first", {})
    send(bed.peer)
    assert bed.received() == ["first"]

"""Two peers on a socket pair: calls both ways, errors, garbage, lost connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from typing import Any

import msgpack
import pytest

from penstock.transport import RpcPeer
from penstock.wire.agent_api import Done, JobAdmitted, JobRegistered
from penstock.wire.connection import RpcConnection, read_params
from penstock.wire.errors import ErrorCode, RpcError


class Side:
    """A handler that answers by method name and keeps its messages."""

    def __init__(self) -> None:
        self.notes: list[tuple[str, Any]] = []
        self.failures: list[Exception] = []
        self.gone = asyncio.Event()
        self.noted = asyncio.Event()
        self.forever = asyncio.Event()
        self.cancelled = False

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        match method:
            case "now":
                return JobRegistered(job=read_params(params, JobAdmitted).job, admitted=True)
            case "later":
                return self.later()
            case "broken":
                raise ZeroDivisionError
            case "broken later":
                return self.broken()
            case "never":
                return self.never()
        raise RpcError(ErrorCode.REFUSED, "not today", field="f", remedy="come back")

    async def later(self) -> Done:
        await asyncio.sleep(0)
        return Done()

    async def broken(self) -> Done:
        raise ZeroDivisionError

    async def never(self) -> Done:
        try:
            await self.forever.wait()
        except asyncio.CancelledError:
            self.cancelled = True
            raise
        return Done()

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        self.notes.append((method, read_params(params, dict)))
        self.noted.set()
        if method == "bad":
            raise RpcError(ErrorCode.BAD_REQUEST, "bad indeed")
        if method == "broken":
            raise ZeroDivisionError

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        self.failures.append(error)


class Pair:
    def __init__(self, left: tuple[Side, RpcPeer], right: tuple[Side, RpcPeer]) -> None:
        self.left, self.to_right = left
        self.right, self.to_left = right


async def end_of(sock: socket.socket) -> tuple[Side, RpcPeer]:
    side = Side()
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_connection(lambda: RpcPeer(side, RpcConnection(max_frame_bytes=100_000)), sock=sock)
    return side, peer


@pytest.fixture
async def pair() -> AsyncIterator[Pair]:
    one, other = socket.socketpair()
    made = Pair(await end_of(one), await end_of(other))
    yield made
    made.to_left.close()
    made.to_right.close()
    await asyncio.wait_for(asyncio.gather(made.left.gone.wait(), made.right.gone.wait()), 10)


async def test_answers_at_once_and_later(pair: Pair) -> None:
    assert (await pair.to_right.request("now", JobAdmitted(job="j"), JobRegistered)).job == "j"
    assert await pair.to_left.request("later", None, Done) == Done()


async def test_errors_keep_all_their_parts(pair: Pair) -> None:
    with pytest.raises(RpcError) as caught:
        await pair.to_right.request("unknown", None, Done)
    body = caught.value.body
    assert (body.code, body.field, body.remedy) == (ErrorCode.REFUSED, "f", "come back")


@pytest.mark.parametrize("method", ["broken", "broken later"])
async def test_our_fault_is_reported_as_ours_without_details(pair: Pair, method: str) -> None:
    with pytest.raises(RpcError, match="ZeroDivisionError") as caught:
        await pair.to_right.request(method, None, Done)
    assert caught.value.code is ErrorCode.INTERNAL
    assert isinstance(pair.right.failures[0], ZeroDivisionError)


async def test_a_bad_notification_is_answered_by_one(pair: Pair) -> None:
    pair.to_right.notify("bad")
    await asyncio.wait_for(pair.left.noted.wait(), 10)
    assert pair.left.notes == [("error", {"code": "bad_request", "message": "bad indeed"})]


async def test_a_wrong_answer_is_an_error_of_the_caller_s(pair: Pair) -> None:
    with pytest.raises(RpcError, match="job"):
        await pair.to_right.request("later", None, JobRegistered)


async def test_requests_and_notifications_keep_their_order(pair: Pair) -> None:
    answers: list[asyncio.Future[Any]] = []
    pair.to_right.notify("first")
    pair.to_right.send_together(
        lambda peer: answers.append(peer.start_request("later", None)), lambda peer: peer.notify("second")
    )
    await answers[0]
    assert [method for method, _ in pair.right.notes] == ["first", "second"]


async def test_messages_sent_together_leave_at_once_or_after_the_read_being_handled() -> None:
    one, raw = socket.socketpair()
    raw.setblocking(False)
    side, peer = await end_of(one)

    def send() -> None:
        peer.send_together(lambda to: to.notify("first"), lambda to: to.notify("second"))

    send()
    assert [message.method for message in RpcConnection().receive(raw.recv(4096))] == ["first", "second"]

    def handle(peer: RpcPeer, method: str, params: list[Any]) -> None:
        send()
        with pytest.raises(BlockingIOError):
            raw.recv(4096)
        side.noted.set()

    side.notification = handle  # type: ignore[method-assign]
    raw.send(RpcConnection().send_notification("go on"))
    await asyncio.wait_for(side.noted.wait(), 10)
    assert len(RpcConnection().receive(raw.recv(4096))) == 2
    assert side.failures == []
    raw.close()
    peer.close()
    await asyncio.wait_for(side.gone.wait(), 10)


async def test_a_lost_connection_ends_waiting_and_served_requests(pair: Pair) -> None:
    waiting = asyncio.ensure_future(pair.to_right.request("never", None, Done))
    await pair.to_right.request("later", None, Done)
    pair.to_left.close()
    with pytest.raises(ConnectionResetError):
        await waiting
    await asyncio.sleep(0)
    assert pair.right.cancelled
    with pytest.raises(ConnectionResetError):
        pair.to_right.start_request("now", None)
    pair.to_right.notify("nobody hears this")


async def test_a_cancelled_call_leaves_the_connection_well(pair: Pair) -> None:
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(pair.to_right.request("never", None, Done), 0.01)
    pair.right.forever.set()
    assert await pair.to_right.request("later", None, Done) == Done()


async def answers(data: bytes) -> list[Any]:
    """Return the answers to bytes that end their connection."""
    one, other = socket.socketpair()
    with one:
        side, _ = await end_of(other)
        one.setblocking(False)
        one.sendall(data)
        await asyncio.wait_for(side.gone.wait(), 10)
        unpacker = msgpack.Unpacker()
        unpacker.feed(one.recv(100_000))
        return list(unpacker)


async def test_garbage_is_answered_and_ends_this_connection_only(pair: Pair) -> None:
    malformed, error = await answers(msgpack.packb([0, 1, "x"]) + b"\xc1")
    assert malformed[:2] == [1, 1]
    assert error[:2] == [2, "error"]
    assert await pair.to_right.request("later", None, Done) == Done()


async def test_a_frame_beyond_the_limit_is_answered_with_the_limit() -> None:
    [[kind, method, [error]]] = await answers(msgpack.packb([2, "x", [b"y" * 150_000]]))
    assert (kind, method, error["field"]) == (2, "error", "frame")

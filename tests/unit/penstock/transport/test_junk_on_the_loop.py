"""How long a message that is nothing but a claim to be one holds the loop: not as long as its parsing would."""

from __future__ import annotations

import asyncio
import socket
import time
from typing import Any

import msgpack
import pytest

from penstock.transport import RpcPeer
from penstock.transport.shared_peer import SharedPeer, UserBudget
from penstock.wire.agent_api import Hello
from penstock.wire.agent_methods import REQUESTS, TYPED
from penstock.wire.connection import MAX_FRAME_BYTES, RpcConnection, read_params
from tests.unit.penstock.transport.loops import on_both_loops

LIMIT_S = 60
#: All of it at once would be half a gigabyte of lists.
_PARSED_PART = 4
#: Parsing takes at least so many times as long as the longest hold; it takes seventy times as long.
_FACTOR = 10
HEADS = {
    "parameters": b"\x94\x00\x07\xa5hello\x91",
    "a field": b"\x94\x00\x07\xa6submit\x91\x81\xa9monotasks",
    "no message": b"\x93\x02\x07",
}


class Server:
    """Reads each request's parameters as its method's type."""

    def connected(self, peer: RpcPeer) -> None:
        pass

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        declared = REQUESTS.get(method)
        return read_params(params, Hello if declared is None else declared.params)

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        raise AssertionError(method)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        pass

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error


def junk(head: bytes, size_bytes: int) -> bytes:
    """A message of this size: the head, and an array of empty arrays."""
    count = size_bytes - len(head) - 5
    return head + b"\xdd" + count.to_bytes(4, "big") + b"\x90" * count


def parsing_s(head: bytes) -> float:
    """Return the processor time that parsing the message takes, at least."""
    part = junk(head, MAX_FRAME_BYTES // _PARSED_PART)
    began = time.thread_time()
    msgpack.unpackb(part)
    return (time.thread_time() - began) * _PARSED_PART


class Holds:
    """The longest processor time between two turns of the loop: other processes do not count."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._loop = asyncio.get_running_loop()
        self._last_s = time.thread_time()
        self._turn()

    def _turn(self) -> None:
        now = time.thread_time()
        self.longest_s = max(self.longest_s, now - self._last_s)
        self._last_s = now
        self._next = self._loop.call_soon(self._turn)

    def end(self) -> None:
        self._next.cancel()


def exchange(near: socket.socket, data: bytes) -> Any:
    near.settimeout(LIMIT_S)
    near.sendall(data)
    unpacker = msgpack.Unpacker()
    while True:
        received = near.recv(65536)
        assert received
        unpacker.feed(received)
        for message in unpacker:
            return message


@pytest.mark.parametrize("head", HEADS.values(), ids=HEADS)
@on_both_loops
async def test_junk_holds_the_loop_for_a_part_of_its_parsing(head: bytes) -> None:
    near, far = socket.socketpair()
    loop = asyncio.get_running_loop()
    _, peer = await loop.create_unix_connection(lambda: SharedPeer(Server(), RpcConnection(typed=TYPED)), sock=far)
    peer.share(UserBudget())
    data = junk(head, MAX_FRAME_BYTES)
    holds = Holds()
    answer = await asyncio.to_thread(exchange, near, data)
    holds.end()
    peer.close()
    near.close()
    error = answer[2][0] if answer[0] == 2 else answer[2]
    assert error["code"] == "bad_request"
    assert holds.longest_s * _FACTOR < parsing_s(head)

"""One user's connections share turns and bytes: the messages that one user sends, or does not read, cost the others
little.
"""

from __future__ import annotations

import array
import asyncio
import fcntl
import socket
import termios
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgpack
import msgspec
import pytest

from penstock.transport import RpcPeer, shared_peer
from penstock.transport.shared_peer import MAX_WAITING_BYTES, TURN_S, SharedPeer, UserBudget
from tests.unit.penstock.transport.loops import on_both_loops

_SPIN_S = TURN_S / 10


class Server:
    """Answers ``spin`` after computing, ``big`` with many bytes, ``later`` on request; counts."""

    def __init__(self) -> None:
        self.handled = 0
        self.at_once = self.most_at_once = 0
        self.free = asyncio.Event()
        self.peers: list[SharedPeer] = []
        self._gone = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        assert isinstance(peer, SharedPeer)
        self.peers.append(peer)

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        self.handled += 1
        if method == "spin":
            until = time.monotonic() + _SPIN_S
            while time.monotonic() < until:
                pass
        if method == "big":
            return {"data": b"x" * 100_000}
        return self.later() if method == "later" else {"handled": self.handled}

    async def later(self) -> dict[str, int]:
        self.at_once += 1
        self.most_at_once = max(self.most_at_once, self.at_once)
        await self.free.wait()
        self.at_once -= 1
        return {}

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        raise AssertionError(method)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        assert isinstance(peer, SharedPeer)
        self.peers.remove(peer)
        self._gone.set()

    async def keeps(self, count: int) -> None:
        while len(self.peers) > count:
            self._gone.clear()
            await self._gone.wait()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error


class Client:
    """A raw connection, blocking where it sends and asynchronous where it reads."""

    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        self._unpacker = msgpack.Unpacker(max_buffer_size=1 << 28)
        self.read_bytes = 0

    async def send(self, data: bytes) -> None:
        await asyncio.get_running_loop().sock_sendall(self.socket, data)

    async def message(self) -> Any:
        while True:
            try:
                return self._unpacker.unpack()
            except msgpack.OutOfData:
                data = await asyncio.get_running_loop().sock_recv(self.socket, 1 << 20)
                if not data:
                    raise EOFError from None
                self.read_bytes += len(data)
                self._unpacker.feed(data)


def requests(method: str, count: int, first: int = 0) -> bytes:
    return b"".join(msgpack.packb([0, first + number, method, []]) for number in range(count))


@asynccontextmanager
async def connected(server: Server, *budgets: UserBudget) -> AsyncIterator[list[Client]]:
    """One connection for each mention of an budget."""
    clients = []
    for budget in budgets:
        near, far = socket.socketpair()
        near.setblocking(False)
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_unix_connection(lambda: SharedPeer(server), sock=far)
        peer.share(budget)
        clients.append(Client(near))
    try:
        yield clients
    finally:
        for client in clients:
            client.socket.close()
        for peer in list(server.peers):
            peer.cut_off()
        async with asyncio.timeout(10):
            await server.keeps(0)


@on_both_loops
async def test_a_user_with_many_connections_keeps_another_waiting_for_turns_only() -> None:
    server, greedy, modest = Server(), UserBudget(), UserBudget()
    connections, each, asked = 8, 300, 20
    async with connected(server, *[greedy] * connections, modest) as (*many, one):
        for client in many:
            await client.send(requests("spin", each))
        between = []
        for number in range(asked):
            before = server.handled
            await one.send(requests("spin", 1, number))
            assert (await one.message())[1] == number
            between.append(server.handled - before - 1)
        # Two turns of TURN_S may pass, and each ends with the request that is being handled.
        assert max(between) <= 4 * (TURN_S / _SPIN_S + 1) + connections
        for client in many:
            assert [(await client.message())[1] for _ in range(each)] == list(range(each))
        assert server.handled == connections * each + asked


@on_both_loops
async def test_connections_of_one_user_are_served_in_turn() -> None:
    server, budget = Server(), UserBudget()
    async with connected(server, budget, budget) as (first, second):
        await first.send(requests("spin", 400))
        await first.message()
        await second.send(requests("spin", 1))
        await second.message()
        assert server.handled < 300


@on_both_loops
async def test_no_answer_is_made_before_the_earlier_ones_are_taken() -> None:
    server, budget = Server(), UserBudget()
    asked = 200
    async with connected(server, budget, budget) as (silent, other):
        await silent.send(requests("big", asked))
        for number in range(10):  # the user's other connection is served all the same
            await other.send(requests("now", 1, number))
            await other.message()
        made = server.handled - 10
        assert made < asked / 10
        assert server.peers[0].unread_bytes() < 3 * 100_100
        assert [(await silent.message())[1] for _ in range(asked)] == list(range(asked))
        await silent.send(requests("now", 1, asked))
        assert (await silent.message())[1] == asked


@on_both_loops
async def test_the_unread_bytes_of_one_user_are_bounded_for_all_connections_together() -> None:
    server, budget = Server(), UserBudget(max_unread_bytes=4_000_000)
    async with connected(server, *[budget] * 20) as clients:
        reader = clients[0]
        for _ in range(10):  # notifications are not asked for, so nothing holds them back
            for peer in list(server.peers):
                peer.notify("news", {"data": b"x" * 100_000})
            await asyncio.sleep(0)
            assert (await reader.message())[1] == "news"
            assert sum(peer.unread_bytes() for peer in server.peers) <= 5_000_000
        assert budget.cut_off
        await reader.send(requests("now", 1))
        assert (await reader.message())[0] == 1


@on_both_loops
async def test_messages_that_do_not_end_are_bounded_for_all_connections_together() -> None:
    server, budget = Server(), UserBudget(max_unfinished_bytes=100_000)
    whole = msgpack.packb([0, 7, "now", [b"x" * 60_000]])
    async with connected(server, budget, budget) as (first, second):
        await first.send(whole[:-10])
        for _ in range(2):  # it has been read when the other connection was served
            await second.send(requests("now", 1))
            await second.message()
        await second.send(whole[:-10])
        kind, method, [error] = await second.message()
        assert (kind, method, error["code"], error["field"]) == (2, "error", "refused", "frame")
        with pytest.raises(EOFError):
            await second.message()
        await first.send(whole[-10:])
        assert (await first.message())[1] == 7
        await first.send(whole)  # ended connections count no more
        assert (await first.message())[1] == 7


@on_both_loops
async def test_requests_that_take_time_are_carried_out_so_many_at_once() -> None:
    server, budget = Server(), UserBudget()
    async with connected(server, budget, budget) as (busy, other):
        await busy.send(requests("later", 1000))
        await other.send(requests("now", 1))
        await other.message()
        await other.send(requests("now", 1))
        await other.message()
        server.free.set()
        assert len([await busy.message() for _ in range(1000)]) == 1000
        assert server.most_at_once <= 64


async def answered(client: Client, number: int) -> None:
    """Ask for something that takes no time, which is answered after all that was sent before."""
    await client.send(requests("now", 1, number))
    async with asyncio.timeout(20):
        while (await client.message())[1] != number:
            pass


@on_both_loops
async def test_the_others_are_read_again_when_a_connection_whose_bytes_waited_is_cut_off(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(shared_peer, "MAX_WAITING_BYTES", 10_000)
    server, budget = Server(), UserBudget()
    async with connected(server, budget, budget) as (busy, other):
        for number in range(64):  # one in each read: all are under way, and none waits
            await busy.send(requests("later", 1, number))
            await answered(other, number)
        await busy.send(msgpack.packb([0, 64, "later", [b"x" * 20_000]]))
        async with asyncio.timeout(20):
            while not budget.paused:  # noqa: ASYNC110 - until the loop has read it, which has no event
                await asyncio.sleep(0)
        server.peers[0].cut_off()
        await answered(other, 64)


def unread_in(sockets: list[Any]) -> int:
    """Return how much of the sent data the kernel has."""
    found = 0
    for each in sockets:
        size = array.array("i", [0])
        fcntl.ioctl(each.fileno(), termios.FIONREAD, size)
        found += size[0]
    return found


class Waiting(Server):
    """Counts the messages that have been read and not handled, whenever it handles one."""

    def __init__(self) -> None:
        super().__init__()
        self.unhandled_bytes = self.most_bytes = 0
        self.sockets: list[Any] = []

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        self.most_bytes = max(self.most_bytes, self.unhandled_bytes - unread_in(self.sockets))
        self.unhandled_bytes -= len(next(iter(msgspec.msgpack.decode(params)), ""))
        return super().request(peer, method, params)


@on_both_loops
async def test_bytes_that_wait_are_bounded_for_all_connections_together() -> None:
    """Each connection has sent one request when the loop looks, and there is no time for all of them in one turn."""
    server, budget = Waiting(), UserBudget()
    each_bytes = 100_000
    connections = 4 * MAX_WAITING_BYTES // each_bytes
    async with connected(server, *[budget] * connections) as clients:
        server.sockets = [peer.get_extra_info("socket") for peer in server.peers]
        data = msgpack.packb([0, 1, "spin", [b"x" * each_bytes]])
        for client in clients:
            assert client.socket.send(data) == len(data), "the kernel took it"
            server.unhandled_bytes += each_bytes
        for client in clients:
            assert (await client.message())[1] == 1
        slack_bytes = len(data) + connections * (len(data) - each_bytes)  # the read beyond the limit; heads
        assert MAX_WAITING_BYTES < server.most_bytes <= MAX_WAITING_BYTES + slack_bytes
        for client in clients:  # all are read again
            await client.send(requests("now", 1, 2))
            assert (await client.message())[1] == 2


@on_both_loops
async def test_a_client_that_leaves_in_the_middle_takes_its_requests_along() -> None:
    server, budget = Server(), UserBudget()
    async with connected(server, budget, budget) as (first, second):
        await first.send(requests("big", 500))
        await second.send(requests("now", 1))
        await second.message()
        first.socket.close()
        await server.keeps(1)
        await second.send(requests("now", 1, 1))
        assert (await second.message())[1] == 1
        assert server.handled < 100

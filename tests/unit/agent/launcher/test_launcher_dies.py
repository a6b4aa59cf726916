"""What the agent's client makes of a launcher that dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator
from dataclasses import astuple

import msgpack
import pytest
import uvloop

from agent.launcher import Exited, Launcher, LauncherGone
from tests.unit.agent.launcher.launcher_bed import TIMEOUT_S

EXITED = Exited("c-1", 3, None, 0.0, 0, 1e9)


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """The client's and the launcher's ends."""
    pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    yield pair
    for one in pair:
        one.close()


class Told:
    """What the client tells, in order."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.lost = asyncio.Event()

    def on_lost(self) -> None:
        self.events.append("lost")
        self.lost.set()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_exits_that_it_had_told_are_heard_though_it_left_a_request_unread(
    sockets: tuple[socket.socket, socket.socket], make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The kernel reports ECONNRESET once before it hands out what was sent; uvloop looks no more than once."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_dies_with_a_request_unread(*sockets))


async def _dies_with_a_request_unread(ours: socket.socket, its: socket.socket) -> None:
    told = Told()
    launcher = Launcher(ours, told.events.append, told.on_lost)
    asking = asyncio.ensure_future(launcher.running())
    await asyncio.sleep(0)
    its.send(msgpack.packb({"exited": astuple(EXITED)}))
    its.close()
    with pytest.raises(LauncherGone) as gone:
        await asyncio.wait_for(asking, TIMEOUT_S)
    assert gone.value.asked, "it may have read it"
    assert told.events == [EXITED, "lost"]
    assert launcher.gone


async def test_what_cannot_be_sent_was_not_asked(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, its = sockets
    told = Told()
    launcher = Launcher(ours, told.events.append, told.on_lost)
    its.send(msgpack.packb({"exited": astuple(EXITED)}))
    its.close()
    for _ in range(2):
        with pytest.raises(LauncherGone) as gone:
            await asyncio.wait_for(launcher.running(), TIMEOUT_S)
        assert not gone.value.asked
    assert told.events == [EXITED, "lost"]

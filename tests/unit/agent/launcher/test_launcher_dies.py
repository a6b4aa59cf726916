"""The reaction of the agent's client to a launcher that dies."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable, Iterator

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


class Notifications:
    """The client's notifications, in order."""

    def __init__(self) -> None:
        self.events: list[object] = []
        self.lost = asyncio.Event()

    def on_lost(self) -> None:
        self.events.append("lost")
        self.lost.set()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_exits_that_it_had_reported_are_received_though_it_left_a_request_unread(
    sockets: tuple[socket.socket, socket.socket], make_loop: Callable[[], asyncio.AbstractEventLoop]
) -> None:
    """The kernel reports ECONNRESET once before it hands out received data; uvloop reads no more than once."""
    with asyncio.Runner(loop_factory=make_loop) as runner:
        runner.run(_dies_with_a_request_unread(*sockets))


async def _dies_with_a_request_unread(ours: socket.socket, its: socket.socket) -> None:
    told = Notifications()
    launcher = Launcher(ours, told.events.append, told.on_lost)
    asking = asyncio.ensure_future(launcher.running())
    await asyncio.sleep(0)
    its.send(msgpack.packb({"exited": EXITED}))
    its.close()
    with pytest.raises(LauncherGone) as gone:
        await asyncio.wait_for(asking, TIMEOUT_S)
    assert gone.value.asked, "it may have read it"
    assert told.events == [EXITED, "lost"]
    assert launcher.gone


async def test_a_request_that_cannot_be_sent_was_not_made(sockets: tuple[socket.socket, socket.socket]) -> None:
    ours, its = sockets
    told = Notifications()
    launcher = Launcher(ours, told.events.append, told.on_lost)
    its.send(msgpack.packb({"exited": EXITED}))
    its.close()
    for _ in range(2):
        with pytest.raises(LauncherGone) as gone:
            await asyncio.wait_for(launcher.running(), TIMEOUT_S)
        assert not gone.value.asked
    assert told.events == [EXITED, "lost"]

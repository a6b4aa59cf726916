"""A command that the agent runs in a cgroup of its own, as its client sees it."""

from __future__ import annotations

import asyncio

from penstock.client.errors import AgentUnavailable
from penstock.client.link import Link
from penstock.model.container import Ended, EndedBy, Limits
from penstock.model.profile import Profile
from penstock.transport.peer import RpcPeer
from penstock.wire.agent_api import (
    ContainerRef,
    Done,
    Follow,
    Output,
    ReadOutput,
    Resize,
    Resized,
    SignalContainer,
)
from penstock.wire.errors import RpcError


class Container:
    """Made by :meth:`AgentClient.launch`, :meth:`AgentClient.adopt` and :meth:`AgentClient.attach`.

    ``not_enforced`` maps each requested limit that this host cannot enforce to the reason and the remedy. ``pid`` is 0
    for a container that was only attached to.
    """

    def __init__(self, link: Link, container: str, pid: int = 0, not_enforced: dict[str, str] | None = None) -> None:
        self.id = container
        self.pid = pid
        self.not_enforced = not_enforced or {}
        self._link = link
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Ended:
        """How it ended; survives restarts of the agent.

        Raises:
            AgentUnavailable: the agent went away for longer than ``reconnect_s``.
        """
        return await asyncio.shield(self._ended)

    async def signal(self, number: int) -> None:
        """Send a signal to its first process and that one's process group."""
        await self._link.call("signal", lambda: SignalContainer(container=self.id, signal=number), Done)

    async def kill(self) -> None:
        """Kill everything in it; ``wait`` then says ``cancelled``."""
        await self._link.call("kill", lambda: ContainerRef(container=self.id), Done)

    async def resize(self, *, strict: bool = False, **limits: float | str | None) -> Limits:
        """Change limits by their name (:class:`Limits`); None takes one away, those that are not named stay.

        Returns once the kernel has them; ``not_enforced`` then says what it has not. ``strict``: where the host cannot
        enforce one of them nothing is changed, and that is an error.

        Raises:
            RpcError: no such limit or not such a value; or the container has ended.
        """
        asked = Resize(container=self.id, limits=dict(limits), strict=strict)
        answer = await self._link.call("resize", lambda: asked, Resized)
        self.not_enforced = answer.not_enforced
        return answer.limits

    async def follow(self, profile: Profile | None, *, strict: bool = False) -> None:
        """Let its limits follow a profile from now on; None: no longer.

        ``strict``: where the host cannot enforce one of them nothing is changed, and that is an error.

        Raises:
            RpcError: the container has ended.
        """
        asked = Follow(container=self.id, profile=profile, strict=strict)
        await self._link.call("follow", lambda: asked, Done)

    async def output(self, stream: str = "stdout") -> bytes:
        """What it wrote so far and the agent still has (``stdout`` or ``stderr``); not for passed descriptors."""
        data = bytearray()
        offset = 0
        while True:
            part = await self.read(stream, offset)
            data += part.data
            offset = part.offset + len(part.data)
            if not part.data or offset >= part.size:
                return bytes(data)

    async def read(self, stream: str = "stdout", offset: int = 0) -> Output:
        """A part of what it wrote, from ``offset`` bytes on; none (``data`` is empty) where that is all so far.

        The answer's ``offset`` lies behind the asked one where the agent does not have the bytes between any more.
        """
        asked = ReadOutput(container=self.id, stream=stream, offset=offset)
        return await self._link.call("output", lambda: asked, Output)

    # ------------------------------------------------------------ the client's side

    async def relink(self, peer: RpcPeer) -> None:
        """Ask a restarted agent to report this container's end to us again."""
        if self._ended.done():
            return
        try:
            await peer.request("attach", ContainerRef(container=self.id), Done)
        except RpcError as error:
            self.end(Ended(by=EndedBy.LOST, reason=f"the agent was restarted and does not know it: {error}"))

    def end(self, ended: Ended) -> None:
        """It ended; further reports are ignored."""
        if not self._ended.done():
            self._ended.set_result(ended)

    def fail(self, error: AgentUnavailable) -> None:
        """Nobody will ever say how it ended."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # whoever does not wait need not hear of it

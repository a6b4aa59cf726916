"""Client-side handle of a container."""

from __future__ import annotations

import asyncio

from penstock.client.errors import AgentUnavailable, lost_at_restart
from penstock.client.link import Link, ask_over
from penstock.client.requests import whole_output
from penstock.model.container import Ended, Limits
from penstock.model.profile import Profile
from penstock.transport.peer import RpcPeer
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Attach, ContainerRef, Follow, Output, ReadOutput, Resize, SignalContainer
from penstock.wire.errors import RpcError


class Container:
    """A container from :meth:`AgentClient.launch`, :meth:`AgentClient.adopt` or :meth:`AgentClient.attach`.

    ``not_enforced`` maps each requested limit that this host cannot enforce to the reason and the remedy. ``pid`` is 0
    after :meth:`AgentClient.attach`.
    """

    def __init__(
        self,
        link: Link,
        container: str,
        pid: int = 0,
        not_enforced: dict[str, str] | None = None,
        *,
        own: bool = True,
    ) -> None:
        """``own``: it was started by this client, and ends with its connection."""
        self.id = container
        self._own = own
        self.pid = pid
        self.not_enforced = not_enforced or {}
        self._link = link
        self._ended: asyncio.Future[Ended] = asyncio.get_running_loop().create_future()

    async def wait(self) -> Ended:
        """Wait for the container's end, across restarts of the agent, and return its cause.

        Raises:
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        return await asyncio.shield(self._ended)

    async def signal(self, number: int) -> None:
        """Send a signal to the container's first process and its process group."""
        await self._link.ask(m.SIGNAL, SignalContainer(container=self.id, signal=number))

    async def kill(self) -> None:
        """Kill all processes in the container; :meth:`wait` then returns ``cancelled``."""
        await self._link.ask(m.KILL, ContainerRef(container=self.id))

    async def resize(self, /, *, strict: bool = False, **limits: float | str | None) -> Limits:
        """Change limits by name (:class:`Limits`). None removes a limit; limits that are not named stay.

        Returns when the kernel has the new limits; ``not_enforced`` then lists those that the host cannot enforce. With
        ``strict``, such a limit is an error and nothing is changed.

        Raises:
            RpcError: unknown limit, invalid value, or the container has ended.
        """
        answer = await self._link.ask(m.RESIZE, Resize(container=self.id, limits=dict(limits), strict=strict))
        self.not_enforced = answer.not_enforced
        return answer.limits

    async def follow(self, profile: Profile | None, *, strict: bool = False) -> None:
        """Make the limits follow a profile from now on; None stops that.

        With ``strict``, a limit that the host cannot enforce is an error and nothing is changed.

        Raises:
            RpcError: the container has ended.
        """
        await self._link.ask(m.FOLLOW, Follow(container=self.id, profile=profile, strict=strict))

    async def output(self, stream: str = "stdout") -> bytes:
        """Return the output (``stdout`` or ``stderr``) that the agent still stores; empty for passed descriptors."""
        return await whole_output(self._link, self.id, stream)

    async def read(self, stream: str = "stdout", offset: int = 0) -> Output:
        """Return a part of the output from ``offset`` bytes on; ``data`` is empty at the current end.

        The answer's ``offset`` is larger than the requested one where the agent has dropped the bytes between them.
        """
        return await self._link.ask(m.OUTPUT, ReadOutput(container=self.id, stream=stream, offset=offset))

    # ------------------------------------------------------------ the client's side

    async def relink(self, peer: RpcPeer) -> None:
        """Subscribe to this container's end at a restarted agent."""
        if self._ended.done():
            return
        try:
            await ask_over(peer, m.ATTACH, Attach(container=self.id, own=self._own))
        except RpcError as error:
            self.end(lost_at_restart(error))

    def end(self, ended: Ended) -> None:
        """Record the end; ignore later reports."""
        if not self._ended.done():
            self._ended.set_result(ended)

    def fail(self, error: AgentUnavailable) -> None:
        """Fail the waiters: the end will never be reported."""
        if not self._ended.done():
            self._ended.set_exception(error)
            self._ended.exception()  # avoids asyncio's warning where no caller waits

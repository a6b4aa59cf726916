"""Carries out what the node's core decides. Every event of the daemon goes through :meth:`Shell.dispatch`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from typing import Protocol

import structlog

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.executor import Executor
from agent.journal import Journal
from penstock.transport import RpcPeer
from penstock.wire.agent_api import Grants, Launched, Params
from penstock.wire.errors import unavailable

log = structlog.get_logger()


class MasterLink(Protocol):
    """Where relays to the master go."""

    def tell(self, method: str, params: Params) -> None:
        """Send in order; what the core keeps anyway need not be kept while the master is away."""


class Shell:
    """The thin I/O around :class:`agent.core.node.Node`."""

    def __init__(self, node: Node, journal: Journal, executor: Executor) -> None:
        self.node = node
        self.peers: dict[int, RpcPeer] = {}
        self.link: MasterLink | None = None
        self.events: deque[dict[str, object]] = deque(maxlen=500)  # what was done, and why: bounded
        self._journal = journal
        self._executor = executor
        self._launching: dict[str, asyncio.Future[Launched]] = {}
        executor.on_event = self.dispatch

    def dispatch(self, event: e.Event) -> object:
        """Decide and carry out; returns the reply, if the event was a request.

        Raises:
            RpcError: the request is at fault or refused.
        """
        reply: object = None
        for instruction in self.node.handle(event, time.monotonic()):
            match instruction:
                case i.Grant(session, job, ids):
                    peer = self.peers.get(session)
                    if peer is not None:
                        peer.notify("grant", Grants(job=job, ids=ids))
                case i.Reply(result):
                    reply = result
                case _:
                    self._carry_out(instruction)
        if self._launching:  # rarely: most events are monotasks
            self._settle_launches(event)
        return reply

    def _carry_out(self, instruction: i.Instruction) -> None:
        match instruction:
            case i.Notify(session, method, params):
                peer = self.peers.get(session)
                if peer is not None:
                    peer.notify(method, params)
            case i.TellMaster(method, params):
                if self.link is not None:
                    self.link.tell(method, params)
            case i.Record(room, key, value):
                self._journal.write(room, key, value)
            case i.StartContainer():
                self._executor.start(instruction)
            case i.KillContainer(container, reason):
                self.note("kill", container=container, why=reason)
                self._executor.kill(container)
            case i.SetClass(container, limits, opportunistic):
                self.note("promoted", container=container)
                self._executor.set_class(container, limits, opportunistic=opportunistic)
            case i.RemoveContainer(container):
                self._executor.remove(container)
            case i.Explain(what, facts):
                self.note(what, **facts)

    def note(self, what: str, **facts: object) -> None:
        """Keep and log an action: who, why, which numbers."""
        self.events.append({"at": time.time(), "what": what, **facts})
        log.info(what, **facts)

    async def launch(self, event: e.LaunchRequested) -> Launched:
        """Start a command and wait until it runs.

        Raises:
            RpcError: refused by the node, or not startable (the message says which step failed).
        """
        container = self.dispatch(event)
        assert isinstance(container, str)
        future: asyncio.Future[Launched] = asyncio.get_running_loop().create_future()
        self._launching[container] = future
        return await future

    def _settle_launches(self, event: e.Event) -> None:
        """Answer the request that waits for a start."""
        match event:
            case e.ContainerStarted(container, pid, not_enforced):
                future = self._launching.pop(container, None)
                if future is not None and not future.done():
                    future.set_result(Launched(container=container, pid=pid, not_enforced=not_enforced))
            case e.ContainerNotStarted(container, message):
                future = self._launching.pop(container, None)
                if future is not None and not future.done():
                    future.set_exception(unavailable(message))

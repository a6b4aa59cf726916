"""A gate's connection: an :class:`AgentClient` that is made anew for ever, and tells when it is up and when not."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock import paths
from penstock.client.agent import AgentClient
from penstock.client.errors import AgentUnavailable, JobCancelled
from penstock.client.job import Job
from penstock.transport.peer import RpcPeer
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.jobs_api import LeaveJob

_BACKOFF_S = (0.02, 1.0)  # first and longest pause between two attempts
_REGISTER_S = 10.0
#: An agent that answers so would answer the same later.
_REFUSALS = frozenset({ErrorCode.BAD_REQUEST, ErrorCode.REFUSED})
#: Processes in which it was said that they are not ranked.
_SAID: set[int] = set()


class Watcher(Protocol):
    """Who wants to know."""

    def linked(self, job: Job) -> None:
        """The agent is there, knows the job, and was told what the job still has queued and granted."""

    def unlinked(self, reason: str) -> None:
        """The agent is away; what the job has queued and granted will be announced when it is back."""

    def forgotten(self, reason: str) -> None:
        """What the job had queued and granted is lost; another job follows with ``linked``."""

    def cancelled(self, error: Exception) -> None:
        """Somebody cancelled the job; nothing follows."""


class _Client(AgentClient):
    """Tells its link what the connection does."""

    link: GateLink | None = None

    async def relink(self, peer: RpcPeer) -> None:
        """Called by the connection."""
        await super().relink(peer)
        if self.link is not None and not peer.closed:
            self.link.relinked(self)

    def unlinked(self) -> None:
        """Called by the connection."""
        super().unlinked()
        if self.link is not None:
            self.link.unlinked(self)

    def failed(self, error: AgentUnavailable) -> None:
        """Called by the connection."""
        super().failed(error)
        if self.link is not None:
            self.link.lost(self, str(error))

    def notified(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the connection."""
        super().notified(peer, method, params)
        if method == "job_cancelled" and self.link is not None:
            self.link.cancelled()

    def leave(self, job: Job, merged_into: str) -> None:
        """Say that this connection is about to close, and has nothing more to do for a job."""
        peer = self._link.peer()
        if peer is not None and not job.over:
            peer.notify("leave_job", LeaveJob(job=job.id, merged_into=merged_into))

    def descriptor(self) -> int | None:
        """Of the connection, while it is up."""
        peer = self._link.peer()
        sock = None if peer is None else peer.get_extra_info("socket")
        return None if sock is None else int(sock.fileno())


@dataclass(frozen=True)
class Setup:
    """What a gate was made with; see :class:`penstock.client.gate.Gate`."""

    name: str
    socket: Path | None
    job: str
    priority: float
    memory_bytes: int
    patience_s: float
    warn: Callable[[str], object]
    lend: int | None = None


class GateLink:
    """One job at the agent of this host, in one connection at a time."""

    def __init__(self, setup: Setup, watcher: Watcher) -> None:
        self._setup = setup
        self._watcher = watcher
        self._lending: asyncio.Task[None] | None = None
        self._client: _Client | None = None
        self._job: Job | None = None
        self._lost = asyncio.Event()
        #: What is said of the job when the connection closes: the job in which its work goes on, "" where it is done;
        #: None: nothing.
        self.left: str | None = None
        #: Whether the agent refused the job when it was last asked: an agent that is slow or away has refused nothing.
        self.refused = False

    @property
    def where(self) -> Path:
        """The agent's socket."""
        return self._setup.socket or paths.agent_socket()

    @property
    def up(self) -> bool:
        """Whether the connection stands."""
        return self._client is not None and self._client.descriptor() is not None

    async def keep(self) -> None:
        """Connect, register, and do so again whenever that is lost for good; until cancelled."""
        first, longest = _BACKOFF_S
        pause = first
        while True:
            self._lost.clear()
            try:
                async with asyncio.timeout(None) as limit:
                    await self._connect(limit)
                pause = first
                await self._lost.wait()
            except (AgentUnavailable, RpcError, TimeoutError) as error:
                self.refused = isinstance(error, RpcError) and error.code in _REFUSALS
                self._watcher.unlinked(self._explained(error))
            except Exception as error:  # noqa: BLE001 - whatever is wrong with the agent, the gate fails open
                self._watcher.unlinked(f"no use of the agent at {self.where}: {type(error).__name__}: {error}")
            finally:
                await self._close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def lost_for_good(self, reason: str) -> None:
        """The job is of no use any more: begin anew."""
        if self._job is not None:
            self._job = None
            self._lost.set()
            self._watcher.forgotten(reason)

    def disown(self) -> None:
        """In a child after a fork: the connection is the parent's alone, so that its end is seen when that one ends."""
        descriptor = None if self._client is None else self._client.descriptor()
        if descriptor is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # not close(): the object that owns the number would close another's later
            os.close(null)

    # ------------------------------------------------------------ told by the client

    def relinked(self, client: _Client) -> None:
        """The agent is back."""
        job = self._job
        if client is not self._client or job is None:
            return
        if job.over:
            self.lost_for_good(f"the agent at {self.where} does not know the job any more")
        else:
            self._watcher.linked(job)
            self._lend(client, job)

    def unlinked(self, client: _Client) -> None:
        """The connection broke."""
        if client is self._client and self._job is not None:
            self._watcher.unlinked(f"the agent at {self.where} is gone; start it again with `penstock up`")

    def cancelled(self) -> None:
        """Somebody cancelled a job."""
        if self._job is not None and isinstance(self._job.failure, JobCancelled):
            self._watcher.cancelled(self._job.failure)

    def lost(self, client: _Client, reason: str) -> None:
        """The connection will not come back."""
        if client is self._client:
            self.lost_for_good(reason)

    # ------------------------------------------------------------ inside

    async def _connect(self, limit: asyncio.Timeout) -> None:
        setup = self._setup
        client = await _Client.connect(self.where, client=setup.name, reconnect_s=math.inf)
        self._client = client
        client.link = self
        limit.reschedule(asyncio.get_running_loop().time() + _REGISTER_S)
        job = await client.register_job(
            setup.name, memory_bytes=setup.memory_bytes, priority=setup.priority, job=setup.job
        )
        self._job, self.refused = job, False
        if self.up:  # else it broke in this very moment, and `relinked` follows
            self._watcher.linked(job)
            self._lend(client, job)

    def _lend(self, client: _Client, job: Job) -> None:
        """Nobody waits for it: work need not be ranked to be done."""
        if self._setup.lend is not None:
            self._lending = asyncio.get_running_loop().create_task(self._lend_process(client, job, self._setup.lend))

    async def _lend_process(self, client: _Client, job: Job, pid: int) -> None:
        try:
            await client.lend(job.id, pid)
        except (RpcError, AgentUnavailable) as error:
            if client is self._client and not job.over:
                self._say_unranked(str(error))

    def _say_unranked(self, why: str) -> None:
        """Once for all gates of the process."""
        if os.getpid() in _SAID:
            return
        _SAID.add(os.getpid())
        text = f"the processes of {self._setup.name!r} are not ranked with their job, and work goes on: {why}"
        with contextlib.suppress(Exception):  # a filter made an error of the warning
            self._setup.warn(text)

    async def _close(self) -> None:
        if self._lending is not None:
            self._lending.cancel()
        client, self._client = self._client, None
        job, self._job = self._job, None
        if client is not None:
            if job is not None and self.left is not None:
                client.leave(job, self.left)
            with contextlib.suppress(Exception):
                await client.close()

    def _explained(self, error: Exception) -> str:
        if isinstance(error, TimeoutError):
            return f"the agent at {self.where} does not answer; see its log, or restart it"
        return str(error) if isinstance(error, AgentUnavailable) else f"the agent at {self.where} refuses: {error}"

"""A gate's connection: an :class:`AgentClient` that is replaced whenever it is lost, and reports its state."""

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
#: Error codes that a retry would not change.
_REFUSALS = frozenset({ErrorCode.BAD_REQUEST, ErrorCode.REFUSED})
#: Pids of processes that were already warned that they are not ranked.
_WARNED: set[int] = set()


class Watcher(Protocol):
    """Receives the changes of a gate's connection."""

    def linked(self, job: Job) -> None:
        """The agent is connected, knows the job and has all its queued and granted monotasks."""

    def unlinked(self, reason: str) -> None:
        """The agent is away; the job's monotasks will be announced when it is back."""

    def forgotten(self, reason: str) -> None:
        """The job's queued and granted monotasks are lost; ``linked`` follows with another job."""

    def cancelled(self, error: Exception) -> None:
        """The job was cancelled; no call follows."""


class _Client(AgentClient):
    """Forwards the connection's events to the link."""

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
        """Tell the agent that this connection is about to close and has finished with a job."""
        peer = self._link.peer()
        if peer is not None and not job.over:
            peer.notify("leave_job", LeaveJob(job=job.id, merged_into=merged_into))

    def descriptor(self) -> int | None:
        """Return the connection's descriptor while it is up."""
        peer = self._link.peer()
        sock = None if peer is None else peer.get_extra_info("socket")
        return None if sock is None else int(sock.fileno())


@dataclass(frozen=True)
class GateArguments:
    """The arguments of a gate; see :class:`penstock.client.gate.Gate`."""

    name: str
    socket: Path | None
    job: str
    priority: float
    memory_bytes: int
    patience_s: float
    warn: Callable[[str], object]
    lend: int | None = None


class GateLink:
    """One job at this host's agent, over one connection at a time."""

    def __init__(self, arguments: GateArguments, watcher: Watcher) -> None:
        self._arguments = arguments
        self._watcher = watcher
        self._lending: asyncio.Task[None] | None = None
        self._client: _Client | None = None
        self._job: Job | None = None
        self._lost = asyncio.Event()
        #: Sent when the connection closes: the job that continues this job's work, "" for a job that is done; None:
        #: nothing.
        self.left: str | None = None
        #: Whether the agent refused the job at the last attempt; a slow or absent agent has refused nothing.
        self.refused = False

    @property
    def where(self) -> Path:
        """The agent's socket."""
        return self._arguments.socket or paths.agent_socket()

    @property
    def up(self) -> bool:
        """Whether the connection is up."""
        return self._client is not None and self._client.descriptor() is not None

    async def keep(self) -> None:
        """Connect and register, again after each final loss; runs until cancelled."""
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
            except Exception as error:  # noqa: BLE001 - the gate fails open on any defect of the agent
                self._watcher.unlinked(f"no use of the agent at {self.where}: {type(error).__name__}: {error}")
            finally:
                await self._close()
            await asyncio.sleep(pause)
            pause = min(2 * pause, longest)

    def lost_for_good(self, reason: str) -> None:
        """Give the job up and start again with a new one."""
        if self._job is not None:
            self._job = None
            self._lost.set()
            self._watcher.forgotten(reason)

    def disown(self) -> None:
        """Close a forked child's copy of the connection, so that its end is seen when the parent exits."""
        descriptor = None if self._client is None else self._client.descriptor()
        if descriptor is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # not close(): the socket object would later close a reused number
            os.close(null)

    # ------------------------------------------------------------ called by the client

    def relinked(self, client: _Client) -> None:
        """Handle a restored connection."""
        job = self._job
        if client is not self._client or job is None:
            return
        if job.over:
            self.lost_for_good(f"the agent at {self.where} does not know the job any more")
        else:
            self._watcher.linked(job)
            self._lend(client, job)

    def unlinked(self, client: _Client) -> None:
        """Handle a broken connection."""
        if client is self._client and self._job is not None:
            self._watcher.unlinked(f"the agent at {self.where} is gone; start it again with `penstock up`")

    def cancelled(self) -> None:
        """Handle the cancellation of a job."""
        if self._job is not None and isinstance(self._job.failure, JobCancelled):
            self._watcher.cancelled(self._job.failure)

    def lost(self, client: _Client, reason: str) -> None:
        """Handle a connection that will not be restored."""
        if client is self._client:
            self.lost_for_good(reason)

    # ------------------------------------------------------------ inside

    async def _connect(self, limit: asyncio.Timeout) -> None:
        arguments = self._arguments
        client = await _Client.connect(self.where, client=arguments.name, reconnect_s=math.inf)
        self._client = client
        client.link = self
        limit.reschedule(asyncio.get_running_loop().time() + _REGISTER_S)
        job = await client.register_job(
            arguments.name, memory_bytes=arguments.memory_bytes, priority=arguments.priority, job=arguments.job
        )
        self._job, self.refused = job, False
        if self.up:  # otherwise it broke just now, and `relinked` follows
            self._watcher.linked(job)
            self._lend(client, job)

    def _lend(self, client: _Client, job: Job) -> None:
        """Start lending the process; work does not wait for it, as it need not be ranked to run."""
        if self._arguments.lend is not None:
            self._lending = asyncio.get_running_loop().create_task(
                self._lend_process(client, job, self._arguments.lend)
            )

    async def _lend_process(self, client: _Client, job: Job, pid: int) -> None:
        try:
            await client.lend(job.id, pid)
        except (RpcError, AgentUnavailable) as error:
            if client is self._client and not job.over:
                self._warn_unranked(str(error))

    def _warn_unranked(self, why: str) -> None:
        """Warn once for all gates of the process."""
        if os.getpid() in _WARNED:
            return
        _WARNED.add(os.getpid())
        text = f"the processes of {self._arguments.name!r} are not ranked with their job, and work goes on: {why}"
        with contextlib.suppress(Exception):  # a warnings filter may raise
            self._arguments.warn(text)

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

"""A gate's connection: an :class:`AgentClient` that is replaced whenever it is lost, and reports its state."""

from __future__ import annotations

import asyncio
import contextlib
import math
import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from penstock import paths
from penstock.client.agent import AgentClient
from penstock.client.errors import AgentUnavailable, JobCancelled
from penstock.client.greeting import pauses_s, unavailable
from penstock.client.job import Job
from penstock.client.monotask_session import MonotaskSession
from penstock.wire.errors import ErrorCode, RpcError

_REGISTER_S = 10.0
#: Error codes that a retry would not change.
_REFUSALS = frozenset({ErrorCode.BAD_REQUEST, ErrorCode.REFUSED})
#: Pids of processes that were already warned that they are not ranked.
_WARNED: set[int] = set()


def warn_always(text: str) -> None:
    """Warn at every outage: Python's registry would show the same text only once."""
    warnings.warn_explicit(text, RuntimeWarning, __file__, 0, module=__name__, registry={})


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
    rank: bool
    process: int


class GateLink:
    """One job at this host's agent, over one connection at a time; ``monotasks`` outlive job and connection."""

    def __init__(self, arguments: GateArguments, watcher: Watcher, monotasks: MonotaskSession[Any]) -> None:
        self._arguments = arguments
        self._watcher = watcher
        self._monotasks = monotasks
        self._ranked_job = ""  # the job with which the process is ranked by :meth:`lend`
        self._lending: asyncio.Task[None] | None = None
        self._client: AgentClient | None = None
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
        pauses = pauses_s()
        while True:
            self._lost.clear()
            try:
                async with asyncio.timeout(None) as limit:
                    await self._connect(limit)
                pauses = pauses_s()
                await self._lost.wait()
            except (AgentUnavailable, RpcError, TimeoutError) as error:
                self.refused = isinstance(error, RpcError) and error.code in _REFUSALS
                known = isinstance(error, AgentUnavailable)
                self._watcher.unlinked(str(error if known else unavailable(str(self.where), error)))
            except Exception as error:  # noqa: BLE001 - the gate fails open on any defect of the agent
                self._watcher.unlinked(f"no use of the agent at {self.where}: {type(error).__name__}: {error}")
            finally:
                await self._close()
            await asyncio.sleep(next(pauses))

    def lend(self) -> None:
        """Let the agent rank the process with the present job, also when the connection is back."""
        if self._job is not None and self._ranked_job != self._job.id:
            self._ranked_job = self._job.id
            if self.up and self._client is not None:
                self._lend_to(self._client, self._job)

    def disown(self) -> None:
        """Close a forked child's copy of the connection, so that its end is seen when the parent exits."""
        descriptor = None if self._client is None else self._client.descriptor()
        if descriptor is not None:
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, descriptor)  # not close(): the socket object would later close a reused number
            os.close(null)

    # ------------------------------------------------------------ inside

    async def _connect(self, limit: asyncio.Timeout) -> None:
        arguments = self._arguments
        client = await AgentClient.connect(self.where, client=arguments.name, reconnect_s=math.inf)
        self._client = client
        client.on_link = self._link_changed
        limit.reschedule(asyncio.get_running_loop().time() + _REGISTER_S)
        job = await client.register_job(
            arguments.name,
            memory_bytes=arguments.memory_bytes,
            priority=arguments.priority,
            job=arguments.job,
            monotasks=self._monotasks,
        )
        self._job, self.refused = job, False
        job.on_over = self._job_is_over
        if job.over:  # cancelled just now
            self._job_is_over(job.failure)
        elif self.up:  # otherwise it broke just now, and `_link_changed` follows
            self._is_linked(client, job)

    def _link_changed(self, up: bool) -> None:
        """Called by the client: the connection is lost, or restored with the job registered again."""
        if self._client is None or self._job is None or self._job.over:  # over: cancelled, which the watcher knows
            return
        if up:
            self._is_linked(self._client, self._job)
        else:
            self._watcher.unlinked(f"the agent at {self.where} is gone; start it again with `penstock up`")

    def _is_linked(self, client: AgentClient, job: Job) -> None:
        self._watcher.linked(job)
        self._lend_to(client, job)

    def _lend_to(self, client: AgentClient, job: Job) -> None:
        if self._arguments.rank or job.id == self._ranked_job:
            # Work does not wait for it, as it need not be ranked to run.
            self._lending = asyncio.get_running_loop().create_task(self._lend_process(client, job))

    def _job_is_over(self, error: Exception | None) -> None:
        """Called by the job: it was cancelled, or is given up for a new one."""
        if self._job is None:  # closed here
            return
        if isinstance(error, JobCancelled):
            self._watcher.cancelled(error)
            return
        self._job = None
        self._lost.set()
        refused = isinstance(error, RpcError)
        self._watcher.forgotten(f"the agent at {self.where} does not know the job any more" if refused else str(error))

    async def _lend_process(self, client: AgentClient, job: Job) -> None:
        try:
            await client.lend(job.id, self._arguments.process)
        except (RpcError, AgentUnavailable) as error:
            if client is not self._client or job.over or os.getpid() in _WARNED:
                return
            _WARNED.add(os.getpid())  # once for all gates of the process
            who = f"the processes of {self._arguments.name!r}"
            with contextlib.suppress(Exception):  # a warnings filter may raise
                self._arguments.warn(f"{who} are not ranked with their job, and work goes on: {error}")

    async def _close(self) -> None:
        if self._lending is not None:
            self._lending.cancel()
        client, self._client = self._client, None
        job, self._job = self._job, None
        if client is not None:
            if job is not None and self.left is not None:
                job.leave(self.left)
            with contextlib.suppress(Exception):
                await client.close()

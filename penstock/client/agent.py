"""asyncio client of the host's agent."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Self

import msgspec

from penstock import paths
from penstock.client import arguments
from penstock.client.container import Container
from penstock.client.errors import LOST_WHILE_ADOPTING, LOST_WHILE_STARTING, AgentUnavailable
from penstock.client.job import Job
from penstock.client.link import Link
from penstock.client.monotask_session import MonotaskSession
from penstock.client.requests import Requests
from penstock.client.stdio import pass_stdio
from penstock.model.container import ContainerSpec
from penstock.model.work import OpportunisticJob
from penstock.transport.peer import RpcPeer
from penstock.wire import agent_api as api
from penstock.wire import agent_methods as m
from penstock.wire.connection import read_params
from penstock.wire.jobs_api import Lend


class AgentClient(Requests):
    """A connection to the agent, made by :meth:`connect` and usable until :meth:`close`, across restarts of the agent.

    When the connection is lost, the client reconnects with back-off, rejoins its jobs, resubmits queued monotasks,
    announces granted ones and re-attaches to its containers. Pending awaits continue; they fail with
    :class:`AgentUnavailable` only if the client cannot reconnect within ``reconnect_s`` seconds.
    """

    def __init__(self, socket: Path, client: str, reconnect_s: float) -> None:
        self.socket = socket
        self._loop = asyncio.get_running_loop()
        self._link = Link(socket, client, self, reconnect_s=reconnect_s)
        #: Called with False when the connection is lost, and with True when it is restored.
        self.on_link: Callable[[bool], None] | None = None
        self._linked = True
        self._jobs: dict[str, Job] = {}
        super().__init__(self._link)
        self._containers: dict[str, Container] = {}
        self._dirty: dict[Job, None] = {}
        self._flush_scheduled = False
        self._expecting = 0  # pending calls whose answer names a new job or container
        self._early: list[api.Params] = []  # notifications that arrived before that answer

    @classmethod
    async def connect(cls, socket: Path | None = None, client: str = "python", reconnect_s: float = 30.0) -> Self:
        """Connect to the agent of this host and exchange the greeting.

        Raises:
            AgentUnavailable: there is no usable agent; the message is one line with the cause and the remedy.
            TypeError, ValueError: ``reconnect_s`` is not a number of seconds.
        """
        self = cls(socket or paths.agent_socket(), client, arguments.duration_s("reconnect_s", reconnect_s))
        await self._link.start()
        return self

    @property
    def welcome(self) -> api.Welcome:
        """The answer of the present agent, or of the last one, to the greeting."""
        return self._link.welcome

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def register_job(
        self,
        name: str,
        memory_bytes: int = 0,
        priority: float = 0.0,
        job: str = "",
        opportunistic: OpportunisticJob = None,
        reservation: str = "",
        on_waiting: Callable[[api.JobWaiting], object] | None = None,
        monotasks: MonotaskSession[Any] | None = None,
    ) -> Job:
        """Register a job, or join the job with id ``job`` that another process of the same user registered.

        ``memory_bytes`` estimates the memory of the whole job; the master admits the job by it (Ursa §4.2.1).
        ``opportunistic`` selects the tasks that may run on slack: ``False`` none, ``True`` all, ``"only"`` all and only
        on slack, a list the named stages (UBIS §IV.D), ``None`` those of each :meth:`Job.place` that asks for it.
        ``reservation`` runs the job as a production job in a reservation of this user (:meth:`reserve`). ``on_waiting``
        is called with the reason why the job is not admitted yet, also if that arrives with the answer. ``monotasks``
        is a session that outlives the job (:class:`~penstock.client.gate.Gate`).

        Raises:
            RpcError: the agent refused the job.
            TypeError, ValueError: ``memory_bytes`` or ``priority`` is not such a number.
        """
        asked = api.RegisterJob(
            name=name,
            memory_bytes=arguments.size_bytes("memory_bytes", memory_bytes),
            priority=arguments.priority(priority),
            job=job,
            opportunistic=opportunistic,
            reservation=reservation,
        )
        made = Job(self._link, asked, self._wants_flush, monotasks)
        made.on_waiting = on_waiting or made.on_waiting
        with self._expect():
            made.registered(await self._link.call(m.REGISTER_JOB, made.registration))
            self._jobs = {known.id: known for known in self._jobs.values() if not known.over}
            self._jobs[made.id] = made
        return made

    async def launch(self, spec: ContainerSpec, stdio: tuple[int, int, int] | None = None) -> Container:
        """Start a command in a container on this host; ``stdio`` are the descriptors of its standard streams.

        Raises:
            RpcError: the agent refused, or the command could not be started.
            AgentUnavailable: the agent was away too long, or the connection was lost during this call.
        """
        with self._expect():
            if stdio is not None:
                spec = msgspec.structs.replace(spec, stdio=await asyncio.to_thread(pass_stdio, self.socket, stdio))
            return self._made(await self._link.ask_once(m.LAUNCH, api.Launch(container=spec), LOST_WHILE_STARTING))

    async def adopt(self, pid: int, spec: ContainerSpec, *, tree: bool = False) -> Container:
        """Move a running process of this user into a container; with ``tree`` its descendants, too.

        ``spec.argv`` is for display only; ``env``, ``cwd`` and ``stdio`` are ignored. Memory charged before the move
        stays charged to the old cgroup, and the exit status may remain unknown (docs/kernel.md).

        Raises:
            RpcError: the process does not exist, belongs to other users, too, or is already in a container.
            AgentUnavailable: the agent was away too long, or the connection was lost during this call.
        """
        asked = api.Adopt(pid=pid, container=spec, tree=tree)
        with self._expect():
            return self._made(await self._link.ask_once(m.ADOPT, asked, LOST_WHILE_ADOPTING))

    async def lend(self, job: str, pid: int = 0) -> str:
        """Rank a process of this user (0: this one) and its descendants with a job; return their container.

        They may be in that container already. They keep running when the job ends.

        Raises:
            RpcError: they have limits of their own or another user, or the agent does not support the call.
        """
        return (await self._link.ask(m.LEND, Lend(job=job, pid=pid))).container

    async def attach(self, container: str) -> Container:
        """Return an existing container, to wait for its end. It does not end with this connection.

        Raises:
            RpcError: the container is unknown or belongs to another user.
        """
        with self._expect():
            await self._link.ask(m.ATTACH, api.Attach(container=container, own=False))
            return self._containers.setdefault(container, Container(self._link, container, own=False))

    def descriptor(self) -> int | None:
        """Return the connection's descriptor while it is open."""
        peer = self._link.peer()
        sock = None if peer is None else peer.get_extra_info("socket")
        return None if sock is None else int(sock.fileno())

    async def close(self) -> None:
        """Send pending messages and close the connection; the agent takes back all that this connection held."""
        self._flush()
        for job in self._jobs.values():
            job.flush_progress()
        await self._link.close()

    # ------------------------------------------------------------ Owner of the link

    async def relink(self, peer: RpcPeer) -> None:
        """Called by the link."""
        for container in list(self._containers.values()):
            await container.relink(peer)
        with self._expect(peer):  # a job that is registered anew has another id
            for job in list(self._jobs.values()):
                if not job.over:
                    await job.relink(peer)
            self._jobs = {job.id: job for job in self._jobs.values() if not job.over}
        self._loop.call_soon(self._flush)  # sends what was submitted during the outage, once the link is open
        if not peer.closed:
            self._report_link(linked=True)

    def unlinked(self) -> None:
        """Called by the link."""
        for job in self._jobs.values():
            job.unlink()
        self._report_link(linked=False)

    def _report_link(self, *, linked: bool) -> None:
        """Call ``on_link`` on a change only: several attempts to reconnect may fail in a row."""
        if linked != self._linked and self.on_link is not None:
            self.on_link(linked)
        self._linked = linked

    def failed(self, error: AgentUnavailable) -> None:
        """Called by the link."""
        for job in self._jobs.values():
            job.close(error)
        for container in self._containers.values():
            container.fail(error)

    def notified(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the link."""
        if type(params) is api.Grants and (job := self._jobs.get(params.job)) is not None:  # the hot path
            job.grant(params.ids, params.lease_s, params.keep)
        elif (known := m.NOTIFICATIONS.get(method)) is not None:
            self._deliver(peer, read_params(params, known))

    # ------------------------------------------------------------ inside

    def _made(self, answer: api.Launched) -> Container:
        made = Container(self._link, answer.container, answer.pid, answer.not_enforced)
        self._containers[made.id] = made
        return made

    def _deliver(self, peer: RpcPeer | None, params: api.Params) -> None:
        if isinstance(params, api.ContainerEnded):
            if (container := self._containers.pop(params.container, None)) is not None:
                container.end(params.ended)
                return
        elif (job := self._jobs.get(getattr(params, "job", ""))) is not None:
            job.notified(peer, params)
            return
        if self._expecting:
            self._early.append(params)

    @contextlib.contextmanager
    def _expect(self, peer: RpcPeer | None = None) -> Iterator[None]:
        """Hold notifications back until the answer is handled: both may arrive in one read.

        ``peer`` is the connection that they come by, if it is not the link's yet.
        """
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            early, self._early = self._early, []
            for params in early:
                self._deliver(peer or self._link.peer(), params)

    def _wants_flush(self, job: Job, at_once: bool = False) -> None:
        self._dirty[job] = None
        if self._flush_scheduled:
            return
        self._flush_scheduled = True
        self._loop.call_soon(self._flush)
        if at_once:
            self._send()

    def _flush(self) -> None:
        self._flush_scheduled = False
        if self._dirty:
            self._send()

    def _send(self) -> None:
        peer = self._link.peer()
        if peer is None:
            return  # everything live is announced when the link is back
        dirty, self._dirty = self._dirty, {}
        peer.send_together(*(job.send for job in dirty))

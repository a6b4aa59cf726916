"""A framework's end of the connection to its host's agent (asyncio)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from penstock import paths
from penstock.client.container import Container
from penstock.client.errors import LOST_WHILE_STARTING, AgentUnavailable
from penstock.client.job import Job
from penstock.client.jobs import Jobs
from penstock.client.link import Link
from penstock.client.nodes import Nodes
from penstock.client.stdio import pass_stdio
from penstock.model.container import ContainerSpec
from penstock.model.work import OpportunisticJob
from penstock.transport.peer import RpcPeer
from penstock.wire.agent_api import (
    NOTIFICATIONS,
    Adopt,
    ContainerEnded,
    ContainerRef,
    Done,
    Grants,
    JobRegistered,
    JobWaiting,
    Launch,
    Launched,
    Nothing,
    Params,
    RegisterJob,
    Status,
    Welcome,
)
from penstock.wire.config_api import ConfigInForce, ConfigSet, Daemon, SetConfig, ShowConfig
from penstock.wire.connection import read_params
from penstock.wire.jobs_api import NOTIFICATIONS as JOB_NOTIFICATIONS
from penstock.wire.jobs_api import Lend
from penstock.wire.overview_api import ClusterStatus
from penstock.wire.reservation_api import (
    DeleteReservation,
    ListReservations,
    Rdl,
    Reservations,
    Reserve,
    Reserved,
    UpdateReservation,
)

_NOTIFICATIONS = {**NOTIFICATIONS, **JOB_NOTIFICATIONS}


class AgentClient:
    """Use :meth:`connect`; then everything here until :meth:`close`, also across restarts of the agent.

    When the connection is lost, the client reconnects with back-off, joins its jobs again, submits again what was
    queued, announces what was granted and re-attaches to its containers. Whatever a caller awaits goes on waiting; it
    fails with :class:`AgentUnavailable` only when that does not succeed within ``reconnect_s`` seconds.
    """

    welcome: Welcome

    def __init__(self, socket: Path, client: str, reconnect_s: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = Link(socket, client, self, reconnect_s=reconnect_s)
        #: Called when the connection is lost (False), and when it is there again (True).
        self.on_link: Callable[[bool], None] | None = None
        self._linked = True
        self._jobs: dict[str, Job] = {}
        #: All jobs of this user, whoever registered them: to look at, and to cancel.
        self.jobs = Jobs(self._link)
        #: The nodes of the cluster that take work, and those that are drained.
        self.nodes = Nodes(self._link)
        self._containers: dict[str, Container] = {}
        self._dirty: dict[Job, None] = {}
        self._flush_scheduled = False
        self._expecting = 0  # calls on their way whose answer names a job or a container
        self._early: list[Params] = []  # what was said about those before we knew them

    @classmethod
    async def connect(cls, socket: Path | None = None, client: str = "python", reconnect_s: float = 30.0) -> Self:
        """Connect to the agent of this host and say hello.

        Raises:
            AgentUnavailable: one line that says why and what to do.
        """
        self = cls(socket or paths.agent_socket(), client, reconnect_s)
        self.welcome = await self._link.start()
        return self

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def socket(self) -> Path:
        """Where the agent listens."""
        return self._link.socket

    async def register_job(
        self,
        name: str,
        memory_bytes: int = 0,
        priority: float = 0.0,
        job: str = "",
        opportunistic: OpportunisticJob = None,
        reservation: str = "",
        on_waiting: Callable[[JobWaiting], object] | None = None,
    ) -> Job:
        """Register a job, or with ``job`` join one that another process of the same user registered.

        ``memory_bytes`` is the estimate for the whole job, by which the master admits it (Ursa §4.2.1).
        ``opportunistic`` says what of it may run on slack: ``False`` nothing, ``True`` all, ``"only"`` all of it and in
        no regular room, a list the stages that it names (UBIS §IV.D); ``None``: each :meth:`Job.place` says it.
        ``reservation`` makes it a production job of one that the master has promised this user (:meth:`reserve`).
        ``on_waiting`` hears why it is not admitted yet, also where that is said with the answer.

        Raises:
            RpcError: refused.
            AgentUnavailable: the agent went away for good.
        """
        asked = RegisterJob(
            name=name,
            memory_bytes=memory_bytes,
            priority=priority,
            job=job,
            opportunistic=opportunistic,
            reservation=reservation,
        )
        with self._expect():
            answer = await self._link.call("register_job", lambda: asked, JobRegistered)
            made = Job(self._link, asked, answer, self._wants_flush)
            made.on_waiting = on_waiting or made.on_waiting
            self._jobs = {known.id: known for known in self._jobs.values() if not known.over}
            self._jobs[made.id] = made
        return made

    async def launch(self, spec: ContainerSpec, stdio: tuple[int, int, int] | None = None) -> Container:
        """Start a command in a container on this host, now; ``stdio`` are descriptors that it shall use.

        Raises:
            RpcError: refused, or it could not be started.
            AgentUnavailable: the agent went away, for good or in the middle of this call.
        """
        with self._expect():
            try:
                if stdio is not None:
                    spec = msgspec.structs.replace(spec, stdio=await pass_stdio(self.socket, stdio))
                answer = await self._link.call_once("launch", lambda: Launch(container=spec), Launched)
            except ConnectionResetError:
                # Asking again could start it twice.
                raise AgentUnavailable(LOST_WHILE_STARTING) from None
            made = Container(self._link, answer.container, answer.pid, answer.not_enforced)
            self._containers[made.id] = made
        return made

    async def adopt(self, pid: int, spec: ContainerSpec, *, tree: bool = False) -> Container:
        """Take a running process of this user's into a container, with ``tree`` its descendants, too.

        Of ``spec``, ``argv`` is only shown, and ``env``, ``cwd`` and ``stdio`` mean nothing. Memory that it was charged
        for before stays charged where it was; its exit status may stay unknown (docs/kernel.md).

        Raises:
            RpcError: no such process, not this user's alone, or in a container already.
            AgentUnavailable: the agent went away, for good or in the middle of this call.
        """
        asked = Adopt(pid=pid, container=spec, tree=tree)
        with self._expect():
            try:
                answer = await self._link.call_once("adopt", lambda: asked, Launched)
            except ConnectionResetError:
                raise AgentUnavailable(
                    "the agent went away while it was adopting the process; `penstock status` tells whether it did"
                ) from None
            made = Container(self._link, answer.container, answer.pid, answer.not_enforced)
            self._containers[made.id] = made
        return made

    async def lend(self, job: str, pid: int = 0) -> str:
        """Have a process of this user's (0: this one) and its descendants ranked with a job; return the container that
        they are now, or were already. They go on when the job is over.

        Raises:
            RpcError: they cannot be: limits of their own, another user's, an agent that knows no such call.
            AgentUnavailable: the agent went away for good.
        """
        return (await self._link.call("lend", lambda: Lend(job=job, pid=pid), Launched)).container

    async def attach(self, container: str) -> Container:
        """A container that is there already, to wait for its end.

        Raises:
            RpcError: unknown, or not this user's.
            AgentUnavailable: the agent went away for good.
        """
        with self._expect():
            await self._link.call("attach", lambda: ContainerRef(container=container), Done)
            return self._containers.setdefault(container, Container(self._link, container))

    async def status(self) -> dict[str, Any]:
        """The agent's status document (docs/protocol.md lists its keys).

        Raises:
            AgentUnavailable: the agent went away for good.
        """
        return (await self._link.call("status", Nothing, Status)).status

    async def cluster_status(self) -> dict[str, Any]:
        """The master's status document, with the jobs that this user may see (docs/scheduling.md lists its keys).

        Raises:
            RpcError: there is no master, or it is away.
            AgentUnavailable: the agent went away for good.
        """
        return (await self._link.call("cluster_status", ClusterStatus, Status)).status

    async def set_config(self, values: dict[str, str], daemon: Daemon = "agent") -> ConfigSet:
        """Change keys of a daemon that runs, as they are written after ``--set``, until it reads its file again.

        Raises:
            RpcError: ``bad_request`` says everything that is wrong; ``refused``: only operators may.
            AgentUnavailable: the agent went away for good.
        """
        asked = SetConfig(values=values, daemon=daemon)
        return await self._link.call("set_config", lambda: asked, ConfigSet)

    async def show_config(self, daemon: Daemon = "agent") -> ConfigInForce:
        """What is in force in a daemon that runs, and where each value is from.

        Raises:
            RpcError: ``refused``: only operators may.
            AgentUnavailable: the agent went away for good.
        """
        return await self._link.call("show_config", lambda: ShowConfig(daemon=daemon), ConfigInForce)

    async def reserve(self, rdl: Rdl, name: str = "") -> Reserved:
        """Have the cluster promise something ahead of time; the answer says what is promised when (Rayon §5.1).

        Raises:
            RpcError: ``bad_request``: no expression of RDL; ``refused``: it cannot be promised, the line says why.
            AgentUnavailable: the agent went away in the middle of this call.
        """
        asked = Reserve(rdl=rdl, name=name)
        try:
            return await self._link.call_once("reserve", lambda: asked, Reserved)
        except ConnectionResetError:  # asking again could reserve it twice
            raise AgentUnavailable(
                "the agent went away while it was asked; `penstock reservations` tells what was promised"
            ) from None

    async def update_reservation(self, reservation: str, rdl: Rdl) -> Reserved:
        """Have something else promised instead.

        Raises:
            RpcError: as :meth:`reserve`, or it is not this user's; it keeps what it had.
            AgentUnavailable: the agent went away for good.
        """
        return await self._link.call(
            "update_reservation", lambda: UpdateReservation(reservation=reservation, rdl=rdl), Reserved
        )

    async def delete_reservation(self, reservation: str) -> list[Reserved]:
        """Give it back; returns those that this user still has.

        Raises:
            RpcError: there is none, or it is not this user's.
            AgentUnavailable: the agent went away for good.
        """
        asked = DeleteReservation(reservation=reservation)
        return (await self._link.call("delete_reservation", lambda: asked, Reservations)).reservations

    async def reservations(self, *, everybody: bool = False) -> list[Reserved]:
        """What is promised to this user; to operators also everybody's.

        Raises:
            RpcError: not an operator, or there is no master.
            AgentUnavailable: the agent went away for good.
        """
        asked = ListReservations(everybody=everybody)
        return (await self._link.call("reservations", lambda: asked, Reservations)).reservations

    async def reservations_at(self, at: float, *, everybody: bool = False) -> Reservations:
        """Those that are promised something at Unix time ``at``, and what is free from then on.

        Raises:
            RpcError: not an operator, or there is no master.
            AgentUnavailable: the agent went away for good.
        """
        asked = ListReservations(everybody=everybody, at=at)
        return await self._link.call("reservations", lambda: asked, Reservations)

    async def close(self) -> None:
        """Send what has collected and close; the agent takes back what this connection held."""
        self._flush()
        await self._link.close()

    # ------------------------------------------------------------ Owner of the link

    async def relink(self, peer: RpcPeer) -> None:
        """Called by the link."""
        for container in list(self._containers.values()):
            await container.relink(peer)
        for job in list(self._jobs.values()):
            if not job.over:
                await job.relink(peer)
        self._jobs = {job.id: job for job in self._jobs.values() if not job.over}
        self._loop.call_soon(self._flush)  # what was submitted meanwhile, once the link is open
        self._tell(linked=True)

    def unlinked(self) -> None:
        """Called by the link."""
        self._tell(linked=False)
        for job in self._jobs.values():
            job.unlink()

    def _tell(self, *, linked: bool) -> None:
        """Whoever wants to know, once: an attempt to mend the connection may lose it again."""
        if linked != self._linked and self.on_link is not None:
            self.on_link(linked)
        self._linked = linked

    def failed(self, error: AgentUnavailable) -> None:
        """Called by the link."""
        for job in self._jobs.values():
            job.fail(error)
        for container in self._containers.values():
            container.fail(error)

    def notified(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Called by the link."""
        if type(params) is Grants and (job := self._jobs.get(params.job)) is not None:  # the hot path
            job.grant(params.ids, params.lease_s, params.keep)
        elif (kind := _NOTIFICATIONS.get(method)) is not None:
            self._deliver(peer, read_params(params, kind), keep=self._expecting > 0)

    # ------------------------------------------------------------ inside

    def _deliver(self, peer: RpcPeer | None, said: Params, *, keep: bool) -> None:
        if isinstance(said, ContainerEnded):
            if (container := self._containers.pop(said.container, None)) is not None:
                container.end(said.ended)
                return
        elif (job := self._jobs.get(getattr(said, "job", ""))) is not None:
            job.notified(peer, said)
            return
        if keep:
            self._early.append(said)

    @contextlib.contextmanager
    def _expect(self) -> Iterator[None]:
        """An answer and what follows it may be read at once; keep what follows until we have read the answer."""
        self._expecting += 1
        try:
            yield
        finally:
            self._expecting -= 1
            early, self._early = self._early, []
            for said in early:
                self._deliver(self._link.peer(), said, keep=self._expecting > 0)

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
            return  # what lives is announced when the link is back
        dirty, self._dirty = self._dirty, {}
        for job in dirty:
            job.flush(peer)
        peer.flush()

"""A fake agent behind a real socket: it grants slots, "runs" commands as the test decides, and can die and restart.

It keeps the contract of :mod:`penstock.wire.agent_api` as far as a client can see it. Tests read the received calls
from ``calls`` and steer it with :meth:`FakeAgent.end_task`, :meth:`FakeAgent.end_container`, :meth:`FakeAgent.stop`.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from penstock.model.container import ContainerSpec, Ended, EndedBy, Limits
from penstock.model.profile import Profile
from penstock.model.resources import Capacity
from penstock.model.work import MonotaskSpec
from penstock.transport.peer import RpcPeer, unknown_method
from penstock.wire.agent_api import (
    PROTOCOL,
    CancelledBy,
    ContainerEnded,
    Done,
    Grants,
    JobAdmitted,
    JobRegistered,
    JobWaiting,
    Launched,
    Output,
    Resized,
    Status,
    Submitted,
    TaskEnded,
    TaskPlaced,
    Welcome,
)
from penstock.wire.agent_methods import REQUESTS
from penstock.wire.connection import read_params
from penstock.wire.errors import RpcError, bad_request, refused
from penstock.wire.jobs_api import Jobs, JobView
from penstock.wire.rejections import rejection_of_raw
from penstock.wire.relayed_methods import CLUSTER_STATUS, JOBS


@dataclass
class FakeContainer:
    """A launched command; the test decides when and how it ends."""

    id: str
    spec: ContainerSpec
    peer: RpcPeer
    stdio: tuple[int, ...] = ()
    signals: list[int] = field(default_factory=list)
    killed: bool = False
    ended: Ended | None = None
    limits: Limits = field(default_factory=Limits)
    profile: Profile | None = None


class FakeAgent:
    """A fake agent on ``agent.sock`` and ``stdio.sock`` in a directory. It runs ``slots`` monotasks of each kind."""

    def __init__(self, directory: Path, slots: int = 1) -> None:
        self.socket = directory / "agent.sock"
        self.slots = slots
        self.calls: list[tuple[str, Any]] = []
        self.containers: dict[str, FakeContainer] = {}
        self.reads_skipped = True
        self.known_jobs: set[str] = set()
        self.cancelled: dict[str, str] = {}  # job → the user who cancelled it
        self.has_master = True
        self.admits = True
        self.admits_by_message = False  # the answer to a registration is no, a message sent with it admits the job
        self.waits: str | None = None  # the reason why each job waits, sent before the answer to its registration
        self.waits_for_ever = False
        self.places = True
        self.kills = True  # at once; False: cancelled commands are being killed
        self.refuse: dict[str, RpcError] = {}
        self.not_enforced: dict[str, str] = {}
        self.document: dict[str, Any] = {"node": "fake"}
        self.cluster: dict[str, Any] = {"nodes": {}}
        self.outputs: dict[str, bytes] = {"stdout": b"", "stderr": b""}
        self.outputs_of: dict[str, dict[str, bytes]] = {}  # by container: those of a container with its own
        self.views: list[JobView] = []  # the master's jobs
        self.foreign: dict[str, str] = {}  # its jobs of other users: job → user
        self.dropped_bytes = 0  # dropped from the beginning of each output
        self.killed_together = 1  # containers end once so many of them have been killed
        self.on_launch: Callable[[FakeContainer], None] = lambda container: None
        self.queued: list[tuple[RpcPeer, str, MonotaskSpec]] = []
        self.running: dict[tuple[RpcPeer, str, Any], MonotaskSpec] = {}
        self.most_running = 0
        self.placed: dict[tuple[str, str], RpcPeer] = {}
        self._peers: set[RpcPeer] = set()
        self._stdio: dict[str, tuple[int, ...]] = {}
        self._changed = asyncio.Event()
        self._servers: list[asyncio.Server] = []
        self._stdio_task: asyncio.Task[None] | None = None
        self._ids = 0

    async def start(self) -> None:
        """Start to listen."""
        loop = asyncio.get_running_loop()

        def connection() -> RpcPeer:
            return RpcPeer(self)

        self._servers = [await loop.create_unix_server(connection, str(self.socket))]
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.setblocking(False)
        listener.bind(str(self.socket.with_name("stdio.sock")))
        listener.listen()
        self._stdio_task = loop.create_task(self._take_stdio(listener))

    async def stop(self) -> None:
        """Die: every connection is lost, and with it all queued and granted monotasks."""
        for server in self._servers:
            server.close()
        if self._stdio_task is not None:
            self._stdio_task.cancel()
            await asyncio.gather(self._stdio_task, return_exceptions=True)
        for peer in list(self._peers):
            peer.close()
        await self.until(lambda: not self._peers)
        for name in ("agent.sock", "stdio.sock"):
            self.socket.with_name(name).unlink(missing_ok=True)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a call or a lost connection makes the condition true."""
        while not condition():
            self._changed.clear()
            await self._changed.wait()

    def called(self, method: str) -> list[Any]:
        """Return the parameters of every call of a method so far."""
        return [params for name, params in self.calls if name == method]

    # ------------------------------------------------------------ controls for tests

    def admit(self, job: str) -> None:
        """Report to every framework that the job is admitted."""
        for peer in self._peers:
            peer.notify("job_admitted", JobAdmitted(job=job))

    def end_task(self, job: str, task: str, ended: Ended) -> None:
        """Report the end of a placed command."""
        peer = self.placed.pop((job, task))
        peer.notify("task_ended", TaskEnded(job=job, task=task, node="fake", ended=ended))

    def cancel_job(self, job: str, by: str) -> None:
        """Cancel a job as the user ``by``."""
        self.known_jobs.discard(job)
        self.cancelled[job] = by
        for peer in self._peers:
            peer.notify("job_cancelled", CancelledBy(job=job, by=by))

    def end_container(self, container: FakeContainer, ended: Ended) -> None:
        """End a launched command and report it."""
        container.ended = ended
        container.peer.notify("container_ended", ContainerEnded(container=container.id, ended=ended))
        for descriptor in container.stdio:
            os.close(descriptor)
        container.stdio = ()

    # ------------------------------------------------------------ transport.Handler

    def connected(self, peer: RpcPeer) -> None:
        """Record a connection; called by the peer, like the following methods."""
        self._peers.add(peer)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Drop the monotasks of a lost connection."""
        self._peers.discard(peer)
        self.queued = [entry for entry in self.queued if entry[0] is not peer]
        self.running = {key: spec for key, spec in self.running.items() if key[0] is not peer}
        self._changed.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Raise the error, to fail the test."""
        raise error

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        """Handle a notification; reject a faulty ``submit`` as the agent does."""
        try:
            self.request(peer, method, params)
        except RpcError as error:
            if method != "submit":
                raise
            rejected = rejection_of_raw(params, error)
            if rejected is None:
                raise
            peer.notify("rejected", rejected)

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        """Record a call and answer it."""
        known = {**REQUESTS, CLUSTER_STATUS.name: CLUSTER_STATUS, JOBS.name: JOBS}
        if method not in known:
            raise unknown_method(method, known)
        asked = read_params(params, known[method].params)
        self.calls.append((method, asked))
        self._changed.set()
        if method in self.refuse:
            raise self.refuse[method]
        return getattr(self, f"_{method}")(peer, asked)

    # ------------------------------------------------------------ methods

    def _hello(self, peer: RpcPeer, asked: Any) -> Welcome:
        return Welcome(
            protocol=PROTOCOL,
            version="0",
            node="fake",
            user="tester",
            capacity=Capacity(cores=float(self.slots), memory_bytes=1 << 30),
            network_bypass_bytes=16384,
            max_frame_bytes=8 << 20,
            enforced=[],
            master=self.has_master,
            skipped_tasks=self.reads_skipped,
        )

    def _register_job(self, peer: RpcPeer, asked: Any) -> JobRegistered:
        if asked.job in self.cancelled:
            peer.notify("job_cancelled", CancelledBy(job=asked.job, by=self.cancelled[asked.job]))
            return JobRegistered(job=asked.job, admitted=False)
        if asked.job and asked.job not in self.known_jobs:
            raise bad_request(f"no job {asked.job!r}", field="job")
        self._ids += 1
        job = asked.job or f"job-{self._ids}"
        self.known_jobs.add(job)
        if self.waits is not None:
            peer.notify("job_waiting", JobWaiting(job=job, why=self.waits, never=self.waits_for_ever))
        if self.admits_by_message:
            peer.notify("job_admitted", JobAdmitted(job=job))
        return JobRegistered(job=job, admitted=self.admits and not self.admits_by_message)

    def _leave_job(self, peer: RpcPeer, asked: Any) -> Done:
        return Done()

    def _end_job(self, peer: RpcPeer, asked: Any) -> Done:
        if asked.job not in self.known_jobs:
            raise refused(f"no job {asked.job!r}", field="job")
        self.known_jobs.discard(asked.job)
        self.queued = [entry for entry in self.queued if entry[1] != asked.job]
        self.running = {key: spec for key, spec in self.running.items() if key[1] != asked.job}
        self._grant()
        return Done()

    def _submit(self, peer: RpcPeer, asked: Any) -> Submitted:
        for spec in asked.monotasks:
            if spec.running:
                self.running[peer, asked.job, spec.id] = spec
            else:
                self.queued.append((peer, asked.job, spec))
        self._grant()
        return Submitted(accepted=len(asked.monotasks))

    def _complete(self, peer: RpcPeer, asked: Any) -> Done:
        for one in asked.monotasks:
            del self.running[peer, asked.job, one.id]
            if one.then is not None:
                key = (peer, asked.job, one.then)
                [spec] = [entry[2] for entry in self.queued if (*entry[:2], entry[2].id) == key]
                self.queued.remove((peer, asked.job, spec))
                self.running[key] = spec
        self._grant()
        return Done()

    def _cancel(self, peer: RpcPeer, asked: Any) -> Done:
        for one in asked.ids:
            self.running.pop((peer, asked.job, one), None)
            self.queued = [
                entry for entry in self.queued if (entry[0], entry[1], entry[2].id) != (peer, asked.job, one)
            ]
        self._grant()
        return Done()

    def _place(self, peer: RpcPeer, asked: Any) -> Done:
        for request in asked.tasks:
            self.placed[asked.job, request.task] = peer
            if self.places:
                peer.notify("task_placed", TaskPlaced(job=asked.job, task=request.task, node="fake"))
        return Done()

    def _progress(self, peer: RpcPeer, asked: Any) -> Done:
        return Done()

    def _tasks_done(self, peer: RpcPeer, asked: Any) -> Done:
        for task in asked.tasks:
            self.placed.pop((asked.job, task), None)
        return Done()

    def _cancel_tasks(self, peer: RpcPeer, asked: Any) -> Done:
        for task in asked.tasks if self.kills else ():
            self.placed[asked.job, task] = peer  # the end of a task that it does not know is reported, too
            self.end_task(asked.job, task, Ended(by=EndedBy.CANCELLED, reason="asked"))
        return Done()

    def _launch(self, peer: RpcPeer, asked: Any) -> Launched:
        self._ids += 1
        spec = asked.container
        made = FakeContainer(f"c-{self._ids}", spec, peer, self._stdio.pop(spec.stdio, ()), limits=spec.limits)
        self.containers[made.id] = made
        self.on_launch(made)
        return Launched(container=made.id, pid=1, not_enforced=self.not_enforced)

    def _adopt(self, peer: RpcPeer, asked: Any) -> Launched:
        return msgspec.structs.replace(self._launch(peer, asked), pid=asked.pid)

    def _lend(self, peer: RpcPeer, asked: Any) -> Launched:
        self._ids += 1
        return Launched(container=f"c-{self._ids}", pid=asked.pid or os.getpid(), not_enforced={})

    def _resize(self, peer: RpcPeer, asked: Any) -> Resized:
        container = self._container(asked.container)
        container.limits = container.limits.changed(asked.limits)
        return Resized(limits=container.limits, not_enforced=self.not_enforced)

    def _follow(self, peer: RpcPeer, asked: Any) -> Done:
        self._container(asked.container).profile = asked.profile
        return Done()

    def _attach(self, peer: RpcPeer, asked: Any) -> Done:
        container = self._container(asked.container)
        container.peer = peer
        if container.ended is not None:
            self.end_container(container, container.ended)
        return Done()

    def _signal(self, peer: RpcPeer, asked: Any) -> Done:
        container = self._container(asked.container)
        container.signals.append(asked.signal)
        if container.ended is None:
            self.end_container(container, Ended(by=EndedBy.SIGNAL, exit_status=128 + asked.signal))
        return Done()

    def _kill(self, peer: RpcPeer, asked: Any) -> Done:
        container = self._container(asked.container)
        container.killed = True
        killed = [each for each in self.containers.values() if each.killed and each.ended is None]
        for each in killed if len(killed) >= self.killed_together else ():
            self.end_container(each, Ended(by=EndedBy.CANCELLED, exit_status=137, reason="asked"))
        return Done()

    def _output(self, peer: RpcPeer, asked: Any) -> Output:
        self._container(asked.container)
        whole = self.outputs_of.get(asked.container, self.outputs)[asked.stream]
        offset = max(asked.offset, min(self.dropped_bytes, len(whole)))
        return Output(data=whole[offset : offset + 4], offset=offset, size=len(whole))

    def _status(self, peer: RpcPeer, asked: Any) -> Status:
        return Status(status=msgspec.to_builtins(self.document))

    def _jobs(self, peer: RpcPeer, asked: Any) -> Jobs:
        found = [view for view in self.views if view.job in asked.jobs]
        foreign = {job: user for job, user in self.foreign.items() if job in asked.jobs}
        unknown = sorted({*asked.jobs} - {view.job for view in found} - foreign.keys())
        return Jobs(jobs=found, unknown=unknown, foreign=foreign)

    def _cluster_status(self, peer: RpcPeer, asked: Any) -> Status:
        return Status(status=msgspec.to_builtins(self.cluster))

    # ------------------------------------------------------------ inside

    def _container(self, container: str) -> FakeContainer:
        if container not in self.containers:
            raise bad_request(f"there is no container {container!r} on this host", field="container")
        return self.containers[container]

    def _grant(self) -> None:
        waiting = []
        for peer, job, spec in self.queued:
            if sum(1 for other in self.running.values() if other.kind is spec.kind) < self.slots:
                self.running[peer, job, spec.id] = spec
                peer.notify("grant", Grants(job=job, ids=[spec.id]))
            else:
                waiting.append((peer, job, spec))
        self.queued = waiting
        self.most_running = max(self.most_running, len(self.running))

    async def _take_stdio(self, listener: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        with listener:
            while True:
                sock, _ = await loop.sock_accept(listener)
                with sock:
                    sock.setblocking(True)
                    token, descriptors, _, _ = socket.recv_fds(sock, 64, 3)
                    self._stdio[token.decode()] = tuple(descriptors)
                    sock.send(b"+")

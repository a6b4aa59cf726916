"""The framework socket: each connection is a session, whose user is known from the kernel (SO_PEERCRED)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

import structlog
from msgspec import structs

from agent import lending, peer_credentials
from agent.connections import HELLO_S, Connections
from agent.core import events as e
from agent.executor import Executor
from agent.http_documents import Status
from agent.output import read_output
from agent.queues import COMMANDS
from agent.shell import MasterRelay, Shell
from penstock import __version__
from penstock.config import calls
from penstock.config.live_config import LiveConfig
from penstock.transport import RpcPeer, remove_dead_socket
from penstock.transport.peer import unknown_method
from penstock.transport.shared_peer import SharedPeer
from penstock.wire import agent_api as api
from penstock.wire import agent_methods as m
from penstock.wire import relayed_methods as relays
from penstock.wire.connection import RpcConnection, read_params, to_wire
from penstock.wire.errors import RpcError, bad_request, unavailable
from penstock.wire.jobs_api import Lend
from penstock.wire.master_api import JOIN_JOB, JobJoined, JoinJob
from penstock.wire.method import USERS, Method, R, Served, handlers
from penstock.wire.rejections import rejection, rejection_of_raw
from penstock.wire.reservation_api import OnBehalf, UseReservation

log = structlog.get_logger()


class Frameworks:
    """Accepts the connections of frameworks and commands."""

    def __init__(
        self, shell: Shell, executor: Executor, *, status: Callable[[], Status], outputs: Path,
        enforced: list[str], max_frame_bytes: int, operators: str, connections: Callable[[], int],
        live_config: LiveConfig[Any], containers_go_on: bool,
    ) -> None:  # fmt: skip
        """``operators``: the group that may act on all users' work; ``connections``: returns the limit per user (0:
        none); ``containers_go_on`` when the agent stops, even those that clients are attached to.
        """
        self.shell = shell
        self.executor = executor
        self.status = status
        self.outputs = outputs
        self.enforced = enforced
        self.max_frame_bytes = max_frame_bytes
        self.operators = operators
        self.connections = Connections(connections)
        self.live_config = live_config
        self.containers_go_on = containers_go_on
        self.stopping = False
        self._server: asyncio.Server | None = None
        self._sessions = COMMANDS  # session ids start above the one that commands have
        self._path: Path | None = None

    async def listen(self, path: Path) -> None:
        """Open the socket; a dead one of a predecessor is replaced.

        Raises:
            OSError: an agent listens there already, or permission is missing.
        """
        remove_dead_socket(path)
        if self.operators and not peer_credentials.known_group(self.operators):
            log.warning("only root is an operator: no such group", operators=self.operators)
        loop = asyncio.get_running_loop()
        self._server = await loop.create_unix_server(self._connection, str(path))
        os.chmod(path, 0o666)  # noqa: PTH101, S103 - all users may connect: the kernel identifies them
        self._path = path

    def close(self) -> None:
        """Close the socket and every connection; jobs wait for their frameworks to reconnect to the next agent."""
        self.stopping = True
        if self._server is not None:
            self._server.close()
            for peer in list(self.shell.peers.values()):
                peer.close()
            if self._path is not None:
                self._path.unlink(missing_ok=True)

    def _connection(self) -> RpcPeer:
        self._sessions += 1
        wire = RpcConnection(self.max_frame_bytes, m.TYPED)
        return SharedPeer(FrameworkSession(self, self._sessions), wire)


#: The calls that are passed to the node as they come.
_OF_THE_NODE: tuple[Method[Any, Any], ...] = (
    m.END_JOB, m.LEAVE_JOB, m.SUBMIT, m.COMPLETE, m.CANCEL, m.TASKS_DONE, m.CANCEL_TASKS, m.PROGRESS, m.ATTACH, m.KILL,
)  # fmt: skip


def _asked(method: Method[Any, Any]) -> Served:
    """Return the handler of a method that the node serves."""
    return method.served_by(lambda self, params: self._shell.dispatch(e.Requested(method, self._session, params)))


def _relayed(relay: relays.Relay, call: Method[Any, Any]) -> Served:
    """Return the handler of a call that the master answers."""
    return call.served_by(lambda self, asked: self._relay(relay, call, asked))


class FrameworkSession:
    """One connection (a :class:`penstock.transport.Handler`)."""

    def __init__(self, frameworks: Frameworks, session: int) -> None:
        self._frameworks = frameworks
        self._shell = frameworks.shell
        self._session = session
        self._user = ""
        self._uid = -1
        self._peer = lending.Peer(0, 0.0)
        self._operator = False
        self._greeted = False
        self._silence: asyncio.TimerHandle | None = None
        #: Typed parameters of the notifications of the hot path → handler, set by hello.
        self._hot: dict[type[Any], Callable[[RpcPeer, Any], object]] = {}

    # ------------------------------------------------------------ Handler

    def connected(self, peer: RpcPeer) -> None:
        """Identify the peer and admit or refuse the connection."""
        assert isinstance(peer, SharedPeer)
        connection, connections = peer.get_extra_info("socket"), self._frameworks.connections
        who = peer_credentials.credentials_of(connection, self._frameworks.operators)
        self._uid, self._user, self._operator, pid = who
        self._peer = lending.Peer(pid, time.clock_gettime(time.CLOCK_BOOTTIME))
        self._shell.peers[self._session] = peer
        peer.share(connections.made(who.uid))
        why = connections.why_not(who, connection.fileno())
        if why is not None:
            peer.refuse(why)
        else:
            self._silence = asyncio.get_running_loop().call_later(HELLO_S, self._refuse_silent, peer)

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Dispatch one call."""
        if not self._greeted:
            return self._hello(method, params)
        known = self.METHODS.get(method)
        if known is None:
            if method == m.HELLO.name:
                raise bad_request(
                    "this connection has sent hello already",
                    field="method",
                    remedy="send it once, as the first message",
                )
            raise unknown_method(method, self.METHODS)
        declared, handler = known
        return handler(self, read_params(params, declared.params))

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Handle a request without an answer."""
        hot = self._hot.get(type(params))
        if hot is not None:
            hot(peer, params)
            return
        try:
            result = self.request(peer, method, params)
        except RpcError as error:
            rejected = rejection_of_raw(params, error) if method == m.SUBMIT.name else None
            if rejected is None:
                raise
            peer.notify(api.Rejected.METHOD, rejected)
            return
        if asyncio.iscoroutine(result):
            result.close()
            raise bad_request(f"{method} must be sent as a request: its answer matters", field="method")

    async def _launch(self, asked: api.Launch) -> api.Launched:
        try:
            return await self._shell.launch(e.Requested(m.LAUNCH, self._session, asked))
        except RpcError:
            self._frameworks.executor.stdio.refuse(asked.container.stdio, self._user)
            raise

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Give back all that depends on this connection."""
        self._shell.peers.pop(self._session, None)
        self._frameworks.connections.gone(self._uid, greeted=self._greeted)
        if self._silence is not None:
            self._silence.cancel()
        self._frameworks.executor.stdio.drop(self._session)
        if self._greeted:
            stopping = self._frameworks.stopping
            if not (stopping and self._frameworks.containers_go_on):
                self._shell.dispatch(e.SessionClosed(self._session, stopping))

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Log a failure of the agent."""
        log.error("a request failed", method=method, user=self._user, exc_info=error)

    def _refuse_silent(self, peer: SharedPeer) -> None:
        peer.refuse(bad_request(f"no hello within {HELLO_S:g} s", field="method"))

    # ------------------------------------------------------------ methods

    def _hello(self, method: str, params: Any) -> api.Welcome:
        if method != m.HELLO.name:
            raise bad_request("the first message must be hello", field="method")
        hello = read_params(params, api.Hello)
        if hello.protocol != api.PROTOCOL:
            raise bad_request(f"this agent speaks version {api.PROTOCOL}", field="protocol")
        self._greeted = True
        self._frameworks.connections.greeted(self._uid)
        if self._silence is not None:
            self._silence.cancel()
        self._hot = {api.Complete: self._completed, api.Submit: self._submitted}
        inside = lending.container_of(self._shell.node.containers, self._peer.pid)
        opened = e.SessionOpened(self._session, self._user, hello.client, self._operator, inside)
        self._shell.dispatch(opened)
        settings = self._shell.node.settings
        return api.Welcome(
            protocol=api.PROTOCOL,
            version=__version__,
            node=settings.node,
            user=self._user,
            capacity=settings.capacity,
            network_bypass_bytes=settings.network_bypass_bytes,
            max_frame_bytes=self._frameworks.max_frame_bytes,
            enforced=self._frameworks.enforced,
            master=settings.has_master,
            skipped_tasks=True,
        )

    def _completed(self, peer: RpcPeer, params: api.Complete) -> None:
        self._shell.dispatch(e.Requested(m.COMPLETE, self._session, params))

    def _submitted(self, peer: RpcPeer, params: api.Submit) -> None:
        try:
            self._shell.dispatch(e.Requested(m.SUBMIT, self._session, params))
        except RpcError as error:
            peer.notify(api.Rejected.METHOD, rejection(params, error))

    def _register_job(self, params: api.RegisterJob) -> object:
        event = e.JobRegistered(self._session, params, time.time())
        if params.job and params.job not in self._shell.node.jobs and self._shell.link is not None:
            return self._join_elsewhere(event, self._shell.link)
        if params.reservation and not params.job:
            return self._register_reserved(event)
        return self._shell.dispatch(event)

    async def _register_reserved(self, event: e.JobRegistered) -> object:
        """Register a job of a reservation, which the master must allow."""
        wanted = UseReservation(reservation=event.request.reservation)
        await self._relay(relays.OF_RESERVATIONS, relays.USE_RESERVATION, wanted)
        if self._session not in self._shell.peers:
            raise unavailable("the connection is gone")
        return self._shell.dispatch(event)

    async def _join_elsewhere(self, event: e.JobRegistered, link: MasterRelay) -> object:
        """Join a job registered on another node: the master knows it and its owner. If the master does not answer so,
        and the job was cancelled here, the node notifies the client of that.
        """
        job, opened = event.request.job, self._shell.node.sessions[self._session]
        asked = JoinJob(job=job, user="" if opened.operator else opened.user)
        known: JobJoined | None = None
        try:
            known = await link.ask(JOIN_JOB.name, asked, JOIN_JOB.result)
        except RpcError:
            if job not in self._shell.node.cancelled_jobs:
                raise
        if self._session not in self._shell.peers:
            raise unavailable("the connection is gone")
        if known is not None:
            self._shell.dispatch(e.JobIntroduced(job, known.name, known.user, known.priority))
        return self._shell.dispatch(event)

    async def _relay(self, relay: relays.Relay, call: Method[Any, R], params: Any) -> object:
        """Ask the master on behalf of this user; the agent itself answers about its own configuration."""
        opened, link = self._shell.node.sessions[self._session], self._shell.link
        if relay is relays.OF_NODES and not params.nodes:
            params = structs.replace(params, nodes=[self._shell.node.settings.node])
        asked = OnBehalf(user=opened.user, operator=opened.operator, call=call.name, params=to_wire(params))
        if relay is relays.OF_CONFIGURATION and params.daemon == "agent":
            return calls.answer(self._frameworks.live_config, asked)
        if link is None:
            raise unavailable(relay.without_master, remedy="set `master`")
        return await link.ask(relay.name, asked, call.result)

    def _place(self, params: api.Place) -> object:
        here = self._shell.node.settings.node
        passed = [
            (number, request.nodes, request.command.stdio)
            for number, request in enumerate(params.tasks)
            if request.command is not None and request.command.stdio
        ]
        stdio = self._frameworks.executor.stdio
        try:
            for number, nodes, _ in passed:
                if nodes != (here,):
                    raise bad_request(
                        "descriptors were passed to this node, and the task may run on another",
                        field=f"tasks[{number}].command.stdio",
                        remedy=f"pin it with `nodes`: [{here!r}]",
                    )
            done = self._shell.dispatch(e.Requested(m.PLACE, self._session, params))
        except RpcError:
            for _, _, token in passed:
                stdio.refuse(token, self._user)
            raise
        for _, _, token in passed:
            stdio.keep(token, self._user, self._session)
        return done

    def _adopt(self, params: api.Adopt) -> object:
        return self._shell.launch(lending.adopting(self._shell.node.containers, self._session, self._peer, params))

    def _lend(self, params: Lend) -> object:
        return self._shell.launch(lending.lending(self._shell.node.containers, self._session, self._peer, params))

    def _follow(self, params: api.Follow) -> object:
        now = time.time()
        return self._shell.follow(
            e.FollowRequested(self._session, params.container, params.profile, now, strict=params.strict)
        )

    def _signal(self, params: api.SignalContainer) -> api.Done:
        record = self._shell.node.containers.accessible(params.container, self._shell.node.sessions[self._session])
        if record.ended is None:
            self._frameworks.executor.signal(record.container, params.signal)
        return api.Done()

    def _output(self, params: api.ReadOutput) -> api.Output:
        record = self._shell.node.containers.accessible(params.container, self._shell.node.sessions[self._session])
        return read_output(self._frameworks.outputs / record.container / params.stream, params.offset)

    #: The methods that a client may call after ``hello``. Without a handler for each, the agent does not start.
    METHODS: ClassVar[dict[str, Served]] = handlers(
        [method for method in (*m.REQUESTS.values(), *relays.REQUESTS.values()) if method is not m.HELLO],
        (
            m.STATUS.served_by(lambda self, _: api.Status(status=structs.asdict(self._frameworks.status()))),
            m.REGISTER_JOB.served_by(_register_job),
            *map(_asked, _OF_THE_NODE),
            m.LEND.served_by(_lend),
            m.PLACE.served_by(_place),
            m.LAUNCH.served_by(_launch),
            m.ADOPT.served_by(_adopt),
            m.RESIZE.served_by(lambda self, asked: self._shell.resize(e.Requested(m.RESIZE, self._session, asked))),
            m.FOLLOW.served_by(_follow),
            m.SIGNAL.served_by(_signal),
            m.OUTPUT.served_by(_output),
            *(_relayed(relay, call) for relay in relays.RELAYS for call in relay.calls if call.caller in USERS),
        ),
    )

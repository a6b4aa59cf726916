"""The framework socket: each connection is a session, whose user is known from the kernel (SO_PEERCRED)."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import structlog

from agent import lending, peer_credentials
from agent.connections import HELLO_S, Connections
from agent.core import events as e
from agent.executor import Executor
from agent.output import read_output
from agent.queues import COMMANDS
from agent.shell import MasterRelay, Shell
from penstock import __version__
from penstock.config.calls import Configuring
from penstock.transport import RpcPeer, remove_dead_socket
from penstock.transport.peer import unknown_method
from penstock.transport.shared_peer import SharedPeer
from penstock.wire import agent_api as api
from penstock.wire import cluster_api, config_api, jobs_api
from penstock.wire.connection import read_params, to_wire
from penstock.wire.errors import RpcError, bad_request, unavailable
from penstock.wire.master_api import JobJoined, JoinJob
from penstock.wire.overview_api import ClusterStatus
from penstock.wire.rejections import rejection, rejection_of_raw
from penstock.wire.reservation_api import CALLS as RESERVATION_CALLS
from penstock.wire.reservation_api import REQUESTS as RESERVATION_REQUESTS
from penstock.wire.reservation_api import OnBehalf, UseReservation

log = structlog.get_logger()


class Frameworks:
    """Accepts the connections of frameworks and commands."""

    def __init__(
        self, shell: Shell, executor: Executor, *, status: Callable[[], dict[str, Any]], outputs: Path,
        enforced: list[str], max_frame_bytes: int, operators: str = "", connections: Callable[[], int] = lambda: 0,
        configuring: Configuring | None = None, containers_go_on: bool = False,
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
        self.configuring = configuring
        self.containers_go_on = containers_go_on
        self.errors = 0
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
        return SharedPeer(FrameworkSession(self, self._sessions), self.max_frame_bytes, api.TYPED, unparsed=True)


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
        self._methods: dict[str, tuple[type[Any], Callable[[Any], object]]] = {
            "complete": (api.Complete, self._complete),
            "submit": (api.Submit, self._submit),
            "cancel": (api.Cancel, self._cancel),
            "register_job": (api.RegisterJob, self._register_job),
            "end_job": (api.JobRef, self._end_job),
            "leave_job": (jobs_api.LeaveJob, self._leave_job),
            "lend": (jobs_api.Lend, self._lend),
            "place": (api.Place, self._place),
            "tasks_done": (api.TaskRefs, self._tasks_done),
            "cancel_tasks": (api.TaskRefs, self._cancel_tasks),
            "progress": (api.Progress, self._progress),
            "launch": (api.Launch, self._launch),
            "adopt": (api.Adopt, self._adopt),
            "resize": (api.Resize, self._resize),
            "follow": (api.Follow, self._follow),
            "attach": (api.ContainerRef, self._attach),
            "signal": (api.SignalContainer, self._signal),
            "kill": (api.ContainerRef, self._kill),
            "output": (api.ReadOutput, self._output),
            "status": (api.Nothing, self._status),
            "cluster_status": (ClusterStatus, self._cluster_status),
            **{call: (kinds[0], partial(self._reservation, call)) for call, kinds in RESERVATION_REQUESTS.items()},
            **{call: (kinds[0], partial(self._nodes, call)) for call, kinds in cluster_api.REQUESTS.items()},
            **{call: (kinds[0], partial(self._jobs, call)) for call, kinds in jobs_api.REQUESTS.items()},
            **{call: (kinds[0], partial(self._configuration, call)) for call, kinds in config_api.REQUESTS.items()},
        }

    @property
    def methods(self) -> dict[str, type[Any]]:
        """The methods that a client may call after ``hello`` → their parameters."""
        return {method: params for method, (params, _) in self._methods.items()}

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
            connections.turned_away += 1
            peer.refuse(why)
        else:
            self._silence = asyncio.get_running_loop().call_later(HELLO_S, self._refuse_silent, peer)

    def request(self, peer: RpcPeer, method: str, params: Any) -> object:
        """Dispatch one call."""
        if not self._greeted:
            return self._hello(method, params)
        known = self._methods.get(method)
        if known is None:
            raise unknown_method(method, self._methods)
        return known[1](read_params(params, known[0]))

    def notification(self, peer: RpcPeer, method: str, params: Any) -> None:
        """Handle a request without an answer."""
        hot = self._hot.get(type(params))
        if hot is not None:
            hot(peer, params)
            return
        try:
            result = self.request(peer, method, params)
        except RpcError as error:
            rejected = rejection_of_raw(params, error) if method == "submit" else None
            if rejected is None:
                raise
            peer.notify("rejected", rejected)
            return
        if asyncio.iscoroutine(result):
            result.close()
            raise bad_request(f"{method} must be sent as a request: its answer matters", field="method")

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Give back all that depends on this connection."""
        self._shell.peers.pop(self._session, None)
        self._frameworks.connections.gone(self._uid, greeted=self._greeted)
        if self._silence is not None:
            self._silence.cancel()
        self._frameworks.executor.drop_stdio(self._session)
        if self._greeted:
            stopping = self._frameworks.stopping
            if not (stopping and self._frameworks.containers_go_on):
                self._shell.dispatch(e.SessionClosed(self._session, stopping))

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Log a failure of the agent."""
        self._frameworks.errors += 1
        log.error("a request failed", method=method, user=self._user, exc_info=error)

    def _refuse_silent(self, peer: SharedPeer) -> None:
        self._frameworks.connections.turned_away += 1
        peer.refuse(bad_request(f"no hello within {HELLO_S:g} s", field="method"))

    # ------------------------------------------------------------ methods

    def _hello(self, method: str, params: Any) -> api.Welcome:
        if method != "hello":
            raise bad_request("the first message must be hello", field="method")
        hello = read_params(params, api.Hello)
        if hello.protocol != api.PROTOCOL:
            raise bad_request(f"this agent speaks version {api.PROTOCOL}", field="protocol")
        self._greeted = True
        self._frameworks.connections.greeted(self._uid)
        if self._silence is not None:
            self._silence.cancel()
        self._hot = {api.Complete: self._completed, api.Submit: self._submitted}
        inside = lending.container_of(self._shell.node, self._peer.pid)
        opened = e.SessionOpened(self._session, self._user, self._uid, hello.client, self._operator, inside)
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
        )

    def _complete(self, params: api.Complete) -> object:
        return self._shell.dispatch(e.Completed(self._session, params.job, params.monotasks))

    def _submit(self, params: api.Submit) -> object:
        return self._shell.dispatch(e.Submitted(self._session, params.job, params.monotasks))

    def _completed(self, peer: RpcPeer, params: api.Complete) -> None:
        self._shell.dispatch(e.Completed(self._session, params.job, params.monotasks))

    def _submitted(self, peer: RpcPeer, params: api.Submit) -> None:
        try:
            self._shell.dispatch(e.Submitted(self._session, params.job, params.monotasks))
        except RpcError as error:
            peer.notify("rejected", rejection(params, error))

    def _cancel(self, params: api.Cancel) -> object:
        return self._shell.dispatch(e.Cancelled(self._session, params.job, params.ids))

    def _register_job(self, params: api.RegisterJob) -> object:
        event = e.JobRegistered(self._session, params, time.time())
        if params.job and params.job not in self._shell.node.jobs and self._shell.link is not None:
            return self._join_elsewhere(event, self._shell.link)
        if params.reservation and not params.job:
            return self._register_reserved(event)
        return self._shell.dispatch(event)

    async def _register_reserved(self, event: e.JobRegistered) -> object:
        """Register a job of a reservation, which the master must allow."""
        await self._reservation("use_reservation", UseReservation(reservation=event.request.reservation))
        if self._session not in self._shell.peers:
            raise unavailable("the connection is gone")
        return self._shell.dispatch(event)

    async def _join_elsewhere(self, event: e.JobRegistered, link: MasterRelay) -> object:
        """Join a job registered on another node: the master knows it and its owner."""
        job, opened = event.request.job, self._shell.node.sessions[self._session]
        asked = JoinJob(job=job, user="" if opened.operator else opened.user)
        known = await link.ask("join_job", asked, JobJoined)
        if self._session not in self._shell.peers:
            raise unavailable("the connection is gone")
        self._shell.dispatch(e.JobIntroduced(job, known.name, known.user, known.priority))
        return self._shell.dispatch(event)

    async def _reservation(self, call: str, params: api.Params) -> object:
        """Ask the master about reservations on behalf of this user."""
        link, opened = self._shell.link, self._shell.node.sessions[self._session]
        if link is None:
            raise unavailable("reservations belong to the master, and this host has none", remedy="set `master`")
        asked = OnBehalf(user=opened.user, operator=opened.operator, call=call, params=to_wire(params))
        return await link.ask("reservation", asked, RESERVATION_CALLS[call][1])

    async def _nodes(self, call: str, params: Any) -> object:
        """Ask the master to drain or undrain nodes on behalf of this user; none named: this node."""
        link, opened = self._shell.link, self._shell.node.sessions[self._session]
        if link is None:
            raise unavailable("nodes are drained by the master, and this host has none", remedy="set `master`")
        named = to_wire(params) | ({} if params.nodes else {"nodes": [self._shell.node.settings.node]})
        asked = OnBehalf(user=opened.user, operator=opened.operator, call=call, params=named)
        return await link.ask("nodes", asked, cluster_api.Drains)

    async def _jobs(self, call: str, params: api.Params) -> object:
        """Ask the master to list or stop jobs of this user on all nodes."""
        link, opened = self._shell.link, self._shell.node.sessions[self._session]
        if link is None:
            raise unavailable("jobs are known to the master, and this host has none", remedy="set `master`")
        asked = OnBehalf(user=opened.user, operator=opened.operator, call=call, params=to_wire(params))
        return await link.ask("jobs", asked, jobs_api.REQUESTS[call][1])

    async def _configuration(self, call: str, params: Any) -> object:
        """Show or change this agent's configuration, or ask the master for its own on behalf of this user."""
        link, opened = self._shell.link, self._shell.node.sessions[self._session]
        asked = OnBehalf(user=opened.user, operator=opened.operator, call=call, params=to_wire(params))
        if params.daemon == "agent":
            if self._frameworks.configuring is None:
                raise unavailable("this agent has no configuration to show or change")
            return self._frameworks.configuring.answer(asked)
        if link is None:
            raise unavailable("this host has no master", remedy="set `master`")
        return await link.ask("configuration", asked, config_api.REQUESTS[call][1])

    def _end_job(self, params: api.JobRef) -> object:
        return self._shell.dispatch(e.JobEndRequested(self._session, params.job))

    def _leave_job(self, params: jobs_api.LeaveJob) -> object:
        return self._shell.dispatch(e.JobLeft(self._session, params.job, params.merged_into))

    def _place(self, params: api.Place) -> object:
        here = self._shell.node.settings.node
        passed = [
            (number, request.nodes, request.command.stdio)
            for number, request in enumerate(params.tasks)
            if request.command is not None and request.command.stdio
        ]
        for number, nodes, _ in passed:
            if nodes != (here,):
                raise bad_request(
                    "descriptors were passed to this node, and the task may run on another",
                    field=f"tasks[{number}].command.stdio",
                    remedy=f"pin it with `nodes`: [{here!r}]",
                )
        done = self._shell.dispatch(
            e.PlacementRequested(self._session, params.job, params.stage, params.tasks, params.opportunistic)
        )
        for _, _, token in passed:
            self._frameworks.executor.keep_stdio(token, self._user, self._session)
        return done

    def _tasks_done(self, params: api.TaskRefs) -> object:
        return self._shell.dispatch(e.TasksReportedDone(self._session, params.job, params.tasks))

    def _cancel_tasks(self, params: api.TaskRefs) -> object:
        return self._shell.dispatch(e.TaskCancelRequested(self._session, params.job, params.tasks))

    def _progress(self, params: api.Progress) -> object:
        return self._shell.dispatch(e.ProgressReported(self._session, params))

    def _launch(self, params: api.Launch) -> object:
        return self._shell.launch(e.LaunchRequested(self._session, params.container))

    def _adopt(self, params: api.Adopt) -> object:
        return self._shell.launch(lending.adopting(self._shell.node, self._session, self._peer, params))

    def _lend(self, params: jobs_api.Lend) -> object:
        return self._shell.launch(lending.lending(self._shell.node, self._session, self._peer, params))

    def _resize(self, params: api.Resize) -> object:
        return self._shell.resize(e.ResizeRequested(self._session, params.container, params.limits, params.strict))

    def _follow(self, params: api.Follow) -> object:
        now = time.time()
        return self._shell.follow(
            e.FollowRequested(self._session, params.container, params.profile, now, strict=params.strict)
        )

    def _attach(self, params: api.ContainerRef) -> object:
        return self._shell.dispatch(e.AttachRequested(self._session, params.container))

    def _signal(self, params: api.SignalContainer) -> api.Done:
        record = self._shell.node.containers.accessible(params.container, self._shell.node.sessions[self._session])
        if record.ended is None:
            self._frameworks.executor.signal(record.container, params.signal)
        return api.Done()

    def _kill(self, params: api.ContainerRef) -> object:
        return self._shell.dispatch(e.KillRequested(self._session, params.container))

    def _output(self, params: api.ReadOutput) -> api.Output:
        record = self._shell.node.containers.accessible(params.container, self._shell.node.sessions[self._session])
        return read_output(self._frameworks.outputs / record.container / params.stream, params.offset)

    def _status(self, params: api.Nothing) -> api.Status:
        return api.Status(status=self._frameworks.status())

    async def _cluster_status(self, params: ClusterStatus) -> api.Status:
        """Ask the master for the part of the cluster's status that this user may see."""
        link, opened = self._shell.link, self._shell.node.sessions[self._session]
        if link is None:
            raise unavailable("this host has no master, so there is no cluster to show", remedy="set `master`")
        asked = OnBehalf(user=opened.user, operator=opened.operator, call="cluster_status")
        return await link.ask("cluster_status", asked, api.Status)

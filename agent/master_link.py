"""The agent's link to the master: registers, relays in order, reports load, passes decisions to the core.

Frameworks' requests are part of the core's state, so a relay that cannot be sent need not be kept: after a lost
connection, ``register`` repeats everything. Only ends would be lost; they are kept until the master answers: a master
that is stopping reads no more, and the next one would run a command again. Until then the journal has each end as well:
of a command, of tasks which are done or cancelled, and of a job, for the case that the agent dies.
"""

from __future__ import annotations

import asyncio
import random
import ssl
import time
from collections import OrderedDict
from typing import Any, TypeVar

import msgspec
import structlog

from agent import last_report
from agent.core import events as e
from agent.core.events import EndAcknowledged
from agent.core.instructions import ToMaster
from agent.core.tasks import awaited, cancelled, unplaced
from agent.journal import Journal
from agent.shell import Shell
from penstock import __version__
from penstock.config.endpoint import Endpoint, TcpEndpoint
from penstock.peer_credentials import check_server
from penstock.security import tls
from penstock.ticks import next_tick_s
from penstock.transport import RpcPeer, connect_tcp, connect_unix
from penstock.transport.peer import Delayed, unknown_method
from penstock.wire import master_api as api
from penstock.wire.agent_api import Params
from penstock.wire.connection import LINK_FRAME_BYTES, read, read_params
from penstock.wire.errors import ErrorBody, RpcError, unavailable

log = structlog.get_logger()
T = TypeVar("T")
_METHODS: dict[type[Params], str] = {method.params: method.name for method in api.REQUESTS.values()}
#: Messages that no registration repeats.
_KEPT = (api.CommandEnded, api.JobEnded, api.TasksDone, api.TasksCancelled)
#: Those of them, beside the ends of jobs, that no record of the node's core has either. A framework that was answered
#: does not repeat them.
_JOURNALED = (api.TasksDone, api.TasksCancelled)
#: Those of them that the master has to read before it decides.
_AT_ONCE = (api.CommandEnded, api.TasksCancelled)
#: Decisions whose answers the master does not act on: it reads them with the next message.
_UNCONFIRMED = (api.AdmitJob, api.SetPriority, api.TellPlaced, api.TellStuck, api.TellWaiting)
#: Decisions that give the node no work. A new order of jobs may start commands that wait here, which are not new to the
#: master: the next sample is early enough to report their start.
_NOTICES = (*_UNCONFIRMED, api.TellEnded)
#: The ends of jobs kept for an absent master, which lists fewer; beyond this number, the earliest are dropped.
_MOST_JOBS_ENDED = 4096
#: An end is reported at once, but together with others within this time (docs/architecture.md, time scales).
COALESCE_S = 0.05
#: A heartbeat is sent without a sample when none has come for this part of ``heartbeat_s`` beyond it. A sample that is
#: early by no more than this part is sent.
_LATE = 0.1
#: Messages in their order: the end of a job by the job's id, another message by its Python id.
_Kept = dict[str | int, ToMaster]
_BACK_OFF_S = (0.05, 0.1, 0.2, 0.5, 1.0, 2.0)


class MasterLink:
    """One per agent; runs until cancelled."""

    def __init__(
        self, shell: Shell, master: Endpoint, journal: Journal, contexts: tls.Contexts | None = None,
        master_name: str = "",
    ) -> None:  # fmt: skip
        """``journal`` has the messages that the master has not answered to an earlier agent.

        ``contexts`` are for a TCP port; the master's certificate must carry ``master_name`` (default: the host).
        """
        self._shell = shell
        self._master = master
        self._contexts, self._master_name = contexts, master_name
        self._peer: RpcPeer | None = None
        self._lost = asyncio.Event()
        self._journal = journal
        self._kept: _Kept = {}
        #: The jobs whose end could not be sent, or was not answered to an earlier agent or on an earlier connection, so
        #: that the master may lack it. Each report is among the kept or the unanswered messages. The first entry of a
        #: `dict` would be found only behind all that were removed before it.
        self._unreported: OrderedDict[str, None] = OrderedDict()
        unanswered: list[ToMaster] = [
            *journal.read(api.TASKS_DONE.name, api.TasksDone),
            *journal.read(api.TASKS_CANCELLED.name, api.TasksCancelled),
            *journal.read(api.JOB_ENDED.name, api.JobEnded),
        ]
        for each in unanswered:
            self._keep(each)
        self._unanswered: dict[asyncio.Future[Any], ToMaster] = {}
        self._registering: RpcPeer | None = None
        self._heartbeat_s = 1.0
        self._loop = asyncio.get_running_loop()
        self._reads_failed = self._reads_at_end = False  # the master reads these fields of `job_ended`
        self._tenants_named = False  # since the registration
        self._sampled_at = 0.0  # when a heartbeat with a new sample was sent (loop time)
        self._soon: asyncio.TimerHandle | None = None
        self._late: asyncio.TimerHandle | None = None  # when no sample has come for long
        shell.link = self

    @property
    def linked(self) -> bool:
        """Whether the master has answered the registration."""
        return self._peer is not None

    @property
    def address(self) -> str:
        """The master's address: HOST:PORT, or a path."""
        return str(self._master)

    async def run(self) -> None:
        """Keep the link up for ever."""
        attempt, logged = 0, ""
        while True:
            try:
                peer = await self._connect()
                try:
                    await self._register(peer)
                    attempt, logged = 0, ""
                    self.check_certificates()  # the CA may have changed meanwhile
                    await self._beat()
                finally:
                    # a stopping agent has closed its frameworks' connections, so it could not pass on ends
                    peer.close()
            except (OSError, RpcError) as error:
                why = self._why(error)
                if why != logged:  # log an unchanged reason only once
                    log.warning("no link to the master", master=self.address, why=why)
                    logged = why
            self._peer = None
            wait_s = _BACK_OFF_S[min(attempt, len(_BACK_OFF_S) - 1)]
            attempt += 1
            await asyncio.sleep(wait_s * random.uniform(0.5, 1.5))  # noqa: S311 - spreads reconnects of many nodes

    async def _connect(self) -> RpcPeer:
        """Connect to a master whose identity is proved: by its certificate, or as a process of root or of this user.

        A master names the users that work runs as, so nothing is read from any other process.
        """
        if isinstance(self._master, TcpEndpoint):
            assert self._contexts is not None, "penstock.security.doors refuses TCP without TLS"
            host, port, contexts = self._master.host, self._master.port, self._contexts.current()
            return await connect_tcp(host, port, self, contexts, self._master_name, LINK_FRAME_BYTES)
        peer = await connect_unix(str(self._master), self, max_frame_bytes=LINK_FRAME_BYTES)
        try:
            server = peer.get_extra_info("socket")
            if server is None:
                raise ConnectionResetError("the master closed the connection")
            check_server(server, self._master.path)
        except OSError:
            peer.close()
            raise
        return peer

    def _why(self, error: Exception) -> str:
        master = f"the master {self._master_name or self._master}"
        if isinstance(error.__cause__, ssl.SSLError):
            return tls.why(error.__cause__, master)
        if self._contexts is not None and isinstance(error, ConnectionResetError):
            own = self._contexts.fault()  # a peer that refuses a certificate closes the connection without a message
            return f"{master} refuses our certificate: {own}" if own else f"{error or 'it hangs up'}; see its log"
        return tls.why(error, master)

    async def _register(self, peer: RpcPeer) -> None:
        self._lost.clear()
        node = self._shell.node
        node.link_opens()
        settings = node.settings
        here = [job for job in node.jobs.values() if job.record.here]
        registration = api.Register(
            protocol=api.PROTOCOL,
            node=settings.node,
            version=__version__,
            capacity=settings.capacity,
            load=self._serving(node.held.registering(node.load(time.monotonic()))),
            t_alloc=settings.t_alloc,
            jobs=node.client_jobs.states(),
            ready=[tasks for job in here for tasks in unplaced(job)],
            placed=node.held.report(),
            awaited=[task for job in here for task in awaited(job)],
            complete=not any(job.recovered for job in here),
            draining=node.drain.draining,
        )
        registered = peer.start_request(api.REGISTER.name, registration)  # raises if nothing was sent; then all is kept
        last_report.remove(self._journal)  # it leaves after this callback, and this agent has reported more then
        at_once = [each for each in self._kept.values() if isinstance(each, _AT_ONCE)]
        kept: _Kept = {key: each for key, each in self._kept.items() if not isinstance(each, _AT_ONCE)}
        self._kept = {}
        self._registering = peer  # events from here on are not in the registration
        self._tenants_named = False
        try:
            # Right after it: the registration contains these tasks as if they ran, and were wanted.
            for each in at_once:
                self._send_to(peer, each)
            for unwanted in [cancelled(job) for job in here]:
                if unwanted.tasks:
                    peer.notify(api.TASKS_CANCELLED.name, unwanted)
            async with asyncio.timeout(10):
                answer = read(await registered, api.REGISTER.result)
        except (OSError, RpcError) as error:
            self._kept = kept | self._kept
            if isinstance(error, TimeoutError):
                raise ConnectionResetError("the master did not answer") from None
            raise
        finally:
            self._registering = None
        self._peer = peer
        self._heartbeat_s = answer.heartbeat_s
        node.executors.surrogate.gaps_read = answer.profile_gaps
        node.executors.surrogate.last_parts_read = answer.last_parts
        node.attained.lasts_read, node.attained.most_commands_read = answer.job_lasts, answer.most_commands
        node.rank_report.read, node.rank_report.tenants_read = answer.ranks, answer.rank_tenants
        node.command_sizes.read = answer.commands
        self._reads_failed, self._reads_at_end = answer.job_failed, answer.jobs_at_end
        if not self._tenants_named:  # by the notification right behind the answer, which may have been read already
            node.name_tenants(None)
        log.info("linked to the master", master=self.address, version=answer.version)
        kept, self._kept = kept | self._kept, {}
        for params in [*node.client_jobs.skipped_progress(read=answer.skipped_tasks), *kept.values()]:
            self._send_to(peer, params)

    def _serving(self, load: api.Load) -> api.Load:
        """Add the jobs whose frameworks finished tasks and have left: only a node serving a job may report that.

        Less service than before would make the master count all of it again; a job of this origin has it in its end.
        """
        named = {use.job for use in load.jobs} | self._unreported.keys()
        done = {params.job for params in self._kept.values() if isinstance(params, api.TasksDone)} - named
        left = [api.JobUse(job=job, service_s=self._shell.node.attained.to_come_s(job)) for job in done]
        return msgspec.structs.replace(load, jobs=[*load.jobs, *left])

    def _send_to(self, peer: RpcPeer, params: ToMaster) -> None:
        """Send a message; the use of ended executors is reported in full before an end."""
        node, sent, method = self._shell.node, params, _METHODS[type(params)]
        if not isinstance(params, _KEPT):
            peer.notify(method, params)
            return
        if isinstance(params, api.JobEnded):  # an older master would refuse fields that it does not know
            use = params.use if node.attained.lasts_read else None
            failed = params.failed if self._reads_failed else ""
            is_read = self._reads_at_end and params.job in self._unreported
            at_end = node.client_jobs.at_end_for_master(params.at_end if is_read else None)
            sent = msgspec.structs.replace(params, use=use, failed=failed, at_end=at_end)
        while isinstance(params, api.CommandEnded) and node.executors.surrogate.owes and not peer.closed:
            peer.notify(api.HEARTBEAT.name, node.heartbeat(time.monotonic()))
        try:
            answer = peer.start_request(method, sent)
        except ConnectionResetError:
            self._keep(params)
            return
        self._unanswered[answer] = params
        answer.add_done_callback(self._answered)

    def _answered(self, answer: asyncio.Future[Any]) -> None:
        """Handle the master's answer to a relay; or the connection is lost, or the registration was refused."""
        params = self._unanswered.pop(answer)
        error = answer.exception()
        if error is not None and (self._peer is None or isinstance(error, ConnectionResetError)):
            self._keep(params)
            return
        if error is not None:
            log.warning("the master reported an error", method=_METHODS[type(params)], why=str(error))
        if isinstance(params, api.CommandEnded):
            self._shell.dispatch(EndAcknowledged(params.job, params.task))
        elif isinstance(params, _JOURNALED):
            self._journal.write(_METHODS[type(params)], repr(params), None)
        elif isinstance(params, api.JobEnded):
            self._ended_reported(params.job)

    def _keep(self, params: ToMaster) -> None:
        """Keep an end until the next registration."""
        if not isinstance(params, api.JobEnded):
            self._kept[id(params)] = params
            return
        self._kept[params.job] = params
        self._unreported[params.job] = None
        if len(self._unreported) > _MOST_JOBS_ENDED:
            first = next(iter(self._unreported))
            self._kept.pop(first, None)
            self._ended_reported(first)

    def _ended_reported(self, job: str) -> None:
        self._unreported.pop(job, None)
        self._journal.write(api.JOB_ENDED.name, job, None)

    async def _beat(self) -> None:
        """Send heartbeats until the connection is lost."""
        self.send_heartbeat()
        await self._lost.wait()
        raise ConnectionResetError("the master closed the connection")

    def sampled(self) -> None:
        """Send a new sample in a heartbeat: the master orders jobs by the service that they have received."""
        now = self._loop.time()
        if now >= next_tick_s(self._sampled_at, self._heartbeat_s) - _LATE * self._heartbeat_s:
            self._sampled_at = now
            self.send_heartbeat()

    def send_soon(self) -> None:
        """Send a heartbeat shortly, with all other messages until then."""
        if self._soon is None and self._peer is not None:
            self._soon = self._loop.call_later(COALESCE_S, self.send_heartbeat)

    def send_heartbeat(self) -> None:
        """Send a heartbeat now, instead of one that is due shortly, if there is a master."""
        for timer in (self._soon, self._late):
            if timer is not None:
                timer.cancel()
        self._soon = self._late = None
        if self._peer is not None and not self._peer.closed:  # it takes what is reported only once
            due_s = (1.0 + _LATE) * self._heartbeat_s
            # Before it is sent: heartbeats go on after an error.
            self._late = self._loop.call_later(due_s, self.send_heartbeat)
            self._peer.notify(api.HEARTBEAT.name, self._shell.node.heartbeat(time.monotonic()))

    def check_certificates(self) -> None:
        """Reconnect if the CA or its list has changed, so that both sides show their certificates again."""
        if self._contexts is None or self._peer is None:
            return
        if self._contexts.outdated(self._peer.get_extra_info("sslcontext")):
            log.info("reconnecting: the CA or its list has changed", master=self.address)
            self._peer.close()

    def send(self, params: ToMaster, *, may_wait: bool = False) -> None:
        """Relay a message; an end also brings the next heartbeat forward. If it ``may_wait``, it leaves with the next.

        Messages that a later registration would repeat are sent right after a registration not answered yet, because a
        decision may come with the answer. The master drops an end once the decision about it is answered, and a task
        requested only after that would run again.
        """
        if isinstance(params, _JOURNALED):
            self._journal.write(_METHODS[type(params)], repr(params), params)
        elif isinstance(params, api.JobEnded):
            if params.at_end is not None:
                at_end = msgspec.structs.replace(params.at_end, ended_at=time.time())
                params = msgspec.structs.replace(params, at_end=at_end)
            self._journal.write(api.JOB_ENDED.name, params.job, params)
        peer = self._peer or self._registering
        if peer is None or peer.closed or (self._peer is None and isinstance(params, _KEPT)):
            if isinstance(params, _KEPT):
                self._keep(params)
            return
        if may_wait:
            method = _METHODS[type(params)]
            peer.notify_delayed((method, params.job), method, params)
            return
        self._send_to(peer, params)
        if isinstance(params, _KEPT):
            self.send_soon()

    async def ask(self, method: str, params: Params, result: type[T]) -> T:
        """Send a request, and wait for the answer.

        Raises:
            RpcError: from the master; ``unavailable`` if it is away.
        """
        try:
            if self._peer is None:
                raise ConnectionResetError("not linked")
            return await self._peer.request(method, params, result)
        except ConnectionResetError:
            raise unavailable(f"the master at {self.address} is away", remedy="try again") from None

    # ------------------------------------------------------------ Handler

    def connected(self, peer: RpcPeer) -> None:
        """Do nothing: the agent speaks first."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        """Dispatch the master's decisions."""
        if method != api.DECIDE.name:
            raise unknown_method(method, {api.DECIDE.name: api.DECIDE})
        decide = read_params(params, api.DECIDE.params)
        reply = self._shell.dispatch(e.Decided(decide.number, decide.decisions, time.time()))
        if not all(isinstance(each, _NOTICES) for each in decide.decisions):
            self.send_soon()
        return Delayed(reply) if all(isinstance(each, _UNCONFIRMED) for each in decide.decisions) else reply

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        """Learn the configured tenants, or log an error that the master reports; it is never answered."""
        if method == api.NAME_TENANTS.name:
            self._tenants_named = True
            self._shell.node.name_tenants(read_params(params, api.NAME_TENANTS.params).tenants)
            return
        log.warning("the master reported an error", why=str(RpcError.of(read_params(params, ErrorBody))))

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        """Mark the link as lost; :meth:`run` registers again."""
        self._peer = None
        self._lost.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        """Log a failure of the agent."""
        log.error("a decision failed", method=method, exc_info=error)

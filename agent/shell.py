"""Carries out the decisions of the node's core. Every event of the daemon goes through :meth:`Shell.dispatch`."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Collection
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import structlog

from agent import last_report
from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.containers import ROOM as CONTAINERS
from agent.core.events import EndUnread
from agent.core.instructions import Grant, ReadCpuTimes, Reply
from agent.core.profile_follower import limits_named
from agent.core.records import ContainerRecord
from agent.executor import Executor
from agent.journal import Journal
from penstock.model import Limits, Profile
from penstock.transport import RpcPeer
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Grants, Launch, Launched, Params, Resize, Resized, TaskEnded
from penstock.wire.errors import RpcError, refused, unavailable

log = structlog.get_logger()
T = TypeVar("T")
#: Instructions that have no effect outside of the agent before all of a decision are carried out, as messages leave
#: after that: records behind them are written together with those before them.
_AFTER_ALL: frozenset[type[Any]] = frozenset({i.Record, i.Notify, i.SendToMaster, ReadCpuTimes, i.Wake, i.Explain})


class MasterRelay(Protocol):
    """The destination of relays to the master."""

    def send(self, params: i.ToMaster, *, may_wait: bool = False) -> None:
        """Send in order; messages that the core keeps need not be kept while the master is away. One that ``may_wait``
        leaves with the next message, or shortly.
        """

    async def ask(self, method: str, params: Params, result: type[T]) -> T:
        """Send a request, and wait for the answer. Raises RpcError, ``unavailable`` if the master is away."""

    def sampled(self) -> None:
        """Send a heartbeat with a new sample."""

    def send_soon(self) -> None:
        """Send a heartbeat shortly, with all other messages until then."""

    def send_heartbeat(self) -> None:
        """Send a heartbeat now, instead of one that is due shortly, if there is a master."""


class Shell:
    """The thin I/O around :class:`agent.core.node.Node`."""

    def __init__(self, node: Node, journal: Journal, executor: Executor) -> None:
        self.node = node
        self.peers: dict[int, RpcPeer] = {}
        self.link: MasterRelay | None = None
        self.watch_memory: Callable[[bool], object] = lambda on: None
        self.read_cpu_times: Callable[[ReadCpuTimes], object] = lambda read: None
        self.events: deque[dict[str, object]] = deque(maxlen=500)  # actions and their reasons: bounded
        self._journal = journal
        self._executor = executor
        self._alarm: asyncio.TimerHandle | None = None
        self._launching: dict[str, asyncio.Future[Launched]] = {}
        #: Container → action that waits for its record to be journaled, while the disk refuses it.
        self._held_back: dict[str, Callable[[], object]] = {}
        self._carry_out = self._actions()
        executor.on_event = self.dispatch

    def dispatch(self, event: e.Event) -> object:
        """Decide on an event and carry out the instructions; return the reply, if the event was a request.

        Raises:
            RpcError: the request is invalid or refused.
        """
        reply: object = None
        try:
            for instruction in self.node.handle(event, time.monotonic()):
                if isinstance(instruction, Grant):
                    peer = self.peers.get(instruction.session)
                    if peer is not None:
                        peer.notify(Grants.METHOD, instruction.grants)
                elif isinstance(instruction, Reply):
                    reply = instruction.result
                else:
                    what = type(instruction)
                    if self._journal.due and what not in _AFTER_ALL:
                        self._journal.flush()
                    self._carry_out[what](instruction)
        finally:
            if self._journal.due:
                self._journal.flush()
        if self._launching:  # rarely: most events are about monotasks
            self._settle_launches(event)
        return reply

    @cached_property
    def _loop(self) -> asyncio.AbstractEventLoop:
        """The loop of the agent: asyncio asks the kernel for the process's number at each question for it."""
        return asyncio.get_running_loop()

    @property
    def journal_writes(self) -> int:
        """How often a record was written or removed."""
        return self._journal.writes

    def _actions(self) -> dict[type[Any], Callable[[Any], object]]:
        """Return instruction → action, without the two of the hot path, which are not looked up."""
        do = self._executor
        return {
            i.Notify: self._notify,
            i.SendToMaster: self._send_to_master,
            i.Record: lambda record: self._journal.add(record.room, record.key, record.value),
            i.StartContainer: lambda start: self._once_journaled(start.container, partial(self._start, start)),
            i.AdoptProcess: lambda adopt: self._once_journaled(adopt.container, partial(do.adopt, adopt)),
            i.KillContainer: self._kill,
            i.WatchOrphan: lambda orphan: do.watch_orphan(orphan.container),
            i.Confine: lambda change: do.confine(change.container, change.confinement),
            i.Renice: do.renice,
            i.GiveBack: do.give_back,
            i.Freeze: lambda freeze: do.freeze(freeze.container, frozen=freeze.frozen),
            i.Reclaim: lambda reclaim: do.reclaim(reclaim.container, reclaim.size_bytes),
            i.Signal: lambda notice: do.warn(notice.container, notice.signal),
            i.RemoveContainer: lambda gone: self._once_journaled(gone.container, partial(do.remove, gone.container)),
            i.WatchMemory: lambda watch: self.watch_memory(watch.on),
            i.Wake: lambda wake: self._wake_at(wake.at),
            ReadCpuTimes: lambda read: self._loop.call_soon(self.read_cpu_times, read),
            i.Explain: lambda action: self.note(action.what, **action.facts),
        }

    # ------------------------------------------------------------ the disk is full

    def _once_journaled(self, container: str, act: Callable[[], object]) -> None:
        """Wait for the journal: an unrecorded start would be unknown to the next agent, and an unrecorded end lost."""
        if (CONTAINERS, container) in self._journal.unwritten:
            self._held_back[container] = act
        else:
            self._held_back.pop(container, None)
            act()

    def _start(self, start: i.StartContainer) -> None:
        """Start a container, unless it was withdrawn while held back."""
        record = self.node.containers.live.get(start.container)
        if record is not None and record.stopping_by is not None:
            self.dispatch(e.ContainerNotStarted(start.container, record.stopping_reason))
        else:
            self._executor.start(start)

    async def retry_journal(self) -> None:
        """Write the changes that the disk refused, and carry out the actions that waited for them.

        Raises:
            OSError: the disk still refuses.
        """
        try:
            self._journal.retry()
        finally:
            for container in list(self._held_back):
                if (CONTAINERS, container) not in self._journal.unwritten:
                    self._held_back.pop(container)()

    def _refuse_unjournaled(self, container: str) -> None:
        """Refuse a launch at once if the disk refuses its record; placed work waits for the disk instead.

        Raises:
            RpcError: ``unavailable``: the disk refused the container's record.
        """
        if self._held_back.pop(container, None) is None:
            return
        why = f"the journal cannot be written: {self._journal.why}"
        self.dispatch(e.ContainerNotStarted(container, why))
        raise unavailable(why, remedy="free space on that file system, then try again")

    def _notify(self, notify: i.Notify) -> None:
        peer = self.peers.get(notify.session)
        if peer is not None:
            peer.notify(notify.params.METHOD, notify.params)
            if isinstance(notify.params, TaskEnded):
                if self._journal.due:
                    self._journal.flush()
                if peer.push():
                    self.dispatch(EndUnread(notify.params.job, notify.params.task))

    def _send_to_master(self, send: i.SendToMaster) -> None:
        if self.link is not None:
            self.link.send(send.params, may_wait=send.may_wait)

    def _kill(self, kill: i.KillContainer) -> None:
        self.note("kill", container=kill.container, why=kill.reason)
        self._executor.kill(kill.container)

    def note(self, what: str, **facts: object) -> None:
        """Keep and log an action with its subject, reason and numbers."""
        self.events.append({"at": time.time(), "what": what, **facts})
        log.info(what, **facts)

    def report_last(self) -> None:
        """Report the service of jobs until now, before the agent ends, and record it."""
        if self.link is not None:
            self.read_cpu_times(ReadCpuTimes())
            self.node.attained.report_all()
            self.link.send_heartbeat()
            self.record_service()

    def record_service(self) -> None:
        """Journal the service of jobs, whether or not a master has it: the next agent counts on from there."""
        if self.link is not None:
            last_report.write(self._journal, self.node.attained.last_count(time.monotonic()))

    def _wake_at(self, at: float) -> None:
        """Set the node's only alarm, replacing an earlier one."""
        if self._alarm is not None:
            self._alarm.cancel()
        delay_s = max(0.0, at - time.monotonic())
        self._alarm = self._loop.call_later(delay_s, lambda: self.dispatch(e.Woken(time.time())))

    async def launch(self, event: e.Requested[Launch] | e.AdoptRequested | e.LendRequested) -> Launched:
        """Start a command, or take in a process, and wait until it runs in its container.

        Raises:
            RpcError: refused by the node, or not startable (the message names the failed step, or the full disk).
        """
        container = self.dispatch(event)
        if isinstance(container, Launched):
            return container  # it is in a container already
        assert isinstance(container, str)
        self._refuse_unjournaled(container)
        future: asyncio.Future[Launched] = self._loop.create_future()
        self._launching[container] = future
        return await future

    async def resize(self, event: e.Requested[Resize]) -> Resized:
        """Change limits and wait until the kernel has them.

        Raises:
            RpcError: refused by the node.
        """
        asked = event.params
        record = self.node.containers.find(asked.container)
        before = record.limits if record is not None else None
        container = self.dispatch(event)
        assert isinstance(container, str)
        await self._executor.settled(container)
        record = self.node.containers.find(container)
        assert record is not None
        unmet = _unmet(record, [name for name, value in asked.limits.items() if value is not None])
        if asked.strict and unmet is not None:
            undone = {name: getattr(before, name) for name in asked.limits}
            self.dispatch(e.Requested(m.RESIZE, event.session, Resize(container=container, limits=undone)))
            await self._executor.settled(container)
            raise unmet
        return Resized(limits=record.limits, not_enforced=record.not_enforced)

    async def follow(self, event: e.FollowRequested) -> object:
        """Let limits follow a profile. If strict, wait until the kernel has the limits of the first slot.

        Raises:
            RpcError: refused by the node, or strict and not enforced here: the container then has its former limits and
                profile again.
        """
        record = self.node.containers.find(event.container)
        had = (record.limits, record.profile, record.profile_at) if record is not None else None
        done = self.dispatch(event)
        if not event.strict or event.profile is None:
            return done
        assert record is not None
        assert had is not None
        await self._executor.settled(record.container)
        unmet = _unmet(record, limits_named(record, event.profile))
        if unmet is not None:
            await self._follow_again(event, *had)
            raise unmet
        return done

    async def _follow_again(self, event: e.FollowRequested, limits: Limits, profile: Profile | None, at: float) -> None:
        """Restore a container's limits, and the profile that it followed since ``at``."""
        now = self.node.containers.find(event.container)
        assert now is not None
        undone = {name: getattr(limits, name) for name in limits.__struct_fields__}
        undone = {name: value for name, value in undone.items() if value != getattr(now.limits, name)}
        self.dispatch(e.FollowRequested(event.session, event.container, None, event.at))
        self.dispatch(e.Requested(m.RESIZE, event.session, Resize(container=event.container, limits=undone)))
        if profile is not None:
            since_s = max(0.0, time.time() - at)
            self.dispatch(e.FollowRequested(event.session, event.container, profile, at, since_s=since_s))
        await self._executor.settled(event.container)

    def _settle_launches(self, event: e.Event) -> None:
        """Answer the request that waits for a start."""
        match event:
            case e.ContainerStarted(container, pid):
                record = self.node.containers.find(container)
                not_enforced = record.not_enforced if record is not None else {}
                future = self._launching.pop(container, None)
                if future is not None and not future.done():
                    future.set_result(Launched(container=container, pid=pid, not_enforced=not_enforced))
            case e.ContainerNotStarted(container, message, exit_status, limit):
                future = self._launching.pop(container, None)
                if future is not None and not future.done():
                    future.set_exception(unavailable(message, exit_status=exit_status or 0, limit=limit))


def _unmet(record: ContainerRecord, limits: Collection[str]) -> RpcError | None:
    """Return the refusal for the first of these limits that is not enforced; its name may be followed by a link's."""
    for name, why in record.not_enforced.items():
        if name.split(" ")[0] in limits:
            message = f"limits are strict, and nothing was changed: {name} is not enforced: {why}"
            return refused(message, limit=name)
    return None

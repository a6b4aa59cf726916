"""The node's only entry point: ``handle(event, now) → instructions``.

``now`` is monotonic time in seconds. An invalid or refused request raises RpcError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import count
from typing import Any

from agent.core import cores, origin_journal, quotas, starvation
from agent.core import events as e
from agent.core.client_containers import ClientContainers
from agent.core.client_jobs import ClientJobs
from agent.core.container_events import ContainerEvents
from agent.core.draining import Drain
from agent.core.instructions import Instruction, Reply, Wake
from agent.core.job_lifecycle import JobLifecycle
from agent.core.lent_containers import LentContainers
from agent.core.master_decisions import MasterDecisions
from agent.core.node_state import NodeState
from agent.core.placed_work import PlacedWork
from agent.core.preemption_actions import PreemptionActions
from agent.core.recovery import Recovery
from agent.core.reporting import Reports
from agent.core.session import Session
from agent.core.settings import NodeSettings
from agent.core.slot_grants import SlotGrants
from agent.queues import MonotaskQueues
from penstock.model import EndedBy, KindAmounts
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Cancel, Complete, Done, Submit, Submitted
from penstock.wire.master_api import Heartbeat, Load

_DONE = Reply(Done())
#: Events after which the next profile slot, end of a grace period or look at the CPU time may differ. Monotasks' events
#: are not among them.
_MAY_MOVE_THE_ALARM: frozenset[object] = frozenset({
    e.FollowRequested, e.Sampled, e.MemoryChecked, e.Woken, e.Decided, e.Recovered, e.JobRegistered, e.JobIntroduced,
    e.ContainerStarted, e.Reconfigured,
})  # fmt: skip
#: Events after which the order of jobs is as it was, or that rank the jobs themselves.
_LEAVES_THE_ORDER: frozenset[object] = frozenset({
    e.Sampled, e.CpuTimesRead, e.MemoryChecked, e.Confined, e.EndAcknowledged, e.EndUnread, e.SessionOpened,
    m.SUBMIT, m.COMPLETE, m.CANCEL, m.PLACE, m.PROGRESS, m.TASKS_DONE,
})  # fmt: skip
#: Events after which waiting opportunistic work may find slack at once; samples reveal all other changes.
_MAY_FREE_SLACK: frozenset[object] = frozenset({e.ContainerExited, e.ContainerNotStarted, e.Reconfigured})


class Node(NodeState):
    """Routes each event to the owners of the node's state, and has those that act on several of them.

    The owners are built from the lower to the higher ones: each gets those that it changes or reads, and none gets the
    node.
    """

    def __init__(self, settings: NodeSettings, queues: MonotaskQueues | None = None) -> None:
        """``queues``: others than those of the settings."""
        super().__init__(settings, queues)
        #: Ends of ids that no other job or container on any node ever has.
        self._ids = (f"{settings.instance}-{number}" for number in count(1))
        self.slot_grants = SlotGrants(
            settings, self._members, self.queues, self.held, self.containers, self.ranks, self._ids
        )
        self._lent = LentContainers(
            self._members, self.containers, self.ranks, self.cpu_times, self.attained, self._ids
        )
        self._lifecycle = JobLifecycle(
            settings.has_master, self._members, self.cancelled_jobs, self.queues, self.held, self.containers,
            self.ranks, self.attained, self.slot_grants, self._lent,
        )  # fmt: skip
        self.preemption = PreemptionActions(settings, self.containers, self.resources, self.slack)
        self.drain = Drain(settings.node, self._members, self.queues, self.held, self.containers, self._lifecycle)
        self._placed = PlacedWork(
            settings, self._members, self.queues, self.held, self.containers, self.ranks, self.elasticity,
            self.executors, self.resources, self.slack, self.preemption, self.slot_grants, self._lifecycle, self.drain,
        )  # fmt: skip
        self.client_jobs = ClientJobs(
            settings, self._members, self.cancelled_jobs, self.held, self.ranks, self._lifecycle, self._ids
        )
        self._client_containers = ClientContainers(
            settings, self._members, self.containers, self.elasticity, self.ranks, self.resources, self.slack,
            self._lent, self._ids,
        )  # fmt: skip
        self._container_events = ContainerEvents(
            self._members, self.held, self.containers, self.command_sizes, self.ranks, self.cpu_times, self.attained,
            self.elasticity, self.executors, self.preemption, self.slot_grants, self._lent, self._lifecycle,
        )  # fmt: skip
        self._recovery = Recovery(
            self._members, self.cancelled_jobs, self.containers, self.cpu_times, self.attained, self.command_sizes,
            self.elasticity, self.executors, self._lent, self._lifecycle, self.drain, self._placed,
            self._container_events,
        )  # fmt: skip
        self._decisions = MasterDecisions(
            settings.node, self._members, self.queues, self.held, self.ranks, self.elasticity, self.executors,
            self.slot_grants, self._lifecycle, self.drain, self._placed,
        )  # fmt: skip
        self._reports = Reports(
            self.queues, self.held, self.attained, self.command_sizes, self.executors, self.rank_report,
            self.resources, self.slack, self.drain,
        )  # fmt: skip
        self._waits = starvation.WaitsJournal()
        self._wake: float | None = None
        self.decided = 0
        self._handlers = self._routes()

    def _routes(self) -> dict[object, Callable[[Any, float], list[Instruction]]]:
        """Return the handler of each event, and of each method that a session calls."""
        return {
            m.COMPLETE: self._completed,
            m.SUBMIT: self._submitted,
            m.CANCEL: self._cancelled,
            e.SessionOpened: self._session_opened,
            e.SessionClosed: self._session_closed,
            e.JobRegistered: self.client_jobs.register,
            e.JobIntroduced: self._lifecycle.welcome,
            m.END_JOB: self.client_jobs.end,
            m.LEAVE_JOB: self._lifecycle.left,
            m.PLACE: self.client_jobs.place,
            m.TASKS_DONE: self.client_jobs.tasks_done,
            m.CANCEL_TASKS: self.client_jobs.cancel_tasks,
            m.PROGRESS: self.client_jobs.progress,
            m.LAUNCH: self._client_containers.launch,
            e.AdoptRequested: self._client_containers.adopt,
            e.LendRequested: self._client_containers.lend,
            e.GivenBack: self._container_events.given_back,
            m.RESIZE: self._client_containers.resize,
            e.FollowRequested: self._client_containers.follow,
            m.ATTACH: self._client_containers.attach,
            m.KILL: self._client_containers.kill,
            e.ContainerStarted: self._container_events.started,
            e.ContainerNotStarted: self._container_events.not_started,
            e.ContainerExited: self._container_events.exited,
            e.LauncherLost: self._container_events.launcher_lost,
            e.Confined: self._container_events.confined,
            e.Reclaimed: self.preemption.reclaimed,
            e.MemoryChecked: self._memory_checked,
            e.CpuTimesRead: self._cpu_times_read,
            e.Woken: self._woken,
            e.Decided: self._decided,
            e.EndAcknowledged: self.held.end_acknowledged,
            e.EndUnread: lambda event, now: origin_journal.end_unread(self.jobs, event),
            e.Sampled: self._sampled,
            e.Reconfigured: self._reconfigured,
            e.Recovered: self._recovered,
        }

    def handle(self, event: e.Event, now: float) -> list[Instruction]:
        """Handle an event.

        Raises:
            RpcError: the request is invalid or refused; nothing has changed.
        """
        self.now = now
        what = event.method if type(event) is e.Requested else type(event)
        instructions = self._handlers[what](event, now)
        self.ranks.due |= what not in _LEAVES_THE_ORDER
        if self.held.waiting and what in _MAY_FREE_SLACK:
            instructions += self._placed.start_waiting(now)
        if what in cores.MAY_MOVE_CORES:
            instructions += self.slot_grants.withhold(now)
            instructions += self.ranks.make_room(now)
        if what in _MAY_MOVE_THE_ALARM:
            instructions += self._alarm(now)
        return instructions

    # ------------------------------------------------------------ for other modules to read

    def load(self, now: float) -> Load:
        """Return the present load for the master, with the jobs that changed since the last one."""
        self.now = now
        return self._reports.load(now)

    def heartbeat(self, now: float) -> Heartbeat:
        """Return the load, and the use of executors that the master has not been told."""
        self.now = now
        return self._reports.heartbeat(self.decided, now)

    def link_opens(self) -> None:
        """Start over on a new connection to the master, which numbers requests anew and has lost all reports."""
        self.decided = 0
        self.client_jobs.link_opens()
        self._reports.link_opens()

    def name_tenants(self, configured: Mapping[str, tuple[str, float]] | None) -> None:
        """Divide the node among these users' tenants, as the master is configured; None: not, until it names some."""
        self._members.name_tenants(configured)
        self.ranks.due = True

    # ------------------------------------------------------------ sessions

    def _session_opened(self, event: e.SessionOpened, now: float) -> list[Instruction]:
        session = Session(event.session, event.user, event.client, event.operator, event.container)
        self._members.sessions[event.session] = session
        return []

    def _session_closed(self, event: e.SessionClosed, now: float) -> list[Instruction]:
        if (session := self._members.sessions.pop(event.session, None)) is None:
            return []
        stopping = event.stopping
        instructions = self._lent.agent_stops(session) if stopping else self._lifecycle.closed(session, now)
        for container in sorted(session.launched):
            record = self.containers.live.get(container)
            if record is not None and not record.spec.detach:
                instructions += self.containers.stop(container, EndedBy.DISCONNECTED, session.disconnected)
        return instructions

    # ------------------------------------------------------------ monotasks: the hot path

    def _submitted(self, event: e.Requested[Submit], now: float) -> list[Instruction]:
        job, monotasks = event.params.job, event.params.monotasks
        self._members.job_of(event.session, job)
        quotas.check_queue(self.sessions[event.session], self.settings.quotas, self.jobs, self.queues, len(monotasks))
        granted = self.queues.submit(event.session, job, monotasks, now)
        for spec in monotasks:
            if spec.task:  # from now on the queue counts this work, not the task
                work = KindAmounts.single(spec.kind, float(spec.input_bytes))
                self.held.submitted(job, spec.task, work)
        grants = self.slot_grants.granted(granted, now)
        if self.slot_grants.withheld_slots and self.sessions[event.session].container:
            grants += self.slot_grants.withhold(now)  # connections of a promised container have its cores as slots
        return [Reply(Submitted(accepted=len(monotasks))), *grants, *self.slot_grants.recalls()]

    def _completed(self, event: e.Requested[Complete], now: float) -> list[Instruction]:
        done = event.params
        self._members.job_of(event.session, done.job)
        granted = self.queues.complete(event.session, done.job, done.monotasks, now)
        return [_DONE, *self.slot_grants.granted(granted, now)]

    def _cancelled(self, event: e.Requested[Cancel], now: float) -> list[Instruction]:
        unwanted = event.params
        self._members.job_of(event.session, unwanted.job)
        granted = self.queues.cancel(event.session, unwanted.job, unwanted.ids, now)
        return [_DONE, *self.slot_grants.granted(granted, now)]

    # ------------------------------------------------------------ samples and alarms

    def _sampled(self, event: e.Sampled, now: float) -> list[Instruction]:
        """Apply a sample: preemption uses it, and so does every admission until the next one."""
        self.resources.snapshot = event.snapshot
        self.slot_grants.uses.sampled(event.snapshot)
        self.executors.surrogate.sampled(event.snapshot, self.settings.sample_interval_s)
        instructions = self.slot_grants.granted(self.queues.tick(now), now)  # starving jobs get slots
        taken_back, granted = starvation.take_back(self.queues, self.settings.slot_held_max_s, now)
        instructions += taken_back + self.slot_grants.granted(granted, now)
        instructions += self._waits.sampled(self.queues, self.settings.job_wait_max_s, event.at, now)
        instructions += self.executors.journal(self.containers.live)
        instructions += self._lifecycle.orphans_left(self.settings.rejoin_s, now)
        instructions += self.elasticity.sampled(event.snapshot, self.resources.promised_without_profile(), now)
        instructions += self.preemption.sampled(event.snapshot, event.at, now)
        instructions += self._placed.sampled(now)
        return instructions + self.ranks.sampled(now, acted=bool(instructions))

    def _memory_checked(self, event: e.MemoryChecked, now: float) -> list[Instruction]:
        self.resources.snapshot = event.snapshot
        return self.preemption.memory_checked(event, now)

    def _cpu_times_read(self, event: e.CpuTimesRead, now: float) -> list[Instruction]:
        self.resources.snapshot = event.snapshot
        return self.ranks.cpu_times_read(now)

    def _woken(self, event: e.Woken, now: float) -> list[Instruction]:
        """Apply profile slots that begin and grace periods that end; look at the CPU time again."""
        self._wake = None
        acted = self.preemption.woken(event.at, now) + self.ranks.look_again(now)
        promised = self.resources.promised_without_profile()
        return acted + self.elasticity.changes(promised, self.resources.snapshot, now)

    def _alarm(self, now: float) -> list[Instruction]:
        """Return a Wake if the next time has changed."""
        times = (self.preemption.policy.due(), self.elasticity.due(now), self.ranks.cpu_reads.due)
        wake = min((at for at in times if at is not None), default=None)
        before, self._wake = self._wake, self._wake if wake is None else wake
        return [Wake(wake)] if wake is not None and wake != before else []

    # ------------------------------------------------------------ decisions of the master, settings

    def _decided(self, event: e.Decided, now: float) -> list[Instruction]:
        instructions = self._decisions.decided(event, now)
        self.decided = event.number
        return instructions

    def _reconfigured(self, event: e.Reconfigured, now: float) -> list[Instruction]:
        """Give every part that keeps settings its new ones. Grants remain."""
        self.settings = after = self.settings.changed(event.settings)
        self.queues.reconfigure(after.disk_small_bytes, after.lease_s, after.lease_kept_s, after.job_wait_max_s)
        for owner in (
            self.slot_grants, self._placed, self.ranks, self.elasticity, self.client_jobs, self._client_containers
        ):  # fmt: skip
            owner.settings = after
        self.slack.reconfigure(after)
        return self.containers.keep(after.keep_ended) + self.preemption.reconfigure(after, event.at, now)

    def _recovered(self, event: e.Recovered, now: float) -> list[Instruction]:
        self._recovery.jobs(event, now)
        self._waits.recovered(self.queues, event.waits, event.at, now)
        instructions = self._recovery.work(event, now)
        return instructions + self.elasticity.changes(self.resources.promised_without_profile(), None, now)

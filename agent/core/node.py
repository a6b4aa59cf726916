"""The node's only entry point: ``handle(event, now) → instructions``.

``now`` is monotonic time in seconds. An invalid or refused request raises RpcError and changes nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from agent.core import (
    cores,
    floors,
    quotas,
    recovery,
    running,
    tasks,
    turns,
)
from agent.core import events as e
from agent.core.attained import Attained
from agent.core.borrowing import Borrowing
from agent.core.containers import Containers
from agent.core.cpu_look import CpuLooked
from agent.core.deciding import Decisions
from agent.core.draining import Drain
from agent.core.elasticity import Elasticity
from agent.core.end_events import EndHeard, EndUnread
from agent.core.executors import Executors
from agent.core.granting import Granting
from agent.core.ids import Ids
from agent.core.instructions import Instruction, Reply, TellMaster, Wake
from agent.core.job_lifecycle import JobLifecycle
from agent.core.ledger import Ledger
from agent.core.membership import Membership
from agent.core.placed_work import PlacedWork
from agent.core.preempting import Preempting
from agent.core.rank_report import RankReport
from agent.core.ranks import Ranks
from agent.core.records import Job, JobRecord, Session, job_state
from agent.core.settings import NodeSettings
from agent.core.slack import Slack
from agent.core.snapshot import Snapshot
from agent.core.stock import Stock
from agent.queues import MonotaskQueues, beyond
from penstock.model import EndedBy, KindAmounts
from penstock.wire.agent_api import Done, JobRegistered, Submitted
from penstock.wire.errors import bad_request, unavailable
from penstock.wire.master_api import Decided, Heartbeat, JobState, Load, Refusal, SetPriority

_DONE = Reply(Done())
#: Events after which the next profile slot or end of a grace period may differ. Monotasks' events are not among them.
_MAY_MOVE_THE_ALARM = frozenset({e.FollowRequested, e.Sampled, e.MemoryLooked, e.Woken, e.Decided, e.Recovered})
#: Events after which waiting opportunistic work may find slack at once; samples reveal all other changes.
_MAY_FREE_SLACK = frozenset({e.ContainerExited, e.ContainerNotStarted, e.Reconfigured})


class Node:
    """The state of a node, and every decision made on it."""

    def __init__(self, settings: NodeSettings, queues: MonotaskQueues | None = None) -> None:
        """``queues``: others than those of the settings."""
        self.settings = settings
        self.queues = queues or MonotaskQueues(
            settings.capacity,
            network_bypass_bytes=settings.network_bypass_bytes,
            rate_window_s=settings.rate_window_s,
            disk_small_bytes=settings.disk_small_bytes,
            lease_s=settings.lease_s,
            lease_kept_s=settings.lease_kept_s,
            job_wait_max_s=settings.job_wait_max_s,
            ranked=settings.ranked,
        )
        self.ids = Ids(settings.instance)
        self.members = Membership()
        self.sessions: Mapping[int, Session] = self.members.sessions
        self.jobs: Mapping[str, Job] = self.members.jobs
        self.containers = Containers(settings.keep_ended)
        self.held = tasks.HeldTasks()
        self.ranks = Ranks(settings.capacity.cores, has_master=settings.has_master)
        self.granting = Granting(settings, self.members, self.queues, self.held, self.containers, self.ranks, self.ids)
        self.rank_report = RankReport(self.ranks)
        self.attained = Attained(self.queues, self.ranks)
        self.borrowing = Borrowing(self.members, self.containers, self.ranks, self.attained, self.ids)
        self.lifecycle = JobLifecycle(
            settings.has_master, self.members, self.queues, self.held, self.containers, self.ranks, self.attained,
            self.granting, self.borrowing,
        )  # fmt: skip
        self.waits = turns.WaitsJournal()
        self.decided = 0
        self.now = 0.0  # time of the latest event
        self.elasticity = Elasticity(settings)
        self.executors = Executors(settings, self.elasticity)
        self.stock = Stock(settings.capacity, self.containers, self.held, self.elasticity, self.executors)
        self.slack = Slack(settings, self.queues, self.containers, self.held, self.stock)
        self.preempting = Preempting(settings, self.containers, self.stock, self.slack)
        self.drain = Drain(settings.node, self.members, self.queues, self.held, self.containers, self.lifecycle)
        self.placed = PlacedWork(
            settings, self.members, self.queues, self.held, self.containers, self.ranks, self.elasticity,
            self.executors, self.stock, self.slack, self.preempting, self.granting, self.lifecycle, self.drain,
        )  # fmt: skip
        self.decisions = Decisions(
            self.members, self.queues, self.held, self.elasticity, self.executors, self.granting, self.lifecycle,
            self.drain, self.placed,
        )  # fmt: skip
        self._wake: float | None = None
        self._handlers: dict[type[Any], Callable[[Any, float], list[Instruction]]] = {
            e.Completed: self._completed,
            e.Submitted: self._submitted,
            e.Cancelled: self._cancelled,
            e.SessionOpened: self._session_opened,
            e.SessionClosed: self._session_closed,
            e.JobRegistered: self._job_registered,
            e.JobIntroduced: self._job_introduced,
            e.JobEndRequested: self._job_end_requested,
            e.JobLeft: self._job_left,
            e.PlacementRequested: self._placement_requested,
            e.TasksReportedDone: self._tasks_done,
            e.TaskCancelRequested: self._tasks_cancelled,
            e.ProgressReported: self._progress,
            e.LaunchRequested: partial(running.launch_requested, self),
            e.AdoptRequested: partial(running.adopt_requested, self),
            e.LendRequested: partial(running.lend_requested, self),
            e.GivenBack: partial(running.given_back, self),
            e.ResizeRequested: partial(running.resize_requested, self),
            e.FollowRequested: partial(running.follow_requested, self),
            e.AttachRequested: partial(running.attach_requested, self),
            e.KillRequested: partial(running.kill_requested, self),
            e.ContainerStarted: partial(running.container_started, self),
            e.ContainerNotStarted: partial(running.container_not_started, self),
            e.ContainerExited: partial(running.container_exited, self),
            e.LauncherLost: partial(running.launcher_lost, self),
            e.Confined: partial(running.confined, self),
            e.Reclaimed: self.preempting.reclaimed,
            e.MemoryLooked: self._memory_looked,
            CpuLooked: lambda event, now: self.rank(event.snapshot),
            e.Woken: self._woken,
            e.Decided: self._decided,
            EndHeard: self.held.end_heard,
            EndUnread: lambda event, now: tasks.end_unread(self.jobs, event),
            e.Sampled: self._sampled,
            e.Reconfigured: self._reconfigured,
            e.Recovered: partial(recovery.recovered, self),
        }

    def handle(self, event: e.Event, now: float) -> list[Instruction]:
        """Handle an event.

        Raises:
            RpcError: the request is invalid or refused; nothing has changed.
        """
        self.now = now
        instructions = self._handlers[type(event)](event, now)
        self.ranks.due |= not isinstance(event, e.Sampled)
        if self.held.waiting and type(event) in _MAY_FREE_SLACK:
            instructions += self.placed.start_waiting(now)
        if type(event) in cores.MAY_MOVE_CORES:
            instructions += self.granting.withhold(now)
        if type(event) in _MAY_MOVE_THE_ALARM:
            instructions += self._alarm(now)
        return instructions

    # ------------------------------------------------------------ for other modules to read

    def ledger(self) -> Ledger:
        """Return the sums of promised, requested and used resources now."""
        return self.stock.ledger(self.now)

    def load(self, now: float) -> Load:
        """Return the heartbeat's load (Ursa §4.2.2, UBIS §IV.A), with the jobs that changed since the last one."""
        self.now, ledger = now, self.ledger()
        claimed, waiting_bytes = self.slack.claimed()
        in_use = self.slack.in_use(ledger) + claimed
        pending, coming = self.queues.pending(), 0
        for held in self.held:
            if held.request.command is None:  # a command's work is in the queue until it is done
                pending = pending + held.remaining
                coming += held.takes_core
        return Load(
            rates=self.queues.rates(now),
            pending=pending,
            idle=self.queues.idle().minus(KindAmounts(cpu=coming)),
            used_cores=in_use.cpu,
            used_memory_bytes=ledger.used_memory_bytes + waiting_bytes,
            disk_busy=in_use.disk,
            network_busy=in_use.network,
            opportunistic_queue_free=self.slack.queue_free(),
            most_commands=beyond.most_commands(self.queues) if self.attained.most_commands_read else 0,
            promised_cores=ledger.promised_cores,
            promised_memory_bytes=ledger.promised_memory_bytes,
            opportunistic_memory_bytes=ledger.asked_memory_bytes,
            jobs=self.attained.report(now),
            t_alloc=self.slack.moved_t_alloc,
            availability=self.executors.availability(ledger, now),
            ranks=self.rank_report.changed(),
        )

    def heartbeat(self, now: float) -> Heartbeat:
        """Return the load, and the use of executors that the master has not been told."""
        load = self.load(now)
        return Heartbeat(load, self.decided, executors=self.executors.report(load), own=self.drain.own_work())

    def link_opens(self) -> None:
        """Start over on a new connection to the master, which numbers requests anew and has lost all reports."""
        self.decided = 0
        self.attained.tell_all()
        self.rank_report.link_opens()
        self.executors.link_opens()

    def job_states(self) -> list[JobState]:
        """Return the jobs whose origin is this node, for a master that rebuilds its state."""
        return [job_state(job.record, job.stages) for job in self.jobs.values() if job.record.here]

    # ------------------------------------------------------------ sessions and jobs

    def _session_opened(self, event: e.SessionOpened, now: float) -> list[Instruction]:
        session = Session(event.session, event.user, event.uid, event.client, event.operator, event.container)
        self.members.sessions[event.session] = session
        return []

    def _session_closed(self, event: e.SessionClosed, now: float) -> list[Instruction]:
        if (session := self.members.sessions.pop(event.session, None)) is None:
            return []
        stopping = event.stopping
        instructions = self.borrowing.agent_stops(session) if stopping else self.lifecycle.closed(session, now)
        for container in sorted(session.launched):
            record = self.containers.live.get(container)
            if record is not None and not record.spec.detach:
                instructions += self.containers.stop(container, EndedBy.DISCONNECTED, session.disconnected)
        return instructions

    def _job_registered(self, event: e.JobRegistered, now: float) -> list[Instruction]:
        session = self.sessions[event.session]
        request = event.request
        if request.priority != request.priority:
            raise bad_request("not a number", field="priority")
        if request.job:
            job = self.members.job_of(event.session, request.job, member=False)
            instructions: list[Instruction] = []
        else:
            quotas.check_job(session, self.settings.quotas, self.jobs.values())
            fresh = self.ids.fresh(f"{self.settings.node}-")
            slack_only = request.opportunistic == "only"  # it takes nothing that could be reserved
            record = JobRecord(
                job=fresh, name=request.name, user=session.user, memory_bytes=0 if slack_only else request.memory_bytes,
                priority=request.priority, submitted_at=event.at, admitted=not self.settings.has_master,
                opportunistic=request.opportunistic, reservation=request.reservation,
            )  # fmt: skip
            job, instructions = self.lifecycle.add(record, now)
            if self.settings.has_master:
                instructions.append(TellMaster("job_submitted", job_state(record)))
        self.members.join(session, job)
        reply = JobRegistered(job=job.record.job, admitted=job.record.admitted)
        return [Reply(reply), *instructions, *(self.rank() if session.container else ())]

    def _job_introduced(self, event: e.JobIntroduced, now: float) -> list[Instruction]:
        return self.lifecycle.welcome(event.job, event.name, event.user, event.priority, now)

    def _job_end_requested(self, event: e.JobEndRequested, now: float) -> list[Instruction]:
        job = self.members.job_of(event.session, event.job)
        return [_DONE, *self.lifecycle.end(job, now)]

    def _job_left(self, event: e.JobLeft, now: float) -> list[Instruction]:
        self.lifecycle.left(event)
        return [_DONE]

    # ------------------------------------------------------------ monotasks: the hot path

    def _submitted(self, event: e.Submitted, now: float) -> list[Instruction]:
        self.members.job_of(event.session, event.job)
        quotas.check_queue(
            self.sessions[event.session], self.settings.quotas, self.jobs, self.queues, len(event.monotasks)
        )
        granted = self.queues.submit(event.session, event.job, event.monotasks, now)
        for spec in event.monotasks:
            if spec.task:  # from now on the queue counts this work, not the task
                work = KindAmounts.single(spec.kind, float(spec.input_bytes))
                self.held.submitted(event.job, spec.task, work)
        grants = self.granting.granted(granted, now)
        if self.granting.withheld_slots and self.sessions[event.session].container:
            grants += self.granting.withhold(now)  # connections of a promised container have its cores as slots
        return [Reply(Submitted(accepted=len(event.monotasks))), *grants, *self.granting.recalls()]

    def _completed(self, event: e.Completed, now: float) -> list[Instruction]:
        self.members.job_of(event.session, event.job)
        granted = self.queues.complete(event.session, event.job, event.monotasks, now)
        return [_DONE, *self.granting.granted(granted, now)]

    def _cancelled(self, event: e.Cancelled, now: float) -> list[Instruction]:
        self.members.job_of(event.session, event.job)
        return [_DONE, *self.granting.granted(self.queues.cancel(event.session, event.job, event.ids, now), now)]

    # ------------------------------------------------------------ placement

    def _placement_requested(self, event: e.PlacementRequested, now: float) -> list[Instruction]:
        job = self.members.job_of(event.session, event.job)
        if not self.settings.has_master:
            raise unavailable("this agent has no master to place tasks", remedy="set `master` in its configuration")
        opened, bounds = self.sessions[event.session], self.settings.quotas
        quotas.check_tasks(opened, bounds, self.jobs.values(), len(event.tasks))
        floors.check_tasks(event.tasks)
        for command in filter(None, (task.command for task in event.tasks)):
            quotas.check_pids(opened, bounds, command.limits)
        return [Reply(Done()), *tasks.place(job, event.stage, event.tasks, event.opportunistic)]

    def _tasks_done(self, event: e.TasksReportedDone, now: float) -> list[Instruction]:
        return [Reply(Done()), *tasks.done(self.members.job_of(event.session, event.job), event.tasks, self.held)]

    def _tasks_cancelled(self, event: e.TaskCancelRequested, now: float) -> list[Instruction]:
        return [Reply(Done()), *tasks.cancel(self.members.job_of(event.session, event.job), event.tasks)]

    def _progress(self, event: e.ProgressReported, now: float) -> list[Instruction]:
        """Store the progress: the master orders jobs by it, and is told again if it rebuilds its state."""
        job = self.members.job_of(event.session, event.request.job)
        job.stages = event.request.stages
        tell = [TellMaster("progress", event.request)] if job.record.here and self.settings.has_master else []
        return [Reply(Done()), *tell]

    def _sampled(self, event: e.Sampled, now: float) -> list[Instruction]:
        """Apply a sample: preemption uses it, and so does every admission until the next one."""
        self.stock.snapshot = event.snapshot
        self.granting.uses.sampled(event.snapshot)
        self.executors.surrogate.sampled(event.snapshot, self.settings.sample_interval_s)
        instructions = self.granting.granted(self.queues.tick(now), now)  # starving jobs get slots
        told, granted = turns.take_back(self.queues, self.settings.slot_held_max_s, now)
        instructions += told + self.granting.granted(granted, now)
        instructions += self.waits.sampled(self.queues, self.settings.job_wait_max_s, event.at, now)
        instructions += self.executors.journal(self.containers.live)
        instructions += self.lifecycle.orphans_left(self.settings.rejoin_s, now)
        instructions += self.elasticity.sampled(event.snapshot, self.containers.live, self.stock.beside(), now)
        instructions += self.preempting.sampled(event.snapshot, event.at, now)
        instructions += self.placed.sampled(self.settings.opportunistic_wait_s, now)
        return instructions + (self.rank() if instructions or self.ranks.moved_on(event.snapshot) else [])

    def rank(self, snapshot: Snapshot | None = None) -> list[Instruction]:
        """Rank the jobs, by a newer snapshot if there is one, and update the containers whose weight has changed."""
        self.stock.snapshot = snapshot or self.stock.snapshot
        live, sessions, wait_max_s = self.containers.live.values(), self.sessions.values(), self.settings.job_wait_max_s
        return self.ranks.rank(live, self.jobs, sessions, self.stock.snapshot, self.now, wait_max_s)

    def _woken(self, event: e.Woken, now: float) -> list[Instruction]:
        """Apply profile slots that begin and grace periods that end."""
        self._wake = None
        ended = self.preempting.woken(event.at, now)
        return ended + self.elasticity.changes(self.containers.live, self.stock.beside(), self.stock.snapshot, now)

    def _alarm(self, now: float) -> list[Instruction]:
        """Return a Wake if the next time has changed."""
        wake = min((at for at in (self.preempting.due(), self.elasticity.due(now)) if at is not None), default=None)
        before, self._wake = self._wake, self._wake if wake is None else wake
        return [Wake(wake)] if wake is not None and wake != before else []

    # ------------------------------------------------------------ decisions of the master, settings

    def _decided(self, event: e.Decided, now: float) -> list[Instruction]:
        """Carry out the decisions that are possible; the reply lists those refused, and why."""
        instructions: list[Instruction] = []
        refusals: list[Refusal] = []
        for index, decision in enumerate(event.decisions):
            why = self.decisions.carry_out(decision, instructions, now)
            if why:
                refusals.append(Refusal(index=index, reason=why))
        self.decided = event.number
        if any(isinstance(decision, SetPriority) for decision in event.decisions):
            instructions += self.granting.granted(beyond.reordered(self.queues, now), now)
            instructions += self.rank()  # so that the order is the same on all nodes as soon as they receive it
        return [Reply(Decided(refused=refusals)), *instructions]

    def _memory_looked(self, event: e.MemoryLooked, now: float) -> list[Instruction]:
        self.stock.snapshot = event.snapshot
        return self.preempting.memory_looked(event, now)

    def _reconfigured(self, event: e.Reconfigured, now: float) -> list[Instruction]:
        """Give every part that keeps settings its new ones. Grants remain."""
        self.settings = after = self.settings.changed(event.settings)
        self.queues.reconfigure(after.disk_small_bytes, after.lease_s, after.lease_kept_s, after.job_wait_max_s)
        self.granting.reconfigure(after)
        self.elasticity.reconfigure(after)
        self.slack.reconfigure(after)
        return self.containers.keep(after.keep_ended) + self.preempting.reconfigure(after, event.at, now)

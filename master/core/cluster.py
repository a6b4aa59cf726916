"""The only interface to the cluster's state: ``handle(event, now) → instructions``.

``now`` is monotonic time in seconds. An invalid message raises RpcError and changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from master.core import events as e
from master.core import message_checks
from master.core.admission import Admission
from master.core.ahead import Ahead
from master.core.draining import Drain
from master.core.dues import Clock, Dues
from master.core.executor_round import ExecutorRound
from master.core.executors import Executors
from master.core.guarantees import Guarantees
from master.core.instructions import Hangup, Instruction
from master.core.job import Job, Key
from master.core.job_lifecycle import JobLifecycle
from master.core.kept_room import KeptRoom
from master.core.late_executors import LateExecutors
from master.core.listing import Listing
from master.core.membership import Membership
from master.core.node import Node
from master.core.order import Order
from master.core.outbox import Outbox
from master.core.plan import PlanFollower
from master.core.priorities import Priorities
from master.core.registering import Registration
from master.core.regular import RegularWork
from master.core.rounds import Rounds
from master.core.settings import CurrentSettings, MasterSettings
from master.core.slack import SlackWork
from master.core.snapshot import Snapshots
from master.core.stored_state import StoredState
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from master.core.task_reports import TaskReports
from master.core.unlearnt_jobs import UnlearntJobs
from master.core.user_quotas import UserQuotas
from master.core.waiting import WaitingStages
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress
from penstock.wire.errors import bad_request, refused


class Cluster:
    """The owners of the cluster's state, and the way of each event through them.

    The owners are built from the lower to the higher ones: each gets those that it changes or reads, and none gets the
    cluster. The public ones are for other modules to read.
    """

    def __init__(self, settings: MasterSettings, draw: Callable[[], float] = lambda: 0.0) -> None:
        """``draw`` returns random numbers in [0, 1) for policies that need them."""
        self.current_settings = shared = CurrentSettings(settings)
        self.clock = clock = Clock()
        self.dues = dues = Dues(shared)
        self._stored = stored = StoredState()
        self.drains, self.past, self.sizes, self.history = stored.drains, stored.past, stored.sizes, stored.history
        self.hand_orders = hand_orders = stored.hand_orders
        self.table = table = NodeTable(shared, stored.task_lengths)
        self.members = members = Membership(table, self.drains)
        self.nodes: Mapping[str, Node] = members.nodes
        self.jobs: Mapping[str, Job] = members.jobs
        self.outbox = outbox = Outbox(members)
        self.counts = outbox.counts
        self.guarantees = Guarantees(members)
        self.order = Order(shared, members, table, self.history, self.sizes, hand_orders, self.guarantees, clock)
        self.snapshots = Snapshots(shared, members, table, clock)
        self.executors = executors = Executors(settings.executor_placement, draw, dues, members, outbox)
        self.unlearnt = UnlearntJobs(shared, clock, dues, self.history, self.past, self.sizes, members, self.order)
        self.listing = Listing(members, self.past, self.order, self.unlearnt)
        self.user_quotas = UserQuotas(shared, self.past, table, members, executors)
        self._priorities = Priorities(shared, dues, members, outbox, self.guarantees, clock)
        self._tasks = tasks = TaskLifecycle(shared, dues, table, members, outbox, executors)
        self._lifecycle = lifecycle = JobLifecycle(
            shared, clock, dues, hand_orders, self.past, members, outbox, executors, self.unlearnt, tasks
        )
        self.drain = Drain(clock, dues, self.drains, table, members, outbox, executors, tasks)
        self._reports = TaskReports(shared, dues, self.past, table, members, outbox, tasks, lifecycle, self.drain)
        self._registration = Registration(
            shared, dues, self.past, table, members, outbox, executors, tasks, lifecycle, self.drain
        )
        self.admission = Admission(
            shared, dues, self.history, table, members, outbox, self.order, self.snapshots, executors, tasks,
            self.guarantees, clock,
        )  # fmt: skip
        self._rounds = self._steps()
        self._handlers = self._routes()

    def _steps(self) -> Rounds:
        """Return the rounds, with the owner of each step."""
        shared, dues, table, members, outbox = self.current_settings, self.dues, self.table, self.members, self.outbox
        snapshots, executors, quotas, tasks = self.snapshots, self.executors, self.user_quotas, self._tasks
        waiting = WaitingStages(shared, table, snapshots)
        ahead = Ahead(self.clock, dues, table, members, snapshots, waiting, tasks)
        kept = KeptRoom(table, members)
        regular = RegularWork(self.drains, members, snapshots, waiting, quotas, tasks, ahead, kept)
        plan = PlanFollower(self.clock, members, outbox, self.guarantees, executors, quotas, tasks, kept)
        slack = SlackWork(dues, self.drains, table, members, outbox, self.order, snapshots, quotas, tasks)
        placing = ExecutorRound(
            shared, self.drains, members, outbox, snapshots, executors, quotas, tasks, kept,
            LateExecutors(table, members, executors, kept),
        )  # fmt: skip
        return Rounds(
            shared, dues, table, members, outbox, self.order, self._priorities, executors, quotas, self.admission,
            waiting, ahead, regular, plan, kept, slack, placing,
        )  # fmt: skip

    def _routes(self) -> dict[type[Any], Callable[[Node, Any, float], None]]:
        """Return the handler of each message of a registered node."""
        return {
            api.Heartbeat: self._heartbeat,
            api.JobState: self._lifecycle.submitted,
            api.JoinJob: self._lifecycle.joined,
            api.JobEnded: self._lifecycle.ended,
            api.ReadyTasks: self._tasks_ready,
            Progress: self._progress,
            api.TasksDone: self._reports.tasks_done,
            api.TasksCancelled: self._reports.tasks_cancelled,
            api.CommandEnded: self._reports.command_ended,
        }

    def handle(self, event: e.Event, now: float) -> list[Instruction]:
        """Handle an event and return the resulting instructions.

        Raises: RpcError: the message is invalid; nothing has changed.
        """
        self.clock.now = now
        match event:
            case e.Received(name, message):
                self._received(name, message, now)
            case e.Answered():
                self._reports.answered(event)
            case e.NodeAway(name):
                self._node_away(name, now)
            case e.Forecasted() | e.ForecastsOutdated():
                self.executors.forecasts_changed(event)
            case e.DrainRequested() | e.UndrainRequested() | e.CancelRequested() | e.OrderRequested():
                self._requested(event)
            case e.Reconfigured(settings):
                self._reconfigure(settings)
            case e.StateRestored():
                self._stored.restore(event)
                self.table.follow_lengths()
            case e.RoundDue(at, stalled_s):
                self.clock.unix_ahead_s = at - now
                if stalled_s > 0:
                    self._stalled(stalled_s, now)
                self._expire(now)
                self._rounds.run(now)
        self.unlearnt.overdue(now)
        if now >= self.dues.order_due:
            self._priorities.spread(self.order.rank_for_agents(now), now)
        if self.dues.room_changed:
            self.admission.look(now)
        return self.outbox.hand_over(self._stored.take_changes())

    @property
    def settings(self) -> MasterSettings:
        """Return the settings in force."""
        return self.current_settings.current

    @property
    def wants_round(self) -> bool:
        """Return whether a round could do what the last one could not, or a new order is due."""
        dues = self.dues
        may_place = dues.changed and (self.members.ready_tasks > 0 or dues.promotable)
        return may_place or (dues.order_owed and self._priorities.may_change)

    def want_round(self) -> None:
        """Make a round due, because something outside of the events has changed."""
        self.dues.changed = True

    def end_is_unconfirmed(self, key: Key) -> bool:
        """Return whether the end of a task has yet to reach the job's origin."""
        job = self.jobs.get(key[0])
        return job is not None and key[1] in job.unconfirmed_ends

    # ------------------------------------------------------------ requests of people

    def _requested(self, event: e.Requested) -> None:
        match event:
            case e.CancelRequested():
                self._lifecycle.cancel_requested(event)
            case e.OrderRequested():
                self.hand_orders.requested(event)
                self.dues.order_anew()
                self.dues.place_and_admit()
                self.outbox.explain("jobs ordered by hand", by=event.by, jobs=list(event.jobs), of_all=event.of_all)
            case _:
                self.drain.requested(event)

    # ------------------------------------------------------------ messages

    def _received(self, name: str, message: e.Message, now: float) -> None:
        if isinstance(message, api.Register):
            if message.node != name:
                raise bad_request(f"this connection is {name!r}", field="node")
            self._registration.register(message, now)
            return
        node = self.nodes.get(name)
        if node is None or not node.connected:
            raise refused(f"node {name!r} is not registered", remedy="register again")
        node.last_message_at = now
        self.table.last_message_at[self.table.rows[name]] = now
        self._handlers[type(message)](node, message, now)

    def _heartbeat(self, node: Node, message: api.Heartbeat, now: float) -> None:
        if message.decided > node.requests.number:
            raise bad_request(f"there is no request {message.decided} yet", field="decided")
        node.heartbeats += 1
        external = node.external_memory_bytes
        node.take_load(message.load, message.decided)
        if self._lifecycle.attained(node, message.load):
            self._priorities.served(node, now)
        if message.commands:
            self.unlearnt.commands_ended(message.commands)
        if message.executors:
            self.executors.reported(node, message.executors)
        if node.draining is not None and message.decided >= node.draining_in:  # sent once the node knew of the drain
            node.own = message.own
        self.table.refresh(node)
        self.dues.changed = True
        self.dues.room_changed |= node.external_memory_bytes != external

    def joined(self, job: str) -> api.JobJoined:
        """Return the answer to an accepted :class:`~penstock.wire.master_api.JoinJob`."""
        known = self.jobs[job]
        return api.JobJoined(name=known.name, user=known.user, priority=known.priority)

    def _tasks_ready(self, node: Node, message: api.ReadyTasks, now: float) -> None:
        job = message_checks.job_of_origin(self.jobs, node, message.job)
        message_checks.check_tasks(message)
        self._tasks.add_tasks(job, message)
        if job.cancelled_by:
            self._lifecycle.stop(job)  # the origin did not know of the cancellation yet

    def _progress(self, node: Node, message: Progress, now: float) -> None:
        job = message_checks.job_of_origin(self.jobs, node, message.job)
        job.work.report(message.stages)
        if job.some_executors:
            self.executors.stages(job, message.stages)

    # ------------------------------------------------------------ inside

    def _node_away(self, name: str, now: float) -> None:
        node = self.nodes.get(name)
        if node is not None and node.connected:
            node.connection_lost(now)
            self.table.refresh(node)
            self.outbox.explain("agent disconnected", node=name, waits_s=self.settings.node_timeout_s)

    def _stalled(self, stalled_s: float, now: float) -> None:
        """Take a time in which the master received nothing out of the silence of each node."""
        if stalled_s > self.settings.heartbeat_s:
            self.outbox.explain("master stalled", stalled_s=round(stalled_s, 3))
        for node in self.nodes.values():
            node.excuse_silence(stalled_s, now)
            self.table.refresh(node)

    def _expire(self, now: float) -> None:
        """Remove nodes that were away or silent for too long. An empty node drained before it left gets longer: nothing
        waits for its work, but the jobs submitted there would end with it.
        """
        timeout_s = self.settings.node_timeout_s
        for node in self.table.silent(now, timeout_s):
            if node.away_since is None:
                self.outbox.instruct(Hangup(node.name, f"silent for more than {timeout_s:g} s"))
                self._lose(node, f"node {node.name} was silent for more than {timeout_s:g} s")
                continue
            empty = node.draining is not None and not node.held
            longest_s = self.settings.drained_timeout_s if empty else timeout_s
            if now - node.away_since > longest_s:
                self._lose(node, f"node {node.name} was away for more than {longest_s:g} s")

    def _lose(self, node: Node, why: str) -> None:
        """Remove a lost node: its tasks are lost or placed again, and the jobs it is the origin of are over."""
        node.expired()
        del self.members.nodes[node.name]
        self.dues.gathers_since = self.clock.now
        self.table.remove(node)
        self.executors.usage.gone(node.name)
        self.unlearnt.node_lost(node.name)
        self.counts["nodes_lost"] += 1
        self.outbox.explain("node lost", node=node.name, why=why, tasks=len(node.held))
        for held in node.held.values():
            self.members.unmark(node, held)
            if (found := self.members.at_home(node, held.key)) is not None:
                self._tasks.lost(*found, why)
        for job in self.jobs.values():
            job.work.gone(node.name)
            job.hosts.pop(node.name, None)
        for job in [job for job in self.jobs.values() if job.origin == node.name]:
            self._lifecycle.end_job(job, why, lost=True)

    def _reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings. Placed tasks stay where they are. A changed ordering starts without its earlier state."""
        before = self.settings
        self.current_settings.current = after = before.changed(settings)
        self.table.reconfigured()
        self.dues.place_and_admit()
        self.dues.order_due = -math.inf
        self.order.reconfigured()
        if before.network_aware != after.network_aware:
            for job in self.jobs.values():
                job.demands_changed()

"""The only interface to the cluster's state: ``handle(event, now) → instructions``.

``now`` is monotonic time in seconds. An invalid message raises RpcError and changes nothing.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

from master.core import (
    admission,
    answers,
    cancelling,
    draining,
    ends,
    executors,
    learning,
    lifecycle,
    priorities,
    promises,
    registering,
    rounds,
    standing,
)
from master.core import events as e
from master.core.checking import check_job, check_tasks
from master.core.drains import Drains
from master.core.executors import Executors
from master.core.hand_orders import HandOrders
from master.core.history import History
from master.core.instructions import EndHeard, Explain, Hangup, Instruction, Keep, Predict, SendDecisions, StoreRun
from master.core.memory import MemoryEstimates
from master.core.past import PastJobs, remember_sizes
from master.core.places import Places
from master.core.plan import NothingPromised, Plan
from master.core.records import Job, Key, Node, Task, weight_bytes
from master.core.settings import MasterSettings
from master.core.table import NodeTable
from master.core.views import cluster_view, job_views, totals
from master.ordering import JobSizes, Ranking, ordering_of, promised_first
from master.placement.lengths import TaskLengths
from penstock.wire import master_api as api
from penstock.wire.agent_api import Progress
from penstock.wire.errors import bad_request, refused

#: Largest size of one request's decisions; far below the frame limit, and a node processes it in milliseconds.
_REQUEST_BYTES = 1024 * 1024


class Cluster:
    """The state of the cluster and every decision made about it."""

    def __init__(self, settings: MasterSettings, draw: Callable[[], float] = lambda: 0.0) -> None:
        """``draw`` returns random numbers in [0, 1) for policies that need them."""
        self.settings = settings
        self.nodes: dict[str, Node] = {}
        self.task_lengths = TaskLengths()
        self.table = NodeTable(settings, self.task_lengths)
        self.jobs: dict[str, Job] = {}
        self.past = PastJobs()
        self.leaving: dict[Key, dict[str, None]] = {}  # nodes that still hold an unwanted copy of a task
        self.sizes = JobSizes()
        self.ordering = ordering_of(settings.ordering_settings(), self.sizes)
        self._slack_ordering = ordering_of(settings.ordering_settings(), self.sizes)
        self.drains = Drains()
        self.hand_orders = HandOrders()
        self.places = Places()
        self.plan: Plan = NothingPromised()
        self.history = History()
        self.unlearnt: dict[str, learning.Unlearnt] = {}  # finished jobs that are still to be learnt from, by due time
        self.memory = MemoryEstimates()
        self.executors = Executors(settings.executor_placement, draw)
        self.counts: Counter[str] = Counter()
        self.ready_tasks = 0
        self.gathers_since: float | None = None  # the first registration, or the latest loss of a node; monotonic
        self.gathers_until = -math.inf  # nothing is placed earlier; monotonic
        self.changed = False  # something changed since the last round that may let a task be placed
        self.room_changed = False  # the reservable memory or the set of waiting jobs changed
        self.promotable = False  # opportunistic work may be on some node
        self.ordered_at = -math.inf  # when the order of jobs was last computed for the agents, monotonic
        self.order_due = math.inf  # when to compute that order next
        self.ahead_due = 0.0  # when to look next for commands that may start ahead of others (monotonic)
        self.order_owed = False  # jobs have come or gone: compute the order before the next heartbeat
        self.now = 0.0  # time of the latest event, monotonic
        self._unix_at = 0.0  # Unix time minus monotonic time, as of the last round
        self._sequence = 0
        self._spoken_to: dict[str, None] = {}
        self._out: list[Instruction] = []
        self._handlers: dict[type[Any], Callable[[Node, Any, float], None]] = {
            api.Heartbeat: self._heartbeat,
            api.JobState: self._job_submitted,
            api.JoinJob: self._job_joined,
            api.JobEnded: self._job_ended,
            api.ReadyTasks: self._tasks_ready,
            Progress: self._progress,
            api.TasksDone: partial(ends.tasks_done, self),
            api.TasksCancelled: partial(ends.tasks_cancelled, self),
            api.CommandEnded: partial(ends.command_ended, self),
        }

    def handle(self, event: e.Event, now: float) -> list[Instruction]:
        """Handle an event and return the resulting instructions.

        Raises: RpcError: the message is invalid; nothing has changed.
        """
        self.now = now
        match event:
            case e.Said(name, message):
                self._said(name, message, now)
            case e.Answered(name, number, refusals):
                answers.answered(self, name, number, refusals)
            case e.NodeAway(name):
                self._node_away(name, now)
            case e.Forecasted() | e.Learnt():
                executors.heard(self, event)
            case e.DrainAsked() | e.UndrainAsked() | e.CancelAsked() | e.OrderAsked():
                self._asked(event)
            case e.Reconfigured(settings):
                self._reconfigure(settings)
            case e.Remembered():
                self._remember(event)
            case e.RoundDue(at):
                self._unix_at = at - now
                rounds.run(self, now)
        learning.overdue(self, now)
        if now >= self.order_due:
            priorities.spread(self, self.rank(now), now)
        if self.room_changed:
            admission.look(self, now)
        return self._hand_over()

    @property
    def wants_round(self) -> bool:
        """Return whether a round could place or promote something that the last one could not, or a new order is
        due.
        """
        return self.order_owed or (self.changed and (self.ready_tasks > 0 or self.promotable))

    # ------------------------------------------------------------ for the modules of this package

    def unix(self, now: float) -> float:
        """Return Unix time, as used for times of submission; it only affects the order of jobs."""
        return now + self._unix_at

    def rank_opportunistic(self, now: float) -> Ranking:
        """Rank the jobs for opportunistic work, by the share of it that each job has."""
        total = totals(self)
        views = job_views(self, [job for job in self.jobs.values() if job.described], total, opportunistic=True)
        ranking = self._slack_ordering.rank(views, cluster_view(total, self.unix(now)))
        return self.hand_orders.arrange(ranking, views)

    def rank(self, now: float) -> Ranking:
        """Rank the jobs: guaranteed jobs first, then described jobs in the configured order, then early jobs.

        Orders by hand are applied within the configured order.
        """
        total, at = totals(self), self.unix(now)
        views = job_views(self, [job for job in self.jobs.values() if job.described], total)
        ranking = self.hand_orders.arrange(self.ordering.rank(views, cluster_view(total, at)), views)
        ranking = promised_first(ranking, *promises.guarantees(self, at))
        self.places.ranked(ranking)
        return ranking

    def propose(self, node: str, decision: api.AnyDecision) -> int:
        """Add a decision to the node's next request; return the request's number, or 0 where the node is not
        connected.
        """
        known = self.nodes.get(node)
        if known is None or not known.connected:
            return 0
        weight = weight_bytes(decision)
        if not known.outbox or known.outbox_weight + weight > _REQUEST_BYTES:
            known.outbox.append([])
            known.outbox_weight = 0
        known.outbox[-1].append(decision)
        known.outbox_weight += weight
        self._spoken_to[node] = None
        return known.number + len(known.outbox)

    def instruct(self, instruction: Predict | StoreRun | EndHeard) -> None:
        """Emit an instruction for work in the background, or for an answer."""
        self._out.append(instruction)

    def order_anew(self) -> None:
        """Recompute the order of jobs for the agents at once, or ``interval_s`` after the last time."""
        self.order_due, self.order_owed = min(self.order_due, self.ordered_at + self.settings.interval_s), True

    def explain(self, what: str, **facts: object) -> None:
        """Emit a log entry."""
        self._out.append(Explain(what, facts))

    def hang_up(self, node: str, reason: str) -> None:
        """Close the connection to a node."""
        self._out.append(Hangup(node, reason))

    def new_job(self, job: str, origin: str, now: float) -> Job:
        """Add a job that the master does not know yet; its origin is expected to register if it is away."""
        self._sequence += 1
        self.unlearnt.pop(job, None)  # a job that ended with its origin has come back, and is counted when it ends
        created = self.jobs[job] = Job(job, origin, self._sequence)
        self.expect(origin, now)
        return created

    def expect(self, name: str, now: float) -> Node:
        """Return the node, adding it if only others have reported it; a new node has ``node_timeout_s`` to register."""
        node = self.nodes.get(name)
        if node is None:
            node = self.nodes[name] = Node(name, away_since=now, draining=self.drains.draining(name))
            self.table.add(node)
        return node

    @property
    def fresh(self) -> bool:
        """Return whether no job has been reported yet."""
        return self._sequence == 0

    def untold(self, key: Key) -> bool:
        """Return whether the end of a task has yet to reach the job's origin."""
        job = self.jobs.get(key[0])
        return job is not None and key[1] in job.untold

    def task(self, key: Key) -> Task | None:
        """Return a task that has not ended; None where there is none."""
        job = self.jobs.get(key[0])
        return job.tasks.get(key[1]) if job is not None else None

    # ------------------------------------------------------------ requests of people

    def _asked(self, event: e.Asked) -> None:
        match event:
            case e.CancelAsked():
                cancelling.asked(self, event)
            case e.OrderAsked():
                self.hand_orders.asked(event)
                self.order_anew()
                self.changed = self.room_changed = True
                self.explain("jobs ordered by hand", by=event.by, jobs=list(event.jobs), of_all=event.of_all)
            case _:
                draining.asked(self, event)

    # ------------------------------------------------------------ messages

    def _said(self, name: str, message: e.Message, now: float) -> None:
        if isinstance(message, api.Register):
            if message.node != name:
                raise bad_request(f"this connection is {name!r}", field="node")
            registering.register(self, message, now)
            return
        node = self.nodes.get(name)
        if node is None or not node.connected:
            raise refused(f"node {name!r} is not registered", remedy="register again")
        node.last_heard = now
        self.table.heard[self.table.rows[name]] = now
        self._handlers[type(message)](node, message, now)

    def _heartbeat(self, node: Node, message: api.Heartbeat, now: float) -> None:
        if message.decided > node.number:
            raise bad_request(f"there is no request {message.decided} yet", field="decided")
        node.heartbeats += 1
        external = node.external_memory_bytes
        node.take_load(message.load, message.decided)
        lifecycle.attained(self, node, message.load)
        if message.load.jobs:
            priorities.served(self, node, now)
        if message.executors:
            executors.reported(self, node, message.executors)
        draining.heard(node, message)
        self.table.refresh(node)
        self.changed = True
        self.room_changed |= node.external_memory_bytes != external

    def _job_submitted(self, node: Node, message: api.JobState, now: float) -> None:
        job = self.jobs.get(message.job)
        if job is not None and job.origin != node.name:
            raise bad_request(f"job {message.job!r} belongs to node {job.origin!r}", field="job")
        check_job(message)
        if job is None:
            job = self.new_job(message.job, node.name, now)
            job.since_birth = True
        lifecycle.describe(self, job, message)
        self.room_changed = True

    def _job_joined(self, node: Node, message: api.JoinJob, now: float) -> None:
        job = self.jobs.get(message.job)
        past = self.past.get(message.job)
        by = job.cancelled_by if job is not None else past.cancelled_by if past is not None else ""
        if by:
            raise refused(f"job {message.job!r} was cancelled by {by}", field="job")
        # its own origin does not know it any more: it is over
        if job is None or not job.described or job.origin == node.name:
            raise bad_request(f"unknown job {message.job[:128]!r}", field="job", remedy="register_job first")
        if message.user not in {"", job.user}:
            raise refused(f"job {message.job!r} belongs to {job.user}", field="job")
        job.served_by(node.name, job.priority)  # the answer carries the priority
        job.work.told_last.discard(node.name)
        node.job_came_at = max(node.job_came_at, job.came_at)
        node.serves.add(job.job)

    def joined(self, job: str) -> api.JobJoined:
        """Return the answer to an accepted :class:`~penstock.wire.master_api.JoinJob`."""
        known = self.jobs[job]
        return api.JobJoined(name=known.name, user=known.user, priority=known.priority)

    def _job_ended(self, node: Node, message: api.JobEnded, now: float) -> None:
        job = self.jobs.get(message.job)
        if job is None:  # registration has already shown that it ended
            if message.use is not None:
                learning.received(self, node, message.use)
            return
        standing.own(self, node, message.job)
        if message.use is not None:
            job.work.attained(node.name, message.use)
        why = message.why or "its job ended"
        job.work.finished = message.done
        told, listed = message.why, not message.merged_into
        more = message.use is not None
        lifecycle.end_job(self, job, why, told=told, released_by=node.name, listed=listed, more_to_tell=more)

    def _tasks_ready(self, node: Node, message: api.ReadyTasks, now: float) -> None:
        job = standing.own(self, node, message.job)
        check_tasks(message)
        lifecycle.add_tasks(self, job, message)
        if job.cancelled_by:
            cancelling.stop(self, job)  # the origin did not know of the cancellation yet

    def _progress(self, node: Node, message: Progress, now: float) -> None:
        job = standing.own(self, node, message.job)
        job.work.tell(message.stages)
        if job.some_executors:
            executors.stages(self, job, message.stages)

    # ------------------------------------------------------------ inside

    def _node_away(self, name: str, now: float) -> None:
        node = self.nodes.get(name)
        if node is not None and node.connected:
            node.away_since = now
            self.table.refresh(node)
            self.explain("node away", node=name, waits_s=self.settings.node_timeout_s)

    def _remember(self, event: e.Remembered) -> None:
        self.drains.remember(event.drains)
        self.hand_orders.remember(event.orders)
        self.past.restore(event.jobs)
        remember_sizes(self.sizes, event.sizes, event.jobs)
        self.history.restore(event.needed)
        self.task_lengths.restore(event.lengths)
        self.table.follow_lengths()

    def _reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings. Placed tasks stay where they are. A changed ordering starts without its earlier state."""
        before = self.settings
        self.settings = after = before.changed(settings)
        self.table.reconfigure(after)
        if before.ordering_settings() != after.ordering_settings():
            self.ordering = ordering_of(after.ordering_settings(), self.sizes)
            self._slack_ordering = ordering_of(after.ordering_settings(), self.sizes)
        if before.network_aware != after.network_aware:
            for job in self.jobs.values():
                job.waiting = None
                job.summed_up.clear()
                for task in job.tasks.values():
                    task.need = None
        self.changed = self.room_changed = True
        self.order_due = -math.inf

    def _hand_over(self) -> list[Instruction]:
        """Number the proposed decisions, and hand them and the changes to be stored to the shell."""
        for name in self._spoken_to:
            node = self.nodes.get(name)
            if node is None:
                continue
            for decisions in node.outbox:
                node.number += 1
                node.unanswered[node.number] = decisions
                self.counts["decisions"] += len(decisions)
                self._out.append(SendDecisions(name, node.number, decisions))
            node.outbox = []
        self._spoken_to.clear()
        kept = Keep(
            self.drains.take_changes(), self.past.take_changes(), self.sizes.take_changes(),
            self.hand_orders.take_changes(), self.history.take_changes(), self.task_lengths.take_changes(),
        )  # fmt: skip
        if kept:
            self._out.append(kept)
        out, self._out = self._out, []
        return out

"""Opportunistic work in a round (UBIS, Algorithm 1): promotion before regular work is placed, slack after it."""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass

import numpy as np

from master.core.drains import Drains
from master.core.dues import Dues
from master.core.job import Job, Task
from master.core.membership import Membership
from master.core.node import Held, Node
from master.core.order import Order
from master.core.outbox import Outbox
from master.core.slack_demands import Stage
from master.core.snapshot import RoundSnapshot, Snapshots, holds
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from master.core.user_quotas import RoundQuotas, UserQuotas
from master.opportunistic import Slack, why_not
from master.ordering import Ranking
from master.placement.workers import COLUMN
from penstock.model.units import counted, format_bytes
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class SlackWork:
    """Promotes opportunistic tasks and places them on slack."""

    _dues: Dues
    _drains: Drains
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _order: Order
    _snapshots: Snapshots
    _user_quotas: UserQuotas
    _tasks: TaskLifecycle

    def promote(self, limits: RoundQuotas | None) -> None:
        """Promote opportunistic tasks on their nodes, oldest first (UBIS §IV.D), within their users' limits."""
        table = self._table
        table.settle()
        some = [table.nodes[row] for row in np.flatnonzero(table.opportunistic[: len(table.nodes)])]
        self._dues.promotable = bool(some)
        for node in some:
            for held in node.held.values() if node.takes_work else ():
                if self._may_be_promoted(node, held):
                    self._promote(node, held, limits)

    def _may_be_promoted(self, node: Node, held: Held) -> bool:
        if held.regular or held.leaving or not held.accepted:
            return False
        job, task = self._members.jobs.get(held.job), self._members.task(held.key)
        allowed = job is not None and job.admitted and task is not None and task.opportunistic != "only"
        return allowed and node.heartbeats >= held.promotable_from

    def _promote(self, node: Node, held: Held, limits: RoundQuotas | None) -> None:
        """Promote a task where its memory, its cores and the slot that a command ran without can be promised."""
        free, cores = node.memory_free_bytes() - node.kept_memory_bytes, node.cores_free() - node.kept_cores
        if held.memory_bytes > free or held.cores > cores + 1e-9:
            return
        table = self._table
        if held.command and held.needs_slot:
            idle = table.idle[table.rows[node.name], COLUMN[held.kind]]
            if idle < 1 or node.kept_tasks:  # the idle slot may be one of those kept
                return
        amounts = held.holds()
        if limits is not None and limits.take(self._user_quotas.user_of(held), (amounts.cores, amounts.memory_bytes)):
            return
        why = f"ubis: {format_bytes(free)} and {counted(cores, 'core')} of {node.name} are not promised"
        held.promoted_in = self._outbox.propose(node.name, api.Promote(job=held.job, task=held.task, why=why))
        table.refresh(node)
        self._outbox.counts["promoted"] += 1

    def place(self, now: float) -> None:
        """Place tasks that found no regular room, and allow slack, by the order of the opportunistic shares."""
        jobs = [job for job in self._members.jobs.values() if job.described and job.some_opportunistic]
        jobs = [job for job in jobs if any(allows for _, allows in job.ready)]
        if not jobs:
            return
        snapshot = self._snapshots.take()
        slack = snapshot.slack()
        waiting: dict[str, deque[Task]] = {}
        for job in jobs:
            if some := self._hopeful(job, snapshot, slack):
                waiting[job.job] = deque(some)
        if waiting or self._order.ranks_each_round:  # as in :class:`master.core.rounds.Rounds`
            self._by_turns(waiting, snapshot, slack, self._order.rank_opportunistic(now))
        self._record_waits(snapshot, slack, jobs)

    def _hopeful(self, job: Job, snapshot: RoundSnapshot, slack: Slack) -> list[Task]:
        """Return the tasks of the stages for which some node may have slack. A stage is summed up again if its
        smallest tasks have left since, so that tasks are examined only where one may find a place.
        """
        found: list[Task] = []
        for stage, tasks in job.ready.items():
            if not stage[1] or not self._may_take(job, stage, snapshot, slack):
                continue
            job.slack_demands.anew(stage, (task.request for task in tasks.values() if task.request is not None))
            if self._may_take(job, stage, snapshot, slack):
                found += [task for task in tasks.values() if not (job.some_executors and task.elastic)]
        return found

    def _may_take(self, job: Job, stage: Stage, snapshot: RoundSnapshot, slack: Slack) -> bool:
        return any(
            slack.may_take(snapshot.slack_demand_of(request), command=request.command is not None)
            for request in job.slack_demands.least(stage)
        )

    def _by_turns(
        self, waiting: dict[str, deque[Task]], snapshot: RoundSnapshot, slack: Slack, ranking: Ranking
    ) -> None:
        """Place one task of the first job at a time; each placement may change which job is first."""
        queues = {job: waiting[job] for job in ranking.order() if job in waiting}
        keys = {job: ranking.key(job, 0.0) for job in queues}
        in_vain = Counter[str]()
        while queues:
            first = max(queues, key=keys.__getitem__)
            task = queues[first].popleft()
            if not queues[first]:
                del queues[first]
            demand, request = snapshot.slack_demand(task), task.request
            assert request is not None
            given = slack.give(demand)
            queued = given is None and request.command is not None
            given = slack.queue_up(demand) if queued else given
            if given is None:
                in_vain[task.job] += 1
                if in_vain[task.job].bit_count() == 1 and first in queues:  # seldom, as it takes a while
                    self._drop_hopeless(queues, self._members.jobs[first], snapshot, slack)
                continue
            node, of = snapshot.node(given.worker), self._members.jobs[task.job]
            self._tasks.assign(of, task, node, given.why, on_slack=True, queued=queued)
            moved = ranking.charge(task.job, holds(request))
            for job in queues if moved else {first} & queues.keys():
                keys[job] = ranking.key(job, 0.0)

    def _drop_hopeless(self, queues: dict[str, deque[Task]], job: Job, snapshot: RoundSnapshot, slack: Slack) -> None:
        """Drop a job's other tasks if slack, which only shrinks, is exhausted for all its stages."""
        if not any(stage[1] and self._may_take(job, stage, snapshot, slack) for stage in job.ready):
            del queues[job.job]

    def _record_waits(self, snapshot: RoundSnapshot, slack: Slack, jobs: list[Job]) -> None:
        """Record why slack-only tasks wait, of jobs whose other tasks are all placed."""
        for job in jobs:
            only = [(stage, tasks) for (stage, allows), tasks in job.ready.items() if allows == "only"]
            if only and (not job.waits or job.slack_only):
                stage, tasks = only[0]
                lacking = why_not(snapshot.slack_demand(next(iter(tasks.values()))), slack)
                lacking += self._drains.note(self._members.nodes)
                wait = "waits" if len(tasks) == 1 else "wait"
                job.wait(f"{counted(len(tasks), 'task')} of stage {stage} {wait} for slack: {lacking}")
            elif job.slack_only:
                job.wait("")  # all its tasks run since this round

"""Nodes that are lost: away or silent for too long."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from master.core.clock import Clock
from master.core.dues import Dues
from master.core.executors import Executors
from master.core.instructions import Hangup
from master.core.job_lifecycle import JobLifecycle
from master.core.membership import Membership
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from master.core.unlearnt_jobs import UnlearntJobs


@dataclass(eq=False, repr=False)
class Expiry:
    """Removes lost nodes with their work."""

    _settings: CurrentSettings
    _clock: Clock
    _dues: Dues
    _counts: Counter[str]
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _executors: Executors
    _unlearnt: UnlearntJobs
    _tasks: TaskLifecycle
    _lifecycle: JobLifecycle

    def expire(self, now: float) -> None:
        """Remove nodes that were away or silent for too long. An empty node drained before it left gets longer: nothing
        waits for its work, but the jobs submitted there would end with it.
        """
        timeout_s = self._settings.current.node_timeout_s
        for node in self._table.silent(now, timeout_s):
            if node.away_since is None:
                self._outbox.instruct(Hangup(node.name, f"silent for more than {timeout_s:g} s"))
                self._lose(node, f"node {node.name} was silent for more than {timeout_s:g} s")
                continue
            empty = node.draining is not None and not node.held
            longest_s = self._settings.current.drained_timeout_s if empty else timeout_s
            if now - node.away_since > longest_s:
                self._lose(node, f"node {node.name} was away for more than {longest_s:g} s")

    def _lose(self, node: Node, why: str) -> None:
        """Remove a lost node: its tasks are lost or placed again, and the jobs it is the origin of are over."""
        node.expired()
        del self._members.nodes[node.name]
        self._dues.node_lost(self._clock.now)
        self._table.remove(node)
        self._executors.usage.gone(node.name)
        self._unlearnt.node_lost(node.name)
        self._counts["nodes_lost"] += 1
        self._outbox.explain("node lost", node=node.name, why=why, tasks=len(node.held))
        for held in node.held.values():
            self._members.unmark(node, held)
            job, task = self._members.jobs.get(held.job), self._members.task(held.key)
            if job is not None and task is not None and task.node == node.name:
                self._tasks.lost(job, task, why)
        for job in self._members.jobs.values():
            job.work.gone(node.name)
            job.hosts.pop(node.name, None)
        for job in [job for job in self._members.jobs.values() if job.origin == node.name]:
            self._lifecycle.end_job(job, why, told=why, lost=True)

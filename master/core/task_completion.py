"""Agents' messages about tasks that ended or are to end."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from master.core import backing_off, message_checks
from master.core.dues import Dues
from master.core.finished_jobs import FinishedJobs
from master.core.job_lifecycle import JobLifecycle
from master.core.membership import Membership
from master.core.node import Node
from master.core.settings import CurrentSettings
from master.core.task_lifecycle import TaskLifecycle, keep_end
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class TaskCompletion:
    """Handles the agents' messages about ends."""

    _settings: CurrentSettings
    _dues: Dues
    _counts: Counter[str]
    _past: FinishedJobs
    _members: Membership
    _tasks: TaskLifecycle
    _lifecycle: JobLifecycle

    def tasks_done(self, node: Node, message: api.TasksDone, now: float) -> None:
        """Handle tasks that a framework executes itself and has finished. The message may come through any node that
        takes part in the job. The holding node is told to release the task, unless it sent the message: then it has
        already done so.

        Raises: RpcError: ``refused``: this node does not take part in the job.
        """
        for name in message.tasks:
            self._let_go(node, (message.job, name))
        job = self._members.jobs.get(message.job)
        if job is None:
            return
        message_checks.check_part(node, job)
        for name in message.tasks:
            task = job.tasks.get(name)
            if task is None:
                continue
            held = self._members.held_of(task)
            if task.node == node.name and held is not None and not held.command:
                self._tasks.drop(node, held)  # that agent released the task before it sent the message
                backing_off.done(node, held)
            else:
                self._tasks.recall(task, "its framework says that it is done")
            if node.name == job.origin:
                self._tasks.forget(job, task)
                self._counts["ended_exit"] += 1
                self._dues.changed = True
            else:
                task.found(task.node or node.name, on_slack=task.on_slack)  # executed before its placement was known
                self._tasks.end(job, task, Ended(by=EndedBy.EXIT, exit_status=0, reason=f"done, said at {node.name}"))

    def _let_go(self, node: Node, key: tuple[str, str]) -> None:
        """Release a framework's task on a node that was told to withdraw it, since the node has reported it done first.

        Otherwise, until the node answers the withdrawal, memory that other tasks got there meanwhile would be counted
        as this task's. A copy that the node has not accepted yet is later than the reported one, so it stays.
        """
        held = node.held.get(key)
        if held is not None and held.leaving and held.accepted and not held.command:
            self._tasks.drop(node, held)

    def tasks_cancelled(self, node: Node, message: api.TasksCancelled, now: float) -> None:
        """Cancel tasks that the origin no longer wants. A placed command ends when its node reports how; others end
        now.

        Raises: RpcError: ``refused``: this node is not the job's origin.
        """
        if message.job not in self._members.jobs:
            return
        job = message_checks.job_of_origin(self._members.jobs, node, message.job)
        for name in message.tasks:
            task = job.tasks.get(name)
            if task is not None and not task.unwanted:
                self._tasks.cancel(job, task, "cancelled")

    def command_ended(self, node: Node, message: api.CommandEnded, now: float) -> None:
        """Handle the end of a command on its node. A withdrawn copy that has been placed elsewhere since ends silently.

        Messages on a connection keep their order, so an end that arrives before the assignment's answer is that of an
        earlier copy. It counts as the task's end unless that copy was stopped: then the present copy continues. After a
        restart of the master only the origin knows the task: until the origin registers, the end is kept.
        """
        key = (message.job, message.task)
        job, task, held = self._members.jobs.get(message.job), self._members.task(key), node.held.get(key)
        stopped = message.ended.by in (EndedBy.CANCELLED, EndedBy.PREEMPTED)
        self._dues.changed = True
        if task is None and not stopped and self._origin_is_to_come(message):
            job = job or self._lifecycle.new_job(message.job, message.origin, now)
            keep_end(job, message.task, node.name, message.ended)
        if held is not None and held.accepted:
            self._tasks.drop(node, held)
            if message.ended.by is EndedBy.EXIT:
                backing_off.done(node, held)
            if job is not None and task is not None and task.node == node.name:
                if message.ended.by is not EndedBy.PREEMPTED:
                    self._tasks.end(job, task, message.ended)
                # preempted through no fault of its own: back to its job's queue (UBIS §IV.C)
                elif task.request is not None:
                    backing_off.preempted(self._settings.current, node, task, message.ended, now)
                    self._tasks.requeue(job, task)
                else:  # only its origin knows the task, and reports it at registration
                    self._tasks.forget(job, task)
            return
        was_here = task is not None and (task.node or task.was_on) == node.name
        if job is not None and task is not None and was_here and not stopped:
            if held is not None:
                self._tasks.withdraw(node, held, "an earlier copy of it has ended")
            task.found(node.name, on_slack=task.on_slack)
            self._tasks.end(job, task, message.ended)

    def _origin_is_to_come(self, message: api.CommandEnded) -> bool:
        """Return whether the origin may still report the job: neither for a finished job, nor once the origin has
        reported.
        """
        job, past = self._members.jobs.get(message.job), self._past.get(message.job)
        origin = self._members.nodes.get(job.origin if job is not None else message.origin)
        if (past is not None and past.cancelled_by) or (origin is not None and origin.connected):
            return False
        return job is None or not job.described

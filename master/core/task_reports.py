"""Agents' messages about tasks: decisions that they have carried out or refused, and tasks that ended or are to end."""

from __future__ import annotations

from dataclasses import dataclass

from msgspec import structs

from master.core import events as e
from master.core import message_checks
from master.core.draining import Drain
from master.core.dues import Dues
from master.core.finished_jobs import FinishedJobs
from master.core.job import Task
from master.core.job_lifecycle import JobLifecycle
from master.core.membership import Membership
from master.core.node import Held, Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings, MasterSettings
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle, keep_end
from master.opportunistic import SlackLimit, pause_after
from penstock.model import Ended, EndedBy
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class TaskReports:
    """Handles the agents' answers to decisions, and their messages about ends."""

    _settings: CurrentSettings
    _dues: Dues
    _past: FinishedJobs
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _tasks: TaskLifecycle
    _lifecycle: JobLifecycle
    _drain: Drain

    # ------------------------------------------------------------ decisions

    def answered(self, answer: e.Answered) -> None:
        """Record that the agent carried out every decision of the request except the refused ones."""
        node = self._members.nodes.get(answer.node)
        if node is None:
            return
        reasons = {refusal.index: refusal.reason for refusal in answer.refused}
        # none: sent on a connection that was lost since; the registration reported the true state
        for index, decision in enumerate(node.requests.answered(answer.number)):
            reason = reasons.get(index)
            match decision:
                case api.Assign():
                    self._assigned(node, answer, decision, reason)
                case api.Withdraw():
                    held = node.held.get((decision.job, decision.task))
                    # A framework's task is released at once, a command when it has ended; a refusal means that the node
                    # did not have it.
                    if held is not None and held.leaving and (reason is not None or not held.command):
                        self._tasks.rid_of(node, held)
                case api.Promote():
                    self._promoted(node, answer.number, decision, reason)
                case api.Drain():
                    drains = decision.draining is not None
                    if reason is None:
                        self._drain.confirmed(node, answer.number, decision)
                    else:  # the agent does not support drains; nothing is placed there all the same
                        self._outbox.explain("drain refused", node=node.name, draining=drains, reason=reason)
                case api.TellEnded():
                    job = self._members.jobs.get(decision.job)
                    if job is not None:
                        self._tasks.end_acknowledged(job, decision.task)

    def _assigned(self, node: Node, answer: e.Answered, decision: api.Assign, reason: str | None) -> None:
        key = (decision.job, decision.request.task)
        held = node.held.get(key)
        if held is None or held.assigned_in != answer.number:
            return  # the task has ended already: the node's report of that arrived first
        if reason is None:
            held.step("accepted")
            self._table.touch(node)
            if (found := self._members.at_home(node, key)) is not None:
                job, accepted = found
                if answer.places_known and job.origin == node.name:
                    accepted.origin_knows(node.name)
                self._tasks.tell_placed(job, accepted)
            return
        self._outbox.counts["refused"] += 1
        self._outbox.explain("refused", node=node.name, job=key[0], task=key[1], reason=reason, why=decision.why)
        if (task := self._members.task(key)) is not None:
            task.refusals[node.name] = node.heartbeats
        self._tasks.rid_of(node, held)

    def _promoted(self, node: Node, number: int, decision: api.Promote, reason: str | None) -> None:
        held = node.held.get((decision.job, decision.task))
        if held is None or held.promoted_in != number:
            return
        self._table.touch(node)
        if reason is None:
            held.opportunistic = False
            if (found := self._members.at_home(node, held.key)) is not None:
                found[1].on_slack = False
        else:
            held.promotion_refused(node.heartbeats)

    # ------------------------------------------------------------ ends

    def tasks_done(self, node: Node, message: api.TasksDone, now: float) -> None:
        """Handle tasks that a framework executes itself and has finished. The message may come through any node that
        takes part in the job. The holding node is told to release the task, unless it sent the message: then it has
        already done so.

        Raises: RpcError: ``refused``: this node does not take part in the job.
        """
        job = self._members.jobs.get(message.job)
        if job is not None:
            message_checks.check_part(node, job)  # before it lets go: a copy that it is to give back is a part, too
        for name in message.tasks:
            self._let_go(node, (message.job, name))
        if job is None:
            return
        for name in message.tasks:
            task = job.tasks.get(name)
            if task is None or (task.request is not None and task.request.command is not None):
                continue  # a command's own end is reported
            held = self._members.held_of(task)
            if task.node == node.name and held is not None and not held.command:
                self._tasks.drop(node, held)  # that agent released the task before it sent the message
                _ended_well(node, held)
            else:
                self._tasks.recall(task, "its framework says that it is done")
            if node.name == job.origin:
                self._tasks.remove(job, task)
                self._outbox.counts["ended_exit"] += 1
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
        now. After restarts of origin and master, the node of a task may report it only later.

        Raises: RpcError: ``refused``: this node is not the job's origin.
        """
        if message.job not in self._members.jobs:
            return
        job = message_checks.job_of_origin(self._members.jobs, node, message.job)
        for name in message.tasks:
            task = job.tasks.get(name)
            if task is None and not job.since_birth and not job.complete:
                job.cancelled_unseen.add(name)
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
        cancelled = held is not None and held.cancelled
        self._dues.changed = True
        if task is None and (cancelled or not stopped) and self._origin_is_to_come(message):
            job = job or self._lifecycle.new_job(message.job, message.origin, now)
            ended = structs.replace(message.ended, by=EndedBy.CANCELLED) if stopped else message.ended
            keep_end(job, message.task, node.name, ended)
            job.ran_on.add(node.name)
        if held is not None and held.accepted:
            self._tasks.drop(node, held)
            if message.ended.by is EndedBy.EXIT:
                _ended_well(node, held)
            if job is not None and task is not None and task.node == node.name:
                if message.ended.by is not EndedBy.PREEMPTED:
                    self._tasks.end(job, task, message.ended)
                # preempted through no fault of its own: back to its job's queue (UBIS §IV.C)
                elif task.request is not None:
                    _back_off(self._settings.current, node, task, message.ended, now)
                    self._tasks.requeue(job, task)
                else:  # only its origin knows the task, and reports it at registration
                    self._tasks.remove(job, task)
            return
        was_here = task is not None and (task.node or task.was_on) == node.name
        if job is not None and task is not None and was_here and not stopped:
            if held is not None:
                self._tasks.withdraw(node, held, "an earlier copy of it has ended", again=True)
            task.found(node.name, on_slack=task.on_slack)
            self._tasks.end(job, task, message.ended)

    def _origin_is_to_come(self, message: api.CommandEnded) -> bool:
        """Return whether the origin may still report a job: it is away, and the job neither cancelled nor described."""
        job, past = self._members.jobs.get(message.job), self._past.get(message.job)
        origin = self._members.nodes.get(job.origin if job is not None else message.origin)
        if (past is not None and past.cancelled_by) or (origin is not None and origin.connected):
            return False
        return job is None or not job.described


def _back_off(settings: MasterSettings, node: Node, task: Task, ended: Ended, now: float) -> None:
    """Back off after a node ended a command for its resources; the node's held tasks no longer include the command.

    A command without an exit status did not run: the node handed it back, which says nothing against the node. The same
    holds for a drained node, which ends all its opportunistic work.
    """
    first_s, most_s = settings.preemption_backoff_s, settings.preemption_backoff_max_s
    if not first_s or ended.exit_status is None or node.draining is not None:
        return
    task.pauses[node.name] = pause_after(task.pauses.get(node.name), now, first_s, most_s)
    left = sum(not held.regular and not held.leaving for held in node.held.values())
    node.slack_limit = SlackLimit.after_preemption(left, now, most_s)


def _ended_well(node: Node, held: Held) -> None:
    """Raise the node's limit: an opportunistic task ended there without a preemption."""
    if node.slack_limit is not None and not held.regular:
        node.slack_limit.most += 1

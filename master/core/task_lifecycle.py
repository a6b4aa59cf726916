"""Lifecycle of tasks: every accepted task is ready, placed, or has ended, and it ends once."""

from __future__ import annotations

from dataclasses import dataclass, field

from master.core.dues import Dues
from master.core.executors import Executors
from master.core.finished_jobs import note_end
from master.core.instructions import AcknowledgeEnd
from master.core.job import Job, Task
from master.core.membership import Membership
from master.core.memory import MemoryEstimates
from master.core.node import Held, Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from master.core.table import NodeTable
from penstock.model import Ended, EndedBy, Profile, TaskRequest
from penstock.model.work import Opportunistic
from penstock.wire import master_api as api


@dataclass(eq=False, repr=False)
class TaskLifecycle:
    """Makes tasks ready, places them, withdraws them, and ends them."""

    _settings: CurrentSettings
    _dues: Dues
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _executors: Executors
    _memory: MemoryEstimates = field(init=False, default_factory=MemoryEstimates)

    def add_tasks(self, job: Job, message: api.ReadyTasks) -> None:
        """Add ready tasks. A known task keeps its state, of which its origin, which has lost it, is told again."""
        requests = message.tasks
        if self._settings.current.memory_estimate:
            requests = self._memory.stated(job, message.stage, requests)
        for request in requests:
            known = job.tasks.get(request.task)
            if known is not None:
                self.know(known, request, self._members.held_of(known), message.opportunistic)
                known.origin_knows("")
                self.tell_if_placed(job, known)
                continue
            if request.task in job.unconfirmed_ends:
                told = job.unconfirmed_ends[
                    request.task
                ]  # both messages to the origin were lost: the task's node, and its end
                if told.node:
                    self._outbox.propose(job.origin, api.TellPlaced(job=job.job, task=told.task, node=told.node))
                self._outbox.propose(job.origin, told)
                continue
            task = Task(job.job, request.task, message.stage, message.opportunistic, request)
            self.announce(job, task, request)
            self._make_ready(job, task)

    def announce(self, job: Job, task: Task, request: TaskRequest) -> None:
        """Add a task that its origin has described."""
        job.add(task)
        _see_executor(job, task)
        job.work.task_announced(task.stage, request.usage)
        self._outbox.counts["tasks"] += 1

    def know(self, task: Task, request: TaskRequest, held: Held | None, opportunistic: Opportunistic) -> None:
        """Update a task from its origin's request and ``opportunistic``, parts of which a node's report lacks."""
        job = self._members.jobs[task.job]
        if task.request is None:
            job.work.task_announced(task.stage, request.usage)
        job.some_opportunistic |= bool(opportunistic)
        task.know(request, opportunistic)
        job.stage_changed(task.stage)
        if task.opportunistic and not task.node:
            job.slack_demands.add((task.stage, task.opportunistic), request)
        _see_executor(job, task)
        if held is not None:
            held.know(request, job.user, executor=task.elastic and not held.opportunistic)
            self._table.touch(self._members.nodes[task.node])

    def _make_ready(self, job: Job, task: Task) -> None:
        """Make a task wait for a node."""
        job.make_ready(task)
        self._members.ready_tasks += 1
        self._dues.place_anew()
        if task.elastic:
            self._executors.ready(task)
            if job.described:
                self._executors.ask(job, task)

    def unready(self, job: Job, task: Task) -> None:
        """Stop a task from waiting for a node."""
        if job.unready(task):
            self._members.ready_tasks -= 1
            if job.some_executors:
                self._executors.unready(task)

    def assign(
        self,
        job: Job,
        task: Task,
        node: Node,
        why: str,
        *,
        on_slack: bool = False,
        queued: bool = False,
        profile: Profile | None = None,
    ) -> None:
        """Propose a task to a node, regular or ``on_slack``; it counts as held until the node has released it."""
        request = task.request
        assert request is not None
        self.unready(job, task)
        number = self._outbox.propose(
            node.name,
            api.Assign(
                job=job.job,
                stage=task.stage,
                user=job.user,
                origin=job.origin,
                priority=job.priority,
                request=request,
                opportunistic=on_slack,
                profile=profile,
                why=why,
            ),
        )
        task.place(node.name, why, on_slack=on_slack)
        held = node.held[job.job, task.name] = Held.of(task, request, job.user)
        held.propose(number, queued=queued)
        if not on_slack:  # EPT is for regular work
            self._table.see_length(node, request.usage)
        self._table.touch(node)
        self._members.serve(node, job)
        if job.hosts[node.name] is None:  # the node is yet to be told whose it is
            self._dues.order_anew()
        if on_slack:
            self._dues.promotable = True
        self._outbox.counts["assigned"] += 1

    def tell_placed(self, job: Job, task: Task) -> None:
        """Tell the origin the node that took the task; an origin that is away is told when it is back."""
        if task.request is not None and task.request.command is not None:
            job.ran_on.add(task.node)
        if not task.told:
            why = f"{task.node} accepted it"
            told = api.TellPlaced(job=job.job, task=task.name, node=task.node, why=why)
            task.origin_knows(task.node if self._outbox.propose(job.origin, told) else "")

    def tell_if_placed(self, job: Job, task: Task) -> None:
        """As :func:`tell_placed`, if the task's node has accepted it."""
        held = self._members.held_of(task)
        if held is not None and held.accepted:
            self.tell_placed(job, task)

    def end(self, job: Job, task: Task, ended: Ended) -> None:
        """End a task. Its origin is told until it confirms."""
        if ended.ok and task.request is not None:
            self._memory.learn(job, task.stage, task.request.usage, ended.memory_peak_bytes)
        if task.elastic:
            self._executors.ended(job, task, ended)
        note_end(job, task, ended)
        self.remove(job, task)
        if task.node:
            self.tell_placed(job, task)
        self._outbox.propose(job.origin, keep_end(job, task.name, task.node or task.was_on, ended))
        self._outbox.counts[f"ended_{ended.by}"] += 1
        self._dues.place_anew()

    def end_acknowledged(self, job: Job, task: str) -> None:
        """Drop a task's end after its origin confirmed it; its node may then drop it as well."""
        if job.unconfirmed_ends.pop(task, None) is not None:
            self._outbox.instruct(AcknowledgeEnd(job.job, task))

    def remove(self, job: Job, task: Task) -> None:
        """Remove a task from its job; its work counts as done."""
        self.unready(job, task)
        task.end()
        del job.tasks[task.name]
        if task.request is not None:
            job.work.task_ended(task.stage, task.request.usage)

    def requeue(self, job: Job, task: Task) -> None:
        """Make a task wait for a node again: it is not on its node, and did not end there."""
        self._executors.usage.drop((job.job, task.name))  # an executor did not end there
        task.requeue()
        if task.unwanted:
            self.end(job, task, Ended(by=EndedBy.CANCELLED, reason="cancelled before it ran"))
        else:
            self._make_ready(job, task)

    def lost(self, job: Job, task: Task, why: str) -> None:
        """Place a command lost with its node again (it may run more than once); a framework decides itself."""
        task.losses += 1
        again = task.request is not None and task.request.command is not None
        if task.unwanted or (again and task.losses < self._settings.current.max_losses):
            self._outbox.counts["placed_again"] += not task.unwanted
            self.requeue(job, task)
        else:
            times = f" ({task.losses} times)" if task.losses > 1 else ""
            self.end(job, task, Ended(by=EndedBy.LOST, reason=f"{why}{times}"))

    def withdraw(self, node: Node, held: Held, why: str, *, again: bool = False) -> None:
        """Tell a node to release a task; its memory counts until the node has. ``again``: the task is not cancelled.

        The node may register while it still stops a command, and be taken for the task's place; only with ``again`` is
        the end of that copy not the task's end.
        """
        if held.leaving:
            return
        self._outbox.propose(node.name, api.Withdraw(job=held.job, task=held.task, why=why, again=again))
        held.step("withdrawn")
        self._members.leaving.setdefault(held.key, {})[node.name] = None
        self._table.touch(node)
        self._outbox.counts["withdrawn"] += 1

    def recall(self, task: Task, why: str) -> Held | None:
        """Withdraw a task from its node; return what it holds there, None where it is on none."""
        node, held = self._members.nodes.get(task.node), self._members.held_of(task)
        if node is not None and held is not None:
            self.withdraw(node, held, why)
        return held

    def cancel(self, job: Job, task: Task, why: str) -> None:
        """Cancel a task. A placed command ends when its node reports how; others end now."""
        held = self.recall(task, why)
        if held is not None and held.command:
            task.unwanted = held.cancelled = True
        else:
            self.end(job, task, Ended(by=EndedBy.CANCELLED, reason=why))

    def drop(self, node: Node, held: Held) -> None:
        """Remove a held task from a node."""
        if held.regular and held.accepted:  # one that the node refuses was never there
            node.left_at = node.last_message_at
        held.step("released")
        del node.held[held.key]
        self._table.touch(node)
        self._members.unmark(node, held)

    def rid_of(self, node: Node, held: Held) -> None:
        """Handle that a node released a task and will not report how it ended."""
        self.drop(node, held)
        self._dues.changed = True
        if (found := self._members.at_home(node, held.key)) is not None:
            self.requeue(*found)


def _see_executor(job: Job, task: Task) -> None:
    if task.request is not None and task.request.executor is not None:
        job.executors_of = task.request.executor.application
        job.some_executors |= task.elastic


def keep_end(job: Job, task: str, node: str, ended: Ended) -> api.TellEnded:
    """Store how a task ended on a node until its origin confirms; return the message to the origin."""
    told = job.unconfirmed_ends[task] = api.TellEnded(job=job.job, task=task, node=node, ended=ended, why=ended.reason)
    return told

"""Registration of an agent after a lost connection, its restart, or a restart of the master; reconciles both sides'
state.

The agent's report of what its node holds is authoritative, as is the origin's report of what its frameworks want.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from master.core import message_checks
from master.core.draining import Drain
from master.core.dues import Dues
from master.core.executors import Executors
from master.core.finished_jobs import UNREPORTED, FinishedJobs
from master.core.job import Job, Key, Task
from master.core.job_lifecycle import JobLifecycle
from master.core.membership import Membership
from master.core.node import Held, Node
from master.core.outbox import Outbox
from master.core.settings import CurrentSettings
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from penstock.model.node_name import unprintable
from penstock.wire import master_api as api
from penstock.wire.errors import bad_request


@dataclass(eq=False, repr=False)
class Registration:
    """Reconciles the cluster's records with a node that registers."""

    _settings: CurrentSettings
    _dues: Dues
    _past: FinishedJobs
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _executors: Executors
    _tasks: TaskLifecycle
    _lifecycle: JobLifecycle
    _drain: Drain

    def register(self, message: api.Register, now: float) -> None:
        """Register an agent, as the module's docstring describes.

        Raises: RpcError: ``bad_request``: another protocol, an invalid name or number, or another node's job;
        nothing has changed.
        """
        self._check(message)
        new = message.node not in self._members.nodes
        # A former master may have assigned work that its origin does not know of, on a node that is not back yet.
        may_have = self._members.fresh and (message.jobs or message.placed)
        self._dues.node_registered(now, self._settings.current.gather_s if may_have else 0.0)
        node = self._members.expect(message.node, now)
        before = node.registered(message, now)
        for held in before.values():
            self._members.unmark(node, held)
        self._drain.registered(node, message.draining)
        self._table.touch(node)
        self._table.shape += 1
        jobs = self._jobs(node, message, now)
        self._tell_ends(message, jobs)
        wanted = self._wanted(message, now)
        self._holdings(node, message, before, now)
        for job in jobs:
            self._catch_up(job, wanted)
        self._lifecycle.repeat_cancellations(message, jobs)
        self._executors.registered(node)
        self._lifecycle.attained(node, message.load)
        self._table.refresh(node)
        self._dues.place_and_admit()
        self._outbox.explain(
            "node registered", node=node.name, new=new, version=message.version, cores=message.capacity.cores,
            memory_bytes=message.capacity.memory_bytes, jobs=len(message.jobs), placed=len(message.placed),
        )  # fmt: skip

    def _check(self, message: api.Register) -> None:
        if message.protocol != api.PROTOCOL:
            text = f"this master speaks protocol {api.PROTOCOL}, not {message.protocol}"
            raise bad_request(text, field="protocol", remedy="run the same release on the master and all agents")
        if wrong := unprintable(message.node):
            raise bad_request(wrong, field="node")
        capacity = message.capacity
        if not (math.isfinite(capacity.cores) and capacity.cores > 0):
            raise bad_request("expected more than 0 cores", field="capacity.cores")
        if capacity.memory_bytes <= 0 or min(capacity.disk_slots, capacity.network_slots) <= 0:
            raise bad_request("expected memory and at least one slot per kind", field="capacity")
        if not (math.isfinite(message.t_alloc) and message.t_alloc >= 0):
            raise bad_request("expected a non-negative number", field="t_alloc")
        for state in message.jobs:
            message_checks.check_job(state)
        message_checks.check_registration(self._members.jobs, message)
        for ready in message.ready:
            message_checks.check_tasks(ready)
        for index, placed in enumerate(message.placed):
            if not placed.remaining.is_valid():
                raise bad_request("expected non-negative numbers", field=f"placed[{index}].remaining")

    def _jobs(self, node: Node, message: api.Register, now: float) -> list[Job]:
        """Update the jobs of this origin; jobs that it no longer has are over, with an outcome that it reports next."""
        listed = {state.job for state in message.jobs}
        for job in [job for job in self._members.jobs.values() if job.origin == node.name and job.job not in listed]:
            self._lifecycle.end_job(job, UNREPORTED, reported=False)
        jobs: list[Job] = []
        for state in message.jobs:
            job = self._members.jobs.get(state.job) or self._lifecycle.new_job(state.job, node.name, now)
            job.origin = node.name
            job.waits_told = ""
            job.complete = message.complete
            self._lifecycle.describe(job, state)
            jobs.append(job)
        if jobs:
            self._dues.order_anew()
        return jobs

    def _holdings(self, node: Node, message: api.Register, before: dict[Key, Held], now: float) -> None:
        """Adopt the node's wanted holdings, withdraw unwanted ones, and handle those it no longer has."""
        for placed in message.placed:
            held = node.held[placed.job, placed.task]
            why = self._adopt(node, placed, held, now)
            if why:
                task = self._members.task(held.key)
                self._tasks.withdraw(node, held, why, again=task is not None and not task.unwanted)
        for key, known in before.items():
            if key not in node.held and (found := self._members.at_home(node, key)) is not None:
                if known.accepted:  # the report of its end was lost
                    self._tasks.lost(*found, f"{node.name} came back without it")
                else:  # the proposal was
                    self._tasks.requeue(*found)

    def _adopt(self, node: Node, placed: api.PlacedTask, held: Held, now: float) -> str:
        """Make the node the task's place; return why it must not be there, or an empty string."""
        job = self._members.jobs.get(placed.job)
        if job is None:
            if (past := self._past.get(placed.job)) is not None and past.cancelled_by:
                return past.view.why
            origin = self._members.nodes.get(placed.origin)
            if origin is not None and origin.connected:
                return "its job has ended"
            job = self._lifecycle.new_job(placed.job, placed.origin, now)
        task = job.tasks.get(placed.task)
        if why := _unwanted(job, task, placed.task, node):
            return why
        if placed.command:
            job.ran_on.add(node.name)
        if task is None:
            task = Task(placed.job, placed.task, placed.stage, placed.opportunistic, None)
            job.add(task)
        self._tasks.unready(job, task)
        task.found(node.name, on_slack=placed.opportunistic)
        job.some_opportunistic |= placed.opportunistic
        if node.name != job.origin:  # the origin reports its own priorities
            before = node.name in job.hosts or not job.described
            job.served_by(node.name, None if before else job.priority)
        if task.request is not None:
            self._tasks.know(task, task.request, held, task.opportunistic)
        if placed.opportunistic:
            self._dues.promotable = True
        if job.described:
            self._tasks.tell_placed(job, task)
        return ""

    def _wanted(self, message: api.Register, now: float) -> set[Key]:
        """Store the tasks that this origin's frameworks want, and return their keys."""
        wanted: set[Key] = set()
        for ready in message.ready:
            job = self._members.jobs.get(ready.job)
            if job is None:
                continue
            wanted.update((ready.job, request.task) for request in ready.tasks)
            self._tasks.add_tasks(job, ready)
        for awaited in message.awaited:
            wanted.add((awaited.job, awaited.request.task))
            self._awaited(awaited, now)
        return wanted

    def _tell_ends(self, message: api.Register, jobs: list[Job]) -> None:
        """Send ends that the origin has not confirmed. For tasks it considers ready, :func:`_wanted` sends more."""
        ready = {(ready.job, request.task) for ready in message.ready for request in ready.tasks}
        for job in jobs:
            for told in job.unconfirmed_ends.values():
                if (job.job, told.task) not in ready:
                    self._outbox.propose(job.origin, told)

    def _catch_up(self, job: Job, wanted: set[Key]) -> None:
        """Tell the origin where its tasks are; release those that it completed or cancelled in a lost message."""
        for task in list(job.tasks.values()):
            if job.complete and (job.job, task.name) not in wanted and not task.unwanted:
                self._tasks.recall(task, "its origin no longer waits for it")
                self._tasks.remove(job, task)
                self._outbox.counts["ended_cancelled"] += 1
            else:
                self._tasks.tell_if_placed(job, task)

    def _awaited(self, awaited: api.AwaitedTask, now: float) -> None:
        """Reconcile a task that the origin was told is on a node."""
        request = awaited.request
        job = self._members.jobs.get(awaited.job)
        if job is None or request.task in job.unconfirmed_ends:
            return
        task = job.tasks.get(request.task)
        holder = self._members.expect(awaited.node, now)
        there = holder.held.get((job.job, request.task))
        is_there = there is not None and (there.cancelled or not there.leaving)
        if task is None:
            task = Task(awaited.job, request.task, awaited.stage, awaited.opportunistic, request)
            on_slack = there.opportunistic if there is not None and is_there else awaited.opportunistic == "only"
            task.found(awaited.node, on_slack=on_slack, told=True)
            self._tasks.announce(job, task, request)
        else:
            held = self._members.held_of(task)
            self._tasks.know(task, request, held, awaited.opportunistic)
            # Of two copies, keep the one known to the framework; a command found only elsewhere may stay there.
            if task.node in ("", awaited.node) or held is None or not (is_there or request.command is None):
                task.origin_knows(awaited.node)
                return
            self._tasks.recall(task, f"its origin knows it on {awaited.node}")
            task.found(awaited.node, on_slack=task.on_slack, told=True)
        if there is not None and is_there:
            task.unwanted = there.cancelled  # then its origin, and so the job, was lost meanwhile
            self._tasks.know(task, request, there, awaited.opportunistic)
            return
        if holder.connected:
            self._tasks.lost(job, task, f"{holder.name} came back without it")
        else:  # it counts as held there until the node reports
            held = holder.held[job.job, task.name] = Held.of(task, request, job.user)
            held.step("found")
            self._tasks.know(task, request, held, task.opportunistic)


def _unwanted(job: Job, task: Task | None, name: str, node: Node) -> str:
    """Return why a node must not hold a task; empty where it may. For jobs known since their submission the master
    knows where their tasks were placed; for others it trusts the node.
    """
    if task is None and name in job.cancelled_unseen:
        return "cancelled"
    if task is None:
        known = job.described and (job.complete or job.since_birth)
        return "it has ended as far as its origin knows" if known or name in job.unconfirmed_ends else ""
    if task.node not in ("", node.name):
        return f"it runs on {task.node} by now"
    if task.unwanted:
        return "cancelled"
    here = not job.since_birth or node.name in (task.node, task.was_on)
    return "" if here else "it was not placed here, or elsewhere since"

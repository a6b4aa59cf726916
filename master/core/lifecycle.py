"""Lifecycle of jobs and tasks: every accepted task is ready, placed, or has ended, and it ends once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import executors, learning, standing
from master.core.instructions import EndHeard
from master.core.listing import past_of
from master.core.memory import input_bytes
from master.core.past import note_end
from master.core.priorities import first_priority, priority_of
from master.core.records import Held, Job, Node, Task
from penstock.model import Ended, EndedBy, Profile, TaskRequest
from penstock.model.work import Opportunistic
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster
    from master.core.vacancies import Demand


# ---------------------------------------------------------------- jobs


def describe(cluster: Cluster, job: Job, state: api.JobState) -> None:
    """Store the origin's description of a job."""
    job.name, job.user = state.name, state.user
    job.memory_bytes, job.submitted_at, job.reservation = state.memory_bytes, state.submitted_at, state.reservation
    if not job.described:
        # A job admitted by a former master keeps the priority that all agents know from that master.
        job.priority = state.priority if state.admitted else first_priority(state.submitted_at)
        for node in [node for node, told in job.hosts.items() if told is None]:
            job.served_by(node, state.priority)
        job.came_at = cluster.members.nodes[job.origin].job_came_at = cluster.clock.now
    job.described = True
    job.work.tell(state.stages)
    job.served_by(job.origin, state.priority)
    if state.priority != job.priority:
        why = f"{cluster.settings.ordering}: submitted at {job.submitted_at:.3f}, until the order is looked at"
        job.told(job.origin, cluster.outbox.propose(job.origin, priority_of(job, why)))
    cluster.dues.order_anew()
    job.admitted = job.admitted or state.admitted  # memory reserved before a restart of the master stays reserved
    if job.admitted and not state.admitted:
        cluster.outbox.propose(job.origin, api.AdmitJob(job=job.job, why="admitted before the connection was lost"))


def end_job(
    cluster: Cluster,
    job: Job,
    why: str,
    *,
    told: str = "",
    released_by: str = "",
    lost: bool = False,
    listed: bool = True,
    more_to_tell: bool = True,
) -> None:
    """End a job: withdraw its tasks and free its reservation.

    ``told``: the reason, where the job's framework did not end it. ``released_by``: an origin that released the
    framework's tasks there when it ended the job. ``lost``: the job ended with its origin. ``listed``: the job is
    stored with the finished jobs. ``more_to_tell``: nodes may yet report more of its service.
    """
    if job.described and listed:
        cluster.past.remember(past_of(job, told, cluster.clock.unix(cluster.clock.now), lost=lost))
    for task in list(job.tasks.values()):
        unready(cluster, job, task)
        node, held = cluster.members.nodes.get(task.node), cluster.members.held_of(task)
        if node is None or held is None:
            continue
        if node.name == released_by and not held.command and held.accepted:
            drop(cluster, node, held)
        else:
            withdraw(cluster, node, held, why)
    if job.described and listed:
        learning.job_over(cluster, job, teaches=not job.tasks and job.work.complete, waits=more_to_tell)
    if job.some_executors:
        cluster.executors.over(job.job)
    for name in job.hosts if not lost else ():  # a lost job may come back
        if (host := cluster.members.nodes.get(name)) is not None:
            host.serves.discard(job.job)
    if not lost:
        cluster.hand_orders.over(job.job, job.user)
    for name in list(job.untold):
        heard(cluster, job, name)
    del cluster.members.jobs[job.job]
    cluster.dues.order_anew()
    cluster.dues.place_and_admit()


def attained(cluster: Cluster, node: Node, load: api.Load) -> None:
    """Store a node's report of the service that jobs received there, and of what they hold."""
    for use in load.jobs:
        job = cluster.members.jobs.get(use.job)
        if job is None:
            learning.received(cluster, node, use)
        elif standing.takes_part(node, job):
            job.work.attained(node.name, use)
            if use.last:
                if any(key[0] == job.job for key in node.held):  # the node was given more meanwhile
                    job.work.told_last.discard(node.name)
            elif node.name not in job.hosts:
                job.served_by(node.name, job.priority if job.described else None)


# ---------------------------------------------------------------- tasks


def add_tasks(cluster: Cluster, job: Job, message: api.ReadyTasks) -> None:
    """Add ready tasks. A known task keeps its state, and its origin, which has lost it, is told that state again."""
    requests = message.tasks
    if cluster.settings.memory_estimate:
        requests = cluster.memory.stated(job, message.stage, requests)
    for request in requests:
        known = job.tasks.get(request.task)
        if known is not None:
            know(cluster, known, request, cluster.members.held_of(known), message.opportunistic)
            known.told = False
            tell_if_placed(cluster, job, known)
            continue
        if request.task in job.untold:
            told = job.untold[request.task]  # both messages to the origin were lost: the task's node, and its end
            if told.node:
                cluster.outbox.propose(job.origin, api.TellPlaced(job=job.job, task=told.task, node=told.node))
            cluster.outbox.propose(job.origin, told)
            continue
        task = Task(job.job, request.task, message.stage, message.opportunistic, request)
        job.tasks[task.name] = task
        job.some_opportunistic |= bool(task.opportunistic)
        _see_executor(job, task)
        job.work.task_announced(task.stage, request.usage)
        cluster.counts["tasks"] += 1
        make_ready(cluster, job, task)


def _see_executor(job: Job, task: Task) -> None:
    if task.request is not None and task.request.executor is not None:
        job.executors_of = task.request.executor.application
        job.some_executors |= task.elastic


def know(cluster: Cluster, task: Task, request: TaskRequest, held: Held | None, opportunistic: Opportunistic) -> None:
    """Update a task from its origin's request: a node's report of a held task lacks parts of the request, and
    ``opportunistic``.
    """
    job = cluster.members.jobs[task.job]
    if task.request is None:
        job.work.task_announced(task.stage, request.usage)
    if task.node:  # the state of a ready task follows its origin's request already
        task.opportunistic = opportunistic
    job.some_opportunistic |= bool(opportunistic)
    task.request, task.need = request, None
    job.stage_changed(task.stage)
    _see_executor(job, task)
    if held is not None:
        held.kind, held.user = request.command_kind, job.user or held.user
        held.executor = task.elastic and not held.opportunistic
        if held.profile is None:
            held.cores = request.command.cpu_cores if request.command is not None else 0.0
        cluster.table.touch(cluster.members.nodes[task.node])


def make_ready(cluster: Cluster, job: Job, task: Task) -> None:
    """Make a task wait for a node."""
    job.ready.setdefault((task.stage, task.opportunistic), {})[task.name] = task
    job.stage_changed(task.stage)
    job.fits_in = -1
    job.ready_count += 1
    job.ready_input_bytes += _input(task)
    cluster.members.ready_tasks += 1
    cluster.dues.place_anew()
    if task.elastic:
        cluster.executors.ready(task)
        if job.described:
            executors.ask(cluster, job, task)


def unready(cluster: Cluster, job: Job, task: Task) -> None:
    """Stop a task from waiting for a node."""
    stage = job.ready.get((task.stage, task.opportunistic))
    if stage is not None and stage.pop(task.name, None) is not None:
        job.stage_changed(task.stage)
        job.ready_count -= 1
        job.ready_input_bytes -= _input(task)
        cluster.members.ready_tasks -= 1
        cluster.executors.waiting.pop((task.job, task.name), None)
        if not stage:
            del job.ready[task.stage, task.opportunistic]


def _input(task: Task) -> float:
    return input_bytes(task.request.usage) if task.request is not None else 0.0


def assign(
    cluster: Cluster,
    job: Job,
    task: Task,
    node: Node,
    why: str,
    *,
    on_slack: bool = False,
    queued: bool = False,
    profile: Profile | None = None,
) -> None:
    """Propose a task to a node, regular or ``on_slack``; its memory counts as held until the node has released it."""
    request = task.request
    assert request is not None
    unready(cluster, job, task)
    command = request.command
    number = cluster.outbox.propose(
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
    held = Held(
        job=job.job,
        task=task.name,
        usage=request.usage,
        memory_bytes=request.memory_bytes,
        opportunistic=on_slack,
        command=command is not None,
        kind=request.command_kind,
        cores=command.cpu_cores if command is not None else 0.0,
        assigned_in=number,
        accepted=False,
        queued=queued,
        user=job.user,
    )
    node.held[held.key] = held
    cluster.table.see_length(node, request.usage)
    cluster.table.touch(node)
    task.node, task.on_slack, task.told, task.unfit_since = node.name, on_slack, False, None
    task.why = why
    job.served_by(node.name, job.priority)
    job.work.told_last.discard(node.name)
    node.job_came_at = max(node.job_came_at, job.came_at)
    node.serves.add(job.job)
    cluster.dues.promotable |= on_slack
    cluster.counts["assigned"] += 1


def assign_executor(cluster: Cluster, job: Job, task: Task, node: Node, demand: Demand, why: str, now: float) -> None:
    """Propose an executor to a node; towards other work, its largest demands are held until it ends."""
    profile = demand.profile
    assign(cluster, job, task, node, why, profile=profile)
    held = node.held[job.job, task.name]
    held.executor, held.profile, held.beside, held.assigned_at = True, profile, demand.beside, now
    held.cores = max(profile.cpu_cores, default=demand.beside[0])
    held.memory_bytes = max(profile.memory_bytes, default=int(demand.beside[-1]))


def tell_placed(cluster: Cluster, job: Job, task: Task) -> None:
    """Tell the origin the task's node; an origin that is away is told when it is back."""
    if not task.told:
        why = f"{task.node} accepted it"
        told = api.TellPlaced(job=job.job, task=task.name, node=task.node, why=why)
        task.told = cluster.outbox.propose(job.origin, told) > 0


def tell_if_placed(cluster: Cluster, job: Job, task: Task) -> None:
    """As :func:`tell_placed`, if the task's node has accepted it."""
    held = cluster.members.held_of(task)
    if held is not None and held.accepted:
        tell_placed(cluster, job, task)


def end(cluster: Cluster, job: Job, task: Task, ended: Ended) -> None:
    """End a task. Its origin is told until it confirms."""
    if ended.ok and task.request is not None:
        cluster.memory.learn(job, task.stage, task.request.usage, ended.memory_peak_bytes)
    if task.elastic:
        executors.ended(cluster, job, task, ended)
    note_end(job, task, ended)
    forget(cluster, job, task)
    if task.node:
        tell_placed(cluster, job, task)
    cluster.outbox.propose(job.origin, keep_end(job, task.name, task.node or task.was_on, ended))
    cluster.counts[f"ended_{ended.by}"] += 1
    cluster.dues.place_anew()


def keep_end(job: Job, task: str, node: str, ended: Ended) -> api.TellEnded:
    """Store how a task ended on a node until its origin confirms; return the message to the origin."""
    told = job.untold[task] = api.TellEnded(job=job.job, task=task, node=node, ended=ended, why=ended.reason)
    return told


def heard(cluster: Cluster, job: Job, task: str) -> None:
    """Drop a task's end after its origin confirmed it; its node may then drop it as well."""
    if job.untold.pop(task, None) is not None:
        cluster.outbox.instruct(EndHeard(job.job, task))


def forget(cluster: Cluster, job: Job, task: Task) -> None:
    """Remove a task from its job; its work counts as done."""
    unready(cluster, job, task)
    del job.tasks[task.name]
    if task.request is not None:
        job.work.task_ended(task.stage, task.request.usage)


def requeue(cluster: Cluster, job: Job, task: Task) -> None:
    """Make a task wait for a node again: it is not on its node, and did not end there."""
    cluster.executors.usage.forget((task.job, task.name))
    task.was_on, task.node, task.on_slack, task.told = task.node, "", False, False
    if task.unwanted:
        end(cluster, job, task, Ended(by=EndedBy.CANCELLED, reason="cancelled before it ran"))
    else:
        make_ready(cluster, job, task)


def lost(cluster: Cluster, job: Job, task: Task, why: str) -> None:
    """Handle a task lost with its node. A command is placed again (it may run more than once); a framework decides
    itself.
    """
    task.losses += 1
    again = task.request is not None and task.request.command is not None
    if task.unwanted or (again and task.losses < cluster.settings.max_losses):
        requeue(cluster, job, task)
    else:
        times = f" ({task.losses} times)" if task.losses > 1 else ""
        end(cluster, job, task, Ended(by=EndedBy.LOST, reason=f"{why}{times}"))


def withdraw(cluster: Cluster, node: Node, held: Held, why: str) -> None:
    """Tell a node to release a task; its memory counts until the node has."""
    if held.leaving_in is not None:
        return
    held.leaving_in = cluster.outbox.propose(node.name, api.Withdraw(job=held.job, task=held.task, why=why))
    cluster.members.mark_leaving(node, held)
    cluster.table.touch(node)
    cluster.counts["withdrawn"] += 1


def drop(cluster: Cluster, node: Node, held: Held) -> None:
    """Remove a held task from a node."""
    del node.held[held.key]
    cluster.table.touch(node)
    cluster.members.unmark(node, held)


def rid_of(cluster: Cluster, node: Node, held: Held) -> None:
    """Handle that a node released a task and will not report how it ended."""
    drop(cluster, node, held)
    cluster.dues.changed = True
    job = cluster.members.jobs.get(held.job)
    task = cluster.members.task(held.key)
    if job is not None and task is not None and task.node == node.name:
        requeue(cluster, job, task)

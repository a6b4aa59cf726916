"""A scheduling round: expire lost nodes; then plan → order → admit → place → place opportunistic work.

Each step is a replaceable object: the plan (:mod:`master.core.plan`), the ordering (:mod:`master.ordering`), admission,
Algorithm 1 (:mod:`master.placement`), UBIS (:mod:`master.core.slack`). Between admission and placement, opportunistic
work is promoted, as in UBIS, Algorithm 1.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from master.core import (
    admission,
)
from master.core.allowances import Allowances
from master.core.records import Job, Node, Task
from master.core.snapshot import Picture
from master.ordering import Ranking
from master.placement import Need, Stage, TaskPlacement, why_not
from penstock.model import Ended, EndedBy
from penstock.model.units import counted

if TYPE_CHECKING:
    from master.core.cluster import Cluster

#: A waiting stage and its tasks' needs; summarized where the round need not examine them.
_Line = tuple[Job, str, "list[Need] | _Hopeless"]
#: The first of several tasks that cannot be placed in this round, and their number.
_Hopeless = tuple[Need, int]


def run(cluster: Cluster, now: float) -> None:
    """Run one round."""
    _expire(cluster, now)
    if now < cluster.dues.gathers_until:
        cluster.dues.changed = True
        return
    cluster.table.follow_lengths()
    cluster.table.settle()
    ranking = cluster.order.rank(now) if _order_matters(cluster) else None
    if ranking is not None:
        admission.admit(cluster, ranking.order(), now)
    hopeful = cluster.waiting.possible(_with_ready_tasks(cluster))
    looks_ahead = cluster.ahead.due(now)
    if ranking is None and (hopeful or looks_ahead):
        ranking = cluster.order.rank(now)
    _refuse_unfit(cluster, now)
    cluster.dues.changed = False
    limits = cluster.user_limits.in_round()
    if cluster.settings.promotion and cluster.dues.promotable:
        cluster.slack.promote(limits)
    if not cluster.members.ready_tasks:
        cluster.promises.make_room(now, limits)
        return
    cluster.counts["rounds"] += 1
    if ranking is not None and cluster.executors.waiting:
        cluster.executor_round.place(ranking, now, limits)
    lines, placement, over = _regular(cluster, hopeful, ranking, limits, looks_ahead=looks_ahead)
    cluster.promises.make_room(now, limits)
    cluster.slack.place(now)
    _record_waits(cluster, lines, placement, over)
    if cluster.executors.waiting:
        cluster.executor_round.say_what_waits()


def _order_matters(cluster: Cluster) -> bool:
    """Return whether to rank the jobs even if no node has room for waiting work.

    An ordering with memory is asked in every round, because skipping it would change its later decisions.
    """
    settings = cluster.settings
    return (
        cluster.order.ordering.remembers
        or bool(cluster.executors.waiting)
        or bool(settings.user_max_cores or settings.user_max_memory_bytes)
        or any(job.described and not job.admitted for job in cluster.members.jobs.values())
    )


def _expire(cluster: Cluster, now: float) -> None:
    """Remove nodes that were away or silent for too long. An empty node drained before it left gets longer: nothing
    waits for its work, but the jobs submitted there would end with it.
    """
    timeout_s = cluster.settings.node_timeout_s
    for node in cluster.table.silent(now, timeout_s):
        if node.away_since is None:
            cluster.outbox.hang_up(node.name, f"silent for more than {timeout_s:g} s")
            _lose(cluster, node, f"node {node.name} was silent for more than {timeout_s:g} s")
            continue
        empty = node.draining is not None and not node.held
        longest_s = cluster.settings.drained_timeout_s if empty else timeout_s
        if now - node.away_since > longest_s:
            _lose(cluster, node, f"node {node.name} was away for more than {longest_s:g} s")


def _lose(cluster: Cluster, node: Node, why: str) -> None:
    """Remove a lost node: its tasks are lost or placed again, and the jobs it is the origin of are over."""
    del cluster.members.nodes[node.name]
    cluster.dues.gathers_since = cluster.clock.now
    cluster.table.remove(node)
    cluster.executors.usage.gone(node.name)
    cluster.learning.node_lost(node.name)
    cluster.counts["nodes_lost"] += 1
    cluster.outbox.explain("node lost", node=node.name, why=why, tasks=len(node.held))
    for held in node.held.values():
        cluster.members.unmark(node, held)
        job, task = cluster.members.jobs.get(held.job), cluster.members.task(held.key)
        if job is not None and task is not None and task.node == node.name:
            cluster.tasks.lost(job, task, why)
    for job in cluster.members.jobs.values():
        job.work.gone(node.name)
        job.hosts.pop(node.name, None)
    for job in [job for job in cluster.members.jobs.values() if job.origin == node.name]:
        cluster.lifecycle.end_job(job, why, told=why, lost=True)


def _refuse_unfit(cluster: Cluster, now: float) -> None:
    """End each task that no node can ever hold: at once if the cluster is complete, else after ``node_timeout_s``."""
    if not cluster.members.ready_tasks or not len(cluster.table.here()):
        return
    timeout_s, shape = 0.0 if admission.complete(cluster, now) else cluster.settings.node_timeout_s, cluster.table.shape
    for job in list(cluster.members.jobs.values()):
        if job.fits_in == shape and job.admitted:
            continue
        too_large = admission.never_fits(cluster, job) if job.described else ""
        job.fits_in = shape
        for (_, opportunistic), tasks in list(job.ready.items()):
            for task in list(tasks.values()):
                if task.fits_in == shape and not too_large:
                    continue
                reason = not opportunistic and too_large
                if not reason and not cluster.executors.foreseen(job, task):
                    reason = cluster.snapshots.unfit(task)
                if not reason:  # an executor's forecast changes
                    task.unfit_since, task.fits_in = None, -1 if task.elastic else shape
                    job.fits_in = min(job.fits_in, task.fits_in)
                    continue
                job.fits_in = -1
                task.unfit_since = now if task.unfit_since is None else task.unfit_since
                if not timeout_s or now - task.unfit_since > timeout_s:
                    cluster.tasks.end(job, task, Ended(by=EndedBy.REFUSED, reason=reason))


def _with_ready_tasks(cluster: Cluster) -> list[Job]:
    """Return the admitted jobs with ready tasks."""
    return [job for job in cluster.members.jobs.values() if job.admitted and job.ready_count]


def _regular(
    cluster: Cluster,
    hopeful: set[tuple[str, str]],
    ranking: Ranking | None,
    limits: Allowances | None,
    *,
    looks_ahead: bool,
) -> tuple[list[_Line], TaskPlacement, dict[str, str]]:
    """Place tasks that allow regular room, including those that also allow slack. Return the lines of tasks, the
    placement used, and by job why tasks were not offered: their user is at a limit.

    UBIS, Algorithm 1, gives slack only once "the scheduler cannot allocate any more regular containers".
    """
    # the order of submission breaks ties
    jobs = sorted(_with_ready_tasks(cluster), key=lambda job: (job.submitted_at, job.sequence))
    picture = cluster.snapshots.take()
    lines: list[_Line] = []
    offered, over = ({}, {}) if limits is None or ranking is None else _offered(cluster, picture, ranking, limits)
    for job in jobs:
        job.waits_why = ""
        tasks = None if limits is None else offered.get(job.job, {})
        lines += _lines(cluster, picture, job, tasks, hopeful)
    stages = [
        Stage(job.job, name, needs)
        for job, name, needs in lines
        if isinstance(needs, list) and (job.job, name) in hopeful
    ]
    placement = picture.placement()
    for placed in placement.place(stages, ranking) if stages and ranking is not None else ():
        job, task = _found(cluster, placed.need.job, placed.need.task)
        cluster.tasks.assign(job, task, picture.node(placed.worker), placed.why)
    if looks_ahead and ranking is not None:
        some = cluster.ahead.place(ranking, offered if limits is not None else None)
        lines = [line for line in lines if line[0].job not in some]
        for job in (cluster.members.jobs[name] for name in some):
            lines += _lines(cluster, picture, job, job.ready_for_regular(), hopeful)
    if limits is not None:
        limits.settle()
    return lines, placement, over


def _lines(
    cluster: Cluster,
    picture: Picture,
    job: Job,
    tasks: dict[str, list[Task]] | None,
    hopeful: set[tuple[str, str]],
) -> list[_Line]:
    """Return a job's stages with the needs of each task. Where none can be placed, return a summary of the last stage,
    which explains the job's wait; not where only some tasks are offered (``tasks``), nor where some may use slack.
    """
    if tasks is None and not job.some_opportunistic:
        stages = cluster.waiting.of(job)
        if not hopeful or not any((job.job, name) in hopeful for name in stages):
            return [(job, name, (picture.need(stages[name].first), stages[name].count)) for name in [*stages][-1:]]
    tasks = job.ready_for_regular() if tasks is None else tasks
    return [(job, name, [picture.need(task) for task in ready]) for name, ready in tasks.items()]


def _offered(
    cluster: Cluster, picture: Picture, ranking: Ranking, limits: Allowances
) -> tuple[dict[str, dict[str, list[Task]]], dict[str, str]]:
    """Return by job and stage the tasks within their users' limits, and by job why the others wait."""
    ready = {job.job: job.ready_for_regular() for job in _with_ready_tasks(cluster)}
    asking = [
        cluster.user_limits.asking(picture, cluster.members.jobs[name], task)
        for name in ranking.order()
        for tasks in ready.get(name, {}).values()
        for task in tasks
    ]
    offered, over = limits.offer(asking)
    names = {(one.task.job, one.task.name) for one in offered}
    return {
        job: {
            stage: some
            for stage, tasks in stages.items()
            if (some := [task for task in tasks if (task.job, task.name) in names])
        }
        for job, stages in ready.items()
    }, over


def _record_waits(cluster: Cluster, lines: list[_Line], placement: TaskPlacement, over: dict[str, str]) -> None:
    """Record why tasks without a place wait; the missing regular room is derived on demand."""
    for name, why in over.items():
        job = cluster.members.jobs[name]
        if count := sum(len(tasks) for tasks in job.ready_for_regular().values()):
            job.waits_why = f"{counted(count, 'task', 'wait')}: {why}"
    note = cluster.drains.note(cluster.members.nodes)
    for job, stage, needs in lines:
        first, count = _left(job, needs) if isinstance(needs, list) else needs
        if first is not None:
            job.waits_why = partial(_lacking, stage, first, count, placement, note)


def _left(job: Job, needs: list[Need]) -> tuple[Need | None, int]:
    """Return the first task without a place, and the number of such tasks."""
    left = [need for need in needs if not job.tasks[need.task].node]
    return (left[0], len(left)) if left else (None, 0)


def _lacking(stage: str, first: Need, count: int, placement: TaskPlacement, note: str) -> str:
    wait = "waits" if count == 1 else "wait"
    return f"{counted(count, 'task')} of stage {stage} {wait} for a node: {why_not(first, placement)}{note}"


def _found(cluster: Cluster, job: str, task: str) -> tuple[Job, Task]:
    found = cluster.members.jobs[job]
    return found, found.tasks[task]

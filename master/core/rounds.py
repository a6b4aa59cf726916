"""A scheduling round: what was lost; then plan → order → admit → place → place opportunistic work.

Each step is an object of its own that another can take the place of: the plan (:mod:`master.core.plan`), the ordering
(:mod:`master.ordering`), admission, Algorithm 1 (:mod:`master.placement`), UBIS (:mod:`master.core.slack`). Between
admission and placement opportunistic work is promoted, as in UBIS, Algorithm 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import (
    admission,
    ahead,
    allowances,
    draining,
    executor_round,
    executors,
    learning,
    lifecycle,
    promises,
    slack,
)
from master.core.allowances import Allowances
from master.core.records import Job, Node, Task
from master.core.snapshot import Picture, unfit
from master.ordering import Ranking
from master.placement import Stage, TaskPlacement, why_not
from penstock.model import Ended, EndedBy
from penstock.model.units import counted

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def run(cluster: Cluster, now: float) -> None:
    """One round."""
    _expire(cluster, now)
    if now < cluster.gathers_until:
        cluster.changed = True
        return
    ranking = cluster.rank(now)
    admission.admit(cluster, ranking.order(), now)
    _refuse_unfit(cluster, now)
    cluster.changed = False
    limits = allowances.of(cluster)
    if cluster.settings.promotion and cluster.promotable:
        slack.promote(cluster, limits)
    if not cluster.ready_tasks:
        promises.make_room(cluster, now, limits)
        return
    cluster.counts["rounds"] += 1
    if cluster.executors.waiting:
        executor_round.place(cluster, ranking, now, limits)
    stages, placement, over = _regular(cluster, ranking, limits)
    promises.make_room(cluster, now, limits)
    slack.place(cluster, now)
    _say_what_waits(cluster, stages, placement, over)
    if cluster.executors.waiting:
        executor_round.say_what_waits(cluster)


def _expire(cluster: Cluster, now: float) -> None:
    """Nodes that were away, or silent, for too long are lost. One that was drained before it went is being worked on:
    nobody waits for what runs there, but the jobs that were submitted there would end with it."""
    timeout_s = cluster.settings.node_timeout_s
    for node in cluster.table.silent(now, timeout_s):
        if node.away_since is None:
            cluster.hang_up(node.name, f"silent for more than {timeout_s:g} s")
            _lose(cluster, node, f"node {node.name} was silent for more than {timeout_s:g} s")
            continue
        empty = node.draining is not None and not node.held
        longest_s = cluster.settings.drained_timeout_s if empty else timeout_s
        if now - node.away_since > longest_s:
            _lose(cluster, node, f"node {node.name} was away for more than {longest_s:g} s")


def _lose(cluster: Cluster, node: Node, why: str) -> None:
    """Its tasks are lost or placed again; the jobs that it is the origin of are over."""
    del cluster.nodes[node.name]
    cluster.gathers_since = cluster.now
    cluster.table.remove(node)
    cluster.executors.usage.gone(node.name)
    learning.node_lost(cluster, node.name)
    cluster.counts["nodes_lost"] += 1
    cluster.explain("node lost", node=node.name, why=why, tasks=len(node.held))
    for held in node.held.values():
        lifecycle.unmark(cluster, node, held)
        job, task = cluster.jobs.get(held.job), cluster.task(held.key)
        if job is not None and task is not None and task.node == node.name:
            lifecycle.lost(cluster, job, task, why)
    for job in cluster.jobs.values():
        job.work.gone(node.name)
        job.hosts.pop(node.name, None)
    for job in [job for job in cluster.jobs.values() if job.origin == node.name]:
        lifecycle.end_job(cluster, job, why, told=why, lost=True)


def _refuse_unfit(cluster: Cluster, now: float) -> None:
    """End each task that no node can ever hold: at once if the cluster is complete, else later."""
    if not cluster.ready_tasks or not len(cluster.table.here()):
        return
    timeout_s, shape = 0.0 if admission.complete(cluster, now) else cluster.settings.node_timeout_s, cluster.table.shape
    for job in list(cluster.jobs.values()):
        too_large = admission.never_fits(cluster, job) if job.described else ""
        for (_, opportunistic), tasks in list(job.ready.items()):
            for task in list(tasks.values()):
                if task.fits_in == shape and not too_large:
                    continue
                reason = not opportunistic and too_large
                if not reason and not executors.foreseen(cluster, job, task):
                    reason = unfit(cluster, task)
                if not reason:  # what is foreseen of an executor changes
                    task.unfit_since, task.fits_in = None, -1 if task.elastic else shape
                    continue
                task.unfit_since = now if task.unfit_since is None else task.unfit_since
                if not timeout_s or now - task.unfit_since > timeout_s:
                    lifecycle.end(cluster, job, task, Ended(by=EndedBy.REFUSED, reason=reason))


def _in_order(cluster: Cluster) -> list[Job]:
    """Earlier jobs first; the order in which ties are broken."""
    return sorted(cluster.jobs.values(), key=lambda job: (job.submitted_at, job.sequence))


def _regular(
    cluster: Cluster, ranking: Ranking, limits: Allowances | None
) -> tuple[list[Stage], TaskPlacement, dict[str, str]]:
    """Place what may have regular room, that which could do with slack included; returns what was to be placed where,
    and by job why some was not to be: its user holds all that he may.

    UBIS, Algorithm 1, gives slack only once "the scheduler cannot allocate any more regular containers".
    """
    waiting = [job for job in _in_order(cluster) if job.admitted and job.ready_count]
    picture = Picture(cluster)
    stages: list[Stage] = []
    offered, over = _offered(cluster, picture, ranking, limits) if limits is not None else ({}, {})
    for job in waiting:
        job.waits = ""
        tasks = job.ready_for_regular() if limits is None else offered.get(job.job, {})
        stages += [Stage(job.job, name, [picture.need(task) for task in ready]) for name, ready in tasks.items()]
    placement = picture.placement()
    for placed in placement.place(stages, ranking) if stages else ():
        job, task = _found(cluster, placed.need.job, placed.need.task)
        lifecycle.assign(cluster, job, task, picture.node(placed.worker), placed.why)
    ahead.place(cluster, ranking, stages)
    if limits is not None:
        limits.settle()
    return stages, placement, over


def _offered(
    cluster: Cluster, picture: Picture, ranking: Ranking, limits: Allowances
) -> tuple[dict[str, dict[str, list[Task]]], dict[str, str]]:
    """By job and stage the tasks for which their users' limits leave room; and by job why others wait."""
    waiting = {name: job.ready_for_regular() for name, job in cluster.jobs.items() if job.admitted and job.ready_count}
    asking = [
        allowances.asking(cluster, picture, cluster.jobs[name], task)
        for name in ranking.order()
        for tasks in waiting.get(name, {}).values()
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
        for job, stages in waiting.items()
    }, over


def _say_what_waits(cluster: Cluster, stages: list[Stage], placement: TaskPlacement, over: dict[str, str]) -> None:
    """What found neither regular room nor slack, and what it lacks of the former."""
    for name, why in over.items():
        job = cluster.jobs[name]
        if count := sum(len(tasks) for tasks in job.ready_for_regular().values()):
            job.waits = f"{counted(count, 'task', 'wait')}: {why}"
    for stage in stages:
        job = cluster.jobs[stage.job]
        left = [need for need in stage.needs if not job.tasks[need.task].node]
        if left:
            why = why_not(left[0], placement) + draining.note(cluster)
            wait = "waits" if len(left) == 1 else "wait"
            job.waits = f"{counted(len(left), 'task')} of stage {stage.stage} {wait} for a node: {why}"


def _found(cluster: Cluster, job: str, task: str) -> tuple[Job, Task]:
    found = cluster.jobs[job]
    return found, found.tasks[task]

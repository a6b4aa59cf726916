"""A scheduling round: what was lost; then plan → order → admit → place → place opportunistic work.

Each step is an object of its own that another can take the place of: the plan (:mod:`master.core.plan`), the ordering
(:mod:`master.ordering`), admission, Algorithm 1 (:mod:`master.placement`), UBIS (:mod:`master.opportunistic`). Between
admission and placement opportunistic work is promoted, as in UBIS, Algorithm 1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from master.core import admission, lifecycle
from master.core.records import Job, Node, Task
from master.core.snapshot import Picture, holds, unfit
from master.opportunistic import allocate
from master.ordering import Ranking
from master.placement import Stage, place
from master.placement.ursa import why_not
from penstock.model import Ended, EndedBy
from penstock.model.units import format_bytes
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def run(cluster: Cluster, now: float) -> None:
    """One round."""
    _expire(cluster, now)
    ranking = cluster.rank(now)
    admission.admit(cluster, ranking.order(), now)
    _refuse_unfit(cluster, now)
    cluster.changed = False
    if cluster.settings.promotion and cluster.promotable:
        _promote(cluster, now)
    if not cluster.ready_tasks:
        return
    cluster.counts["rounds"] += 1
    _regular(cluster, ranking, now)
    _opportunistic(cluster, now)
    # What is only on its way to its node's queues counts as taking a core there: look again when it has arrived.
    cluster.changed = cluster.changed or (cluster.ready_tasks > 0 and cluster.table.settling)


def _expire(cluster: Cluster, now: float) -> None:
    """Nodes that were away, or silent, for too long are lost."""
    timeout_s = cluster.settings.node_timeout_s
    for node in cluster.table.silent(now, timeout_s):
        if node.away_since is None:
            cluster.hang_up(node.name, f"silent for more than {timeout_s:g} s")
            _lose(cluster, node, f"node {node.name} was silent for more than {timeout_s:g} s")
        else:
            _lose(cluster, node, f"node {node.name} was away for more than {timeout_s:g} s")


def _lose(cluster: Cluster, node: Node, why: str) -> None:
    """Its tasks are lost or placed again; the jobs that it is the origin of are over."""
    del cluster.nodes[node.name]
    cluster.table.remove(node)
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
        lifecycle.end_job(cluster, job, why)


def _refuse_unfit(cluster: Cluster, now: float) -> None:
    """A task that no node can ever hold ends with the reason, once the cluster had time to gather."""
    if not cluster.ready_tasks or not len(cluster.table.here()):
        return
    timeout_s, shape = cluster.settings.node_timeout_s, cluster.table.shape
    for job in list(cluster.jobs.values()):
        too_large = admission.never_fits(cluster, job) if job.described else ""
        for (_, opportunistic), tasks in list(job.ready.items()):
            for task in list(tasks.values()):
                if task.fits_in == shape and not too_large:
                    continue
                reason = (not opportunistic and too_large) or unfit(cluster, task)
                if not reason:
                    task.unfit_since, task.fits_in = None, shape
                elif task.unfit_since is None:
                    task.unfit_since = now
                elif now - task.unfit_since > timeout_s:
                    lifecycle.end(cluster, job, task, Ended(by=EndedBy.REFUSED, reason=reason))


def _promote(cluster: Cluster, now: float) -> None:
    """Opportunistic tasks become regular where they are, oldest first, before anything new is placed (UBIS §IV.D)."""
    table = cluster.table
    table.settle(now)
    some = [table.nodes[row] for row in np.flatnonzero(table.opportunistic[: len(table.nodes)])]
    cluster.promotable = bool(some)
    for node in some:
        for held in node.held.values() if node.connected else ():
            if held.regular or held.leaving_in is not None:
                continue
            job = cluster.jobs.get(held.job)
            if job is None or not job.admitted or not held.accepted or held.promotion_refused_at == node.heartbeats:
                continue
            free, cores = node.memory_free_bytes(), node.cores_free()
            if held.memory_bytes <= free and held.cores <= cores + 1e-9:
                why = f"ubis: {format_bytes(free)} and {cores:g} cores of {node.name} are not promised"
                promote = api.Promote(job=held.job, task=held.task, why=why)
                held.promoted_in = cluster.propose(node.name, promote)
                table.touch(node)
                cluster.counts["promoted"] += 1


def _in_order(cluster: Cluster) -> list[Job]:
    """Earlier jobs first; the order in which ties are broken."""
    return sorted(cluster.jobs.values(), key=lambda job: (job.submitted_at, job.sequence))


def _regular(cluster: Cluster, ranking: Ranking, now: float) -> None:
    waiting = [job for job in _in_order(cluster) if job.admitted and job.ready_count]
    if not waiting:
        return
    picture = Picture(cluster, now)
    stages = [
        Stage(job.job, name, [picture.need(task) for task in tasks.values()])
        for job in waiting
        for (name, opportunistic), tasks in job.ready.items()
        if not opportunistic
    ]
    if not stages:
        return
    workers = picture.workers()
    settings = cluster.settings
    placements = place(workers, stages, ranking, chunk=settings.share_chunk_tasks, stage_aware=settings.stage_aware)
    for placement in placements:
        job, task = _found(cluster, placement.need.job, placement.need.task)
        lifecycle.assign(cluster, job, task, picture.node(placement.worker), placement.why)
    for job in waiting:
        job.waits = ""
    for stage in stages:
        job = cluster.jobs[stage.job]
        left = job.ready.get((stage.stage, False))
        if left:
            first = next(need for need in stage.needs if need.task in left)
            job.waits = f"{len(left)} tasks of stage {stage.stage} wait for a node: {why_not(first, workers)}"


def _opportunistic(cluster: Cluster, now: float) -> None:
    waiting = {
        job.job: [task for (_, slack), tasks in job.ready.items() if slack for task in tasks.values()]
        for job in cluster.jobs.values()
        if job.described and job.some_opportunistic and job.ready_count
    }
    if not any(waiting.values()):
        return
    picture = Picture(cluster, now)
    in_line = [picture.asked(task) for task in _by_turns(waiting, cluster.rank_opportunistic(now))]
    for given in allocate(picture.slack(), in_line):
        job, task = _found(cluster, given.asked.job, given.asked.task)
        lifecycle.assign(cluster, job, task, picture.node(given.worker), given.why)


def _by_turns(waiting: dict[str, list[Task]], ranking: Ranking) -> Iterator[Task]:
    """The job that goes first gives a task; so does the one that goes first then, and so on."""
    queues = {job: deque(waiting[job]) for job in ranking.order() if waiting.get(job)}
    keys = {job: ranking.key(job, 0.0) for job in queues}
    while queues:
        first = max(queues, key=keys.__getitem__)
        task = queues[first].popleft()
        if not queues[first]:
            del queues[first]
        request = task.request
        assert request is not None
        moved = ranking.charge(task.job, holds(request))
        for job in queues if moved else {first} & queues.keys():
            keys[job] = ranking.key(job, 0.0)
        yield task


def _found(cluster: Cluster, job: str, task: str) -> tuple[Job, Task]:
    found = cluster.jobs[job]
    return found, found.tasks[task]

"""A scheduling round: losses, admission, promotion, regular placement, opportunistic placement, in this order.

That of the last three is UBIS's (Algorithm 1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core import admission, lifecycle
from master.core.records import Job, Node, Task
from master.core.snapshot import asked_of, leaving, need_of, slack_of, unfit, workers_of
from master.opportunistic import allocate
from master.ordering import ORDERINGS
from master.placement import Stage, place
from master.placement.ursa import why_not
from penstock.model import Ended, EndedBy
from penstock.model.units import format_bytes
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def run(cluster: Cluster, at: float, now: float) -> None:
    """One round. ``at`` is Unix time."""
    _expire(cluster, now)
    admission.admit(cluster)
    _refuse_unfit(cluster, now)
    nodes = [node for node in cluster.nodes.values() if node.connected]
    cluster.changed = False
    if cluster.settings.promotion and cluster.promotable:
        _promote(cluster, nodes)
    if not cluster.ready_tasks:
        return
    cluster.counts["rounds"] += 1
    _regular(cluster, nodes, at, now)
    _opportunistic(cluster, nodes, now)
    if cluster.ready_tasks:
        # What is only on its way to its node's queues counts as taking a core there: look again when it has arrived.
        settling = any(held.settles_at > now for node in nodes for held in node.held.values())
        cluster.changed = cluster.changed or settling


def _expire(cluster: Cluster, now: float) -> None:
    """Nodes that were away, or silent, for too long are lost."""
    timeout_s = cluster.settings.node_timeout_s
    for node in list(cluster.nodes.values()):
        if node.away_since is None and now - node.last_heard > timeout_s:
            cluster.hang_up(node.name, f"silent for more than {timeout_s:g} s")
            _lose(cluster, node, f"node {node.name} was silent for more than {timeout_s:g} s")
        elif node.away_since is not None and now - node.away_since > timeout_s:
            _lose(cluster, node, f"node {node.name} was away for more than {timeout_s:g} s")


def _lose(cluster: Cluster, node: Node, why: str) -> None:
    """Its tasks are lost or placed again; the jobs that it is the origin of are over."""
    del cluster.nodes[node.name]
    cluster.counts["nodes_lost"] += 1
    cluster.explain("node lost", node=node.name, why=why, tasks=len(node.held))
    for held in node.held.values():
        job, task = cluster.jobs.get(held.job), cluster.task(held.key)
        if job is not None and task is not None and task.node == node.name:
            lifecycle.lost(cluster, job, task, why)
    for job in [job for job in cluster.jobs.values() if job.origin == node.name]:
        lifecycle.end_job(cluster, job, why)


def _refuse_unfit(cluster: Cluster, now: float) -> None:
    """A task that no node can ever hold ends with the reason, once the cluster had time to gather."""
    if not cluster.ready_tasks or not any(node.connected for node in cluster.nodes.values()):
        return
    timeout_s = cluster.settings.node_timeout_s
    for job in list(cluster.jobs.values()):
        too_large = admission.never_fits(cluster, job) if job.described else ""
        for (_, opportunistic), tasks in list(job.ready.items()):
            for task in list(tasks.values()):
                reason = (not opportunistic and too_large) or unfit(cluster, task)
                if not reason:
                    task.unfit_since = None
                elif task.unfit_since is None:
                    task.unfit_since = now
                elif now - task.unfit_since > timeout_s:
                    lifecycle.end(cluster, job, task, Ended(by=EndedBy.REFUSED, reason=reason))


def _promote(cluster: Cluster, nodes: list[Node]) -> None:
    """Opportunistic tasks become regular where they are, oldest first, before anything new is placed (UBIS §IV.D)."""
    cluster.promotable = False
    for node in nodes:
        for held in node.held.values():
            if held.regular or held.leaving_in is not None:
                continue
            cluster.promotable = True
            job = cluster.jobs.get(held.job)
            if job is None or not job.admitted or not held.accepted or held.promotion_refused_at == node.heartbeats:
                continue
            free, cores = node.memory_free_bytes(), node.cores_free()
            if held.memory_bytes <= free and held.cores <= cores + 1e-9:
                why = f"ubis: {format_bytes(free)} and {cores:g} cores of {node.name} are not promised"
                promote = api.Promote(job=held.job, task=held.task, why=why)
                held.promoted_in = cluster.propose(node.name, promote)
                cluster.counts["promoted"] += 1


def _in_order(cluster: Cluster) -> list[Job]:
    """Earlier jobs first; the order in which ties are broken."""
    return sorted(cluster.jobs.values(), key=lambda job: (job.submitted_at, job.sequence))


def _regular(cluster: Cluster, nodes: list[Node], at: float, now: float) -> None:
    settings = cluster.settings
    stages: list[Stage] = []
    gone = leaving(nodes)
    for job in _in_order(cluster):
        for (name, opportunistic), tasks in job.ready.items():
            if job.admitted and not opportunistic:
                needs = [need_of(task, nodes, gone) for task in tasks.values()]
                stages.append(Stage(job.job, name, needs, at - job.submitted_at))
    if not stages:
        return
    workers = workers_of(settings, nodes, now)
    for placement in place(workers, stages, ORDERINGS[settings.ordering], settings.ejf_weight):
        job, task = _found(cluster, placement.need.job, placement.need.task)
        lifecycle.assign(cluster, job, task, nodes[placement.worker], placement.why)
    for stage in stages:
        job = cluster.jobs[stage.job]
        left = job.ready.get((stage.stage, False))
        job.waits = ""
        if left:
            first = next(need for need in stage.needs if need.task in left)
            job.waits = f"{len(left)} tasks of stage {stage.stage} wait for a node: {why_not(first, workers)}"


def _opportunistic(cluster: Cluster, nodes: list[Node], now: float) -> None:
    gone = leaving(nodes)
    waiting = [
        asked_of(task, nodes, gone)
        for job in _in_order(cluster)
        if job.described
        for (_, opportunistic), tasks in job.ready.items()
        if opportunistic
        for task in tasks.values()
    ]
    if not waiting:
        return
    for given in allocate(slack_of(nodes, now), waiting):
        job, task = _found(cluster, given.asked.job, given.asked.task)
        lifecycle.assign(cluster, job, task, nodes[given.worker], given.why)


def _found(cluster: Cluster, job: str, task: str) -> tuple[Job, Task]:
    found = cluster.jobs[job]
    return found, found.tasks[task]

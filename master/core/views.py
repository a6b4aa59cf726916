"""The jobs and the cluster as the ordering of a round sees them: frozen, and made once."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from master.core.records import Held, Job
from master.ordering import ClusterView, JobView, StageView
from penstock.model import ResourceKind

if TYPE_CHECKING:
    from master.core.cluster import Cluster


@dataclass(frozen=True, slots=True)
class Totals:
    """Of the connected nodes: cores, disk slots, network slots and bytes of memory; bytes/s per kind."""

    capacity: tuple[float, float, float, float]
    rates: tuple[float, float, float]


def totals(cluster: Cluster) -> Totals:
    """What the connected nodes have together."""
    table, here = cluster.table, cluster.table.here()
    slots, rates = table.slots[here].sum(axis=0).tolist(), table.rates[here].sum(axis=0).tolist()
    memory = float(table.memory_capacity[here].sum())
    return Totals((slots[0], slots[1], slots[2], memory), (rates[0], rates[1], rates[2]))


def cluster_view(total: Totals, at: float) -> ClusterView:
    """The cluster at ``at``, Unix time."""
    return ClusterView(at, total.capacity, max(1.0, total.capacity[0]))


def job_views(cluster: Cluster, jobs: Iterable[Job], total: Totals, *, opportunistic: bool = False) -> list[JobView]:
    """One view per job; what it holds is its regular share, or its ``opportunistic`` one: they are accounted apart."""
    settings = cluster.settings
    rates = [max(rate, 1.0) for rate in total.rates]
    slots = max(1.0, total.capacity[0])
    views: list[JobView] = []
    for job in jobs:
        tenant = settings.tenants.get(job.user, job.user)
        left, can_run = (job.work.tasks_left, _can_run(job)) if job.work.known else (math.inf, math.inf)
        regular, on_slack = job.placed()
        containers = on_slack if opportunistic else max(regular, job.work.slots - on_slack)
        views.append(
            JobView(
                job=job.job,
                tenant=tenant,
                weight=settings.weights.get(tenant, 1.0),
                submitted_at=job.submitted_at,
                sequence=job.sequence,
                holds=_holds(cluster, job, opportunistic) if settings.ordering == "drf" else _NOTHING,
                containers=containers,
                service=job.work.service_s,
                stages=_stages(job),
                remaining=_remaining(cluster, job, rates, slots),
                needs=max(left, job.work.slots),
                wants=max(can_run, job.work.slots),
            )
        )
    return views


#: What tasks hold is summed up only for the ordering that looks at it.
_NOTHING = (0.0, 0.0, 0.0, 0.0)


def holding(held: Held) -> tuple[float, float, float, float]:
    """What a task holds of cores, disk slots, network slots and bytes of memory while it is placed."""
    cores = held.cores or float(held.uses_core())
    disk = float(held.usage.disk > 0 or (held.unknown_size and held.kind is ResourceKind.DISK))
    network = float(held.usage.network > 0 or (held.unknown_size and held.kind is ResourceKind.NETWORK))
    return cores, disk, network, float(held.memory_bytes)


def _holds(cluster: Cluster, job: Job, opportunistic: bool) -> tuple[float, ...]:
    """Of its placed tasks; of a framework that schedules its tasks itself the slots, as cores."""
    total = [0.0, 0.0, 0.0, 0.0]
    for task in job.tasks.values():
        node = cluster.nodes.get(task.node) if task.node else None
        held = node.held.get((job.job, task.name)) if node is not None else None
        if held is not None and held.regular is not opportunistic:
            for resource, amount in enumerate(holding(held)):
                total[resource] += amount
    if not job.tasks:
        total[0] = float(job.work.slots)
    return tuple(total)


def _stages(job: Job) -> tuple[StageView, ...]:
    work = job.work
    told = {s.stage: StageView(s.stage, s.tasks, s.done, work.service.get(s.stage, 0.0)) for s in work.told}
    came = {
        name: StageView(name, t.tasks, t.done, work.service.get(name, 0.0))
        for name, t in work.tallies.items()
        if name not in told
    }
    return (*told.values(), *came.values())


def _can_run(job: Job) -> int:
    """Tasks left of the stages that wait for no other; those that came here are ready or placed."""
    under_way = set(job.work.under_way())
    return len(job.tasks) + sum(max(0, s.tasks - s.done) for s in job.work.own if s.stage in under_way)


def _remaining(cluster: Cluster, job: Job, rates: list[float], slots: float) -> tuple[float, ...]:
    """R in seconds of the whole cluster per kind: what history says is still to come, and at least what is announced.

    A framework that schedules its tasks itself announces the input of those that are left, which Dask knows of the next
    stages only; once some are done, the time that the others took says more.
    """
    work = job.work
    before = cluster.history.of((job.user, job.name))
    left = work.left()
    if before is not None:
        left = [max(own, all_of_it - e) for own, all_of_it, e in zip(left, before.work, work.ended, strict=True)]
    seconds = [amount / rate for amount, rate in zip(left, rates, strict=True)]
    own = work.own
    if own:
        done, more = sum(stage.done for stage in own), sum(max(0, stage.tasks - stage.done) for stage in own)
        by_input = sum(stage.input_bytes for stage in own) / rates[0]
        by_time = more * work.service_s / done / slots if done else 0.0
        seconds[0] += max(by_input, by_time)
    if before is not None and not any(before.work):
        seconds[0] = max(seconds[0], (before.service_s - work.service_s) / slots)
    return tuple(seconds)

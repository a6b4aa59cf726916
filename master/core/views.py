"""The jobs and the cluster as the ordering of a round sees them: frozen, and created once."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from master.core.history import History
from master.core.job import Job
from master.core.node import Node
from master.core.settings import MasterSettings
from master.core.table import NodeTable
from master.ordering import JobView, StageView

#: From so many tasks on, the mean length of other jobs' tasks tells a job's size. The length of one command varies as
#: much as the size of a job, so the size of a job of fewer commands is not known by their number.
_SOME = 4


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the nodes that take work: cores, disk slots, network slots and bytes of memory; bytes/s per kind."""

    capacity: tuple[float, float, float, float]
    rates: tuple[float, float, float]


def totals(table: NodeTable) -> Totals:
    """Return the sums over the nodes that take work."""
    here = table.taking()
    slots, rates = table.slots[here].sum(axis=0).tolist(), table.rates[here].sum(axis=0).tolist()
    memory = float(table.memory_capacity[here].sum())
    return Totals((slots[0], slots[1], slots[2], memory), (rates[0], rates[1], rates[2]))


def job_views(
    jobs: Iterable[Job],
    nodes: Mapping[str, Node],
    settings: MasterSettings,
    history: History,
    total: Totals,
    *,
    opportunistic: bool = False,
) -> list[JobView]:
    """Return one view per job, with its regular or its ``opportunistic`` holdings, which are accounted separately."""
    rates = [max(rate, 1.0) for rate in total.rates]
    slots = max(1.0, total.capacity[0])
    jobs = list(jobs)
    ended = [job.work.done for job in jobs]
    begun = service_s = 0.0  # of the jobs that have ended some tasks; those that run are taken to be half done
    for job, done in zip(jobs, ended, strict=True):
        if done:
            begun += done + job.work.slots / 2
            service_s += job.work.service_s
    typical_s = service_s / begun if begun else 0.0
    views: list[JobView] = []
    for job, done in zip(jobs, ended, strict=True):
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
                holds=held_by(nodes, job, opportunistic=opportunistic) if settings.ordering == "drf" else _NOTHING,
                containers=containers,
                service=job.work.service_s,
                stages=_stages(job),
                remaining=_remaining(history, job, rates, slots, done, typical_s),
                needs=max(left, job.work.slots),
                wants=max(can_run, job.work.slots),
                user=job.user,
                application=job.application,
            )
        )
    return views


#: Holdings are summed up only for orderings that use them.
_NOTHING = (0.0, 0.0, 0.0, 0.0)


def held_by(nodes: Mapping[str, Node], job: Job, *, opportunistic: bool = False) -> tuple[float, ...]:
    """Return the holdings of its placed tasks; for a framework that schedules its own tasks, its slots as cores."""
    total = [0.0, 0.0, 0.0, 0.0]
    for task in job.tasks.values():
        node = nodes.get(task.node) if task.node else None
        held = node.held.get((job.job, task.name)) if node is not None else None
        if held is not None and held.regular is not opportunistic:
            for resource, amount in enumerate(held.holds()):
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
    """Return the tasks left in stages that wait for no other; tasks sent to the master are ready or placed."""
    under_way = set(job.work.under_way())
    return len(job.tasks) + sum(max(0, s.tasks - s.done) for s in job.work.own if s.stage in under_way)


def _remaining(
    history: History, job: Job, rates: list[float], slots: float, done: int, typical_s: float
) -> tuple[float, ...]:  # fmt: skip
    """Return R per kind, in seconds of the whole cluster: the rest expected from history, and at least the announced
    rest.

    Of tasks not sent to the master, a framework reports the bytes it knows (Dask only for the next stages), and most
    commands come without bytes. The mean length of a task may give a larger estimate, which is then divided among the
    kinds like the bytes' times; it counts as CPU where no bytes were reported. It is the mean of the job's own tasks
    once some have ended; before, where no bytes are known, ``typical_s``, the mean of other jobs' tasks in
    container-seconds, or what its own have taken so far if that is more; 0: unknown.
    """
    work = job.work
    left = [amount / rate for amount, rate in zip(work.left(), rates, strict=True)]
    told, to_come = work.to_come()
    tasks = to_come + work.unknown
    if tasks:
        begun = done + work.slots / 2
        mean_s = work.service_s / begun if begun else 0.0
        coming = [amount / rate for amount, rate in zip(told, rates, strict=True)]
        by_bytes = sum(coming)
        if not done:
            mean_s = max(mean_s, typical_s) if typical_s and tasks >= _SOME and not by_bytes else 0.0
        half_done = min(work.unknown, work.slots) / 2
        by_time = (tasks - half_done) * mean_s / slots
        if not by_bytes:
            coming[0] = by_time
        elif by_time > by_bytes:
            coming = [own * by_time / by_bytes for own in coming]
        left = [own + more for own, more in zip(left, coming, strict=True)]
    before = history.of((job.user, job.name))
    if before is None:
        return tuple(left)
    if not any(before.work):
        return max(left[0], (before.service_s - work.service_s) / slots), left[1], left[2]
    lacking = [(needed - ended) / rate for needed, ended, rate in zip(before.work, work.ended, rates, strict=True)]
    return tuple(max(own, more) for own, more in zip(left, lacking, strict=True))

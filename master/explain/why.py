"""Why is my job waiting? Its place in the order with the numbers, and what it lacks on how many nodes."""

from __future__ import annotations

from typing import Any

from master.core import Cluster
from master.core.snapshot import Picture
from master.placement.ursa import lacks, why_not


class UnknownJobError(Exception):
    """There is no such job; says which there are."""


def document(cluster: Cluster, job: str, now: float) -> dict[str, Any]:
    """``GET /explain?job=…``.

    Raises:
        UnknownJobError: the master knows no job of this id.
    """
    known = cluster.jobs.get(job)
    if known is None or not known.described:
        ids = sorted(name for name, each in cluster.jobs.items() if each.described)
        some = f"{', '.join(ids[:10])}{', …' if len(ids) > 10 else ''}" if ids else "there is none"
        raise UnknownJobError(f"no job {job[:128]!r}; known jobs: {some}")
    ranking = cluster.rank(now)
    order = ranking.order()
    picture = Picture(cluster, now)
    workers = picture.workers()
    room = ranking.room(job)
    stages: list[dict[str, Any]] = []
    for (stage, opportunistic), tasks in known.ready.items():
        first = picture.need(next(iter(tasks.values())))
        stages.append(
            {
                "stage": stage,
                "opportunistic": opportunistic,
                "ready": len(tasks),
                "lacks": lacks(first, workers) if len(workers) else {},
                "waits": f"task {first.task}: {why_not(first, workers)}",
            }
        )
    return {
        "job": job,
        "name": known.name,
        "ordering": cluster.settings.ordering,
        "place": order.index(job) + 1,
        "of": len(order),
        "before_it": order[: order.index(job)][-10:],
        "why": ranking.why(job),
        "containers": max(sum(known.placed()), known.work.slots),
        "room_containers": room if room != float("inf") else None,
        "priority": known.priority,
        "service_container_s": known.work.service_s,
        "admitted": known.admitted,
        "waits": known.waits,
        "nodes": len(workers),
        "stages": stages,
    }

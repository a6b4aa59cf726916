"""Why a job waits: its place in the order with the numbers, and the resources it lacks on how many nodes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import msgspec

from master.core import Cluster
from master.core.job import Job
from master.core.listing import MOST_BEFORE, on_nodes
from master.core.node import Node
from master.core.order import Place
from master.explain.sentence import sentence
from master.opportunistic import why_not as no_slack
from master.placement import why_not

#: Number of placed tasks listed: the latest.
MOST_TOLD = 100


class UnknownJobError(Exception):
    """The job is unknown; the message lists known jobs."""


def document(cluster: Cluster, job: str, now: float) -> dict[str, Any]:
    """Return the document of ``GET /explain?job=…``.

    Raises: UnknownJobError: the master knows no job of this id.
    """
    known = cluster.jobs.get(job)
    if known is None or not known.described:
        ids = sorted(name for name, each in cluster.jobs.items() if each.described)
        some = f"{', '.join(ids[:10])}{', …' if len(ids) > 10 else ''}" if ids else "there is none"
        raise UnknownJobError(f"no job {job[:128]!r}; known jobs: {some}")
    ranking = cluster.order.look(now)
    order = ranking.order()
    place = Place(order.index(job) + 1, len(order), ranking.reason(job))
    picture = cluster.snapshots.take()
    placement = picture.placement()
    limits = cluster.user_quotas.in_round()
    room = ranking.room(job)
    stages: list[dict[str, Any]] = []
    for (stage, opportunistic), tasks in known.ready.items():
        first = next(iter(tasks.values()))
        said: dict[str, Any] = {"stage": stage, "opportunistic": opportunistic, "ready": len(tasks)}
        if first.elastic:
            said["waits"] = cluster.executors.waits.get(job, "")
            stages.append(said)
            continue
        if opportunistic:
            asked, slack = picture.asked(first), picture.slack()
            said |= {"slack_lacks": slack.lacks(asked), "waits": f"task {first.name}: {no_slack(asked, slack)}"}
        if opportunistic != "only":
            need = picture.need(first)
            said["lacks"] = placement.lacks(need) if len(placement) else {}
            amounts = cluster.user_quotas.amounts_of(known, first)
            over = limits.why_not(known.user, amounts) if limits is not None else ""
            said["waits"] = f"task {first.name}: {over or why_not(need, placement)}"
        stages.append(said)
    return {
        "job": job,
        "name": known.name,
        "ordering": cluster.settings.ordering,
        "placement": cluster.settings.placement,
        **_standing(known, place, cluster.settings.ordering, order, cluster.jobs, cluster.nodes.values()),
        "why": ranking.why(job),
        "containers": max(sum(known.placed()), known.work.slots),
        "room_containers": room if math.isfinite(room) else None,
        "priority": known.priority,
        "service_container_s": known.work.service_s,
        "admitted": known.admitted,
        "waits": known.waits,
        "nodes": len(placement),
        "stages": stages,
    }


def with_placements(cluster: Cluster, job: str, now: float) -> dict[str, Any]:
    """Return the explanation for the job's user: :func:`document`, plus ``placed`` (tasks by node), ``last_placed``
    (with each task's reason) and ``ended``; for a finished job only ``ended``.

    Raises: UnknownJobError: the master knows no job of this id.
    """
    view = cluster.listing.find(job)
    if view is not None and job not in cluster.jobs:
        return {"job": job, "name": view.name, "ended": msgspec.to_builtins(view)}
    said = document(cluster, job, now)
    placed = [task for task in cluster.jobs[job].tasks.values() if task.node]
    return {
        **said,
        "cancelled_by": cluster.jobs[job].cancelled_by,
        "placed": dict(sorted(Counter(task.node for task in placed).items())),
        "last_placed": [
            {
                "task": task.name,
                "stage": task.stage,
                "node": task.node,
                "opportunistic": task.on_slack,
                "why": task.why,
                "losses": task.losses,
                "refused_by": sorted(task.refusals),
            }
            for task in placed[-MOST_TOLD:]
        ],
        "ended": None,
    }


def _standing(
    known: Job, place: Place, ordering: str, order: Sequence[str], jobs: Mapping[str, Job], nodes: Collection[Node]
) -> dict[str, Any]:
    """Return a job's place and its reason, as text and numbers; other users' jobs by id only, without names."""

    def named(other: str) -> str:
        its = jobs.get(other)
        return f"{other} ({its.name})" if its is not None and its.user == known.user else other

    ranks = {node.name: node.ranks for node in nodes if node.ranks is not None}
    return {
        "sentence": sentence(known.job, place, ordering, order, ranks, named),
        "place": place.rank,
        "of": place.of,
        "before_it": list(order[: place.rank - 1][-MOST_BEFORE:]),
        "reason": place.reason.said,
        "queue": place.reason.queue,
        "expected_left_s": place.reason.left_s,
        "known_jobs": place.reason.known_jobs,
        "ranks": msgspec.to_builtins(on_nodes(known, nodes)),
    }

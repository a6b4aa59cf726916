"""Why a job waits: its place in the order with the numbers, and the resources it lacks on how many nodes."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType, structs

from master.core import Cluster
from master.core.job import Job
from master.core.listing import MOST_BEFORE, on_nodes
from master.core.order import Place
from master.core.snapshot import RoundSnapshot
from master.explain.sentence import sentence
from master.http_documents import Explanation, StageExplained
from master.opportunistic import why_not as no_slack
from master.placement import why_not

#: Number of placed tasks listed: the latest.
MOST_TOLD = 100


class UnknownJobError(Exception):
    """The job is unknown; the message lists known jobs."""


def document(cluster: Cluster, job: str, now: float) -> Explanation:
    """Return the document of ``GET /explain?job=…``.

    Raises: UnknownJobError: the master knows no job of this id.
    """
    known = cluster.jobs.get(job)
    if known is None or not known.described:
        ids = sorted(name for name, each in cluster.jobs.items() if each.described)
        some = f"{', '.join(ids[:10])}{', …' if len(ids) > 10 else ''}" if ids else "there is none"
        raise UnknownJobError(f"no job {job[:128]!r}; known jobs: {some}")
    ranking, ordering, nodes = cluster.order.look(now), cluster.settings.ordering, cluster.nodes.values()
    order, room = ranking.order(), ranking.room(job)
    place = Place(order.index(job) + 1, len(order), ranking.reason(job))
    ranks = {node.name: node.ranks for node in nodes if node.ranks is not None}
    picture = cluster.snapshots.take()

    def named(other: str) -> str:
        """Return another job's id, with its name if it is of the same user."""
        its = cluster.jobs.get(other)
        return f"{other} ({its.name})" if its is not None and its.user == known.user else other

    return Explanation(
        job=job,
        name=known.name,
        ordering=ordering,
        placement=cluster.settings.placement,
        sentence=sentence(job, place, ordering, order, ranks, named),
        place=place.rank,
        of=place.of,
        before_it=list(order[: place.rank - 1][-MOST_BEFORE:]),
        reason=place.reason.said,
        queue=place.reason.queue,
        expected_left_s=place.reason.left_s,
        known_jobs=place.reason.known_jobs,
        ranks=on_nodes(known, nodes),
        why=ranking.why(job),
        containers=max(sum(known.placed()), known.work.slots),
        room_containers=room if math.isfinite(room) else None,
        priority=known.priority,
        service_container_s=known.work.service_s,
        admitted=known.admitted,
        waits=known.waits,
        nodes=len(picture.placement()),
        stages=_stages(cluster, known, picture),
    )


def _stages(cluster: Cluster, job: Job, picture: RoundSnapshot) -> list[StageExplained]:
    """Return why the first ready task of each stage waits, on regular resources and on slack."""
    placement, limits = picture.placement(), cluster.user_quotas.in_round()
    stages = []
    for (stage, opportunistic), tasks in job.ready.items():
        first = next(iter(tasks.values()))
        waits = cluster.executors.waits.get(job.job, "")
        lacks: dict[str, int] | UnsetType = UNSET
        slack_lacks: dict[str, int] | UnsetType = UNSET
        if opportunistic and not first.elastic:
            asked, slack = picture.asked(first), picture.slack()
            slack_lacks, waits = slack.lacks(asked), f"task {first.name}: {no_slack(asked, slack)}"
        if opportunistic != "only" and not first.elastic:
            need = picture.need(first)
            lacks = placement.lacks(need) if len(placement) else {}
            over = limits.why_not(job.user, cluster.user_quotas.amounts_of(job, first)) if limits is not None else ""
            waits = f"task {first.name}: {over or why_not(need, placement)}"
        stages.append(
            StageExplained(
                stage=stage,
                opportunistic=opportunistic,
                ready=len(tasks),
                waits=waits,
                lacks=lacks,
                slack_lacks=slack_lacks,
            )
        )
    return stages


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
        **structs.asdict(said),
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

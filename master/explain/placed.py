"""A job's placed tasks, with the rule and the numbers behind each placement."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from master.core import Cluster
from master.explain import why

#: Number of placed tasks listed: the latest.
MOST_TOLD = 100


def document(cluster: Cluster, job: str, now: float) -> dict[str, Any]:
    """Return the explanation for the job's user: :func:`master.explain.why.document`, plus ``placed`` (tasks by node),
    ``last_placed`` and ``ended``; for a finished job only ``ended``.

    Raises: UnknownJobError: the master knows no job of this id.
    """
    view = cluster.listing.find(job)
    if view is not None and job not in cluster.jobs:
        return {"job": job, "name": view.name, "ended": msgspec.to_builtins(view)}
    said = why.document(cluster, job, now)
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

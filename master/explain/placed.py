"""Why is my job where it is? Its tasks that are placed, with the rule and the numbers that put them there."""

from __future__ import annotations

from collections import Counter
from typing import Any

import msgspec

from master.core import Cluster
from master.core.listing import find
from master.explain import why

#: So many placed tasks are told one by one: the latest.
MOST_TOLD = 100


def document(cluster: Cluster, job: str, now: float) -> dict[str, Any]:
    """What a job's user is told of it: :func:`master.explain.why.document`, and beside it ``placed`` (tasks by node),
    ``last_placed`` and ``ended``; of a job that is over ``ended`` alone.

    Raises:
        UnknownJobError: the master knows no job of this id.
    """
    view = find(cluster, job)
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

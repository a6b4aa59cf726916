"""Smallest Remaining Job First (Ursa §4.2.2)."""

from __future__ import annotations

import math
from collections.abc import Sequence

from master.ordering.policy import Ranking, scored
from master.ordering.view import Amounts, ClusterView, JobView

#: A job with next to nothing left; its score stays far below the bonus of Algorithm 1 (1e9).
_MOST = 1e6


class SmallestRemainingJobFirst:
    """Adds ``weight`` × the job's priority score to the score of its stages, "similar as in EJF".

    A fit scores at most 4, and the priority scores of two jobs that together are all of the load differ by 0.2 where
    their work differs by a fifth: the default weight lets that order them whatever the fit.
    """

    remembers = False

    def __init__(self, weight: float = 100.0) -> None:
        self._weight = weight

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """L is the work that all these jobs have left."""
        left = _left(jobs)
        load = [sum(each[kind] for each in left.values()) for kind in range(3)]
        scores = {job: priority_score(own, load) for job, own in left.items()}
        added = {job: self._weight * score for job, score in scores.items()}
        why = {job: _why(own, load, scores[job]) for job, own in left.items()}
        return scored(jobs, added, why, by=scores)


def _left(jobs: Sequence[JobView]) -> dict[str, Amounts]:
    """R of each job. One that has said nothing, and of which nothing is remembered, may be of any size: the mean."""
    known = {job.job: job.remaining for job in jobs if math.isfinite(job.needs) or any(job.remaining)}
    mean = [sum(own[kind] for own in known.values()) / max(1, len(known)) for kind in range(3)]
    return {job.job: known.get(job.job, mean) for job in jobs}


def priority_score(remaining: Amounts, load: Amounts) -> float:
    """The inverse of (2L − R)·R, normalized by L·L: at least 1, larger for a job with less left.

    ``remaining`` is R, ``load`` L, both per kind in one unit; here seconds of the whole cluster, so that a kind weighs
    more the more time it will take. The paper leaves open how it normalizes by the vector L. A division by the number
    L·L keeps what it says of the product ("when a resource r is heavily demanded, more weight is given to r"): as
    (2L − R)·R = |L|² − |L − R|², this is the part of the squared load that goes when the job does. A division of each
    component by L_r would take just that weight away.
    """
    whole = sum(each * each for each in load)
    part = sum((2 * every - own) * own for own, every in zip(remaining, load, strict=True))
    return _MOST if part <= 0 or part * _MOST <= whole else whole / part


def _why(left: Amounts, load: Amounts, score: float) -> str:
    said = ", ".join(f"{own:.3g} of {every:.3g}" for own, every in zip(left, load, strict=True))
    return f"srjf: score {score:.4g}, left of the cluster's seconds of cpu, disk, network: {said}"

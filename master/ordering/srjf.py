"""Smallest Remaining Job First (Ursa §4.2.2)."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from master.ordering.policy import ClusterView, JobView, KindSeconds, Ranking, Reason, scored
from penstock.model import KINDS
from penstock.model.units import format_duration

#: The score of a job with almost nothing left: the largest ``srjf_weight`` (500) times it is below Ursa's bonus (1e9).
_MOST = 1e6


class SmallestRemainingJobFirst:
    """Adds ``weight`` × the job's priority score to the score of its stages, "similar as in EJF".

    A fit scores at most 4. The priority scores of two jobs that make up the whole load differ by 0.2 where their work
    differs by a fifth: the default weight makes that decide, whatever the fit.
    """

    remembers = False

    def __init__(self, weight: float = 100.0) -> None:
        self._weight = weight

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by the priority scores; L is the work left in all these jobs."""
        known = _known(jobs)
        left = _left(jobs, known)
        load = [sum(each[kind] for each in left.values()) for kind in range(3)]
        scores = {job: priority_score(own, load) for job, own in left.items()}
        added = {job: self._weight * score for job, score in scores.items()}
        why = {job: _why(own, load, scores[job]) for job, own in left.items()}
        return scored(jobs, added, why, lambda job: _reason(left[job], load, known=job in known), by=scores)


def _known(jobs: Sequence[JobView]) -> dict[str, KindSeconds]:
    """Return R of the jobs with announced or remembered work."""
    return {job.job: job.remaining for job in jobs if math.isfinite(job.needs) or any(job.remaining)}


def _left(jobs: Sequence[JobView], known: Mapping[str, KindSeconds]) -> dict[str, KindSeconds]:
    """Return R of each job; the mean for a job of unknown size."""
    mean = [sum(own[kind] for own in known.values()) / max(1, len(known)) for kind in range(3)]
    return {job.job: known.get(job.job, mean) for job in jobs}


def priority_score(remaining: KindSeconds, load: KindSeconds) -> float:
    """Return the inverse of (2L − R)·R, normalized by L·L: at least 1, larger for a job with less left.

    ``remaining`` is R, ``load`` L, both per kind in one unit; here seconds of the whole cluster, so a kind weighs more
    the more time it will take. The paper does not specify how it normalizes by the vector L. Dividing by the number L·L
    keeps the property it states of the product ("when a resource r is heavily demanded, more weight is given to r"): as
    (2L − R)·R = |L|² − |L − R|², this is the fraction of the squared load that goes when the job does. Dividing each
    component by L_r would remove exactly that weight.
    """
    whole = sum(each * each for each in load)
    part = sum((2 * every - own) * own for own, every in zip(remaining, load, strict=True))
    return _MOST if part <= 0 or part * _MOST <= whole else whole / part


def _reason(left: KindSeconds, load: KindSeconds, *, known: bool) -> Reason:
    if not known:
        return Reason("nothing is known of its work, so that it counts as a mean job")
    parts = [
        f"{format_duration(own)} of {format_duration(every)} of {kind}"
        for kind, own, every in zip(KINDS, left, load, strict=True)
        if every
    ]
    of_all = f"of the work that all jobs have left, as times of the whole cluster, it has {', '.join(parts)}"
    said = of_all if parts else "no job has work left"
    return Reason(f"{said}; the job with the least goes first")


def _why(left: KindSeconds, load: KindSeconds, score: float) -> str:
    said = ", ".join(f"{own:.3g} of {every:.3g}" for own, every in zip(left, load, strict=True))
    return f"srjf: score {score:.4g}, left of the cluster's seconds of cpu, disk, network: {said}"

"""Promises come first: a job is served before all others until it holds what it was promised; then by the ordering."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from master.ordering.policy import Key, Ranking
from master.ordering.view import Amounts, JobView


def promised_first(ranking: Ranking, promised: Mapping[str, float], jobs: Sequence[JobView]) -> Ranking:
    """The ranking itself where nothing is promised. ``promised`` is in containers."""
    missing = {job.job: promised[job.job] - job.containers for job in jobs if job.job in promised}
    return _Promised(ranking, missing) if missing else ranking


class _Promised:
    whole_stages = False  # what is promised must not be exceeded by a stage that is placed whole

    def __init__(self, ranking: Ranking, missing: dict[str, float]) -> None:
        self._ranking = ranking
        self._missing = missing

    def key(self, job: str, score: float) -> Key:
        """Whether it lacks something promised; then as the ordering says."""
        return (float(self._lacks(job)), *self._ranking.key(job, score))

    def charge(self, job: str, taken: Amounts) -> bool:
        """One container."""
        if job in self._missing:
            self._missing[job] -= 1
        return self._ranking.charge(job, taken)

    def room(self, job: str) -> float:
        """At least what it lacks."""
        return max(self._missing.get(job, 0.0), self._ranking.room(job))

    def order(self) -> list[str]:
        """Who lacks something promised; then as the ordering says."""
        return sorted(self._ranking.order(), key=lambda job: not self._lacks(job))

    def why(self, job: str) -> str:
        """The ordering's reason, and what is lacking."""
        said = self._ranking.why(job)
        return f"{self._missing[job]:g} promised containers are lacking; {said}" if self._lacks(job) else said

    def _lacks(self, job: str) -> bool:
        return self._missing.get(job, 0.0) > 1e-9

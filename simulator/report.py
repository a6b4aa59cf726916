"""The report that every model of the simulator returns: the papers' measures in one form."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec


def quantile(values: Sequence[float], fraction: float) -> float:
    """Return the smallest value that at least this fraction of the values do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(fraction * len(values)) - 1)]


class JobReport(msgspec.Struct, frozen=True, kw_only=True):
    """One job. Times are in simulated seconds; ``alone_s`` is the job's time with the whole cluster to itself."""

    name: str
    submitted_at_s: float
    ended_at_s: float
    started_at_s: float | None = None
    alone_s: float | None = None

    @property
    def response_s(self) -> float:
        """Return the time from submission to end: LAS_MQ's response time, Ursa's job completion time."""
        return self.ended_at_s - self.submitted_at_s

    @property
    def slowdown(self) -> float | None:
        """Return response time ÷ time alone (LAS_MQ §5.1); None if the time alone is not known."""
        return self.response_s / self.alone_s if self.alone_s else None


class ResourceReport(msgspec.Struct, frozen=True, kw_only=True):
    """One resource of the cluster over the makespan, as fractions.

    ``utilization`` is used ÷ capacity. Where the model knows allocations, ``scheduling_efficiency`` is
    allocated ÷ capacity and ``utilization_efficiency`` is used ÷ allocated (Ursa §5).
    """

    utilization: float
    scheduling_efficiency: float | None = None
    utilization_efficiency: float | None = None


class Timeline(msgspec.Struct, frozen=True, kw_only=True):
    """Utilization over time: ``used[resource][i]`` is the mean fraction from ``i × step_s`` to ``(i + 1) × step_s``."""

    step_s: float
    used: dict[str, list[float]]


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The report of one run. ``measures`` are the model's own figures, each with its unit in its name."""

    model: str
    makespan_s: float
    jobs: list[JobReport]
    resources: dict[str, ResourceReport] = {}
    timeline: Timeline | None = None
    opportunistic_share: float | None = None
    preemptions: int = 0
    stragglers: int | None = None
    measures: dict[str, float] = {}

    @property
    def mean_response_s(self) -> float:
        """Return the mean response time of the jobs."""
        return sum(job.response_s for job in self.jobs) / len(self.jobs) if self.jobs else 0.0

    @property
    def mean_slowdown(self) -> float | None:
        """Return the mean slowdown of the jobs whose time alone is known."""
        known = [slowdown for job in self.jobs if (slowdown := job.slowdown) is not None]
        return sum(known) / len(known) if known else None

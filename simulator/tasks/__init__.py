"""Simulate monotasks and containers on a cluster that drives the very objects of :mod:`agent` and :mod:`master`.

It runs the agents' cores, the master's core and the messages between them, on a clock that jumps between events. The
only I/O is reading traces, the only randomness is the seed's. ``Spec`` has the keys of a scenario with
``model = "tasks"``, ``run`` runs it; see docs/simulate-tasks.md.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from simulator.report import Report
from simulator.tasks.build import jobs_of
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.executors import ExecutorCluster
from simulator.tasks.measure import report, report_of
from simulator.tasks.spec import Spec
from simulator.tasks.workload import SimulatedJob, SimulatedStage

__all__ = ["Spec", "run"]


def run(spec: Spec, seed: int) -> Report:
    """Run the scenario and return its report. The same arguments give the same report.

    Raises:
        ValueError: the scenario is invalid, or its jobs do not end within ``cluster.limit_s``.
    """
    jobs = jobs_of(spec, seed)
    alone_s: dict[str, float] = {}
    if spec.measure.alone:
        known_s: dict[tuple[SimulatedStage, ...], float] = {}
        for job in jobs:
            if job.stages not in known_s:
                known_s[job.stages] = _report(spec, [replace(job, submitted_at_s=0.0)], {}).makespan_s
            alone_s[job.name] = known_s[job.stages]
    return _report(spec, jobs, alone_s)


def _report(spec: Spec, jobs: Sequence[SimulatedJob], alone_s: Mapping[str, float]) -> Report:
    limit_s = spec.cluster.limit_s
    if spec.executors is not None:
        rivals = ExecutorCluster(spec.nodes(), spec.executors.settings(), spec.measure.timeline_s)
        rivals.run(jobs, limit_s=limit_s)
        return report_of(rivals.courses, rivals.usage, alone_s, measures={"executors": float(rivals.started)})
    reservations = spec.reservations.settings() if spec.reservations is not None else None
    cluster = SimulatedCluster(spec.nodes(), spec.master(), spec.surroundings(), reservations)
    cluster.run(jobs, limit_s=limit_s)
    return report(cluster, alone_s)

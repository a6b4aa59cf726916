"""Run a scenario of executors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from master.placement.executors_named import executor_policy
from simulator.executors.engine import Engine
from simulator.executors.spec import Spec
from simulator.executors.workload import Application, applications_of
from simulator.report import JobReport, Report


def run(spec: Spec, seed: int) -> Report:
    """Run all applications to their end and return the report. The makespan counts from the first submission.

    Raises:
        TraceError: the trace cannot be read.
        ValueError: an executor fits on no machine.
    """
    applications = applications_of(spec, seed)
    engine = _engine(spec, applications, seed)
    alone_s = _alone_s(spec, applications, seed) if spec.measure.alone else [None] * len(applications)
    makespan_s = max(engine.ended_at_s) - applications[0].at_s
    waited_s = [start - each.at_s for start, each in zip(engine.started_at_s, applications, strict=True)]
    executed_s = [end - start for start, end in zip(engine.started_at_s, engine.ended_at_s, strict=True)]
    return Report(
        model="executors",
        makespan_s=makespan_s,
        jobs=[
            JobReport(name=each.name, submitted_at_s=each.at_s, started_at_s=start, ended_at_s=end, alone_s=alone)
            for each, start, end, alone in zip(
                applications, engine.started_at_s, engine.ended_at_s, alone_s, strict=True
            )
        ],
        resources=engine.measures.resources(makespan_s),
        timeline=engine.measures.timeline(),
        measures={
            "executors": float(sum(each.executors for each in applications)),
            "launches": float(engine.launches),
            "reprovisioned": float(engine.reprovisioned),
            "rescheduled_slots": float(engine.rescheduled),
            "mean_wait_s": sum(waited_s) / len(waited_s),
            "mean_execution_s": sum(executed_s) / len(executed_s),
            **engine.measures.over(makespan_s),
        },
    )


def _engine(spec: Spec, applications: Sequence[Application], seed: int) -> Engine:
    """Return an engine that has run."""
    engine = Engine(spec, applications, executor_policy(spec.policy.name, Random(seed + 1).random))  # noqa: S311 - chance that must repeat
    engine.run()
    return engine


def _alone_s(spec: Spec, applications: Sequence[Application], seed: int) -> list[float | None]:
    """Return each application's time with the cluster to itself under the same policy. Equal ones run once."""
    known: dict[tuple[object, ...], float] = {}
    found: list[float | None] = []
    for each in applications:
        kind = (each.executors, each.stages, each.stretch, each.profile.tobytes(), each.factor.tobytes())
        if kind not in known:
            known[kind] = max(_engine(spec, [replace(each, at_s=0.0)], seed).ended_at_s)
        found.append(known[kind])
    return found

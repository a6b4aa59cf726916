"""A scenario of the fluid model, run."""

from __future__ import annotations

from simulator.fluid.disciplines import Fair, Fifo, Las, Srpt
from simulator.fluid.engine import Discipline, Job, serve
from simulator.fluid.las_mq import LasMq, strict
from simulator.fluid.spec import Policy, Spec
from simulator.fluid.workload import jobs_of, scaled
from simulator.report import JobReport, Report, ResourceReport


def run(spec: Spec, seed: int) -> Report:
    """Serve the workload. The makespan counts from the first arrival.

    Raises:
        ValueError: the trace cannot be read (TraceError), or the load cannot be made.
    """
    jobs, left_out = jobs_of(spec.workload, seed)
    jobs, factor = scaled(jobs, spec.server.load, spec.server.rate_per_s)
    discipline = discipline_of(spec.policy, spec.server.rate_per_s)
    ended_at_s = serve(jobs, discipline, rate_per_s=spec.server.rate_per_s)
    return _report(jobs, ended_at_s, spec, {"jobs_left_out": float(left_out), "size_factor": factor})


def discipline_of(policy: Policy, rate_per_s: float = 1.0) -> Discipline:
    """A fresh discipline; its thresholds are brought from the unit of the sizes to seconds of the server."""
    match policy.name:
        case "fifo":
            return Fifo()
        case "fair":
            return Fair()
        case "las":
            return Las()
        case "srpt":
            return Srpt()
        case "las_mq":
            multilevel = policy.multilevel()
            uppers = [multilevel.upper(queue) / rate_per_s for queue in range(multilevel.queues)]
            return LasMq(uppers, strict if policy.sharing == "strict" else multilevel.shares)


def _report(jobs: list[Job], ended_at_s: list[float], spec: Spec, measures: dict[str, float]) -> Report:
    rate_per_s = spec.server.rate_per_s
    work = sum(job.size for job in jobs)
    makespan_s = max(ended_at_s) - min(job.at_s for job in jobs)
    return Report(
        model="fluid",
        makespan_s=makespan_s,
        jobs=[
            JobReport(name=job.name, submitted_at_s=job.at_s, ended_at_s=end, alone_s=job.size / rate_per_s)
            for job, end in zip(jobs, ended_at_s, strict=True)
        ],
        resources={"server": ResourceReport(utilization=work / rate_per_s / makespan_s)},
        measures=measures | {"mean_size": work / len(jobs), "largest_size": max(job.size for job in jobs)},
    )

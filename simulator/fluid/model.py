"""Run a scenario of the fluid model."""

from __future__ import annotations

from math import inf

from simulator.fluid.disciplines import Fair, Fifo, Las, Srpt
from simulator.fluid.engine import Discipline, Job, serve
from simulator.fluid.las_mq import LasMq, strict
from simulator.fluid.ranked import LearntOrder, Order, Ranked, by_arrival, by_attained, by_left, by_queue
from simulator.fluid.spec import Policy, Server, Spec
from simulator.fluid.workload import jobs_of, scaled
from simulator.report import JobReport, Report, ResourceReport, quantile


def run(spec: Spec, seed: int) -> Report:
    """Serve the workload and return the report. The makespan counts from the first arrival.

    Raises:
        ValueError: the trace cannot be read (TraceError), or the sizes cannot be scaled to the load.
    """
    jobs, left_out = jobs_of(spec.workload, seed)
    jobs, factor = scaled(jobs, spec.server.load, spec.server.rate_per_s)
    discipline = ranked(jobs, spec) if spec.policy.ranked else discipline_of(spec.policy, spec.server.rate_per_s)
    ended_at_s = serve(jobs, discipline, rate_per_s=spec.server.rate_per_s)
    return _report(jobs, ended_at_s, spec, {"jobs_left_out": float(left_out), "size_factor": factor})


def discipline_of(policy: Policy, rate_per_s: float = 1.0) -> Discipline:
    """Return a new discipline, with thresholds converted from the unit of the sizes to seconds of the server."""
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
        case "gittins":
            raise ValueError("policy.ranked: gittins is simulated in ranks only; set it to true")


def ranked(jobs: list[Job], spec: Spec) -> Ranked:
    """Return a fresh discipline in which the policy ranks the jobs, and the kernel's weights share the cores."""
    policy, learning = spec.policy, LearntOrder()
    # In the other orders, service does not change a job's rank, so the order is constant between two events.
    look_s = policy.look_s if policy.name in {"las", "las_mq", "gittins"} else inf
    orders: dict[str, Order] = {
        "fifo": by_arrival,
        "fair": by_arrival,
        "las": by_attained,
        "srpt": by_left,
        "las_mq": by_queue(policy.multilevel()),
        "gittins": learning.order,
    }
    return Ranked(
        jobs,
        orders[policy.name],
        rate_per_s=spec.server.rate_per_s,
        cores=spec.server.cores,
        ratio=1.0 if policy.name == "fair" else policy.ratio,
        places=policy.places,
        look_s=look_s,
        ended=learning.ended,
    )


def _alone_s(job: Job, server: Server) -> float:
    """Return the job's time with the server to itself."""
    return job.size / server.rate_per_s * server.cores / min(job.processes or server.cores, server.cores)


def _report(jobs: list[Job], ended_at_s: list[float], spec: Spec, measures: dict[str, float]) -> Report:
    rate_per_s = spec.server.rate_per_s
    work, middle = sum(job.size for job in jobs), quantile([job.size for job in jobs], 0.5)
    small_s = [end - job.at_s for job, end in zip(jobs, ended_at_s, strict=True) if job.size <= middle]
    makespan_s = max(ended_at_s) - min(job.at_s for job in jobs)
    return Report(
        model="fluid",
        makespan_s=makespan_s,
        jobs=[
            JobReport(name=job.name, submitted_at_s=job.at_s, ended_at_s=end, alone_s=_alone_s(job, spec.server))
            for job, end in zip(jobs, ended_at_s, strict=True)
        ],
        resources={"server": ResourceReport(utilization=work / rate_per_s / makespan_s)},
        measures=measures
        | {"mean_size": work / len(jobs), "largest_size": max(job.size for job in jobs)}
        | {"smaller_half_response_p95_s": quantile(small_s, 0.95)},
    )

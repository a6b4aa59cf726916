"""The jobs of a scenario: written down, drawn, or from a trace."""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from random import Random

import msgspec

from simulator.fluid.engine import Job
from simulator.fluid.spec import Arrivals, Sizes, Synthetic, Trace, Workload
from simulator.traces import swim, text_of


def jobs_of(workload: Workload, seed: int) -> tuple[list[Job], int]:
    """The jobs, and how many of a trace were left out because their size is zero.

    Raises:
        ValueError: the trace is not there, cannot be read (TraceError), or has no job.
    """
    if workload.trace is not None:
        return _traced(workload.trace)
    if workload.synthetic is not None:
        return _drawn(workload.synthetic, Random(seed)), 0  # noqa: S311 - a simulation wants it repeatable
    jobs = [
        Job(name=job.name or f"job-{number}", at_s=job.at_s, size=job.size, weight=job.weight)
        for number, job in enumerate(workload.jobs)
    ]
    return jobs, 0


def scaled(jobs: list[Job], load: float, rate_per_s: float) -> tuple[list[Job], float]:
    """The jobs with their sizes × a factor that makes the load, and the factor (LAS_MQ §5.1, "normalized").

    Raises:
        ValueError: all jobs arrive at once, so there is no time to relate their sum to.
    """
    if load == 0:
        return jobs, 1.0
    span_s = max(job.at_s for job in jobs) - min(job.at_s for job in jobs)
    if span_s == 0:
        raise ValueError("server.load: all jobs arrive at the same time; leave load out and give sizes as they are")
    factor = load * rate_per_s * span_s / sum(job.size for job in jobs)
    return [msgspec.structs.replace(job, size=job.size * factor) for job in jobs], factor


def _traced(trace: Trace) -> tuple[list[Job], int]:
    if not Path(trace.file).is_file():
        raise ValueError(
            f"workload.trace.file: {trace.file}: no such file; give it with --set workload.trace.file=PATH"
        )
    rows = swim(text_of(Path(trace.file)).splitlines(), trace.d_over_n, where=trace.file)
    jobs = [Job(name=row.name, at_s=row.submitted_at_s, size=row.size_bytes) for row in rows if row.size_bytes > 0]
    if not jobs:
        raise ValueError(f"{trace.file}: no job has a size above zero")
    return jobs, len(rows) - len(jobs)


def _drawn(synthetic: Synthetic, random: Random) -> list[Job]:
    """Times, sizes and weights each from their own stream: changing one leaves the others as they were."""
    times, sizes, weights = (Random(random.getrandbits(64)) for _ in range(3))  # noqa: S311 - as above
    return [
        Job(
            name=f"job-{number}",
            at_s=at_s,
            size=_size(synthetic.sizes, sizes),
            weight=weights.choice(synthetic.weights),
        )
        for number, at_s in enumerate(_times(synthetic.arrivals, synthetic.jobs, times))
    ]


def _times(arrivals: Arrivals, count: int, random: Random) -> list[float]:
    match arrivals.process:
        case "together":
            return [0.0] * count
        case "fixed":
            return [number * arrivals.interval_s for number in range(count)]
        case "poisson":
            return list(accumulate(random.expovariate(1 / arrivals.interval_s) for _ in range(count)))


def _size(sizes: Sizes, random: Random) -> float:
    """Above zero; the mean is ``sizes.mean``, ``uniform`` is from 0 to twice that."""
    match sizes.distribution:
        case "constant":
            return sizes.mean
        case "exponential":
            return random.expovariate(1 / sizes.mean) or sizes.mean
        case "pareto":
            return random.paretovariate(sizes.shape) * sizes.mean * (sizes.shape - 1) / sizes.shape
        case "uniform":
            return (1 - random.random()) * 2 * sizes.mean

"""The jobs of a scenario: written down, drawn, or from a trace."""

from __future__ import annotations

import math
from itertools import accumulate
from pathlib import Path
from random import Random

import msgspec

from simulator.fluid.engine import Job
from simulator.fluid.spec import Applications, Arrivals, JobKind, Sizes, Synthetic, Trace, Workload
from simulator.traces import lumos, swim, text_of


def jobs_of(workload: Workload, seed: int) -> tuple[list[Job], int]:
    """Return the jobs, and the number of a trace's jobs that were left out because their size is zero.

    Raises:
        ValueError: the trace is missing, cannot be read (TraceError), or has no job.
    """
    if workload.trace is not None:
        return _traced(workload.trace, Random(seed))  # noqa: S311 - a simulation wants it repeatable
    if workload.synthetic is not None:
        return _drawn(workload.synthetic, Random(seed)), 0  # noqa: S311 - a simulation wants it repeatable
    jobs = [
        Job(
            name=job.name or f"job-{number}",
            at_s=job.at_s,
            size=job.size,
            weight=job.weight,
            user=job.user,
            application=job.application,
            processes=job.processes,
        )
        for number, job in enumerate(workload.jobs)
    ]
    return jobs, 0


def scaled(jobs: list[Job], load: float, rate_per_s: float) -> tuple[list[Job], float]:
    """Return the jobs with their sizes × a factor that gives the load, and the factor (LAS_MQ §5.1, "normalized").

    Raises:
        ValueError: all jobs arrive at once, so the load is undefined.
    """
    if load == 0:
        return jobs, 1.0
    span_s = max(job.at_s for job in jobs) - min(job.at_s for job in jobs)
    if span_s == 0:
        raise ValueError("server.load: all jobs arrive at the same time; leave load out and give sizes as they are")
    factor = load * rate_per_s * span_s / sum(job.size for job in jobs)
    return [msgspec.structs.replace(job, size=job.size * factor) for job in jobs], factor


def _traced(trace: Trace, random: Random) -> tuple[list[Job], int]:
    if not Path(trace.file).is_file():
        raise ValueError(
            f"workload.trace.file: {trace.file}: no such file; give it with --set workload.trace.file=PATH"
        )
    lines = text_of(Path(trace.file)).splitlines()
    jobs, left_out = _runs(trace, lines, random) if trace.format == "lumos" else _rows(trace, lines, random)
    if not jobs:
        raise ValueError(f"{trace.file}: no job has a size above zero")
    return jobs, left_out


def _rows(trace: Trace, lines: list[str], random: Random) -> tuple[list[Job], int]:
    """Return the jobs of a SWIM trace, or ``trace.jobs`` rows from a random place, and the number of empty jobs."""
    rows = swim(lines, trace.d_over_n, where=trace.file)
    if trace.jobs:
        first = random.randrange(max(1, len(rows) - trace.jobs + 1))
        rows = rows[first : first + trace.jobs]
    jobs = [Job(name=row.name, at_s=row.submitted_at_s, size=row.size_bytes) for row in rows if row.size_bytes > 0]
    return jobs, len(rows) - len(jobs)


def _runs(trace: Trace, lines: list[str], random: Random) -> tuple[list[Job], int]:
    """Return jobs drawn from the runs of a lumos trace, and the number of runs left out for lack of CPU time."""
    runs = lumos(lines, where=trace.file)
    sizes = {(run.workload, run.run): sum(s.cpu_cores for s in run.samples) * run.interval_s for run in runs}
    known = [(workload, size) for (workload, _), size in sizes.items() if size > 0]
    if not known:
        return [], len(sizes)
    drawn = random.choices(known, k=trace.jobs)
    times = _times(trace.arrivals, trace.jobs, _stream(random))
    jobs = [
        Job(
            name=f"{workload}-{number}",
            at_s=at_s,
            size=size,
            application=workload if trace.application == "workload" else workload.rpartition("_")[0],
        )
        for number, (at_s, (workload, size)) in enumerate(zip(times, drawn, strict=True))
    ]
    return jobs, len(sizes) - len(known)


def _drawn(synthetic: Synthetic, random: Random) -> list[Job]:
    """Return synthetic jobs. Each property has its own random stream, so changing one leaves the others unchanged."""
    times, sizes, weights, applications, processes = (_stream(random) for _ in range(5))
    if synthetic.kinds:
        kinds = applications.choices(synthetic.kinds, [kind.share for kind in synthetic.kinds], k=synthetic.jobs)
        return [
            Job(
                name=f"job-{number}",
                at_s=at_s,
                size=_log_uniform(kind, sizes),
                weight=weights.choice(synthetic.weights),
                user=applications.choice(kind.users),
                application=kind.name,
                processes=processes.choice(kind.processes),
            )
            for number, (at_s, kind) in enumerate(
                zip(_times(synthetic.arrivals, synthetic.jobs, times), kinds, strict=True)
            )
        ]
    runs = _applications(synthetic.applications, synthetic.jobs, applications)
    return [
        Job(
            name=f"job-{number}",
            at_s=at_s,
            size=_size(synthetic.sizes, sizes) * factor,
            weight=weights.choice(synthetic.weights),
            user=user,
            application=application,
            processes=processes.choice(synthetic.processes),
        )
        for number, (at_s, (user, application, factor)) in enumerate(
            zip(_times(synthetic.arrivals, synthetic.jobs, times), runs, strict=True)
        )
    ]


def _applications(drawn: Applications | None, jobs: int, random: Random) -> list[tuple[str, str, float]]:
    """Return the user, the application and the size factor of each job."""
    if drawn is None:
        return [("", "", 1.0)] * jobs
    known = [
        (f"user-{random.randrange(drawn.users)}", f"app-{number}", random.lognormvariate(0.0, drawn.spread))
        for number in range(drawn.count)
    ]
    runs = random.choices(known, weights=[1 / (number + 1) for number in range(drawn.count)], k=jobs)
    return [
        (f"user-{random.randrange(drawn.users)}", f"once-{number}", 1.0) if random.random() < drawn.once else run
        for number, run in enumerate(runs)
    ]


def _stream(random: Random) -> Random:
    return Random(random.getrandbits(64))  # noqa: S311 - a simulation wants it repeatable


def _times(arrivals: Arrivals, count: int, random: Random) -> list[float]:
    match arrivals.process:
        case "together":
            return [0.0] * count
        case "fixed":
            return [number * arrivals.interval_s for number in range(count)]
        case "poisson":
            return list(accumulate(random.expovariate(1 / arrivals.interval_s) for _ in range(count)))


def _size(sizes: Sizes, random: Random) -> float:
    """Return a random size above zero. The mean is ``sizes.mean``; ``uniform`` is from 0 to twice that."""
    match sizes.distribution:
        case "constant":
            return sizes.mean
        case "exponential":
            return random.expovariate(1 / sizes.mean) or sizes.mean
        case "lognormal":
            return sizes.mean * random.lognormvariate(-(sizes.shape**2) / 2, sizes.shape)
        case "pareto":
            return random.paretovariate(sizes.shape) * sizes.mean * (sizes.shape - 1) / sizes.shape
        case "uniform":
            return (1 - random.random()) * 2 * sizes.mean


def _log_uniform(kind: JobKind, random: Random) -> float:
    """Return a size within the bounds of the kind; each factor between them is as likely."""
    return kind.smallest * math.pow(kind.largest / kind.smallest, random.random())

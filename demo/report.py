"""The figures of all runs, as Ursa defines them (§5), and how they are shown."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path
from statistics import mean
from typing import Any, NamedTuple

import msgspec

from demo.plan import Plan
from demo.run import Run
from penstock.model.units import format_bytes

KINDS = ("cpu", "disk", "network")


class Figures(NamedTuple):
    """CPU time in core-seconds: ``x`` allocated, ``y`` there was, ``z`` used of what was allocated (Ursa §5).

    Plain Linux allocates nothing: its ``x`` and ``z`` are None.

    ``used`` is all CPU time that the jobs' containers took. Under Penstock what exceeds ``z`` was spent outside CPU
    grants (starting, reading, pulling, writing, asking); a static share covers everything, so there it is ``z``.
    """

    makespan_s: float
    mean_completion_s: float
    x: float | None
    y: float
    z: float | None
    used: float

    @property
    def se(self) -> float | None:
        """Scheduling efficiency X/Y: how much of what there is was allocated."""
        return None if self.x is None else self.x / self.y

    @property
    def ue(self) -> float | None:
        """Utilization efficiency Z/X: how much of what was allocated was used."""
        return None if self.x is None or self.z is None else self.z / self.x if self.x else 0.0

    @property
    def outside(self) -> float | None:
        """CPU time used outside of what was allocated."""
        return None if self.z is None else self.used - self.z

    @property
    def utilization(self) -> float:
        """All CPU time of the jobs over all there was: the same measure for all executors."""
        return self.used / self.y


def figures(run: Run, plan: Plan) -> Figures:
    """The figures of one run."""
    y = plan.cores * run.makespan_s  # Y: all cores, for as long as the run took
    used = sum(job.cpu_seconds for job in run.jobs)
    x: float | None = None
    z: float | None = None
    if run.executor == "static":
        x = sum(plan.share * job.completion_s for job in run.jobs)  # X: a share is a job's for its whole life
        z = used  # Z: all that the job does, it does in its share
    elif run.executor == "penstock":
        works = [work for job in run.jobs for work in job.result.works if work.kind == "cpu"]
        x = sum(work.ended - work.began for work in works)  # X: CPU slots, from each grant to its completion
        z = sum(work.cpu_s for work in works)  # Z: CPU time of the workers' threads inside those grants
    return Figures(run.makespan_s, mean(job.completion_s for job in run.jobs), x, y, z, used)


def digests(directories: Iterable[Path]) -> dict[str, str]:
    """SHA-256 of every output file, by job and file."""
    found: dict[str, str] = {}
    for directory in directories:
        for path in sorted(directory.iterdir()):
            with path.open("rb") as file:
                found[f"{directory.name}/{path.name}"] = hashlib.file_digest(file, "sha256").hexdigest()
    return found


def differences(first: dict[str, str], second: dict[str, str]) -> list[str]:
    """Files that are not the same in both, one line each."""
    return [
        f"{name}: {'only in one run' if name not in first or name not in second else 'different bytes'}"
        for name in sorted(first.keys() | second.keys())
        if first.get(name) != second.get(name)
    ]


# ---------------------------------------------------------------- for people


def table(runs: dict[str, Run], plan: Plan, own: dict[str, dict[str, float]]) -> list[str]:
    """Return the runs side by side; ``own`` is the CPU time of Penstock's processes during each."""
    made = {name: figures(run, plan) for name, run in runs.items()}
    rows: list[tuple[str, list[str]]] = [("", [_TITLES.get(name, name) for name in runs])]

    def row(name: str, values: Iterable[float | None], unit: str) -> None:
        rows.append((name, ["" if v is None else f"{100 * v:.1f} %" if unit == "%" else f"{v:.2f} s" for v in values]))

    row("makespan", (f.makespan_s for f in made.values()), "s")
    row("mean job completion time", (f.mean_completion_s for f in made.values()), "s")
    for index, job in enumerate(next(iter(runs.values())).jobs):
        row(f"  {job.name}", (run.jobs[index].completion_s for run in runs.values()), "s")
    row("CPU time of the jobs", (f.used for f in made.values()), "s")
    row("CPU time of Penstock itself", (sum(own[name].values()) for name in runs), "s")
    row("all CPU time of the jobs / Y", (f.utilization for f in made.values()), "%")
    row("CPU scheduling efficiency, SE = X/Y", (f.se for f in made.values()), "%")
    row("CPU utilization efficiency, UE = Z/X", (f.ue for f in made.values()), "%")
    row("  X, CPU time allocated", (f.x for f in made.values()), "s")
    row("  Y, cores × makespan", (f.y for f in made.values()), "s")
    row("  Z, CPU time used of X", (f.z for f in made.values()), "s")
    row("  CPU time used outside X", (f.outside for f in made.values()), "s")
    return [f"  {name:<38}" + "".join(f"{value:>12}" for value in values) for name, values in rows]


#: Headings of the table's columns, where they are not the executor's name.
_TITLES = {"plain": "plain Linux"}


def preemption_lines(run: Run) -> list[str]:
    """What was preempted, why, and what it had done; how the memory was wanted."""
    lines = [f"preempted: {p['container']} for {p['resource']}: {p['reason']}" for p in run.preemptions]
    archive = run.archive
    if archive is not None:
        lines.append(
            f"the opportunistic archive had compressed {format_bytes(archive.bytes_done)} on slack, holding "
            f"{format_bytes(archive.memory_bytes)}, in {archive.ended.cpu_seconds:.2f} s of CPU time; it ended by "
            f"{archive.ended.by.value}"
        )
    return lines


def document(runs: dict[str, Run], plan: Plan, more: dict[str, Any]) -> dict[str, Any]:
    """Everything, for report.json."""
    return {
        **more,
        "plan": {name: getattr(plan, name) for name in _PLANNED},
        "runs": {name: _run(run, plan) for name, run in runs.items()},
    }


_PLANNED = (
    "text_bytes", "cores", "cpu_bytes_per_s", "ept_s", "workers", "partitions", "reducers", "share", "slots",
    "jobs_bytes", "table_bytes", "archive_bytes", "capacity_bytes", "cpu_max_enforced", "idle_class_enforced",
)  # fmt: skip


def _run(run: Run, plan: Plan) -> dict[str, Any]:
    made = figures(run, plan)
    derived = {"se": made.se, "ue": made.ue, "utilization": made.utilization}
    document: dict[str, Any] = msgspec.to_builtins(run)
    del document["samples"]  # timeline.json has them
    for job, told in zip(run.jobs, document["jobs"], strict=True):
        told["result"] = job.result._asdict()
    return {"figures": made._asdict() | derived, **document}


def timeline(runs: dict[str, Run]) -> dict[str, Any]:
    """What the picture shows: samples of the agent's status and every monotask, in seconds since the run began."""
    return {"runs": {name: _timeline(run) for name, run in runs.items()}}


def _timeline(run: Run) -> dict[str, Any]:
    samples = [{**sample, "at": sample["at"] - run.began} for sample in run.samples]
    works = [
        {"job": job.name, "kind": work.kind, "began": work.began - run.began, "ended": work.ended - run.began}
        for job in run.jobs
        for work in job.result.works
    ]
    jobs = [{"name": job.name, "ended": job.ended - run.began} for job in run.jobs]
    return {
        "makespan_s": run.makespan_s,
        "host_cores": os.cpu_count(),
        "samples": samples,
        "works": works,
        "jobs": jobs,
    }

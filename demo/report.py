"""The figures of all runs, and how they are shown."""

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
    """Of one run. CPU time in core-seconds: ``used`` by the jobs; ``there_was`` is cores × makespan (Y of Ursa §5)."""

    makespan_s: float
    mean_completion_s: float
    used: float
    there_was: float

    @property
    def utilization(self) -> float:
        """All CPU time of the jobs over all there was."""
        return self.used / self.there_was


def figures(run: Run, plan: Plan) -> Figures:
    """The figures of one run."""
    used = sum(job.cpu_seconds for job in run.jobs)
    completion_s = mean(job.completion_s for job in run.jobs)
    return Figures(run.makespan_s, completion_s, used, plan.cores * run.makespan_s)


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
        scale = {"%": 100, "ms": 1000}.get(unit, 1)
        rows.append((name, ["" if v is None else f"{scale * v:.{1 if unit == '%' else 2}f} {unit}" for v in values]))

    row("makespan", (f.makespan_s for f in made.values()), "s")
    row("mean job completion time", (f.mean_completion_s for f in made.values()), "s")
    for index, job in enumerate(next(iter(runs.values())).jobs):
        row(f"  {job.name}", (run.jobs[index].completion_s for run in runs.values()), "s")
    row("CPU time of the jobs", (f.used for f in made.values()), "s")
    own_s = (None if name == "plain" else sum(own[name].values()) for name in runs)
    row("CPU time of Penstock itself", own_s, "s")
    row("CPU time of the jobs / of all cores", (f.utilization for f in made.values()), "%")
    row("a fixed piece of work (host's speed)", (run.look_s for run in runs.values()), "ms")
    return [f"  {name:<38}" + "".join(f"{value:>14}" for value in values) for name, values in rows]


#: Headings of the table's columns, where they are not the executor's name.
_TITLES = {"plain": "plain Linux", "first": "Penstock 1st", "penstock": "Penstock", "beside": "with archive"}


def preemption_lines(run: Run) -> list[str]:
    """Return lines on each preemption: the container, the reason, its work so far; and the demand for memory."""
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
    "text_bytes", "cores", "workers", "partitions", "reducers", "share", "slots",
    "jobs_bytes", "table_bytes", "archive_bytes", "capacity_bytes", "cpu_max_enforced", "idle_class_enforced",
)  # fmt: skip


def _run(run: Run, plan: Plan) -> dict[str, Any]:
    made = figures(run, plan)
    document: dict[str, Any] = msgspec.to_builtins(run)
    del document["samples"]  # timeline.json has them
    for job, told in zip(run.jobs, document["jobs"], strict=True):
        told["result"] = job.result._asdict()
    return {"figures": made._asdict() | {"utilization": made.utilization}, **document}


def timeline(runs: dict[str, Run]) -> dict[str, Any]:
    """Return the data of the picture: samples of the agent's status and every monotask, in seconds since the run
    began.
    """
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

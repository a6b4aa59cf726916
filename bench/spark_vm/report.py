"""Tables of the measurements."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import nan
from statistics import fmean

from bench.spark_vm.records import Part, Sample

_MIB = 1 << 20


def makespan_s(part: Part) -> float:
    """From the first arrival to the last end."""
    return max(run.ended_s for run in part.runs) - min(run.arrived_s for run in part.runs)


def differing(parts: Iterable[Part]) -> dict[str, set[str]]:
    """Applications that had more than one answer in all their runs (a failure is one, too)."""
    answers: dict[str, set[str]] = {}
    for part in parts:
        for run in part.runs:
            answers.setdefault(run.application, set()).add(run.answer or f"FAILED: {run.failure}")
    return {name: said for name, said in answers.items() if len(said) > 1 or any("FAILED" in each for each in said)}


def learnt(part: Part) -> str:
    """Return a row for each application alone on the host, means of its runs; Markdown."""
    head = (
        "| application | time (s) | executor (s) | CPU time (s) | cores: mean | peak | memory: peak (MiB) "
        "| disk: mean (MB/s) | peak |"
    )
    rows = [head, "|---" * 9 + "|"]
    for name in dict.fromkeys(run.application for run in part.runs):
        executed = [each for each in part.executors if each.application == name]
        samples = [s for s in part.samples for each in executed if s.running and each.began_s <= s.at_s <= each.ended_s]
        if not executed or not samples:
            continue
        took_s = fmean(run.ended_s - run.arrived_s for run in part.runs if run.application == name)
        rows.append(
            f"| {name} | {took_s:.0f} | {fmean(each.ended_s - each.began_s for each in executed):.0f} "
            f"| {fmean(each.cpu_seconds for each in executed):.0f} "
            f"| {fmean(s.executors_cpu_cores for s in samples):.2f} "
            f"| {max(s.executors_cpu_cores for s in samples):.2f} "
            f"| {max(each.memory_peak_bytes for each in executed) / _MIB:.0f} "
            f"| {fmean(s.executors_disk_bytes_per_s for s in samples) / 1e6:.1f} "
            f"| {max(s.executors_disk_bytes_per_s for s in samples) / 1e6:.1f} |"
        )
    return "\n".join(rows)


def compared(parts: Sequence[Part]) -> str:
    """A column each: makespan and utilization; Markdown."""
    rows = ["| | " + " | ".join(f"{part.side}, seed {part.seed}" for part in parts) + " |"]
    rows.append("|---" * (len(parts) + 1) + "|")

    def row(what: str, values: Iterable[str]) -> None:
        rows.append(f"| {what} | " + " | ".join(values) + " |")

    def mean(what: str, key: str, unit: float, digits: int) -> None:
        means = (fmean([getattr(s, key) for s in _during(part)] or [nan]) for part in parts)
        row(what, (f"{each / unit:.{digits}f}" for each in means))

    row("makespan (s)", (f"{makespan_s(part):.0f}" for part in parts))
    row("mean time of a run (s)", (f"{fmean(run.ended_s - run.arrived_s for run in part.runs):.0f}" for part in parts))
    row("an executor runs (s), mean", (f"{fmean(e.ended_s - e.began_s for e in part.executors):.0f}" for part in parts))
    row("CPU time of all executors (s)", (f"{sum(e.cpu_seconds for e in part.executors):.0f}" for part in parts))
    row("CPU time of the host (s)", (f"{_host_cpu_seconds(part):.0f}" for part in parts))
    mean("executors at once, mean", "running", 1, 2)
    mean("cores used by executors, mean", "executors_cpu_cores", 1, 2)
    mean("cores used on the host, mean", "cpu_cores", 1, 2)
    mean("memory used by executors, mean (MiB)", "executors_memory_bytes", _MIB, 0)
    mean("disk busy, mean (share of the time)", "disk_busy", 1, 2)
    mean("disk, mean (MB/s)", "disk_bytes_per_s", 1e6, 1)
    row("corrected (reprovisioned), times", (str(sum(each.reprovisioned for each in part.executors)) for part in parts))
    return "\n".join(rows)


def against(elastic: Part, static: Part) -> str:
    """One line: how much less the makespan is."""
    less = 1 - makespan_s(elastic) / makespan_s(static)
    return f"seed {elastic.seed}: makespan {100 * less:+.1f} % less with {elastic.side} than with {static.side}"


def _host_cpu_seconds(part: Part) -> float:
    """Of everything in the machine: nothing ends before its processors have had so much time."""
    return fmean([sample.cpu_cores for sample in _during(part)] or [nan]) * makespan_s(part)


def _during(part: Part) -> list[Sample]:
    """From the first arrival to the last end."""
    began, ended = min(run.arrived_s for run in part.runs), max(run.ended_s for run in part.runs)
    return [sample for sample in part.samples if began <= sample.at_s <= ended]

"""The timeline of each resource, drawn: ``python -m demo.picture timeline.json timeline.png``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

KINDS = ("cpu", "disk", "network")
#: By job: a hue for each operation, darker for smaller jobs.
_COLOURS = {
    "inverted-index": "#ee6677", "inverted-index-quarter": "#aa2233",
    "sort": "#66bb77", "sort-quarter": "#228833", "sort-eighth": "#0a4418",
    "word-count": "#77aadd", "word-count-quarter": "#3366aa", "word-count-eighth": "#112266",
}  # fmt: skip
_MIB = 1024 * 1024


def running(works: Iterable[dict[str, Any]]) -> tuple[list[float], list[int]]:
    """How many of these monotasks ran at each time, as steps: from each time on, that many."""
    changes: dict[float, int] = {0.0: 0}
    for work in works:
        changes[work["began"]] = changes.get(work["began"], 0) + 1
        changes[work["ended"]] = changes.get(work["ended"], 0) - 1
    times, counts, count = [], [], 0
    for at in sorted(changes):
        count += changes[at]
        times.append(at)
        counts.append(count)
    return times, counts


def draw(timeline: dict[str, Any], path: Path) -> None:
    """One column per run, one row per resource; the same scales in both columns.

    Raises:
        ImportError: matplotlib is not installed (the extra ``demo``).
    """
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    runs = timeline["runs"]
    rows = ("cpu", "disk", "network", "memory")
    figure, axes = plt.subplots(
        len(rows), len(runs), sharex=True, sharey="row", figsize=(7.5 * len(runs), 10), squeeze=False
    )
    for column, (name, run) in enumerate(runs.items()):
        axes[0][column].set_title(f"{name}: makespan {run['makespan_s']:.1f} s")
        for row, resource in enumerate(rows):
            axis = axes[row][column]
            if resource == "memory":
                _memory(axis, run)
            else:
                _resource(axis, resource, run)
            for job in run["jobs"]:
                axis.axvline(job["ended"], color=_COLOURS.get(job["name"], "grey"), linestyle=":", linewidth=1)
            axis.set_xlim(0, max(other["makespan_s"] for other in runs.values()) * 1.02)
            if column == 0:
                axis.set_ylabel(_LABELS[resource])
    for axis in axes[-1]:
        axis.set_xlabel("seconds; dotted: a job has ended")
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


_LABELS = {
    "cpu": "CPU\nmonotasks\nhost: cores busy",
    "disk": "disk\nmonotasks\nhost: 100 MiB/s",
    "network": "network\nmonotasks\nhost: 100 MiB/s sent",
    "memory": "memory\nof containers, MiB",
}


def _resource(axis: Any, kind: str, run: dict[str, Any]) -> None:
    """Draw running monotasks, per job and stacked; the agent's counts and the host's use on top."""
    jobs = [job["name"] for job in run["jobs"]]
    per_job = {job: running(w for w in run["works"] if w["kind"] == kind and w["job"] == job) for job in jobs}
    times = sorted({at for steps, _ in per_job.values() for at in steps})
    levels = [_at(times, *per_job[job]) for job in jobs]
    axis.stackplot(
        times, levels, step="post", labels=jobs, colors=[_COLOURS.get(job, "grey") for job in jobs], alpha=0.6
    )
    samples = run["samples"]
    at = [sample["at"] for sample in samples]
    axis.plot(at, [_host(sample, kind, run) for sample in samples], color="black", linewidth=1.2, label="host")
    slots = [sample["kinds"][kind]["running"] for sample in samples]
    if any(slots):
        axis.plot(at, slots, "k.", markersize=4, label="slots in use (agent)")
    if kind == "cpu":
        axis.legend(loc="upper right", fontsize="small", ncols=2)


def _at(times: Sequence[float], steps: Sequence[float], counts: Sequence[int]) -> list[int]:
    """The steps' values at other times."""
    values, index = [], -1
    for at in times:
        while index + 1 < len(steps) and steps[index + 1] <= at:
            index += 1
        values.append(counts[index] if index >= 0 else 0)
    return values


def _host(sample: dict[str, Any], kind: str, run: dict[str, Any]) -> float:
    host = sample["host"]
    if kind == "cpu":
        return float(host.get("cpu_percent", 0.0)) / 100 * float(run["host_cores"])
    if kind == "disk":
        moved = host.get("disk_read_bytes_per_s", 0.0) + host.get("disk_write_bytes_per_s", 0.0)
        return float(moved) / (100 * _MIB)
    return float(host.get("network_send_bytes_per_s", 0.0)) / (100 * _MIB)


def _memory(axis: Any, run: dict[str, Any]) -> None:
    samples = run["samples"]
    at = [sample["at"] for sample in samples]
    names = sorted({name for sample in samples for name in sample["containers"]})
    levels = [[sample["containers"].get(name, 0) / _MIB for sample in samples] for name in names]
    if names:
        axis.stackplot(
            at,
            levels,
            labels=names,
            colors=[_COLOURS.get(name) or _OTHER.get(name, "grey") for name in names],
            alpha=0.6,
        )
    axis.plot(
        at, [sample["memory"]["capacity_bytes"] / _MIB for sample in samples], "k--", linewidth=1, label="capacity"
    )
    axis.legend(loc="upper right", fontsize="small", ncols=2)


_OTHER = {"archive": "#ccbb44", "table": "#aa3377"}


def main(arguments: Sequence[str]) -> int:
    """Run the command. Exit status 2 and one line for a file that cannot be read or written."""
    if len(arguments) != 2:
        print("usage: python -m demo.picture timeline.json timeline.png", file=sys.stderr)
        return 2
    source, picture = map(Path, arguments)
    try:
        draw(json.loads(source.read_text(encoding="utf-8")), picture)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}; `make demo` writes a timeline.json"
    except ImportError as error:
        why = f"{error}; matplotlib is needed"
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        why = f"{source}: no JSON: {error}"
    except (KeyError, TypeError, AttributeError):
        why = f"{source}: not a timeline of the demo; run `make demo` again"
    except ValueError as error:  # a format that matplotlib does not write
        why = f"{picture}: {error}"
    else:
        return 0
    print(f"demo.picture: {why}", file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

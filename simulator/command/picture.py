"""Draw runs as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simulator.command.output import label, number
from simulator.scenario import Run, Scenario

#: A picture with more lines than this is unreadable.
_LINES = 12


def draw(scenario: Scenario, runs: Sequence[Run], path: Path) -> None:
    """Draw the share of jobs that ended within each response time, and utilization over time if the model has it.

    Only the first twelve runs are drawn. Raises OSError if the file cannot be written.
    """
    from matplotlib import pyplot as plt

    timelines = [run for run in runs[:_LINES] if run.report.timeline is not None]
    figure, axes = plt.subplots(1, 2, figsize=(13, 5))
    for run in runs[:_LINES]:
        _responses(axes[0], run)
    axes[0].set_xscale("log")
    axes[0].set_xlabel("response time, s")
    axes[0].set_ylabel("share of the jobs")
    if timelines:
        for run in timelines:
            _utilization(axes[1], run)
        axes[1].set_xlabel("time, s")
        axes[1].set_ylabel("utilization")
        axes[1].set_ylim(0, 1.05)
    else:
        _means(axes[1], runs[:_LINES])
    for axis in axes:
        if axis.get_legend_handles_labels()[0] and (len(runs) > 1 or axis is axes[1]):
            axis.legend(fontsize="small")
    figure.suptitle(scenario.title)
    figure.tight_layout()
    figure.savefig(path, dpi=110)
    plt.close(figure)


def _responses(axis: Any, run: Run) -> None:
    times = sorted(job.response_s for job in run.report.jobs)
    shares = [(rank + 1) / len(times) for rank in range(len(times))]
    axis.step(times, shares, where="post", label=label(run.settings) or "all jobs")


def _utilization(axis: Any, run: Run) -> None:
    timeline = run.report.timeline
    if timeline is None:
        return
    for resource, used in timeline.used.items():
        starts = [index * timeline.step_s for index in range(len(used))]
        axis.step(starts, used, where="post", label=", ".join(filter(None, (label(run.settings), resource))))


def _means(axis: Any, runs: Sequence[Run]) -> None:
    means_s = [run.report.mean_response_s for run in reversed(runs)]
    bars = axis.barh([label(run.settings) or "run" for run in reversed(runs)], means_s)
    axis.bar_label(bars, [number(mean_s) for mean_s in means_s], padding=3)
    axis.margins(x=0.15)
    axis.set_xlabel("mean response time, s")

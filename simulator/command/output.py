"""Print runs as a table or as JSON. The same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table

from penstock.cli.render import console, plain
from simulator.scenario import Run, Scenario
from simulator.scenario.summary import summary

#: The table lists each job only if all runs together have at most this number of jobs.
_JOBS_SHOWN = 20


def as_json(scenario: Scenario, runs: Sequence[Run]) -> bytes:
    """Return ``{source, title, model, runs: [{settings, seed, summary, report}]}`` and a line feed."""
    document = {
        "source": scenario.source,
        "title": scenario.title,
        "model": scenario.model,
        "runs": [
            {"settings": run.settings, "seed": run.seed, "summary": summary(run.report), "report": run.report}
            for run in runs
        ],
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def print_table(scenario: Scenario, runs: Sequence[Run]) -> None:
    """Print a line for each run, figures common to all runs once, and each job if there are few."""
    out = console()
    if scenario.title:
        out.print(plain(scenario.title), style="bold")
    figures = [summary(run.report) for run in runs]
    names = list(dict.fromkeys(name for each in figures for name in each))
    same = [name for name in names if len({each.get(name) for each in figures}) == 1]
    if len(runs) == 1:
        out.print(_columns(("", ""), [(name, number(figures[0][name])) for name in names], heads_shown=False))
    else:
        out.print("in all runs:", ", ".join(f"{name} {number(figures[0][name])}" for name in same), soft_wrap=True)
        differ = [name for name in names if name not in same]
        rows = [
            [*map(_setting, run.settings.values()), *(number(each.get(name)) for name in differ)]
            for run, each in zip(runs, figures, strict=True)
        ]
        out.print(_columns([*runs[0].settings, *differ], rows))
    if sum(len(run.report.jobs) for run in runs) <= _JOBS_SHOWN:
        out.print(_jobs(runs))


def number(value: float | None) -> str:
    """Return the value with four significant digits, or a dash for None."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def label(settings: Mapping[str, Any]) -> str:
    """Return a run's settings as a short label: ``las_mq, 10``."""
    return ", ".join(_setting(value) for value in settings.values())


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _jobs(runs: Sequence[Run]) -> Table:
    rows = [
        [*map(_setting, run.settings.values()), job.name]
        + [number(each) for each in (job.submitted_at_s, job.ended_at_s, job.response_s, job.slowdown)]
        for run in runs
        for job in run.report.jobs
    ]
    return _columns([*runs[0].settings, "job", "submitted_at_s", "ended_at_s", "response_s", "slowdown"], rows)


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]], *, heads_shown: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=heads_shown)
    for index, head in enumerate(heads):
        table.add_column(plain(head), justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    return table

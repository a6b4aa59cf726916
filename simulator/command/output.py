"""Runs as a table or as JSON. The same runs give the same bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from rich.table import Table

from penstock.cli.render import console, plain
from simulator.scenario import Run, Scenario
from simulator.scenario.summary import summary

#: A single run of at most so many jobs shows each of them.
_JOBS_SHOWN = 20


def as_json(scenario: Scenario, runs: Sequence[Run]) -> bytes:
    """``{source, title, model, runs: [{settings, seed, summary, report}]}`` and a line feed."""
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
    """A line for each run; what is the same in all of them is said once."""
    out = console()
    if scenario.title:
        out.print(plain(scenario.title), style="bold")
    figures = [summary(run.report) for run in runs]
    names = list(dict.fromkeys(name for each in figures for name in each))
    same = [name for name in names if len({each.get(name) for each in figures}) == 1]
    if len(runs) == 1:
        out.print(_columns(("", ""), [(name, number(figures[0][name])) for name in names], heads_shown=False))
        if len(runs[0].report.jobs) <= _JOBS_SHOWN:
            out.print(_jobs(runs[0]))
        return
    out.print("in all runs:", ", ".join(f"{name} {number(figures[0][name])}" for name in same), soft_wrap=True)
    differ = [name for name in names if name not in same]
    keys = list(runs[0].settings)
    rows = [
        [*(_setting(run.settings[key]) for key in keys), *(number(each.get(name)) for name in differ)]
        for run, each in zip(runs, figures, strict=True)
    ]
    out.print(_columns([*keys, *differ], rows))


def number(value: float | None) -> str:
    """Four digits that count."""
    if value is None:
        return "–"
    return f"{value:,.0f}" if 1000 <= abs(value) < 1e9 else f"{value:.4g}"


def label(settings: Mapping[str, Any]) -> str:
    """A run's settings in a word: ``las_mq, 10``."""
    return ", ".join(_setting(value) for value in settings.values())


def _setting(value: Any) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _jobs(run: Run) -> Table:
    rows = [
        (job.name, number(job.submitted_at_s), number(job.ended_at_s), number(job.response_s), number(job.slowdown))
        for job in run.report.jobs
    ]
    return _columns(("job", "submitted_at_s", "ended_at_s", "response_s", "slowdown"), rows)


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]], *, heads_shown: bool = True) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), show_header=heads_shown)
    for index, head in enumerate(heads):
        table.add_column(plain(head), justify="right" if index else "left", overflow="fold")
    for row in rows:
        table.add_row(*(plain(cell) for cell in row))
    return table

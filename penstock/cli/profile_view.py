"""Profiles of executors as tables, and as charts of block characters."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.cli import render
from penstock.cli.plain_text import duration
from penstock.cli.profiles import Application, Compared, Entry, Forecast, Run, Series, Use, average, measured, stretched
from penstock.model.units import counted, format_bytes

_BARS = " ▁▂▃▄▅▆▇█"
_ROWS = 6
#: A chart of few slots is widened to about this width; one of many slots is shrunk.
_COLUMNS, _MOST_COLUMNS = 60, 100
_FORECAST = "━"
#: Marks a slot without a sample on the lowest row; an empty column means that nothing was used.
_GAP = "·"


def amount(resource: str, value: float) -> str:
    """Format a resource's use."""
    if "cpu" in resource or "core" in resource:
        return f"{value:.2g}" if 0 < value < 0.01 else f"{value:.2f}"
    return format_bytes(value) + ("" if "memory" in resource else "/s")


def label(resource: str) -> str:
    """Return a resource's name above a column or a chart, without its unit."""
    return resource.replace("cores", "cpu").removesuffix("_per_s").removesuffix("_bytes")


# ---------------------------------------------------------------- tables


def print_list(entries: Sequence[Entry]) -> None:
    """Print all applications."""
    if not entries:
        print("no run of executors has been recorded yet; start some with `penstock submit --executors`")
        return
    table = render.table("application", "user", "runs", "settings", "last run", "error")
    for entry in entries:
        errors = ", ".join(f"{model} {_percent(error)}" for model, error in entry.error.items())
        counts = (str(entry.runs), str(len(entry.settings)))
        names = (render.plain(entry.application), render.plain(entry.user))
        table.add_row(*names, *counts, _at(entry.last_run_at), render.plain(errors))
    render.console().print(table)


def print_application(application: Application) -> None:
    """Print an application's runs, and the forecast of the next one."""
    console = render.console()
    console.print(render.plain(f"{application.application} of {application.user}, slots of {application.slot_s:g} s"))
    columns = [f"{label(name)} mean / peak" for name in application.resources]
    runs = render.table("run", "ended", "input", "bounds", "stages", "time", *columns)
    for run in application.latest():
        runs.add_row(render.plain(run.run), _at(run.ended_at), *_use(application, run))
    _print(console, runs)
    expected = render.table("expected by", "off by", "input", "bounds", "stages", "time", *columns)
    for one in application.forecasts:
        expected.add_row(render.plain(one.by), _percent(one.error), *_use(application, one))
    _print(console, expected)


def print_compared(application: Application, compared: Sequence[Compared]) -> None:
    """Print the errors of forecasts."""
    if not compared:
        print(
            f"no run of {application.application} had a forecast from earlier runs with its settings: too few runs "
            "have been recorded; forecasts of models are not compared"
        )
        return
    console = render.console()
    table = render.table(
        "run", "expected by", "time", *[f"{label(name)} total / peak / in band" for name in application.resources]
    )
    for one in compared:
        cells = [
            f"{_percent(errors.total, sign=True)} / {_percent(errors.peak, sign=True)} / {_percent(errors.within)}"
            for errors in one.errors.values()
        ]
        table.add_row(render.plain(one.run), render.plain(one.by), _percent(one.length, sign=True), *cells)
    console.print(table)
    text = "Expected (forecast before each run) ÷ used − 1; in band: share of slots whose mean lay in the band."
    console.print(Text(text, style="dim"))


def _use(application: Application, used: Use) -> list[Text | str]:
    """Return the cells from ``input`` on."""
    cells: list[Text | str] = [
        format_bytes(used.settings.input_bytes) if used.settings.input_bytes else "–",
        f"{counted(used.settings.cores, 'core')}, {format_bytes(used.settings.memory_bytes)}",
        str(max(1, len(used.stages))),
        duration(used.duration_slots * application.slot_s),
    ]
    for name, means, peaks in zip(application.resources, used.mean, used.peak, strict=True):
        mean, highest = average(means, used.last_part), max(measured(peaks), default=math.nan)
        cells.append(" / ".join("–" if math.isnan(value) else amount(name, value) for value in (mean, highest)))
    return cells


def _percent(value: float | None, *, sign: bool = False) -> str:
    if value is None or not math.isfinite(value):
        return "–"
    return f"{100 * value:+.0f} %" if sign else f"{100 * value:.0f} %"


def _at(at: float) -> str:
    try:
        return time.strftime("%Y-%m-%d %H:%M", time.localtime(at)) if at else "–"
    except (OverflowError, ValueError, OSError):
        return "?"


def _print(console: Console, table: Table) -> None:
    if table.row_count:
        console.print()
        console.print(table)


# ---------------------------------------------------------------- charts


def print_plot(application: Application, run: Run, forecast: Forecast | None, of: str) -> None:
    """Print charts of a run over time, one for each resource; ``of``: mean or peak of each slot."""
    console = render.console()
    for line in plot(application, run, forecast, of, min(console.width - 14, _MOST_COLUMNS)):
        console.print(line, soft_wrap=True)


def plot(application: Application, run: Run, forecast: Forecast | None, of: str, columns: int) -> list[Text]:
    """Return the lines of the charts: bars are the measured use, lines across them the forecast."""
    expected = f"{_FORECAST} expected by {forecast.by}" if forecast is not None else "without a forecast"
    used = series_of(run, of)
    gaps = f", {_GAP} not measured" if any(math.isnan(value) for row in used for value in row) else ""
    title = f"{application.application} of {application.user}, run {run.run}: █ used, {expected}{gaps}"
    lines = [render.plain(title)]
    predicted = series_of(forecast, of) if forecast is not None else None
    slots = max(run.duration_slots, forecast.duration_slots if forecast is not None else 0.0)
    whole = math.ceil(slots)
    width = max(1, min(columns, max(whole, _COLUMNS // whole * whole)))
    for index, name in enumerate(application.resources):
        bars = _columns(used[index], run.duration_slots, slots, width)
        marks = (
            _columns(predicted[index], forecast.duration_slots, slots, width)
            if predicted is not None and forecast is not None
            else []
        )
        lines.append(Text())
        if not measured(used[index]):
            lines.append(render.plain(f"{label(name)}: not measured"))
        elif any(value and not math.isnan(value) for value in (*bars, *marks)):
            lines += [*_chart(name, bars, marks, of), _axis(run.stages, slots, width, application.slot_s)]
        else:
            lines.append(
                render.plain(
                    f"{label(name)}: none used, or not counted on its hosts" + ("; none expected" if marks else "")
                )
            )
    return lines


def series_of(one: Use, of: str) -> Series:
    """Return the peaks or the means of its slots."""
    return one.peak if of == "peak" else one.mean


def _columns(values: Sequence[float], had_slots: float, slots: float, width: int) -> list[float | None]:
    """Return one value for each column of a chart of ``slots``; None after the end of a series of ``had_slots``."""
    used = min(width, max(1, math.ceil(had_slots * width / slots)))
    fitted = list(values) if math.ceil(slots) == width else stretched(values, had_slots, used)
    return [*fitted, *[None] * (width - len(fitted))]


def _chart(name: str, bars: Sequence[float | None], marks: Sequence[float | None], of: str) -> list[Text]:
    top = max(measured([value for value in (*bars, *marks) if value is not None]))
    lines = [render.plain(f"{label(name)}, {of} of each slot")]
    for row in reversed(range(_ROWS)):
        line = Text(f"{amount(name, top):>12} ┤" if row == _ROWS - 1 else " " * 13 + "│")
        for column, bar in enumerate(bars):
            mark = marks[column] if marks else None
            if mark is not None and not math.isnan(mark) and min(_ROWS - 1, int(mark / top * _ROWS)) == row:
                line.append(_FORECAST, style="yellow")
            elif bar is not None and math.isnan(bar):
                line.append(" " if row else _GAP, style="dim")
            else:
                eighths = round(((bar or 0.0) / top * _ROWS - row) * 8)
                line.append(_BARS[min(8, max(0, eighths))], style="blue")
        lines.append(line)
    return lines


def _axis(stages: Sequence[int], slots: float, width: int, slot_s: float) -> Text:
    """Return the time axis, with a notch at the end of each of the run's stages."""
    notches = {min(width - 1, math.ceil(end * width / slots) - 1) for end in stages}
    line = "".join("┴" if column in notches else "─" for column in range(width))
    return Text(f"{'0':>12} └{line} {duration(slots * slot_s)}")

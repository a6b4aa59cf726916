"""Parts of tables for people: columns that are dropped where space is short, bars, text without control characters."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from penstock.cli.plain_text import printable
from penstock.model.units import counted, format_bytes

#: The number of rows shown of each list: a screen, not a log.
SHOWN = 20
_GAP = 2
#: A column whose text may wrap is readable at this width.
_WRAPPED = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"


def console(*, stderr: bool = False) -> Console:
    """Return a console for standard output or error; if that is no terminal, it is wide enough for every column.

    Colours are used on terminals only, even with FORCE_COLOR; NO_COLOR disables them there, too.
    """
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal else 160
    return Console(stderr=stderr, highlight=False, emoji=False, force_terminal=terminal, width=width)


def plain(value: object) -> Text:
    """Return external text without markup and control characters."""
    return Text(printable(value))


#: Styles of the states and outcomes of jobs.
JOB_STYLES = {
    "admitted": "green",
    "running": "green",
    "waiting": "yellow",
    "expected": "yellow",
    "cancelling": "yellow",
    "ending": "yellow",
    "succeeded": "dim",
    "failed": "red",
    "lost": "red",
    "disconnected": "red",
    "cancelled": "yellow",
}


def styled(value: object, styles: Mapping[str, str], other: str = "") -> Text:
    """Return a word in its style."""
    return Text(plain(value).plain, style=styles.get(str(value), other))


# ---------------------------------------------------------------- tables


def table(*columns: str) -> Table:
    """Return an empty table; long texts take several lines."""
    made = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
    for column in columns:
        made.add_column(column, overflow="fold")
    return made


@dataclass(frozen=True, slots=True)
class Column:
    """``of`` makes a cell from a row. If space is short, the column with the highest ``rank`` is dropped first; rank 0
    stays. ``wraps``: its text may take several lines."""

    header: str
    of: Callable[[Mapping[str, Any]], Text | str]
    rank: int = 0
    wraps: bool = False
    right: bool = False


class Fitted:
    """A table of as many columns as fit; of a long list the first rows, and the number of the others."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], shown: int = SHOWN) -> None:
        self._columns = list(columns)
        cells = ([column.of(row) for column in columns] for row in rows[:shown])
        self._rows = [[cell if isinstance(cell, Text) else plain(cell) for cell in row] for row in cells]
        self._more = max(0, len(rows) - shown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        chosen = self._chosen(options.max_width)
        # If all columns fit, only texts that may wrap yield space. rich would shorten long names, too.
        whole = console.is_terminal or self._total(chosen) <= options.max_width
        made = table()
        for index in chosen:
            column = self._columns[index]
            made.add_column(
                column.header,
                justify="right" if column.right else "left",
                overflow="ellipsis" if console.is_terminal and not column.wraps else "fold",
                no_wrap=whole and not column.wraps,
            )
        for row in self._rows:
            made.add_row(*(row[index] for index in chosen))
        yield made
        if self._more:
            yield Text(f"… {self._more} more", style="dim")

    def _chosen(self, width: int) -> list[int]:
        chosen = [  # a column that may be dropped is, if all its cells are empty
            index
            for index, column in enumerate(self._columns)
            if not column.rank or any(row[index].plain for row in self._rows)
        ]
        while self._total(chosen) > width:
            gone = max(chosen, key=lambda index: self._columns[index].rank)
            if not self._columns[gone].rank:
                break
            chosen.remove(gone)
        return chosen

    def _total(self, chosen: Sequence[int]) -> int:
        return sum(map(self._width, chosen)) - _GAP

    def _width(self, index: int) -> int:
        widest = max((row[index].cell_len for row in self._rows), default=0)
        if self._columns[index].wraps:
            widest = min(widest, _WRAPPED)
        return max(widest, len(self._columns[index].header)) + _GAP


# ---------------------------------------------------------------- small parts


def bar(share: float, width: int = 10) -> Text:
    """Return a bar of ``width`` characters, filled to ``share``; red from 95 % on."""
    eighths = round(8 * width * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    whole, rest = divmod(eighths, 8)
    text = ("█" * whole + (_BLOCKS[rest] if rest else "")).ljust(width)
    return Text(text, style="red" if share >= 0.95 else "green")


def percent(share: float) -> str:
    """Format ``0.42`` as ``42 %``."""
    return f"{100 * share:.0f} %" if math.isfinite(share) else "?"


def rate(bytes_per_s: float) -> str:
    """Format a rate with its unit."""
    return f"{format_bytes(bytes_per_s)}/s"


def amount(unit: str, value: object) -> str:
    """Format an amount in ``cores``, ``bytes`` or as a ``share``; an unknown one is a dash."""
    if not isinstance(value, int | float):
        return "–"
    if unit == "bytes":
        return format_bytes(value)
    return percent(value) if unit == "share" else f"{value:.2f}".rstrip("0").rstrip(".")


def clock(at: object) -> str:
    """Format a Unix time as local time of day."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at)) if isinstance(at, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return "?"


def resources(of: Mapping[str, Any], extra: Sequence[Column] = ()) -> Fitted | None:
    """Return a table of resources: capacity, promised, used and slack, as in the agent's and master's documents."""
    rows = [{"resource": name, **row} for name, row in of.items() if isinstance(row, Mapping)]

    def column(key: str) -> Callable[[Mapping[str, Any]], str]:
        return lambda row: amount(str(row.get("unit")), row.get(key))

    columns = [
        Column("resource", lambda row: str(row["resource"])),
        *(Column(key, column(key), right=True) for key in ("capacity", "promised", "used", "slack")),
        Column("", lambda row: bar(number(row, "used") / (number(row, "capacity") or 1.0)), rank=1),
        *extra,
    ]
    return Fitted(columns, rows) if rows else None


def preemptions(status: Mapping[str, Any], *columns: Column) -> Fitted | None:
    """Return a table of preemptions, the latest first; ``columns`` stand between the time and the reason."""
    rows = list(reversed(listing(status, "preemptions")))
    time_of = Column("preempted", lambda row: clock(row.get("at")))
    return Fitted([time_of, *columns, Column("reason", field("reason"), wraps=True)], rows) if rows else None


# ---------------------------------------------------------------- documents of any version


def mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the value of a key if it is a map, otherwise an empty map."""
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def listing(of: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return the maps in the list at a key."""
    value = of.get(key)
    entries: Iterable[Any] = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def named(of: Mapping[str, Any], key: str, name: str) -> list[Mapping[str, Any]]:
    """Return the maps in the map at a key, each with its own key as ``name``."""
    return [{name: each, **row} for each, row in mapping(of, key).items() if isinstance(row, Mapping)]


def number(of: Mapping[str, Any], key: str) -> float:
    """Return the number at a key, or 0."""
    value = of.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def count(of: Mapping[str, Any], key: str) -> str:
    """Return the number at a key without decimals, or an empty text."""
    return f"{number(of, key):.0f}" if key in of else ""


def field(key: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows the value of a key as a cell."""
    return lambda row: "" if row.get(key) is None else str(row[key])


def count_of(key: str) -> Callable[[Mapping[str, Any]], str]:
    """Return a function that shows a number as a cell."""
    return lambda row: count(row, key)


def stages(job: Mapping[str, Any], key: str = "stages") -> str:
    """Return the numbers of ended and of all tasks in its stages, as reported by its framework."""
    told = listing(job, key)
    tasks = sum(number(stage, "tasks") for stage in told)
    done = sum(number(stage, "done") for stage in told)
    return f"{done:.0f} of {counted(round(tasks), 'task')}" if tasks else ""


def troubles(status: Mapping[str, Any]) -> Text | None:
    """Return the operations that the system currently refuses to the daemon, and the reasons."""
    rows = [f"{row.get('what', '?')}: {row.get('why', '?')}" for row in listing(status, "degraded")]
    if not rows:
        return None
    said = plain(f"degraded: {'; '.join(rows)}")
    said.stylize("red")
    return said


def page(headline: Text, *parts: Fitted | Text | None) -> RenderableType:
    """Stack parts, with an empty line above each table; None: nothing to show."""
    found: list[RenderableType] = [headline]
    for part in parts:
        if part is not None:
            found += [part] if isinstance(part, Text) else [Text(), part]
    return Group(*found)

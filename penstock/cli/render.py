"""What tables for people are made of: columns that go where there is no room, bars, text that steers no terminal."""

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

from penstock.cli.words import printable
from penstock.model.units import format_bytes

#: How many of each list are shown: a screen, not a log.
SHOWN = 20
_GAP = 2
#: A column whose text may take several lines is still read at this width.
_WRAPPED = 24
_BLOCKS = " ▏▎▍▌▋▊▉█"


def console(*, stderr: bool = False) -> Console:
    """Standard output or error; wide enough for every column when nobody looks at it through a terminal.

    Colours and the like are only for terminals, whatever FORCE_COLOR says; NO_COLOR takes the colours away there, too.
    """
    terminal = (sys.stderr if stderr else sys.stdout).isatty()
    width = None if terminal else 160
    return Console(stderr=stderr, highlight=False, force_terminal=terminal, width=width)


def plain(value: object) -> Text:
    """Text from elsewhere, without markup and without anything that could steer a terminal."""
    return Text(printable(value))


#: How jobs stand, or how they ended.
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
    """A word in the style that it has."""
    return Text(plain(value).plain, style=styles.get(str(value), other))


# ---------------------------------------------------------------- tables


@dataclass(frozen=True, slots=True)
class Column:
    """``of`` makes a cell of a row. Where there is no room the column with the highest ``rank`` goes first; 0 stays.
    ``wraps``: its text may take several lines."""

    header: str
    of: Callable[[Mapping[str, Any]], Text | str]
    rank: int = 0
    wraps: bool = False
    right: bool = False


class Fitted:
    """A table of as many of its columns as there is room for; of a long list the first rows, and how many more."""

    def __init__(self, columns: Sequence[Column], rows: Sequence[Mapping[str, Any]], shown: int = SHOWN) -> None:
        self._columns = list(columns)
        self._rows = [[_cell(column.of(row)) for column in columns] for row in rows[:shown]]
        self._more = max(0, len(rows) - shown)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Called by rich."""
        chosen = self._chosen(options.max_width)
        table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, _GAP, 0, 0))
        for index in chosen:
            column = self._columns[index]
            cut = console.is_terminal and not column.wraps
            table.add_column(
                column.header,
                justify="right" if column.right else "left",
                overflow="ellipsis" if cut else "fold",
                no_wrap=cut,
            )
        for row in self._rows:
            table.add_row(*(row[index] for index in chosen))
        yield table
        if self._more:
            yield Text(f"… {self._more} more", style="dim")

    def _chosen(self, width: int) -> list[int]:
        chosen = [index for index in range(len(self._columns)) if self._says(index)]
        while sum(map(self._width, chosen)) - _GAP > width:
            gone = max(chosen, key=lambda index: self._columns[index].rank)
            if not self._columns[gone].rank:
                break
            chosen.remove(gone)
        return chosen

    def _says(self, index: int) -> bool:
        """A column that can go and in which nothing stands is left out everywhere."""
        return not self._columns[index].rank or any(row[index].plain for row in self._rows)

    def _width(self, index: int) -> int:
        widest = max((row[index].cell_len for row in self._rows), default=0)
        if self._columns[index].wraps:
            widest = min(widest, _WRAPPED)
        return max(widest, len(self._columns[index].header)) + _GAP


def _cell(value: Text | str) -> Text:
    return value if isinstance(value, Text) else plain(value)


# ---------------------------------------------------------------- small parts


def bar(share: float, width: int = 10) -> Text:
    """A filled share of ``width`` characters; red from 95 % on."""
    eighths = round(8 * width * min(1.0, max(0.0, share))) if math.isfinite(share) else 0
    whole, rest = divmod(eighths, 8)
    text = ("█" * whole + (_BLOCKS[rest] if rest else "")).ljust(width)
    return Text(text, style="red" if share >= 0.95 else "green")


def percent(share: float) -> str:
    """``0.42`` → ``42 %``."""
    return f"{100 * share:.0f} %" if math.isfinite(share) else "?"


def rate(bytes_per_s: float) -> str:
    """With its unit."""
    return f"{format_bytes(bytes_per_s)}/s"


def amount(unit: str, value: object) -> str:
    """Of a resource in ``cores``, ``bytes`` or as a ``share``; what is not known is a dash."""
    if not isinstance(value, int | float):
        return "–"
    if unit == "bytes":
        return format_bytes(value)
    return percent(value) if unit == "share" else f"{value:.2f}".rstrip("0").rstrip(".")


def clock(at: object) -> str:
    """Unix time → the time of day here."""
    try:
        return time.strftime("%H:%M:%S", time.localtime(at)) if isinstance(at, int | float) else ""
    except (OverflowError, ValueError, OSError):
        return "?"


def resources(of: Mapping[str, Any], extra: Sequence[Column] = ()) -> Fitted | None:
    """Each resource's capacity, what is promised and used of it, and the slack, as agent and master tell them."""
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


# ---------------------------------------------------------------- documents of any age


def mapping(of: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """What is there under the key, if it is a map."""
    value = of.get(key)
    return value if isinstance(value, Mapping) else {}


def listing(of: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """The maps that are in the list there."""
    value = of.get(key)
    entries: Iterable[Any] = value if isinstance(value, list) else []
    return [entry for entry in entries if isinstance(entry, Mapping)]


def named(of: Mapping[str, Any], key: str, name: str) -> list[Mapping[str, Any]]:
    """The maps in the map there, each with its key as ``name``."""
    return [{name: each, **row} for each, row in mapping(of, key).items() if isinstance(row, Mapping)]


def number(of: Mapping[str, Any], key: str) -> float:
    """A number; 0 where there is none."""
    value = of.get(key)
    return float(value) if isinstance(value, int | float) else 0.0


def count(of: Mapping[str, Any], key: str) -> str:
    """A number without decimals; nothing where there is none."""
    return f"{number(of, key):.0f}" if key in of else ""


def field(key: str) -> Callable[[Mapping[str, Any]], str]:
    """A cell that shows what is there under the key."""
    return lambda row: "" if row.get(key) is None else str(row[key])


def counted(key: str) -> Callable[[Mapping[str, Any]], str]:
    """A cell that shows a number."""
    return lambda row: count(row, key)


def stages(job: Mapping[str, Any], key: str = "stages") -> str:
    """How many of the tasks of its stages are done, as far as its framework told."""
    told = listing(job, key)
    tasks = sum(number(stage, "tasks") for stage in told)
    done = sum(number(stage, "done") for stage in told)
    return f"{done:.0f} of {tasks:.0f} tasks" if tasks else ""


def troubles(status: Mapping[str, Any]) -> Text | None:
    """What the system refuses to the daemon at the moment, and why."""
    rows = [f"{row.get('what', '?')}: {row.get('why', '?')}" for row in listing(status, "degraded")]
    if not rows:
        return None
    said = plain(f"degraded: {'; '.join(rows)}")
    said.stylize("red")
    return said


def page(headline: Text, *parts: Fitted | Text | None) -> RenderableType:
    """One below the other, a line left empty above each table; None: there is nothing of it."""
    found: list[RenderableType] = [headline]
    for part in parts:
        if part is not None:
            found += [part] if isinstance(part, Text) else [Text(), part]
    return Group(*found)

"""Formatting without control characters and without libraries: printable text, durations, columns.

:mod:`penstock.cli.render` has the parts that need rich, whose import takes longer than most commands run.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

_GAP = "  "


def printable(value: object) -> str:
    """Replace characters of external text that could control a terminal."""
    return "".join(c if c.isprintable() else "�" for c in str(value))


def enumeration(names: Iterable[str], *, cut: bool) -> str:
    """Return printable names in one line; ``cut``: the list was bounded and is full, so that there may be others."""
    return ", ".join(map(printable, names)) + (" and perhaps more" if cut else "")


def duration(seconds: float) -> str:
    """Format ``93.4`` as ``1m33s``."""
    if not abs(seconds) < float("inf"):  # also if it is no number
        return "?"
    if seconds < 60:
        return f"{seconds:.1f}s" if seconds < 10 else f"{seconds:.0f}s"
    minutes, rest = divmod(int(seconds), 60)
    if minutes < 60:
        return f"{minutes}m{rest:02d}s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours}h{minutes:02d}m" if hours < 24 else f"{hours // 24}d{hours % 24:02d}h"


def columns(header: Sequence[str], rows: Sequence[Sequence[str]], right: Collection[str] = ()) -> list[str]:
    """Return the lines of a table, one per row; the columns named in ``right`` are right-aligned."""
    lines = [header, *([printable(cell) for cell in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    aligned = [str.rjust if name in right else str.ljust for name in header]
    return [
        _GAP.join(align(cell, width) for align, cell, width in zip(aligned, line, widths, strict=True)).rstrip()
        for line in lines
    ]

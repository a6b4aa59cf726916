"""Parse SWIM: the jobs of a day at Facebook, in bytes (the heavy-tailed workload of LAS_MQ §5.1)."""

from __future__ import annotations

import math
from collections.abc import Iterable

import msgspec

from penstock.model.units import counted
from simulator.traces.errors import TraceError

_COLUMNS = ("job id", "submit time s", "gap s", "map input bytes", "shuffle bytes", "reduce output bytes")


class SwimJob(msgspec.Struct, frozen=True, kw_only=True):
    """One row. ``size_bytes`` is input + d/n × shuffle + output; 127 rows of the public trace have size zero."""

    name: str
    submitted_at_s: float
    input_bytes: int
    shuffle_bytes: int
    output_bytes: int
    size_bytes: float


def swim(lines: Iterable[str], d_over_n: float, *, where: str = "swim") -> list[SwimJob]:
    """Return the jobs of a SWIM TSV (no header), in its order.

    Args:
        lines: the file's lines; empty lines are skipped.
        d_over_n: bytes that a disk moves in the time in which the network moves one.
        where: the file's name, for errors.

    Raises:
        TraceError: a line has not six columns, or a column is no number ≥ 0.
    """
    jobs = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        columns = line.rstrip("\r\n").split("\t")
        if len(columns) != len(_COLUMNS):
            has = counted(len(columns), "column")
            raise TraceError(f"{where}:{number}: {has} instead of six separated by tabs ({', '.join(_COLUMNS)})")
        submitted_at_s, _gap_s, *amounts = (_number(columns[i], where, number, i) for i in range(1, len(columns)))
        read, shuffled, written = (int(amount) for amount in amounts)
        jobs.append(
            SwimJob(
                name=columns[0],
                submitted_at_s=submitted_at_s,
                input_bytes=read,
                shuffle_bytes=shuffled,
                output_bytes=written,
                size_bytes=read + d_over_n * shuffled + written,
            )
        )
    return jobs


def _number(text: str, where: str, line: int, column: int) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise TraceError(f"{where}:{line}: {_COLUMNS[column]}: {text!r} is not a number from 0 on")
    return value

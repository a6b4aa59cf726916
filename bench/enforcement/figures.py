"""What was measured: frozen records that can be sent as JSON, know their bar, and become lines of a table."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence

import msgspec

#: Of what it gets alone, a regular container keeps so much beside hogs: on average, and in its worst second.
KEPT, KEPT_P1 = 0.95, 0.90


class Accuracy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A limit, and what came through. ``charged`` is the kernel's figure, ``counted`` the workload's own.

    ``bar`` is how far ``charged`` may be from ``asked``, relatively, None where that is only shown. With ``at_most``
    less than was asked for is no miss.
    """

    what: str
    unit: str
    asked: float
    charged: float
    counted: float | None = None
    bar: float | None = None
    at_most: bool = False

    @property
    def deviation(self) -> float:
        """Relative to what was asked for."""
        return self.charged / self.asked - 1

    @property
    def met(self) -> bool:
        """Whether it is within its bar."""
        if self.bar is None:
            return True
        return self.deviation <= self.bar if self.at_most else abs(self.deviation) <= self.bar

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        counted = "" if self.counted is None else _number(self.counted)
        bar = "shown only" if self.bar is None else f"{'≤ ' if self.at_most else '± '}{self.bar:.0%}"
        asked = f"{_number(self.asked)} {self.unit}"
        return (self.what, asked, _number(self.charged), counted, f"{self.deviation:+.1%}", bar, _met(self.met))


class Isolation(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a regular container gets alone and beside hogs, a second. ``p1`` is its 1st percentile over windows of 1 s.

    Where ``judged`` is false the figure is only shown.
    """

    what: str
    hogs: str
    unit: str
    alone: float
    alone_p1: float
    beside: float
    beside_p1: float
    judged: bool = True

    @property
    def kept(self) -> float:
        """The share of what it gets alone."""
        return self.beside / self.alone

    @property
    def kept_p1(self) -> float:
        """The worst second's share of the mean alone."""
        return self.beside_p1 / self.alone

    @property
    def met(self) -> bool:
        """Whether both bars are passed."""
        return not self.judged or (self.kept >= KEPT and self.kept_p1 >= KEPT_P1)

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        return (
            self.what,
            self.hogs,
            f"{_number(self.alone)} {self.unit}",
            _number(self.beside),
            f"{self.kept:.1%}",
            f"{self.kept_p1:.1%} ({self.alone_p1 / self.alone:.1%})",
            _met(self.met) if self.judged else "shown only",
        )


class Reaction(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Times from the allocation that goes too far to memory free again, in seconds; those that never came are None."""

    what: str
    times_s: tuple[float | None, ...]
    bar_s: float | None = None
    note: str = ""

    @property
    def met(self) -> bool:
        """Whether the 99th percentile is within the bar."""
        return self.bar_s is None or percentile([_or_never(t) for t in self.times_s], 99) <= self.bar_s

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        times = [_or_never(t) for t in self.times_s]
        bar = "shown only" if self.bar_s is None else f"p99 ≤ {1000 * self.bar_s:.0f} ms"
        met = _met(self.met) if self.bar_s is not None else ""
        p50, p99 = (_milliseconds(percentile(times, p)) for p in (50, 99))
        return (self.what, str(len(times)), p50, p99, bar, met, self.note)


Figure = Accuracy | Isolation | Reaction
_HEADS: dict[type[Figure], tuple[str, ...]] = {
    Accuracy: ("limit", "asked", "charged", "by its own count", "deviation", "bar", ""),
    Isolation: ("regular", "beside ten", "alone", "beside", "kept (bar 95 %)", "p1 (bar 90 %; alone)", ""),
    Reaction: ("what reacts", "runs", "p50", "p99", "bar", "", ""),
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """What was measured in one place."""

    where: str
    kernel: str
    figures: list[Figure]

    @classmethod
    def of_this_host(cls, figures: Iterable[Figure], where: str) -> Report:
        """Measure, showing each figure as it comes."""
        taken = []
        for figure in figures:
            taken.append(figure)
            print(" | ".join(figure.cells()), flush=True)
        return cls(where=where, kernel=os.uname().release, figures=taken)

    @staticmethod
    def decode(data: bytes) -> Report:
        """From JSON."""
        return msgspec.json.decode(data, type=Report)


def percentile(values: Sequence[float], percent: float) -> float:
    """The value that so many percent do not exceed (nearest rank)."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def tables(figures: Iterable[Figure]) -> str:
    """Markdown: one table per kind of figure, in the order of the figures."""
    given = list(figures)
    parts = []
    for kind, head in _HEADS.items():
        if lines := [figure.cells() for figure in given if isinstance(figure, kind)]:
            rows = [head, ("---",) * len(head), *lines]
            parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    return "\n\n".join(parts)


def _or_never(time_s: float | None) -> float:
    return math.inf if time_s is None else time_s


def _milliseconds(time_s: float) -> str:
    return "never" if math.isinf(time_s) else f"{1000 * time_s:.0f} ms"


def _number(value: float) -> str:
    """Four digits that matter."""
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def _met(met: bool) -> str:
    return "met" if met else "**missed**"

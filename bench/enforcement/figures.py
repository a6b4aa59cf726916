"""The measurements: frozen records that can be sent as JSON, know their bar, and become lines of a table."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence

import msgspec

#: The least part of its lone performance that a regular container keeps beside hogs: on average, and in its worst
#: second.
KEPT, KEPT_P1 = 0.95, 0.90


class Accuracy(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A limit, and the measured rate. ``charged`` is the kernel's figure, ``counted`` the workload's own.

    ``bar`` is how far ``charged`` may be from ``asked``, relatively, None where that is only shown. With ``at_most`` a
    lower rate than the limit is no miss.
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
        """Return the deviation relative to the limit."""
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
    """The performance of a regular container alone and beside hogs, per second. ``p1`` is its 1st percentile over
    windows of 1 s.

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
        """Return the kept share of its lone performance."""
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


class Cost(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """How long an operation takes, in seconds, and a peer that is timed by turns with it; ``bar`` is of their ratio."""

    what: str
    time_s: float
    peer: str = ""
    peer_s: float | None = None
    bar: float | None = None

    @property
    def met(self) -> bool:
        """Whether it takes at most so much of its peer's time."""
        return self.bar is None or self.peer_s is None or self.time_s <= self.bar * self.peer_s

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        if self.bar is None or self.peer_s is None:
            return (self.what, _duration(self.time_s), "", "shown only", "")
        share = f"{self.time_s / self.peer_s:.1%} of “{self.peer}”"
        return (self.what, _duration(self.time_s), share, f"≤ {self.bar:.0%}", _met(self.met))


class Lowering(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Changes of a limit, and the data of a reader right after each (``first_mb``) and afterwards (``then_mb``), in MB.

    A change went wrong if more than ``first_most_mb`` came at first, or less than ``then_least_mb`` afterwards. Where
    ``judged`` is false the figure is only shown.
    """

    what: str
    first_mb: tuple[float, ...]
    then_mb: tuple[float, ...]
    first_most_mb: float
    then_least_mb: float
    judged: bool = True

    @property
    def wrong(self) -> int:
        """How many changes went wrong."""
        changes = zip(self.first_mb, self.then_mb, strict=True)
        return sum(first > self.first_most_mb or then < self.then_least_mb for first, then in changes)

    @property
    def met(self) -> bool:
        """Whether none did."""
        return not self.judged or self.wrong == 0

    def cells(self) -> tuple[str, ...]:
        """One line of the table."""
        return (
            self.what,
            str(len(self.first_mb)),
            str(self.wrong),
            f"{_range(self.first_mb)} (at most {self.first_most_mb:.1f})",
            f"{_range(self.then_mb)} (at least {self.then_least_mb:.1f})",
            "none" if self.judged else "shown only",
            _met(self.met) if self.judged else "",
        )


Figure = Accuracy | Isolation | Reaction | Cost | Lowering
_HEADS: dict[type[Figure], tuple[str, ...]] = {
    Accuracy: ("limit", "asked", "charged", "by its own count", "deviation", "bar", ""),
    Isolation: ("regular", "beside ten", "alone", "beside", "kept (bar 95 %)", "p1 (bar 90 %; alone)", ""),
    Reaction: ("what reacts", "runs", "p50", "p99", "bar", "", ""),
    Cost: ("operation", "takes", "share of a peer's time", "bar", ""),
    Lowering: ("how", "changes", "went wrong", "MB in the first 0.5 s", "MB in the second after", "bar", ""),
}


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """The figures of a part, measured in one place."""

    part: str
    where: str
    kernel: str
    figures: list[Figure]

    def text(self, made: str) -> str:
        """Markdown: where and how (``made``) they were measured, and the tables."""
        return f"{self.where}, Linux {self.kernel}; {made}:\n\n{tables(self.figures)}"


def measure(parts: Mapping[str, Callable[[], Iterable[Figure]]], names: Iterable[str], where: str) -> list[Report]:
    """Measure the named parts on this host, showing each figure as it comes."""
    reports = []
    for name in names:
        taken = []
        for figure in parts[name]():
            taken.append(figure)
            print(" | ".join(figure.cells()), flush=True)
        reports.append(Report(part=name, where=where, kernel=os.uname().release, figures=taken))
    return reports


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


def _duration(time_s: float) -> str:
    return f"{_number(1e6 * time_s)} µs" if time_s < 1e-3 else f"{_number(1000 * time_s)} ms"


def _range(values: Sequence[float]) -> str:
    return f"{min(values):.1f}–{max(values):.1f}"


def _number(value: float) -> str:
    """Four digits that matter."""
    return f"{value:.{max(0, 3 - math.floor(math.log10(abs(value))))}f}" if value else "0"


def _met(met: bool) -> str:
    return "met" if met else "**missed**"

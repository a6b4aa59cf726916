"""Conversion of written times and durations to steps of the plan, and of steps to times and durations in refusals."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from fractions import Fraction

from master.reservations.rdl.expressions import RdlError
from penstock.model.units import counted

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)")
_SECONDS = {"s": 1, "min": 60, "h": 3600, "d": 86400}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
#: Longest text accepted as a duration, in characters.
_LONGEST = 40
#: The last valid step; later ones are taken for mistakes.
LAST_STEP = 2**53


@dataclass(frozen=True, slots=True)
class Wording:
    """``step_s`` is the length of a step (seconds); None: steps are shown as numbers.

    ``origin`` is the Unix time at which step 0 begins; None: times are shown as durations since then.
    """

    step_s: float | None = None
    origin: float | None = 0.0

    def time(self, step: int) -> str:
        """Return when a step begins: ``2026-11-24T14:30:00Z``, which commands show in local time."""
        if self.step_s is None:
            return f"step {step}"
        if self.origin is None:
            return self.span(step)
        seconds = self.origin + step * self.step_s
        try:
            at = datetime.fromtimestamp(seconds, UTC)
        except (ValueError, OverflowError, OSError):  # beyond the range of calendars
            return f"Unix time {seconds:.0f}"
        return at.isoformat(timespec="seconds").replace("+00:00", "Z")

    def span(self, steps: int) -> str:
        """Return the duration of a number of steps: ``90 s``, ``1.5 h``."""
        if self.step_s is None:
            return counted(steps, "step")
        seconds = steps * self.step_s
        for unit in ("d", "h", "min"):
            if seconds >= _SECONDS[unit]:
                return f"{seconds / _SECONDS[unit]:.4g} {unit}"
        return f"{seconds:.4g} s"


@dataclass(frozen=True, slots=True)
class Calendar:
    """``origin`` is the Unix time at which step 0 begins, ``now`` the present step; ``wording`` formats steps for
    refusals.
    """

    step_s: float = 1.0
    origin: float = 0.0
    now: int = 0
    wording: Wording = field(default_factory=Wording)

    def span(self, text: str) -> int:
        """Return the steps that cover a duration: ``40`` (steps), ``90s``, ``5min``, ``1.5h``, ``1d``.

        Raises:
            RdlError: the text is none of these.
        """
        return self._in_range(math.ceil(self._duration(text)), text)

    def period(self, text: str) -> int:
        """Return the steps of a duration that is repeated: rounding would add up from turn to turn.

        Raises:
            RdlError: the text is no duration, or no whole number of steps.
        """
        steps = self._duration(text)
        if steps.denominator != 1:
            raise RdlError(f"{text!r} is no whole number of steps of {self.step_s:g} s, as a period must be")
        return self._in_range(int(steps), text)

    def time(self, text: str, *, last: bool = False) -> int:
        """Return the step of a time: ``800``, ``+2h`` (from the present step), ``2026-11-21T10:00:00Z``.

        A time without a zone is in UTC. A time within a step is rounded to the inside of its bound: up for a start,
        down for an end (``last``).

        Raises: RdlError: the text is none of these, or lies before step 0.
        """
        exact = self.exact(text)
        return self._in_range(math.floor(exact) if last else math.ceil(exact), text)

    def exact(self, text: str) -> Fraction:
        """Return a time as :meth:`time` reads it, in steps and parts of steps.

        Raises:
            RdlError: the text is no time, or lies before step 0.
        """
        if text.startswith("+"):
            return self.now + self._duration(text[1:])
        if "T" not in text:
            return self._duration(text)
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise RdlError(f"{text!r} is no time ({error}); write such as 2026-11-21T10:00:00Z") from None
        microseconds = (at.replace(tzinfo=at.tzinfo or UTC) - _EPOCH) // timedelta(microseconds=1)
        steps = (Fraction(microseconds, 10**6) - _decimal(self.origin)) / _decimal(self.step_s)
        if steps < 0:
            raise RdlError(f"{text!r} lies before the plan begins")
        return steps

    def no_window(self, start: int, finish: int) -> str:
        """Return why [start, finish) is no window; empty if it is one."""
        if start < finish:
            return ""
        rounded = f"a start is rounded up and an end down to whole steps of {self.step_s:g} s"
        ends, begins = self.wording.time(finish), self.wording.time(start)
        return f"the window ends at {ends}, not behind its start at {begins} ({rounded})"

    def _duration(self, text: str) -> Fraction:
        """Return a duration in steps, without rounding."""
        if len(text) > _LONGEST:
            raise RdlError(f"{text[:_LONGEST]!r}… is too long for a duration")
        if text.isascii() and text.isdigit():
            return Fraction(text)
        match = _SPAN.fullmatch(text)
        if match is None:
            raise RdlError(f"{text!r} is no duration; write steps, or such as 90s, 5min, 1.5h")
        return Fraction(match[1]) * _SECONDS[match[2]] / _decimal(self.step_s)

    def _in_range(self, steps: int, text: str) -> int:
        if steps > LAST_STEP:
            raise RdlError(f"{text!r} is too far away")
        return steps


def _decimal(seconds: float) -> Fraction:
    """Return the written number exactly: 1/10 for 0.1, which a float cannot represent."""
    return Fraction(seconds).limit_denominator(10**6)

"""Steps of the plan for times and durations as people write them."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from datetime import UTC, datetime

from master.reservations.rdl.expressions import RdlError

_SPAN = re.compile(r"([0-9]+(?:\.[0-9]+)?)(s|min|h|d)")
_SECONDS = {"s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
#: Later than this is a mistake in writing (steps).
LAST_STEP = 2**53


@dataclass(frozen=True, slots=True)
class Calendar:
    """``origin`` is the Unix time at which step 0 begins, ``now`` the step that it is."""

    step_s: float = 1.0
    origin: float = 0.0
    now: int = 0

    def span(self, text: str) -> int:
        """Steps that cover a duration: ``40`` (steps), ``90s``, ``5min``, ``1.5h``, ``1d``.

        Raises:
            RdlError: it is none of these.
        """
        if text.isascii() and text.isdigit():
            return self._in_range(int(text), text)
        match = _SPAN.fullmatch(text)
        if match is None:
            raise RdlError(f"{text!r} is no duration; write steps, or such as 90s, 5min, 1.5h")
        return self._in_range(math.ceil(float(match[1]) * _SECONDS[match[2]] / self.step_s - 1e-9), text)

    def time(self, text: str, *, last: bool = False) -> int:
        """The step of a time: ``800``, ``+2h`` (from now), ``2026-11-21T10:00:00Z`` (UTC where no zone is said).

        A time within a step is the next one, for what begins; with ``last``, for what ends, that one.

        Raises:
            RdlError: it is none of these, or lies before step 0.
        """
        if text.startswith("+"):
            return self._in_range(self.now + self.span(text[1:]), text)
        if "T" not in text:
            return self.span(text)
        try:
            at = datetime.fromisoformat(text)
        except ValueError as error:
            raise RdlError(f"{text!r} is no time ({error}); write such as 2026-11-21T10:00:00Z") from None
        seconds = at.replace(tzinfo=at.tzinfo or UTC).timestamp() - self.origin
        step = math.floor(seconds / self.step_s + 1e-9) if last else math.ceil(seconds / self.step_s - 1e-9)
        if step < 0:
            raise RdlError(f"{text!r} lies before the plan begins")
        return self._in_range(step, text)

    def at(self, step: int) -> float:
        """The Unix time at which a step begins."""
        return self.origin + step * self.step_s

    def _in_range(self, steps: int, text: str) -> int:
        if steps > LAST_STEP:
            raise RdlError(f"{text!r} is too far away")
        return steps

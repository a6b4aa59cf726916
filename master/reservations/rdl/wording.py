"""Formatting of steps and amounts in refusals: as times and sizes where steps are moments of real time."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from penstock.model.units import counted, format_bytes

_UNITS = (("d", 86_400.0), ("h", 3600.0), ("min", 60.0))
_BYTES = {
    "memory_bytes": ("of memory", ""),
    "disk_bytes_per_s": ("of disk", "/s"),
    "network_bytes_per_s": ("of network", "/s"),
}


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
        for unit, length_s in _UNITS:
            if seconds >= length_s:
                return f"{seconds / length_s:.4g} {unit}"
        return f"{seconds:.4g} s"


def amount(resource: str, value: float) -> str:
    """Return an amount of a resource: ``4 cores``, ``8 GiB of memory``."""
    if resource == "cpu_cores":
        return counted(value, "core")
    of, per = _BYTES[resource]
    return f"{format_bytes(value)}{per} {of}" if value else f"nothing {of}"

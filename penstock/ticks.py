"""The instants at which periodic timers of a process are due: it wakes once for all with the same period."""

from __future__ import annotations

import math


def next_tick_s(now_s: float, period_s: float) -> float:
    """Return the first multiple of the period that is more than half a period away.

    So a timer that comes late is on time again the next time, and does not come twice in a row.
    """
    return period_s * (math.floor(now_s / period_s + 0.5) + 1)

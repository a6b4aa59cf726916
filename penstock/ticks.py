"""The instants at which periodic timers of a process are due: it wakes once for all with the same period and phase."""

from __future__ import annotations

import math

#: A multiple of the period that is nearer than this part of it is left out: the timer for it has come a little early.
_NEAR = 0.1
#: The phase of what looks at the work of the others from outside, as a part of the period.
BETWEEN = 0.5
#: The phase of what comes with the others, to wake the process once for all.
SAME_INSTANT = 0.0


def next_tick_s(now_s: float, period_s: float, phase: float = SAME_INSTANT) -> float:
    """Return the next multiple of the period, plus ``phase`` periods, that is more than a tenth of a period away.

    So a timer that comes late is on time again the next time, and one that comes early does not come twice in a row.
    """
    return period_s * (math.floor(now_s / period_s - phase + _NEAR) + 1 + phase)

"""When to read the containers' CPU time between two samples.

A node asks for it when a job comes. By the numbers of the last sample, a second old, jobs that have just begun would go
before the new one, though they have run for long by now.
"""

from __future__ import annotations

import math

from agent.core.instructions import ReadCpuTimes

#: The minimum time between two reads of the CPU time of containers that coming jobs cause.
_READ_AGAIN_S = 0.1
#: After a job has come, the gaps between reads double up to this; then samples are enough.
_READ_GAP_MAX_S = 0.4


class CpuReadSchedule:
    """The times to read the CPU time: when a job comes, and after it at gaps that double. Times are monotonic."""

    def __init__(self) -> None:
        self.job = ""  # the job that came last
        self.due: float | None = None  # when to call :meth:`again`
        self._read_at = -math.inf
        self._gap_s = _READ_AGAIN_S

    def came(self, job: str, now: float) -> list[ReadCpuTimes]:
        """Return the instruction to read now, unless the last read was a moment ago."""
        self.job, self._gap_s, self.due = job, _READ_AGAIN_S, now + _READ_AGAIN_S
        return self._read(now, again=False) if now - self._read_at >= _READ_AGAIN_S else []

    def again(self, now: float, *, wanted: bool) -> list[ReadCpuTimes]:
        """Return the instruction to read again, if that is due; no read follows once none is ``wanted``."""
        if self.due is None or now < self.due:
            return []
        self._gap_s *= 2
        self.due = now + self._gap_s if wanted and self._gap_s <= _READ_GAP_MAX_S else None
        return self._read(now, again=True) if wanted else []

    def _read(self, now: float, *, again: bool) -> list[ReadCpuTimes]:
        self._read_at = now
        return [ReadCpuTimes(again)]

"""A job's reports of its progress: a few a second are enough for the order of jobs, and each wakes the agent."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence

from penstock.model.work import StageProgress, has_news

#: The minimum time between two reports that have no news beside counts of the same stages.
GAP_S = 0.2


class ProgressReports:
    """Sends what is new about the stages at once. Counts of the same stages are sent at most once in :data:`GAP_S`,
    the latest ones at its end.
    """

    def __init__(self, send: Callable[[list[StageProgress]], object]) -> None:
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._latest: list[StageProgress] = []
        self._gap_end: asyncio.TimerHandle | None = None
        self._unsent = False

    def report(self, stages: Sequence[StageProgress]) -> None:
        """Send this report now or later."""
        before, self._latest = self._latest, list(stages)
        self._unsent = True
        if self._gap_end is None or has_news(before, stages):
            self._begin_gap()

    def flush(self) -> None:
        """Send the latest report now, if it was not sent: another message is to follow it."""
        if self._unsent:
            self._unsent = False
            self._send(self._latest)

    def close(self) -> None:
        """Send nothing more."""
        self._unsent = False
        if self._gap_end is not None:
            self._gap_end.cancel()

    def _begin_gap(self) -> None:
        if self._gap_end is not None:
            self._gap_end.cancel()
        self._gap_end = self._loop.call_later(GAP_S, self._end_gap)
        self.flush()

    def _end_gap(self) -> None:
        self._gap_end = None
        if self._unsent:
            self._begin_gap()

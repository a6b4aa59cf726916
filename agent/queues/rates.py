"""Processing rate of one resource: X/T over a sliding window (Ursa §4.2.2)."""

from __future__ import annotations

from collections import deque


class ProcessingRate:
    """The rate from X, the input bytes of the monotasks completed in the window, and T, the sum of their execution
    times.

    The rate of one slot is X/T; a resource with several slots has that many times the rate. The paper
    states this for the CPU; network monotasks share a link, so X/T of each is also only a part of the link's rate.
    While the window is empty, the last known rate is returned: an idle node has not become slower.
    """

    __slots__ = ("_bytes", "_done", "_last", "_parallel", "_seconds", "_window_s")

    def __init__(self, window_s: float, parallel: float = 1.0) -> None:
        self._window_s = window_s
        self._parallel = parallel
        self._done: deque[tuple[float, int, float]] = deque()
        self._bytes = 0
        self._seconds = 0.0
        self._last = 0.0

    def completed(self, now: float, input_bytes: int, execution_s: float) -> None:
        """Add monotasks that completed at ``now``: their input bytes and the sum of their execution times.

        Commands of unknown input have no bytes: their time tells nothing of the rate, and is left out.
        """
        if not input_bytes:
            return
        self._done.append((now, input_bytes, execution_s))
        self._bytes += input_bytes
        self._seconds += execution_s
        self._leave(now)

    def bytes_per_s(self, now: float) -> float:
        """Return the rate, or 0.0 while nothing has ever completed."""
        self._leave(now)
        if not self._done:
            self._bytes, self._seconds = 0, 0.0  # discards the rounding error that subtraction accumulates
        elif self._seconds > 0 and self._bytes > 0:
            self._last = self._bytes / self._seconds * self._parallel
        return self._last

    def _leave(self, now: float) -> None:
        """Drop the monotasks that have left the window."""
        done = self._done
        oldest = now - self._window_s
        while done and done[0][0] < oldest:
            _, input_bytes, execution_s = done.popleft()
            self._bytes -= input_bytes
            self._seconds -= execution_s

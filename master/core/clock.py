"""The cluster's clock: the time of the latest event, and its difference from Unix time."""

from __future__ import annotations


class Clock:
    """Times are monotonic seconds; Unix time is known since the latest round."""

    def __init__(self) -> None:
        self.now = 0.0
        self._unix_at = 0.0  # Unix time minus monotonic time

    def round_begins(self, unix: float) -> None:
        """Take the Unix time of the present event, a round."""
        self._unix_at = unix - self.now

    def unix(self, now: float) -> float:
        """Return Unix time, as used for times of submission; it only affects the order of jobs."""
        return now + self._unix_at

"""A count of work that holds or requests slots."""

from __future__ import annotations

import threading
from collections.abc import Callable


class WorkCount:
    """A thread-safe count."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._idle: Callable[[], object] | None = None

    def enter(self) -> None:
        """Add one."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """Subtract one."""
        with self._lock:
            self._count -= 1
            idle = self._if_idle()
        if idle is not None:
            idle()

    def when_idle(self, callback: Callable[[], object]) -> None:
        """Call back once, in any thread, when the count is zero: at once if it is now."""
        with self._lock:
            self._idle = callback
            idle = self._if_idle()
        if idle is not None:
            idle()

    def _if_idle(self) -> Callable[[], object] | None:
        """Return the callback if it is due."""
        if self._count or self._idle is None:
            return None
        callback, self._idle = self._idle, None
        return callback

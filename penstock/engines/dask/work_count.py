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
        self._call_if_idle()

    def when_idle(self, callback: Callable[[], object]) -> None:
        """Call back once, in any thread, when the count is zero: at once if it is now."""
        with self._lock:
            self._idle = callback
        self._call_if_idle()

    def _call_if_idle(self) -> None:
        with self._lock:
            if self._count or self._idle is None:
                return
            callback, self._idle = self._idle, None
        callback()

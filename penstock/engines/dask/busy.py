"""Whether anything is under way that holds a slot, or wants one."""

from __future__ import annotations

import threading
from collections.abc import Callable


class Busy:
    """A count, for any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._idle: Callable[[], object] | None = None

    def enter(self) -> None:
        """One more is under way."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """One less."""
        with self._lock:
            self._count -= 1
            idle = self._if_idle()
        if idle is not None:
            idle()

    def when_idle(self, callback: Callable[[], object]) -> None:
        """Call back once, in whatever thread, when nothing is under way: at once if that is so now."""
        with self._lock:
            self._idle = callback
            idle = self._if_idle()
        if idle is not None:
            idle()

    def _if_idle(self) -> Callable[[], object] | None:
        """Whom to call."""
        if self._count or self._idle is None:
            return None
        callback, self._idle = self._idle, None
        return callback

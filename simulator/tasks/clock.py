"""A clock that jumps from one event to the next."""

from __future__ import annotations

import gc
from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any


class Clock:
    """An event queue. Actions due at the same time run in the order of their requests. ``now_s`` starts at 0."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.events = 0
        self._heap: list[tuple[float, int, Callable[..., object], tuple[Any, ...]]] = []
        self._soon: deque[tuple[Callable[..., object], tuple[Any, ...]]] = deque()
        self._number = 0

    def fresh_number(self) -> int:
        """Return a new number, one above the last."""
        self._number += 1
        return self._number

    def after(self, seconds: float, action: Callable[..., object], *arguments: Any) -> None:
        """Call an action after some seconds."""
        self._number += 1
        heappush(self._heap, (self.now_s + seconds, self._number, action, arguments))

    def soon(self, action: Callable[..., object], *arguments: Any) -> None:
        """Call an action at the present time, after the current action."""
        self._soon.append((action, arguments))

    def run(self, over: Callable[[], bool], limit_s: float) -> bool:
        """Run until ``over()``; return False if ``limit_s`` came first or no action is left."""
        collected = gc.isenabled()
        gc.disable()  # a run makes hardly any reference cycles, and searching for them takes a tenth of the time
        try:
            return self._run(over, limit_s)
        finally:
            if collected:
                gc.enable()

    def _run(self, over: Callable[[], bool], limit_s: float) -> bool:
        heap, soon = self._heap, self._soon
        while not over():
            self.events += 1
            if soon:
                action, arguments = soon.popleft()
            elif heap and heap[0][0] <= limit_s:
                self.now_s, _, action, arguments = heappop(heap)
            else:
                return False
            action(*arguments)
        return True

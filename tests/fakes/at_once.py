"""How many are inside at once, from any threads."""

from __future__ import annotations

import threading


class AtOnce:
    """Entered by each; knows how many there were at most."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1

"""Estimates of the input size of tasks without dependencies: the mean of earlier tasks of the same prefix."""

from __future__ import annotations

import threading
from dataclasses import dataclass

#: The first tasks of a prefix are all measured, then every eighth: a measurement costs two reads.
_FIRST = 8
_EVERY = 8
#: The least weight of a new measurement; until enough exist, the estimate is the plain mean.
_WEIGHT = 1 / 32


def thread_read_bytes() -> int:
    """Return the bytes that the calling thread has read through system calls so far (``rchar``, proc_pid_io(5)).

    Reads through memory maps, and by other threads on its behalf, are not included. 0 if the kernel does not count.
    """
    try:
        with open("/proc/thread-self/io", "rb", buffering=0) as file:  # noqa: PTH123 - called for every root task
            line = file.read(64).split(b"\n", 1)[0]
    except OSError:
        return 0
    return int(line[7:]) if line.startswith(b"rchar: ") else 0


@dataclass(slots=True)
class _Mean:
    seen: int = 0
    measured: int = 0
    mean_bytes: float = 0.0


class ReadEstimates:
    """Mean bytes read by the tasks of each prefix; one thread calls :meth:`expect`, any thread :meth:`learn`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._means: dict[str, _Mean] = {}

    def expect(self, prefix: str) -> tuple[int, bool]:
        """Return the expected input of a prefix's next task, in bytes, and whether to measure it."""
        one = self._means.get(prefix)
        if one is None:
            one = self._means.setdefault(prefix, _Mean())
        one.seen += 1  # only this thread writes it
        return int(one.mean_bytes), one.seen <= _FIRST or one.seen % _EVERY == 0

    def learn(self, prefix: str, read_bytes: int) -> None:
        """Record the bytes read by a task of a prefix."""
        with self._lock:
            one = self._means.setdefault(prefix, _Mean())
            one.measured += 1
            one.mean_bytes += (read_bytes - one.mean_bytes) * max(_WEIGHT, 1 / one.measured)

"""How much a task without dependencies reads: known only afterwards, so the mean of its like speaks for the next."""

from __future__ import annotations

import threading
from dataclasses import dataclass

#: Each of the first so many tasks of a prefix is measured, then every so many-th: the measurement costs two reads.
_FIRST = 8
_EVERY = 8
#: Weight of the newest measurement once there are enough; before, it is a plain mean.
_WEIGHT = 1 / 32


def thread_read_bytes() -> int:
    """What the calling thread has read through system calls so far, in bytes (``rchar``, proc_pid_io(5)).

    Reads through memory maps and by other threads on its behalf are not in it. 0 where the kernel does not say.
    """
    try:
        with open("/proc/thread-self/io", "rb", buffering=0) as file:  # noqa: PTH123 - on the way of every root task
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
    """Mean bytes read by the tasks of each prefix: asked in one thread, and told by any."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._means: dict[str, _Mean] = {}

    def expect(self, prefix: str) -> tuple[int, bool]:
        """What the next task of a prefix will read, in bytes, and whether it should be measured."""
        one = self._means.get(prefix)
        if one is None:
            one = self._means.setdefault(prefix, _Mean())
        one.seen += 1  # nobody else writes it
        return int(one.mean_bytes), one.seen <= _FIRST or one.seen % _EVERY == 0

    def learn(self, prefix: str, read_bytes: int) -> None:
        """What a task of a prefix did read."""
        with self._lock:
            one = self._means.setdefault(prefix, _Mean())
            one.measured += 1
            one.mean_bytes += (read_bytes - one.mean_bytes) * max(_WEIGHT, 1 / one.measured)

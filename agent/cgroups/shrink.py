"""Take memory from a running container without an OOM kill.

Lowering ``memory.max`` below the memory in use kills at once, and without swap only page cache can be reclaimed;
anonymous memory stays. So ``memory.high`` goes down in steps, which makes the kernel reclaim and keeps the container
from reusing the freed memory; ``memory.reclaim`` takes the rest of the step; and ``memory.max`` follows down to the
memory then in use.
"""

from __future__ import annotations

import errno
import time
from dataclasses import dataclass

from agent.cgroups.filesystem import NotSupported
from agent.cgroups.memory import PAGE_BYTES, MemoryFiles

STEP_BYTES = 32 << 20
#: Margin above unreclaimable memory: allocations while the container is shrunk must not kill it.
_LEAST_MARGIN_BYTES = 4 << 20
_MARGIN = 1 / 16
#: Consecutive steps that freed nothing; the cache may be busy for a moment.
_FUTILE_STEPS = 3


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The present ``memory.max`` (None: no limit), the unreclaimable memory, and the memory in use."""

    memory_max_bytes: int | None
    unreclaimable_bytes: int
    in_use_bytes: int


def shrink_memory(memory: MemoryFiles, target_bytes: int, *, step_bytes: int, within_s: float) -> Shrunk:
    """Lower ``memory.max``; see ``Cgroup.shrink_memory``."""
    asked_high, present_max = memory.high, memory.max
    deadline = time.monotonic() + within_s
    held_high, futile = asked_high, 0
    try:
        while futile < _FUTILE_STEPS and time.monotonic() < deadline:
            in_use, goal = memory.current, _goal(memory, target_bytes)
            if in_use <= goal:
                break
            level = _pages(max(goal, in_use - step_bytes))
            if held_high is None or level < held_high:
                memory.high = held_high = level  # blocks until the kernel has reclaimed or can reclaim no more
            reclaim(memory, memory.current - level)
            futile = futile + 1 if memory.current >= in_use - PAGE_BYTES else 0
        goal = _goal(memory, target_bytes)
        # Memory that could not be freed in time stays: the limit goes down to the memory in use, not below.
        lowered = _pages(goal if memory.current <= goal else max(goal, memory.current + margin_bytes(memory.current)))
        if present_max is None or lowered < present_max:
            memory.max = lowered
    finally:
        if held_high != asked_high and memory.high == held_high:  # unless another value was set meanwhile
            memory.high = asked_high
    in_use = memory.current
    return Shrunk(memory.max, _unreclaimable(memory), in_use)


def reclaim(memory: MemoryFiles, wanted_bytes: int) -> int:
    """Reclaim page cache; see ``Cgroup.reclaim``."""
    if wanted_bytes <= 0:
        return 0
    before = memory.current
    try:
        memory.reclaim = wanted_bytes
    except NotSupported:  # before 5.19, setting memory.high below the memory in use reclaims
        asked, level = memory.high, _pages(max(_goal(memory, 0), before - wanted_bytes))
        if asked is None or level < asked:
            memory.high = level
            memory.high = asked
    except OSError as error:
        if error.errno not in (errno.EAGAIN, errno.EINTR):  # less could be reclaimed
            raise
    return int(max(0, before - memory.current))


def margin_bytes(unreclaimable_bytes: int) -> int:
    """Return how far above unreclaimable memory a limit is set."""
    return max(_LEAST_MARGIN_BYTES, int(unreclaimable_bytes * _MARGIN))


def _goal(memory: MemoryFiles, target_bytes: int) -> int:
    """Return the target, or the lowest limit above it that does not kill."""
    unreclaimable = _unreclaimable(memory)
    return max(target_bytes, unreclaimable + margin_bytes(unreclaimable))


def _unreclaimable(memory: MemoryFiles) -> int:
    """Return all that is not page cache: anonymous, shmem, mlocked, sockets, kernel memory. Assumes no swap."""
    stat = memory.stat
    return int(max(0, memory.current - stat.get("active_file", 0) - stat.get("inactive_file", 0)))


def _pages(number_of_bytes: int) -> int:
    return number_of_bytes // PAGE_BYTES * PAGE_BYTES

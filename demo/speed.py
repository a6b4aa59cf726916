"""How fast the machine computes during a round: its host is shared, and rounds only compare at the same speed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

#: A look takes some two milliseconds: about a thousandth of a processor.
_EVERY_S = 2.0
_ADDITIONS = 10_000
_TIMES = 5


def look_s() -> float:
    """Return the time of a fixed piece of work: the least of a few, which is of one that nothing interrupted.

    It is no CPU time, as a kernel in user mode counts that in ticks of 10 ms.
    """
    taken_s = []
    for _ in range(_TIMES):
        began_s = time.perf_counter()
        total = 0
        for number in range(_ADDITIONS):
            total += number
        taken_s.append(time.perf_counter() - began_s)
    return min(taken_s)


@contextlib.asynccontextmanager
async def looks() -> AsyncIterator[list[float]]:
    """Look again and again inside the block; the list has the seconds of each look, at least of one."""
    taken_s = [look_s()]

    async def watch() -> None:
        while True:
            await asyncio.sleep(_EVERY_S)
            taken_s.append(look_s())

    watching = asyncio.create_task(watch())
    try:
        yield taken_s
    finally:
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

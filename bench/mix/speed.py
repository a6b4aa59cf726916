"""How fast the machine computes during a round: its host is shared, and rounds only compare at the same speed."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator

#: A look takes about a millisecond of CPU time: less than a thousandth of a processor.
_EVERY_S = 2.0
_ADDITIONS = 20_000


def look_s() -> float:
    """Return the CPU time of a fixed piece of work; other processes lengthen it only by what they share with it."""
    began_s = time.thread_time()
    total = 0
    for number in range(_ADDITIONS):
        total += number
    return time.thread_time() - began_s


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

"""Results of calls that another thread carries out, where most of them are done already."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def result_of(call: Future[T]) -> T:
    """Wait for the result, or raise the call's error. A call that is done wakes nothing: it takes no turn of the loop,
    and no write to the descriptor by which a thread wakes it.
    """
    return call.result() if call.done() else await asyncio.wrap_future(call)


def done(result: T) -> Future[T]:
    """Return a call that is done, with its result."""
    call: Future[T] = Future()
    call.set_result(result)
    return call

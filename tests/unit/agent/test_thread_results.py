"""A call of another thread that is done already takes no turn of the event loop."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future

import pytest

from agent.thread_results import done, result_of


async def test_the_result_of_a_call_that_is_done_is_there_without_a_turn_of_the_loop() -> None:
    turns: list[str] = []
    asyncio.get_running_loop().call_soon(turns.append, "one")
    assert await result_of(done(7)) == 7
    assert turns == []


async def test_the_result_of_another_call_is_waited_for() -> None:
    call: Future[int] = Future()
    waiting = asyncio.create_task(result_of(call))
    await asyncio.sleep(0)
    assert not waiting.done()
    call.set_result(7)
    assert await waiting == 7


@pytest.mark.parametrize("at_once", [True, False])
async def test_the_error_of_a_call_is_raised(at_once: bool) -> None:
    call: Future[int] = Future()
    if not at_once:
        asyncio.get_running_loop().call_soon(call.set_exception, OSError("refused"))
    else:
        call.set_exception(OSError("refused"))
    with pytest.raises(OSError, match="refused"):
        await result_of(call)

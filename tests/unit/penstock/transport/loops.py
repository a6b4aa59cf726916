"""Tests on both event loops: asyncio's and uvloop's transports and TLS are two implementations."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
from collections.abc import Callable, Coroutine
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import uvloop

LIMIT_S = 60


def on_both_loops(
    test: Callable[..., Coroutine[Any, Any, None]], **beside: Callable[[], AbstractAsyncContextManager[Any]]
) -> Callable[..., None]:
    """Run a test on each loop, within ``LIMIT_S``; ``beside`` are its arguments that have to be made in the loop."""

    def run(loop: Callable[[], asyncio.AbstractEventLoop], **given: Any) -> None:
        async def whole() -> None:
            async with asyncio.timeout(LIMIT_S), contextlib.AsyncExitStack() as stack:
                made = {name: await stack.enter_async_context(make()) for name, make in beside.items()}
                await test(**made, **given)

        with asyncio.Runner(loop_factory=loop) as runner:
            runner.run(whole())

    parameters = inspect.signature(test).parameters
    asked = [one.replace(annotation=inspect.Parameter.empty) for name, one in parameters.items() if name not in beside]
    loop = inspect.Parameter("loop", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    run.__signature__ = inspect.Signature([loop, *asked])  # type: ignore[attr-defined]
    run.__name__ = test.__name__
    loops = [asyncio.new_event_loop, uvloop.new_event_loop]
    return pytest.mark.parametrize("loop", loops, ids=["asyncio", "uvloop"])(run)

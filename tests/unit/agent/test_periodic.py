"""A sample, and what comes after the decisions on it."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

from agent.periodic import Periodic


async def test_the_history_is_told_of_a_sample_after_the_decisions_on_it() -> None:
    done = list[str]()

    async def counters() -> dict[int, Any]:
        done.append("counters")
        return {}

    shell = Mock(link=None)
    shell.node.containers.live = {}
    shell.dispatch = lambda event: done.append(type(event).__name__)
    enforcer = Mock(counters=counters)
    periodic = Periodic(
        shell, Mock(), Mock(), enforcer, Mock(), None, Mock(), Mock(), AsyncMock(), lambda: done.append("row")
    )
    await periodic._sample()
    assert done == ["counters", "Sampled", "row"]

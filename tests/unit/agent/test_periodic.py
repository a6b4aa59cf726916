"""A sample, and what comes after the decisions on it."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest

from agent.core.instructions import ReadCpuTimes
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


@pytest.mark.parametrize(("again", "sent"), [(False, "send_soon"), (True, "send_heartbeat")])
def test_cpu_times_read_again_are_reported_at_once_others_with_what_follows_the_job(again: bool, sent: str) -> None:
    shell = Mock()
    Periodic(shell, Mock(), Mock(), Mock(), Mock(), None, Mock(), Mock(), AsyncMock(), Mock())
    shell.read_cpu_times(ReadCpuTimes(again))
    assert [call[0] for call in shell.link.method_calls] == [sent]

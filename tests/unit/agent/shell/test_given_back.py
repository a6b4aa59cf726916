"""Processes that are given back are out of their container, with any nice value."""

from __future__ import annotations

import asyncio
import os
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import executor
from agent.core import instructions as i
from agent.executor import Executor
from agent.launcher import LaunchFailed
from agent.limit_enforcer import LimitEnforcer


@pytest.mark.parametrize("moved", [True, False])
async def test_a_nice_value_that_cannot_be_set_leaves_no_container_behind(
    monkeypatch: pytest.MonkeyPatch, moved: bool
) -> None:
    """The launcher watches it no more: a container that stayed would never end."""

    async def give_back(container: str) -> None:
        if not moved:
            raise LaunchFailed(f"some processes of {container!r} could not be moved back")

    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(executor, "renice_tree", lambda *_: "process 7 cannot be reniced: Operation not permitted")
    told: asyncio.Queue[Any] = asyncio.Queue()
    launcher, limit_enforcer = SimpleNamespace(give_back=give_back), LimitEnforcer(None, None, lambda *_: None)
    one = Executor(cast(Any, launcher), None, limit_enforcer, cast(Any, None), cast(Any, None))
    one.on_event = told.put_nowait
    one.give_back(i.GiveBack("c-1", 7, 0, frozenset()))
    said = await asyncio.wait_for(told.get(), 30)
    assert said.container == "c-1"
    assert said.why_not == ("" if moved else "some processes of 'c-1' could not be moved back")

"""Processes that are given back are out of their container, with any nice value."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import executor
from agent.cgroups import CgroupTree
from agent.core import instructions as i
from agent.executor import Executor
from agent.launcher import LaunchFailed
from agent.limit_enforcer import LimitEnforcer
from penstock.model import ContainerSpec
from tests.fakes.fake_cgroups import FakeCgroups


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


@pytest.mark.parametrize("finds_groups", [True, False])
async def test_an_older_launcher_gets_no_processes_in_groups(finds_groups: bool) -> None:
    """It would look for them right below ``containers/``, and say that it had moved them back."""

    async def adopt(*_: object, **__: object) -> None:
        return None

    fake = FakeCgroups()
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    tree.prepare()
    launcher, limit_enforcer = SimpleNamespace(finds_groups=finds_groups, adopt=adopt), LimitEnforcer(tree, None, print)
    one = Executor(cast(Any, launcher), tree, limit_enforcer, cast(Any, None), cast(Any, None))
    one.adopt(i.AdoptProcess("c-1", "root", ContainerSpec(argv=("x",)), 7, True, groups=("j-1.job",), borrow=True))
    await one.settle()
    assert tree.get("c-1").path.parent.name == ("j-1.job" if finds_groups else "containers")
    fake.close()

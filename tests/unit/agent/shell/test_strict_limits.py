"""Limits that are strict: on a host that enforces no limit of memory a change of it is undone."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core.confinement import Confinement
from agent.core.settings import NodeSettings
from agent.journal import Journal
from agent.shell import Shell
from penstock.model import Capacity, ContainerSpec, Limits, Profile
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch
from penstock.wire.errors import RpcError

MIB = 1 << 20
SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30))
PROCESSOR = Profile(slot_s=3600, cpu_cores=(0.5, 2.0))
MEMORY = Profile(slot_s=3600, cpu_cores=(1.0,), memory_bytes=(64 * MIB,))


class NoMemoryLimits:
    """An executor whose kernel enforces everything but limits of memory."""

    def __init__(self) -> None:
        self.on_event: Callable[[e.Event], object] = lambda event: None
        self.told: list[Confinement] = []

    def confine(self, container: str, confinement: Confinement) -> None:
        self.told.append(confinement)

    async def settled(self, container: str) -> None:
        for told in self.told:
            limited = told.memory_max_bytes is not None
            self.on_event(e.Confined(container, {"memory_max_bytes": "no memory controller"} if limited else {}))
        self.told.clear()

    def __getattr__(self, name: str) -> Any:
        return lambda *_, **__: None


class Bed:
    """A container that runs on such a host, limited to 1.5 cores."""

    def __init__(self, directory: Path) -> None:
        self.executor = NoMemoryLimits()
        self.node = Node(SETTINGS)
        self.shell = Shell(self.node, Journal(directory), self.executor)  # type: ignore[arg-type]
        self.executor.on_event = self.shell.dispatch
        self.shell.dispatch(e.SessionOpened(1, "u", 1, "test"))
        spec = ContainerSpec(argv=("x",), limits=Limits(cpu_cores=1.5))
        self.container = str(self.shell.dispatch(e.Asked(m.LAUNCH, 1, Launch(container=spec))))
        self.shell.dispatch(e.ContainerStarted(self.container, 7, {}, 1e9))

    async def follow(self, profile: Profile, *, strict: bool) -> None:
        await self.shell.follow(e.FollowRequested(1, self.container, profile, 1e9, strict=strict))

    def now(self) -> tuple[Limits, Profile | None, dict[str, str]]:
        record = self.node.containers.live[self.container]
        return record.limits, record.profile, record.not_enforced


@pytest.fixture
async def bed(tmp_path: Path) -> Bed:
    return Bed(tmp_path)


async def test_a_profile_that_cannot_be_enforced_changes_nothing(bed: Bed) -> None:
    with pytest.raises(RpcError, match="nothing was changed: memory_max_bytes is not enforced: no memory controller"):
        await bed.follow(MEMORY, strict=True)
    assert bed.now() == (Limits(cpu_cores=1.5), None, {})


async def test_the_profile_before_goes_on(bed: Bed) -> None:
    await bed.follow(PROCESSOR, strict=True)
    before = bed.now()
    assert before[1] == PROCESSOR
    with pytest.raises(RpcError, match="memory_max_bytes"):
        await bed.follow(MEMORY, strict=True)
    limits, profile, not_enforced = bed.now()
    assert (limits.cpu_cores, limits.memory_max_bytes) == (2.0, None), "it began at 1e9, and its slots have passed"
    assert (profile, not_enforced) == (PROCESSOR, {})


async def test_what_is_enforced_or_not_strict_is_followed(bed: Bed) -> None:
    await bed.follow(PROCESSOR, strict=True)
    await bed.follow(MEMORY, strict=False)
    assert bed.now()[:2] == (Limits(cpu_cores=1.0, memory_max_bytes=64 * MIB), MEMORY)

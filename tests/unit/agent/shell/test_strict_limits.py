"""Limits that are strict: on a host that enforces no limit of memory a change of it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core import events as e
from agent.core.confinement import Confinement
from agent.journal import Journal
from penstock.model import ContainerSpec, Limits, Profile
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch
from penstock.wire.errors import RpcError
from tests.unit.agent.shell.shell_bed import Silent, make_shell

MIB = 1 << 20
PROCESSOR = Profile(slot_s=3600, cpu_cores=(0.5, 2.0))
MEMORY = Profile(slot_s=3600, cpu_cores=(1.0,), memory_bytes=(64 * MIB,))


class NoMemoryLimits(Silent):
    """An executor whose kernel enforces everything but limits of memory."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Confinement] = []

    def confine(self, container: str, confinement: Confinement) -> None:
        self.told.append(confinement)

    async def settled(self, container: str) -> None:
        for told in self.told:
            limited = told.memory_max_bytes is not None
            self.on_event(e.Confined(container, {"memory_max_bytes": "no memory controller"} if limited else {}))
        self.told.clear()


class Bed:
    """A container that runs on such a host, limited to 1.5 cores."""

    def __init__(self, directory: Path) -> None:
        executor = NoMemoryLimits()
        self.shell = make_shell(Journal(directory), executor)
        executor.on_event = self.shell.dispatch
        spec = ContainerSpec(argv=("x",), limits=Limits(cpu_cores=1.5))
        self.container = str(self.shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=spec))))
        self.shell.dispatch(e.ContainerStarted(self.container, 7, {}, 1e9))

    async def follow(self, profile: Profile, *, strict: bool) -> None:
        await self.shell.follow(e.FollowRequested(1, self.container, profile, 1e9, strict=strict))

    def now(self) -> tuple[Limits, Profile | None, dict[str, str]]:
        record = self.shell.node.containers.live[self.container]
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


async def test_limits_that_are_enforced_or_not_strict_are_followed(bed: Bed) -> None:
    await bed.follow(PROCESSOR, strict=True)
    await bed.follow(MEMORY, strict=False)
    assert bed.now()[:2] == (Limits(cpu_cores=1.0, memory_max_bytes=64 * MIB), MEMORY)

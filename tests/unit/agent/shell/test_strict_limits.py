"""Limits that are strict: on a host that enforces no limit of memory or of a link a change of it is undone."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.core import events as e
from agent.core.confinement import Confinement
from agent.journal import Journal
from penstock.model import ContainerSpec, Limits, Profile
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Resize
from penstock.wire.errors import RpcError
from tests.unit.agent.shell.shell_bed import Silent, make_shell

MIB = 1 << 20
PROCESSOR = Profile(slot_s=3600, cpu_cores=(0.5, 2.0))
MEMORY = Profile(slot_s=3600, cpu_cores=(1.0,), memory_bytes=(64 * MIB,))
NETWORK = Profile(slot_s=3600, network_bytes_per_s=(MIB,))


#: The limits that the host does not enforce → the agent's name of it, and why.
NOT_HERE = {
    "memory_max_bytes": ("memory_max_bytes", "no memory controller"),
    "network_egress_bytes_per_s": ("network_egress_bytes_per_s on eth0", "no htb"),
}


class SomeLimits(Silent):
    """An executor whose kernel enforces everything but limits of memory and of a link."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[Confinement] = []

    def confine(self, container: str, confinement: Confinement) -> None:
        self.told.append(confinement)

    async def settled(self, container: str) -> None:
        for told in self.told:
            missing = dict(said for name, said in NOT_HERE.items() if getattr(told, name) is not None)
            self.on_event(e.Confined(container, missing))
        self.told.clear()


class Bed:
    """A container that runs on such a host, limited to 1.5 cores."""

    def __init__(self, directory: Path) -> None:
        executor = SomeLimits()
        self.shell = make_shell(Journal(directory), executor)
        executor.on_event = self.shell.dispatch
        spec = ContainerSpec(argv=("x",), limits=Limits(cpu_cores=1.5))
        self.container = str(self.shell.dispatch(e.Requested(m.LAUNCH, 1, Launch(container=spec))))
        self.shell.dispatch(e.ContainerStarted(self.container, 7, {}, 1e9))

    async def follow(self, profile: Profile, *, strict: bool) -> None:
        await self.shell.follow(e.FollowRequested(1, self.container, profile, 1e9, strict=strict))

    async def resize(self, *, strict: bool, **limits: float | None) -> dict[str, str]:
        wanted = Resize(container=self.container, limits=dict(limits), strict=strict)
        return (await self.shell.resize(e.Requested(m.RESIZE, 1, wanted))).not_enforced

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


async def test_a_profile_of_a_link_that_cannot_be_limited_changes_nothing(bed: Bed) -> None:
    with pytest.raises(RpcError, match="changed: network_egress_bytes_per_s on eth0 is not enforced: no htb"):
        await bed.follow(NETWORK, strict=True)
    assert bed.now() == (Limits(cpu_cores=1.5), None, {})


@pytest.mark.parametrize(("limit", "said"), NOT_HERE.items())
async def test_a_new_limit_that_cannot_be_enforced_changes_nothing(bed: Bed, limit: str, said: tuple[str, str]) -> None:
    with pytest.raises(RpcError, match="nothing was changed: {} is not enforced: {}".format(*said)) as refused:
        await bed.resize(strict=True, cpu_cores=1.0, **{limit: 64 * MIB})
    assert refused.value.body.limit == said[0]
    assert bed.now() == (Limits(cpu_cores=1.5), None, {})
    assert await bed.resize(strict=False, **{limit: 64 * MIB}) == dict([said])
    assert await bed.resize(strict=True, cpu_cores=1.0) == dict([said]), "only the named one is strict"


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

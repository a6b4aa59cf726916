"""A launch whose limits are strict starts nothing where the host cannot enforce one. The hosts are fakes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent.cgroups import CgroupTree
from agent.core import events as e
from agent.executor import Executor
from agent.journal import Journal
from agent.launcher import Start
from agent.limit_enforcer import LimitEnforcer
from agent.stdio import Stdio
from penstock.model import ContainerSpec, Limits
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Launch, Launched
from penstock.wire.errors import RpcError
from tests.fakes.fake_cgroups import CONTROLLERS, FakeCgroups
from tests.unit.agent.shell.shell_bed import make_shell

#: No process has it: it is the least that the kernel never gives.
PID = 1 << 22
MEMORY = Limits(memory_max_bytes=64 << 20)
PROCESSOR = Limits(cpu_cores=0.5)


class StartsAll:
    """A launcher that reports everything as running."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def start(self, start: Start, **_: object) -> int:
        self.asked.append(start.container)
        return PID

    async def adopt(self, container: str, *_: object, **__: object) -> None:
        self.asked.append(container)


class Bed:
    """An agent with its own executor, on a host without limits of memory: its tree has no such controller, or it has
    no tree at all.
    """

    def __init__(self, directory: Path, tree: CgroupTree | None) -> None:
        self.launcher = StartsAll()
        self.tree = tree
        enforcer = LimitEnforcer(tree, None, lambda *_: None)
        stdio = cast(Stdio, SimpleNamespace(take=lambda *_: None, refuse=lambda *_: None))
        self.executor = Executor(cast(Any, self.launcher), tree, enforcer, stdio, directory)
        self.shell = make_shell(Journal(directory), self.executor)

    async def launch(self, limits: Limits, *, strict: bool, adopt: bool = False, oom_group: bool = False) -> Launched:
        spec = ContainerSpec(argv=("x",), limits=limits, strict=strict, oom_group=oom_group)
        adopted = e.AdoptRequested(1, spec, PID, tree=False)
        return await self.shell.launch(adopted if adopt else e.Requested(m.LAUNCH, 1, Launch(container=spec)))

    async def is_as_before(self) -> bool:
        """Whether nothing was started and nothing is left."""
        await self.executor.settle()
        cgroups = self.tree.existing() if self.tree is not None else ()
        return not self.launcher.asked and not self.shell.node.containers.live and not list(cgroups)


@pytest.fixture(params=["no controller", "no tree"])
async def bed(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bed]:
    if request.param == "no tree":
        yield Bed(tmp_path, None)
        return
    fake = FakeCgroups(controllers=tuple(each for each in CONTROLLERS if each != "memory"))
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    tree.prepare()
    yield Bed(tmp_path, tree)
    fake.close()


@pytest.mark.parametrize("adopt", [False, True], ids=["command", "process"])
async def test_a_container_with_a_limit_that_cannot_be_enforced_is_not_started_or_adopted(
    bed: Bed, adopt: bool
) -> None:
    said = "not started, as limits are strict: memory_max_bytes is not enforced: "
    with pytest.raises(RpcError, match=said) as refused:
        await bed.launch(MEMORY, strict=True, adopt=adopt)
    assert refused.value.body.limit == "memory_max_bytes"
    assert await bed.is_as_before()


async def test_the_end_of_the_whole_container_is_a_limit_like_others(bed: Bed) -> None:
    with pytest.raises(RpcError, match="oom_group is not enforced: ") as refused:
        await bed.launch(Limits(), strict=True, oom_group=True)
    assert refused.value.body.limit == "oom_group"
    assert await bed.is_as_before()
    assert "oom_group" in (await bed.launch(Limits(), strict=False, oom_group=True)).not_enforced


async def test_it_is_started_where_limits_are_not_strict_and_the_answer_names_those_not_enforced(bed: Bed) -> None:
    launched = await bed.launch(MEMORY, strict=False)
    assert bed.launcher.asked == [launched.container]
    assert "memory_max_bytes" in launched.not_enforced


@pytest.mark.parametrize("bed", ["no controller"], indirect=True)
async def test_it_is_started_where_all_of_its_limits_are_enforced(bed: Bed) -> None:
    launched = await bed.launch(PROCESSOR, strict=True)
    assert bed.launcher.asked == [launched.container]


@pytest.mark.parametrize("adopt", [False, True], ids=["command", "process"])
async def test_a_fault_of_our_own_leaves_no_container_that_starts_for_ever(
    bed: Bed, adopt: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fails(*_: object, **__: object) -> int:
        raise KeyError("slot 7")

    monkeypatch.setattr(bed.launcher, "adopt" if adopt else "start", fails)
    with pytest.raises(RpcError, match="slot 7"):
        await asyncio.wait_for(bed.launch(PROCESSOR, strict=False, adopt=adopt), 30)
    assert await bed.is_as_before()

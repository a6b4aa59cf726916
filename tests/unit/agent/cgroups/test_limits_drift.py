"""What other programs change, and what cannot be changed, is repaired or said."""

from __future__ import annotations

import asyncio
import errno
from typing import Any

import pytest

from agent.cgroups import Cgroup, CgroupTree
from agent.core.confinement import Confinement
from agent.limit_enforcer import LimitEnforcer
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

MIB = 1 << 20
LIMIT_S = 30.0
ASKED = Confinement(memory_max_bytes=100 * MIB)


async def test_a_memory_limit_that_was_raised_is_lowered_as_far_as_memory_can_be_reclaimed(make: Make) -> None:
    told: list[dict[str, str]] = []
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.append(why))
    _, cgroup = await limit_enforcer.create("a", ASKED)
    assert cgroup is not None
    file = bytes(cgroup.path / "memory.max")
    fake.write(file, str(1000 * MIB))
    fake.use(str(cgroup.path), anon_bytes=300 * MIB)

    assert await limit_enforcer.repair() == ["memory.max of a"]
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)

    assert 300 * MIB <= int(fake.read(file)) < 350 * MIB
    assert [list(each) for each in told] == [["memory_max_bytes"]]
    assert "cannot be reclaimed" in told[0]["memory_max_bytes"]
    assert await limit_enforcer.repair() == [], "it is tried again once less is in use"


async def test_a_raised_limit_is_tried_again_where_descriptors_lacked(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shrink(*_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    _, cgroup = await limit_enforcer.create("a", ASKED)
    assert cgroup is not None
    file = bytes(cgroup.path / "memory.max")
    fake.write(file, str(1000 * MIB))
    fake.use(str(cgroup.path), anon_bytes=300 * MIB)
    monkeypatch.setattr(Cgroup, "shrink_memory", shrink)
    await limit_enforcer.repair()
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    assert int(fake.read(file)) == 1000 * MIB
    monkeypatch.undo()
    await limit_enforcer.repair()
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    assert 300 * MIB <= int(fake.read(file)) < 350 * MIB


async def test_a_change_that_the_kernel_does_not_take_is_not_enforced_and_tried_again(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    def confine(cgroup: Cgroup, *_: Any) -> None:
        raise OSError(errno.EMFILE, "Too many open files", str(cgroup.path / "pids.max"))

    told: list[dict[str, str]] = []
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: told.append(why))
    await limit_enforcer.create("a", ASKED)
    monkeypatch.setattr(Cgroup, "confine", confine)
    limit_enforcer.confine("a", Confinement(memory_max_bytes=100 * MIB, pids_max=7))
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    assert [list(each) for each in told] == [["pids_max"]] and "Too many open files" in told[0]["pids_max"]
    monkeypatch.undo()
    await limit_enforcer.repair()
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    assert told[1:] == [{}]
    assert fake.read(bytes(tree.get("a").path / "pids.max")).strip() == "7"


GROUPED = {name: f"j-{name}.job" for name in ("a", "b", "c")}


async def grouped(make: Make) -> tuple[FakeCgroups, CgroupTree, LimitEnforcer]:
    fake, tree = make()
    limit_enforcer = LimitEnforcer(tree, None, lambda container, why: None)
    for container, group in GROUPED.items():
        await limit_enforcer.create(container, Confinement(cpu_weight=88), [group])
    return fake, tree, limit_enforcer


async def test_the_event_loop_turns_after_each_group_and_each_container(make: Make) -> None:
    _, _, limit_enforcer = await grouped(make)
    repairing, turns = asyncio.create_task(limit_enforcer.repair()), 0
    while not repairing.done():
        await asyncio.sleep(0)
        turns += 1
    assert turns > 2 * len(GROUPED)


async def test_a_group_may_go_while_others_are_repaired(make: Make) -> None:
    fake, tree, limit_enforcer = await grouped(make)
    for group in GROUPED.values():
        fake.write(f"/fake/cgroup/containers/{group}/cpu.weight".encode(), "5")
    repairing = asyncio.create_task(limit_enforcer.repair())
    await asyncio.sleep(0)
    assert not repairing.done()
    assert tree.get("c").remove()
    await limit_enforcer.remove("c")
    assert await repairing == ["cpu.weight of j-a.job", "cpu.weight of j-b.job"]


async def test_what_changes_while_others_are_repaired_is_not_reported_as_drift(make: Make) -> None:
    _, tree, limit_enforcer = await grouped(make)
    await limit_enforcer.create("heavier", Confinement(cpu_weight=200), [GROUPED["c"]])
    tree.groups.settle()
    repairing = asyncio.create_task(limit_enforcer.repair())
    await asyncio.sleep(0)
    assert not repairing.done()
    assert tree.get("heavier").remove()
    await limit_enforcer.remove("heavier")
    assert await repairing == []

"""Controllers, caps on all containers together, drift, and how all of it is undone."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from agent.cgroups import CgroupTree, Disk, io_weight_works
from agent.core.confinement import Confinement
from tests.fakes.fake_cgroups import CONTROLLERS, FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

ROOT = "/fake/cgroup"
ALL = f"{ROOT}/containers"
GIB = 1 << 30


def said(fake: FakeCgroups, path: str) -> str:
    """What a file says."""
    return fake.read(path.encode()).strip()


class Refusing(FakeCgroups):
    """May not enable controllers."""

    def write(self, path: bytes, text: str) -> None:
        """See FakeCgroups."""
        if path.endswith(b"cgroup.subtree_control"):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
        super().write(path, text)


def test_a_controller_that_may_not_be_enabled_is_missing_with_its_reason(make: Make) -> None:
    _, tree = make(of=Refusing)
    missing = tree.prepare()
    assert missing.keys() == set(CONTROLLERS)
    assert all("Permission denied" in why and "remedy: " in why for why in missing.values())
    assert tree.controllers == frozenset()


def test_right_below_the_top_controllers_are_enabled_there_and_disabled_again() -> None:
    fake = FakeCgroups("/fake", top=True)
    tree = CgroupTree(Path(ROOT), [], fake)
    fake.write(b"/fake/cgroup.subtree_control", "+memory +pids")  # as systemd leaves it
    assert tree.prepare() == {}
    assert said(fake, "/fake/cgroup.subtree_control") == "cpu cpuset io memory pids"
    assert tree.create("a").remove()
    tree.dismantle()
    assert said(fake, "/fake/cgroup.subtree_control") == "memory pids"
    assert fake.children(b"/fake") == []


def test_what_is_above_and_not_the_top_is_left_alone() -> None:
    fake = FakeCgroups("/fake")
    tree = CgroupTree(Path(ROOT), [], fake)
    assert tree.prepare().keys() == set(CONTROLLERS)
    assert said(fake, "/fake/cgroup.subtree_control") == ""


def test_a_root_that_is_not_ours_stays_as_it_was_found() -> None:
    fake = FakeCgroups(ROOT)
    fake.write(f"{ROOT}/cgroup.subtree_control".encode(), "+pids")
    before = {name: said(fake, f"{ROOT}/{name}") for name in ("memory.low", "memory.max", "cgroup.subtree_control")}
    tree = CgroupTree(Path(ROOT), [], fake, owns_root=False)
    assert tree.prepare() == {}
    failed = tree.cap(memory_max_bytes=GIB, memory_low_bytes=GIB)
    assert failed == {
        "memory_low_bytes": f"{ROOT}/memory.low protects 0 B only; "
        "remedy: systemctl set-property cgroup MemoryLow=infinity"
    }
    tree.dismantle()
    assert fake.children(ROOT.encode()) == []
    assert {name: said(fake, f"{ROOT}/{name}") for name in before} == before


def test_of_what_systemd_made_only_our_own_unit_and_slice_are_protected() -> None:
    fake = FakeCgroups("/fake")
    unit = "/fake/penstock.slice/penstock-containers.service"
    for directory in ("/fake", "/fake/penstock.slice"):
        fake.write(f"{directory}/cgroup.subtree_control".encode(), "+cpu +cpuset +io +memory +pids")
        fake.mkdir((unit if directory != "/fake" else "/fake/penstock.slice").encode())
    tree = CgroupTree(Path(unit), [], fake, owns_root=False)
    assert tree.prepare() == {}
    tree.cap(memory_low_bytes=GIB)
    assert [said(fake, f"{d}/memory.low") for d in ("/fake/penstock.slice", unit, f"{unit}/containers")] == [
        str(GIB)
    ] * 3
    assert said(fake, "/fake/memory.low") == "0"
    fake.write(b"/fake/penstock.slice/memory.low", "0")  # systemd was told something else
    assert tree.repair() == ["memory.low of all containers had been changed"]
    tree.cap()
    assert [said(fake, f"{d}/memory.low") for d in ("/fake/penstock.slice", unit, f"{unit}/containers")] == ["0"] * 3


PENSTOCK_SLICE = "/fake/penstock.slice"
UNIT = f"{PENSTOCK_SLICE}/penstock-containers.service"


def in_a_unit() -> tuple[FakeCgroups, CgroupTree]:
    """A tree in our own unit and slice, as systemd makes them."""
    fake = FakeCgroups("/fake", top=True)
    for directory, below in (("/fake", PENSTOCK_SLICE), (PENSTOCK_SLICE, UNIT)):
        fake.write(f"{directory}/cgroup.subtree_control".encode(), "+cpu +cpuset +io +memory +pids")
        fake.mkdir(below.encode())
    return fake, CgroupTree(Path(UNIT), [], fake, owns_root=False)


def classes(fake: FakeCgroups) -> list[str]:
    """cpu.idle of all that serves the containers, from the top."""
    return [said(fake, f"{each}/cpu.idle") for each in (PENSTOCK_SLICE, UNIT, f"{UNIT}/containers")]


def test_the_idle_class_reaches_up_to_our_slice_and_gives_an_operators_weight_back() -> None:
    fake, tree = in_a_unit()
    fake.write(f"{UNIT}/cpu.weight".encode(), "300")
    tree.prepare()
    tree.make_idle(True)
    assert classes(fake) == ["1", "1", "1"]
    tree.make_idle(False)
    assert classes(fake) == ["0", "0", "0"]
    assert [said(fake, f"{each}/cpu.weight") for each in (PENSTOCK_SLICE, UNIT)] == ["100", "300"]


def test_what_an_operator_made_idle_stays_so() -> None:
    fake, tree = in_a_unit()
    fake.write(f"{PENSTOCK_SLICE}/cpu.idle".encode(), "1")
    tree.prepare()
    tree.make_idle(True)
    tree.make_idle(False)
    assert classes(fake) == ["1", "0", "0"]


def test_the_next_agent_ends_the_idle_class_that_one_left_which_was_killed() -> None:
    fake, tree = in_a_unit()
    tree.prepare()
    tree.make_idle(True)
    CgroupTree(Path(UNIT), [], fake, owns_root=False).prepare()
    assert classes(fake) == ["0", "0", "0"]


def test_an_idle_class_that_somebody_ended_is_repaired() -> None:
    fake, tree = in_a_unit()
    tree.prepare()
    tree.cap(memory_max_bytes=GIB)
    tree.make_idle(True)
    assert tree.repair() == []
    fake.write(f"{UNIT}/cpu.idle".encode(), "0")  # systemctl set-property … CPUWeight=500
    fake.write(f"{UNIT}/cpu.weight".encode(), "500")
    assert tree.repair() == ["cpu.idle of penstock-containers.service had been changed"]
    assert tree.repair() == [] and classes(fake) == ["1", "1", "1"]
    tree.make_idle(False)
    assert said(fake, f"{UNIT}/cpu.weight") == "500"
    assert tree.repair() == []


def test_a_weight_that_an_operator_sets_meanwhile_stays() -> None:
    fake, tree = in_a_unit()
    fake.write(f"{UNIT}/cpu.weight".encode(), "300")
    tree.prepare()
    tree.make_idle(True)
    fake.write(f"{UNIT}/cpu.idle".encode(), "0")
    fake.write(f"{UNIT}/cpu.weight".encode(), "500")
    tree.make_idle(False)
    assert said(fake, f"{UNIT}/cpu.weight") == "500"


class RefusingIdle(FakeCgroups):
    """A delegated root whose own cpu.idle belongs to its creator."""

    def write(self, path: bytes, text: str) -> None:
        """See FakeCgroups."""
        if path == f"{ROOT}/cpu.idle".encode():
            raise OSError(errno.EACCES, os.strerror(errno.EACCES), os.fsdecode(path))
        super().write(path, text)


def test_where_the_root_may_not_be_idle_the_containers_are(make: Make) -> None:
    fake, tree = make(of=RefusingIdle)
    tree.make_idle(True)
    assert [said(fake, f"{each}/cpu.idle") for each in (ROOT, ALL)] == ["0", "1"]
    tree.make_idle(False)
    assert [said(fake, f"{each}/cpu.idle") for each in (ROOT, ALL)] == ["0", "0"]


@pytest.mark.parametrize(("name", "idle"), [("penstock-containers-17-ab12.scope", "1"), ("penstock-up-17.scope", "0")])
def test_of_scopes_only_a_launcher_s_own_is_idle_as_others_may_have_the_daemons_in_them(name: str, idle: str) -> None:
    scope = f"/fake/{name}"
    fake = FakeCgroups("/fake", top=True)
    fake.write(b"/fake/cgroup.subtree_control", "+cpu +cpuset +io +memory +pids")
    fake.mkdir(scope.encode())
    tree = CgroupTree(Path(scope), [], fake, owns_root=False)
    tree.prepare()
    tree.make_idle(True)
    assert [said(fake, f"{each}/cpu.idle") for each in (scope, f"{scope}/containers")] == [idle, "1"]


def test_a_tree_that_vanished_is_made_again(fake: FakeCgroups, tree: CgroupTree) -> None:
    tree.cap(cpu_cores=1.5)
    fake.vanish(ALL)
    assert f"{ALL} had vanished" in tree.repair()
    assert said(fake, f"{ALL}/cpu.max") == "150000 100000"
    tree.create("a")
    assert tree.existing() == ["a"]
    assert tree.repair() == []


def test_with_a_container_in_it_nothing_is_dismantled(fake: FakeCgroups, tree: CgroupTree) -> None:
    tree.create("a")
    with pytest.raises(OSError) as caught:
        tree.dismantle()
    assert caught.value.errno == errno.EBUSY
    assert said(fake, f"{ALL}/cgroup.subtree_control") == "cpu cpuset io memory pids"


def test_caps_hold_for_all_together_and_protection_reaches_down(fake: FakeCgroups, tree: CgroupTree) -> None:
    assert tree.cap(memory_max_bytes=4 * GIB, memory_low_bytes=3 * GIB, cpu_cores=1.5, pids_max=1000) == {}
    assert fake.writes == [
        (f"{ROOT}/memory.low", str(3 * GIB)),
        (f"{ALL}/cpu.max", "150000 100000"),
        (f"{ALL}/memory.low", str(3 * GIB)),
        (f"{ALL}/memory.swap.max", "0"),
        (f"{ALL}/memory.max", str(4 * GIB)),
        (f"{ALL}/pids.max", "1000"),
    ]
    fake.writes.clear()
    assert tree.cap(memory_max_bytes=4 * GIB, memory_low_bytes=GIB, cpu_cores=1.5, pids_max=1000) == {}
    assert fake.writes == [(f"{ALL}/memory.low", str(GIB)), (f"{ROOT}/memory.low", str(GIB))]
    assert tree.cap() == {}
    assert [said(fake, f"{ALL}/{name}") for name in ("cpu.max", "memory.max", "memory.low", "pids.max")] == [
        "max 100000", "max", "0", "max",
    ]  # fmt: skip
    assert said(fake, f"{ROOT}/memory.low") == "0"


def test_protection_is_worth_what_those_above_have_of_it() -> None:
    fake = FakeCgroups("/fake")
    fake.write(b"/fake/cgroup.subtree_control", "+cpu +cpuset +io +memory +pids")
    tree = CgroupTree(Path(ROOT), [], fake)
    assert tree.prepare() == {}
    assert "memory.low protects 0 B only" in tree.cap(memory_low_bytes=GIB)["memory_low_bytes"]
    fake.write(b"/fake/memory.low", "max")
    assert tree.cap(memory_low_bytes=GIB) == {}


def test_what_is_in_use_is_not_capped_below(fake: FakeCgroups, tree: CgroupTree) -> None:
    fake.mkdir(f"{ALL}/a".encode())
    fake.use(f"{ALL}/a", anon_bytes=2 * GIB)
    assert tree.cap(memory_max_bytes=GIB) == {"memory_max_bytes": "2 GiB are in use; shrinking"}
    fake.use(f"{ALL}/a", anon_bytes=GIB // 2)
    assert tree.repair() == ["memory.max of all containers had been changed"]
    assert said(fake, f"{ALL}/memory.max") == str(GIB)


def test_a_cap_where_there_is_no_controller_is_said(make: Make) -> None:
    fake, tree = make(controllers=["cpu"])
    assert tree.cap(memory_max_bytes=GIB, cpu_cores=1).keys() == {"memory_max_bytes"}
    assert fake.writes == [(f"{ALL}/cpu.max", "100000 100000")]
    assert (tree.memory_current(), tree.memory_working_set()) == (None, None)


def test_controllers_that_somebody_took_away_are_enabled_again_with_the_caps(
    fake: FakeCgroups, tree: CgroupTree
) -> None:
    tree.cap(memory_max_bytes=GIB)
    cgroup = tree.create("a")
    wanted = Confinement(memory_max_bytes=GIB, pids_max=3)
    cgroup.confine(wanted)
    assert tree.get("a") is cgroup and cgroup.sample() is not None
    for directory in (ALL, ROOT):
        fake.write(f"{directory}/cgroup.subtree_control".encode(), "-memory")
    assert tree.repair() == [
        f"memory was not enabled in {ROOT}",
        f"memory was not enabled in {ALL}",
        "memory.swap.max of all containers had been changed",
        "memory.max of all containers had been changed",
    ]
    assert said(fake, f"{ALL}/memory.max") == str(GIB)
    assert tree.get("a").confine(wanted).written == ("memory.swap.max", "memory.max")


def test_a_controller_that_stays_away_is_missing_from_then_on(fake: FakeCgroups, tree: CgroupTree) -> None:
    for directory in (ALL, ROOT):
        fake.write(f"{directory}/cgroup.subtree_control".encode(), "-io")
    fake.delegate(set(CONTROLLERS) - {"io"})
    assert tree.repair() == ["the controllers are now cpu, cpuset, memory, pids"]
    assert tree.missing.keys() == {"io"} and tree.repair() == []
    fake.delegate(CONTROLLERS)
    assert tree.repair()[-1] == "the controllers are now cpu, cpuset, io, memory, pids"
    assert tree.missing == {}


def test_use_of_all_together(fake: FakeCgroups, tree: CgroupTree) -> None:
    for name in ("a", "b"):
        tree.create(name)
        fake.use(f"{ALL}/{name}", anon_bytes=3 << 20, cache_bytes=4 << 20)
    assert (tree.memory_current(), tree.memory_working_set()) == (14 << 20, 6 << 20)


def test_a_container_is_one_object_until_it_is_removed(make: Make) -> None:
    _, tree = make()
    cgroup = tree.create("a")
    assert tree.get("a") is cgroup
    assert cgroup.remove()
    assert tree.create("a") is not cgroup


@pytest.mark.parametrize(("qos", "works"), [("254:0 enable=1 ctrl=auto rpct=95.00", True), ("254:0 enable=0", False)])
def test_weights_do_something_where_io_cost_is_enabled(qos: str, works: bool) -> None:
    fake = FakeCgroups("/fake", top=True)
    fake.pretend("/fake/io.cost.qos", f"{qos} rlat=0 wpct=95.00\n")
    tree = CgroupTree(Path(ROOT), [Disk("none-such", 254, 0)], fake)
    tree.prepare()
    assert (tree.create("a").confine(Confinement(disk_weight=7)).failed == {}) is works


@pytest.mark.parametrize(
    ("scheduler", "works"), [("none [bfq] mq-deadline", True), ("[none] mq-deadline bfq", False), (None, False)]
)
def test_weights_do_something_where_bfq_is_chosen(tmp_path: Path, scheduler: str | None, works: bool) -> None:
    if scheduler is not None:
        (tmp_path / "vda" / "queue").mkdir(parents=True)
        (tmp_path / "vda" / "queue" / "scheduler").write_text(f"{scheduler}\n")
    reason = io_weight_works(Disk("vda", 254, 0), Path("/fake"), sys_block=tmp_path, filesystem=FakeCgroups("/fake"))
    assert (reason is None) is works
    assert reason is None or "modprobe bfq" in reason.remedy


def test_a_repair_looks_for_processes_only_where_a_controller_is_to_be_enabled(
    made: tuple[FakeCgroups, CgroupTree], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With processes inside, enabling one would make the cgroup unusable for containers."""
    fake, tree = made
    paths, read = list[bytes](), fake.read

    def noted(path: bytes) -> str:
        paths.append(path)
        return read(path)

    monkeypatch.setattr(fake, "read", noted)
    assert tree.repair() == []
    assert b"/fake/cgroup/containers/cgroup.subtree_control" in paths
    assert not [path for path in paths if path.endswith(b"/cgroup.procs")]
    fake.write(b"/fake/cgroup/containers/cgroup.subtree_control", "-io")
    assert tree.repair() == ["io was not enabled in /fake/cgroup/containers"]
    assert b"/fake/cgroup/containers/cgroup.procs" in paths

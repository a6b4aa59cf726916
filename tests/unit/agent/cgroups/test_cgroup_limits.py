"""What is written, what is not, and what is said where a limit cannot be had."""

from __future__ import annotations

import errno
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from agent.cgroups import CgroupTree, Disk
from agent.cgroups.files import V2Controller
from agent.cgroups.memory import MemoryFiles
from penstock.model import Limits
from penstock.testing.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

EVERYTHING = Limits(
    cpu_cores=1.5, cpu_weight=50, memory_high_bytes=1 << 20, memory_max_bytes=2 << 20, disk_read_bytes_per_s=1000,
    disk_write_bytes_per_s=2000, pids_max=5,
)  # fmt: skip


def test_only_what_changes_is_written(make: Make) -> None:
    fake, tree = make()
    cgroup = tree.create("a")
    assert cgroup.apply(Limits(), opportunistic=False) == {}
    assert fake.writes == []
    assert cgroup.apply(EVERYTHING, opportunistic=False) == {}
    assert len(fake.writes) == 8  # the seven, and no swap
    fake.writes.clear()
    assert cgroup.apply(EVERYTHING, opportunistic=False) == {}
    assert fake.writes == []
    cgroup.apply(Limits(**{**{f: getattr(EVERYTHING, f) for f in EVERYTHING.__struct_fields__}, "cpu_cores": 1.0}),
                 opportunistic=False)  # fmt: skip
    assert fake.writes == [("/fake/cgroup/containers/a/cpu.max", "100000 100000")]


def test_a_limit_that_is_rounded_is_not_written_again(make: Make) -> None:
    fake, tree = make()
    cgroup = tree.create("a")
    for expected in (2, 0):  # memory.max, memory.swap.max
        fake.writes.clear()
        assert cgroup.apply(Limits(memory_max_bytes=10_000_001), opportunistic=False) == {}
        assert len(fake.writes) == expected


def test_without_controllers_each_asked_limit_is_named_with_its_reason(make: Make) -> None:
    _fake, tree = make(controllers=["memory"])
    assert tree.controllers == {"memory"}
    cgroup = tree.create("a")
    failed = cgroup.apply(EVERYTHING, opportunistic=True)
    assert failed.keys() == {
        "cpu_cores", "cpu_weight", "opportunistic", "disk_read_bytes_per_s", "disk_write_bytes_per_s", "pids_max",
    }  # fmt: skip
    assert all("controller" in why and "remedy: " in why for why in failed.values())
    assert cgroup.apply(Limits(memory_max_bytes=4096), opportunistic=False) == {}


def test_before_cpu_idle_opportunistic_work_has_the_least_weight(make: Make) -> None:
    fake, tree = make(without=["cpu.idle"])
    cgroup = tree.create("a")
    weight = b"/fake/cgroup/containers/a/cpu.weight"
    assert cgroup.apply(Limits(), opportunistic=True) == {}
    assert fake.read(weight) == "1\n"
    assert cgroup.apply(Limits(), opportunistic=False) == {}
    assert fake.read(weight) == "100\n"


def test_without_swap_accounting_memory_is_limited_all_the_same(make: Make) -> None:
    fake, tree = make(without=["memory.swap.max"])
    assert tree.create("a").apply(Limits(memory_max_bytes=1 << 20), opportunistic=False) == {}
    assert fake.read(b"/fake/cgroup/containers/a/memory.max") == f"{1 << 20}\n"


def test_without_a_disk(make: Make) -> None:
    _, tree = make(disks=[])
    cgroup = tree.create("a")
    assert cgroup.apply(Limits(), opportunistic=False) == {}
    failed = cgroup.apply(Limits(disk_write_bytes_per_s=1), opportunistic=False)
    assert failed.keys() == {"disk_write_bytes_per_s"}
    assert failed["disk_write_bytes_per_s"].startswith(
        "no disk was found that io.max could bind; remedy: see /sys/block"
    )


def test_a_disk_that_fails_does_not_keep_the_others_from_their_limit(make: Make) -> None:
    fake, tree = make(disks=[Disk("gone", 8, 0), Disk("vda", 254, 0)])
    failed = tree.create("a").apply(Limits(disk_read_bytes_per_s=1000), opportunistic=False)
    assert "the disk is gone" in failed["disk_read_bytes_per_s"]
    assert "254:0 rbps=1000 " in fake.read(b"/fake/cgroup/containers/a/io.max")


def test_what_a_container_sends_is_not_limited_by_a_cgroup_file(make: Make) -> None:
    _, tree = make()
    assert tree.create("a").apply(Limits(network_egress_bytes_per_s=1), opportunistic=False).keys() == {
        "network_egress_bytes_per_s"
    }


class Deaf(FakeCgroups):
    """Takes a write to the given file and does nothing, or answers with an error."""

    answers: dict[str, int] = {}  # noqa: RUF012

    def write(self, path: bytes, text: str) -> None:
        name = os.fsdecode(path).rpartition("/")[2]
        if name not in self.answers:
            super().write(path, text)
        elif self.answers[name]:
            raise OSError(self.answers[name], os.strerror(self.answers[name]), os.fsdecode(path))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (0, "wrote 0.5, read back None"),
        (errno.EINVAL, "the kernel does not take this value for cpu.max"),
        (errno.EACCES, "Permission denied; remedy: run the agent under its delegated unit"),
        (errno.EROFS, "Read-only file system; remedy: run the agent under its delegated unit"),
        (errno.EBUSY, "cpu.max: Device or resource busy"),
    ],
)
def test_what_the_kernel_answers_is_said_with_the_remedy(answer: int, why: str) -> None:
    fake = Deaf()
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    assert tree.prepare() == {}
    fake.answers = {"cpu.max": answer}
    failed = tree.create("a").apply(Limits(cpu_cores=0.5, cpu_weight=7), opportunistic=False)
    assert failed.keys() == {"cpu_cores"} and why in failed["cpu_cores"]


def test_a_controller_that_may_not_be_enabled_is_missing_with_its_reason() -> None:
    fake = Deaf()
    fake.answers = {"cgroup.subtree_control": errno.EACCES}
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    missing = tree.prepare()
    assert missing.keys() == {"cpu", "io", "memory", "pids"}
    assert all("Permission denied" in why and "remedy: " in why for why in missing.values())
    assert tree.controllers == frozenset()


def test_right_below_the_top_controllers_are_enabled_there_and_disabled_again() -> None:
    fake = FakeCgroups("/fake", top=True)
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    fake.write(b"/fake/cgroup.subtree_control", "+memory +pids")  # as systemd leaves it
    assert tree.prepare() == {}
    assert fake.read(b"/fake/cgroup.subtree_control") == "cpu io memory pids\n"
    assert tree.create("a").remove()
    tree.dismantle()
    assert fake.read(b"/fake/cgroup.subtree_control") == "memory pids\n"
    assert fake.children(b"/fake") == []


def test_what_is_above_and_not_the_top_is_left_alone() -> None:
    fake = FakeCgroups("/fake")
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    assert tree.prepare().keys() == {"cpu", "io", "memory", "pids"}
    assert fake.read(b"/fake/cgroup.subtree_control") == "\n"


@pytest.mark.parametrize("without", [["cgroup.kill"], []])
def test_killing_with_and_without_cgroup_kill(make: Make, without: list[str]) -> None:
    fake, tree = make(without=without)
    cgroup = tree.create("a")
    fake.mkdir(b"/fake/cgroup/containers/a/below")
    processes = [subprocess.Popen(["sleep", "1000"]) for _ in range(2)]
    for process, where in zip(processes, ("a", "a/below"), strict=True):
        fake.write(f"/fake/cgroup/containers/{where}/cgroup.procs".encode(), str(process.pid))
    try:
        cgroup.kill()
        assert [process.wait(30) for process in processes] == [-9, -9]
        assert not cgroup.populated() and cgroup.remove()
    finally:
        for process in processes:
            process.kill()


def test_a_cap_where_there_is_no_memory_controller_is_nothing(make: Make) -> None:
    fake, tree = make(controllers=["cpu"])
    tree.cap_all(1 << 30)
    assert fake.writes == []


def test_a_descriptor_writes_through_cgroupspys_interface(make: Make) -> None:
    """cgroupspy's own parts do their share: its Controller lists the interfaces, its descriptors read and write."""
    fake, tree = make()
    path = tree.create("a").path
    files: Any = MemoryFiles(path, fake)
    assert isinstance(files, V2Controller)
    assert {"high", "max", "current", "oom_group"} <= files.list_interfaces().keys()
    files.oom_group = True
    assert files.get_content("oom_group") is True
    with pytest.raises(RuntimeError, match="readonly"):
        files.current = 1

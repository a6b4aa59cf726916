"""The behaviour of any cgroup2 tree with controllers, the kernel's and the fake one; subclassed with a ``bed``."""

from __future__ import annotations

import errno
import os

import pytest
from msgspec.structs import replace

from agent.cgroups import Applied, CgroupTree, Disk, Shrunk
from agent.cgroups.idle import WEIGHT_BEFORE
from agent.core.confinement import Confinement
from tests.contract.cgroup_beds import Bed, refused

CONTROLLERS = {"cpu", "cpuset", "io", "memory", "pids"}
MIB = 1 << 20

UNLIMITED = {
    "cpu.max": "max 100000",
    "cpu.max.burst": "0",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "cpuset.cpus": "",
    "memory.min": "0",
    "memory.low": "0",
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "io.max": "",
    "io.weight": "default 100",
    "pids.max": "max",
}


class ControllersContract:
    """The behaviour that needs all controllers."""

    def test_every_controller_is_enabled(self, bed: Bed) -> None:
        assert bed.missing == {}
        assert bed.tree.controllers == CONTROLLERS

    def test_a_new_cgroup_has_no_limits(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert {name: bed.read(cgroup, name) for name in UNLIMITED} == UNLIMITED

    def test_limits_are_written_and_taken_back(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        limits = Confinement(
            cpu_cores=0.5, cpu_burst_s=0.02, cpu_weight=7, cpus="1", memory_min_bytes=8 * MIB,
            memory_low_bytes=16 * MIB, memory_high_bytes=32 * MIB, memory_max_bytes=64 * MIB, oom_group=True,
            disk_read_bytes_per_s=5_000_000, disk_write_bytes_per_s=6_000_000, disk_read_ops_per_s=70, pids_max=100,
        )  # fmt: skip
        for known in (None, Confinement()):
            assert cgroup.confine(limits, known).failed == {}
            assert {name: bed.read(cgroup, name) for name in UNLIMITED if name != "io.max"} == {
                "cpu.max": "50000 100000",
                "cpu.max.burst": "20000",
                "cpu.weight": "7",
                "cpu.idle": "0",
                "cpuset.cpus": "1",
                "memory.min": str(8 * MIB),
                "memory.low": str(16 * MIB),
                "memory.high": str(32 * MIB),
                "memory.max": str(64 * MIB),
                "memory.swap.max": "0",
                "memory.oom.group": "1",
                "io.weight": "default 100",
                "pids.max": "100",
            }
            assert set(bed.read(cgroup, "io.max").splitlines()) == {
                f"{disk.number} rbps=5000000 wbps=6000000 riops=70 wiops=max" for disk in bed.disks
            }
            assert cgroup.confine(limits) == cgroup.confine(limits, limits) == Applied()
            assert cgroup.confine(Confinement(), limits if known else None).failed == {}
            assert {name: bed.read(cgroup, name) for name in UNLIMITED} == UNLIMITED

    def test_a_partial_update_keeps_the_rest(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        first = Confinement(disk_read_bytes_per_s=5_000_000, disk_write_ops_per_s=50, pids_max=100, cpu_cores=0.5)
        second = replace(first, disk_write_ops_per_s=60)
        assert cgroup.confine(first) == Applied(written=("cpu.max", "io.max", "pids.max"))
        assert cgroup.confine(second, first) == Applied(written=("io.max",))
        line = "rbps=5000000 wbps=max riops=max wiops=60"
        assert set(bed.read(cgroup, "io.max").splitlines()) == {f"{disk.number} {line}" for disk in bed.disks}
        assert (bed.read(cgroup, "pids.max"), bed.read(cgroup, "cpu.max")) == ("100", "50000 100000")

    def test_drift_is_found_and_put_right(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        wanted = Confinement(cpu_cores=0.5, memory_max_bytes=64 * MIB, disk_read_bytes_per_s=5_000_000, cpus="0")
        assert cgroup.confine(wanted).failed == {}
        bed.write(cgroup, "memory.max", "max")
        bed.write(cgroup, "cpuset.cpus", "0-1")
        bed.write(cgroup, "io.max", f"{bed.disks[0].number} rbps=max")
        assert cgroup.confine(wanted, wanted) == Applied()  # settings that are passed as known are believed
        assert cgroup.confine(wanted) == Applied(written=("cpuset.cpus", "memory.max", "io.max"))
        assert cgroup.confine(wanted) == Applied()

    def test_quota_and_burst_grow_and_shrink_together(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        before = Confinement()
        for cores, burst_s in ((0.1, 0.01), (1.0, 0.1), (0.1, 0.01), (None, 0.1), (0.05, 0.005), (None, None)):
            wanted = Confinement(cpu_cores=cores, cpu_burst_s=burst_s)
            assert cgroup.confine(wanted, before).failed == {}
            assert cgroup.confine(wanted) == Applied()
            before = wanted

    def test_a_quota_below_the_burst_takes_the_burst_along(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        first = Confinement(cpu_cores=1, cpu_burst_s=0.1)
        assert cgroup.confine(first).failed == {}
        assert cgroup.confine(replace(first, cpu_cores=0.5), first).failed == {
            "cpu_burst_s": "the kernel accumulates at most one period's quota, 0.05 s"
        }
        assert (bed.read(cgroup, "cpu.max"), bed.read(cgroup, "cpu.max.burst")) == ("50000 100000", "50000")

    def test_the_kernel_itself_would_refuse_that(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        bed.write(cgroup, "cpu.max", "10000")
        bed.write(cgroup, "cpu.max.burst", "10000")
        for name, text in (("cpu.max", "5000"), ("cpu.max.burst", "10001")):
            with refused(errno.EINVAL):
                bed.write(cgroup, name, text)
        assert (bed.read(cgroup, "cpu.max"), bed.read(cgroup, "cpu.max.burst")) == ("10000 100000", "10000")

    def test_processors_of_parent_and_child(self, bed: Bed) -> None:
        """A child that names none, or none that its parent has, runs on its parent's."""
        cgroup = bed.tree.create("a")
        below = bed.below(cgroup, "below")
        bed.write(cgroup, "cgroup.subtree_control", "+cpuset")
        effective = []
        for outer, inner in (("0-1", "\n"), ("0-1", "1"), ("0", "1"), ("0-1", "1"), ("\n", "\n")):
            bed.write(cgroup, "cpuset.cpus", outer)
            bed.write(below, "cpuset.cpus", inner)
            effective.append(bed.read(below, "cpuset.cpus.effective"))
        assert effective == ["0-1", "1", "0", "1", "0-1"]

    def test_processors_that_are_not_its_parents_are_reported(self, bed: Bed) -> None:
        containers = bytes(bed.tree.root / "containers" / "cpuset.cpus")
        cgroup = bed.tree.create("a")
        bed.filesystem.write(containers, "1")
        none_of_its = "containers may use none of these processors; this one runs on 1"
        assert cgroup.confine(Confinement(cpus="0")).failed == {"cpus": none_of_its}
        assert cgroup.confine(Confinement(cpus="0-1")).failed == {}
        no_such = "this host has no such processors; remedy: see /sys/devices/system/cpu/online"
        assert cgroup.confine(Confinement(cpus="900")).failed == {"cpus": no_such}

    def test_a_running_process_gets_all_processors_back(self, bed: Bed) -> None:
        """Old kernels refuse none to a cgroup with processes (measured: 6.1; not 7.3), so all are named."""
        cgroup = bed.tree.create("a")
        wanted = Confinement(cpus="0,1")
        assert cgroup.confine(wanted) == Applied(written=("cpuset.cpus",))
        assert bed.read(cgroup, "cpuset.cpus") == "0-1" and cgroup.confine(wanted) == Applied()
        wanted = Confinement(cpus="1")
        assert cgroup.confine(wanted).failed == {}
        bed.enter(cgroup)
        if bed.kernel < (7, 0):
            with refused(errno.ENOSPC):
                bed.write(cgroup, "cpuset.cpus", "\n")
        assert cgroup.confine(Confinement(), wanted) == Applied(written=("cpuset.cpus",))
        assert bed.read(cgroup, "cpuset.cpus.effective") == "0-1"
        assert cgroup.confine(Confinement()) == Applied()

    def test_controllers_that_are_taken_away_take_their_files(self, bed: Bed) -> None:
        bed.tree.cap(pids_max=500)
        cgroup = bed.tree.create("a")
        wanted = Confinement(pids_max=5)
        assert cgroup.confine(wanted).failed == {}
        bed.filesystem.write(bytes(bed.tree.root / "containers" / "cgroup.subtree_control"), "-pids")
        assert not cgroup.has("pids.max")
        assert "this kernel has no pids.max" in cgroup.confine(wanted).failed["pids_max"]
        assert bed.tree.repair() == [f"pids was not enabled in {bed.tree.root}/containers"]
        assert bed.tree.get("a").confine(wanted) == Applied(written=("pids.max",))

    def test_caps_are_repaired(self, bed: Bed) -> None:
        containers = bed.tree.root / "containers"
        assert bed.tree.cap(memory_max_bytes=512 * MIB, memory_low_bytes=64 * MIB, cpu_cores=1.5, pids_max=900) == {}
        low = bytes(bed.tree.root / "memory.low")
        assert bed.filesystem.read(low).strip() == str(64 * MIB)
        assert bed.tree.repair() == []
        for name, text in (("cpu.max", "max"), ("memory.max", "max"), ("pids.max", "99")):
            bed.filesystem.write(bytes(containers / name), text)
        bed.filesystem.write(low, "0")
        assert bed.tree.repair() == [
            f"{name} of all containers had been changed" for name in ("cpu.max", "memory.max", "pids.max", "memory.low")
        ]
        assert bed.tree.repair() == []
        assert bed.filesystem.read(low).strip() == str(64 * MIB)

    def test_memory_is_rounded_down_to_pages(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        limits = Confinement(memory_max_bytes=(64 << 20) + 1, memory_high_bytes=(64 << 20) - 1)
        assert cgroup.confine(limits).failed == {}
        assert cgroup.confine(limits) == Applied(), "a rounded value is not written again"
        assert bed.read(cgroup, "memory.max") == str(64 << 20)
        assert bed.read(cgroup, "memory.high") == str((64 << 20) - 4096)

    def test_less_cpu_than_the_kernel_can_give_out_is_the_least_that_it_can(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.confine(Confinement(cpu_cores=0.0001)).failed == {}
        assert bed.read(cgroup, "cpu.max") == "1000 100000"

    def test_the_opportunistic_class_comes_and_goes_in_place(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.confine(Confinement(opportunistic=True)).failed == {}
        weight = "0" if bed.kernel < (7, 0) else "1"  # of an idle cgroup (measured: 6.1; 7.3)
        assert (bed.read(cgroup, "cpu.idle"), bed.read(cgroup, "cpu.weight")) == ("1", weight)
        regular = Confinement(cpu_weight=30)
        assert cgroup.confine(regular).failed == {}
        assert (bed.read(cgroup, "cpu.idle"), bed.read(cgroup, "cpu.weight")) == ("0", "30")
        assert cgroup.confine(replace(regular, opportunistic=True), regular) == Applied(written=("cpu.idle",))
        assert cgroup.confine(regular, replace(regular, opportunistic=True)).written == ("cpu.idle", "cpu.weight")
        assert (bed.read(cgroup, "cpu.idle"), bed.read(cgroup, "cpu.weight")) == ("0", "30")

    def test_a_disk_that_is_gone_is_reported_and_the_others_are_limited(self, bed: Bed) -> None:
        tree = CgroupTree(bed.tree.root, [Disk("gone", 240, 1), *bed.disks], bed.filesystem)
        assert tree.prepare() == {}
        cgroup = tree.create("a")
        failed = cgroup.confine(Confinement(disk_read_bytes_per_s=1_000_000)).failed
        assert failed.keys() == {"disk_read_bytes_per_s"} and "the disk is gone" in failed["disk_read_bytes_per_s"]
        assert f"{bed.disks[0].number} rbps=1000000 wbps=max" in bed.read(cgroup, "io.max")

    def test_limits_on_a_vanished_cgroup(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.remove()
        with pytest.raises(FileNotFoundError):
            cgroup.confine(Confinement(cpu_cores=1))

    def test_a_limit_on_all_containers(self, bed: Bed) -> None:
        containers = bed.tree.root / "containers"
        assert bed.tree.cap(memory_max_bytes=(1 << 30) + 5) == {}
        assert bed.filesystem.read(bytes(containers / "memory.max")).strip() == str(1 << 30)
        assert bed.tree.cap() == {}
        assert bed.filesystem.read(bytes(containers / "memory.max")).strip() == "max"

    def test_where_a_process_sits_controllers_cannot_be_enabled(self, bed: Bed) -> None:
        nested = bed.tree.create("a")
        process = bed.enter(nested)
        tree = CgroupTree(nested.path, bed.disks, bed.filesystem)
        bed.filesystem.mkdir(bytes(nested.path / "containers"))
        missing = tree.prepare()
        with refused(errno.EBUSY):
            bed.write(nested, "cgroup.subtree_control", "+memory")
        process.kill()
        process.wait(30)
        assert bed.read(nested, "cgroup.subtree_control") == ""
        assert missing.keys() == CONTROLLERS
        assert all("processes are in" in why and "remedy: move them" in why for why in missing.values())
        assert tree.prepare() == {}

    @pytest.mark.parametrize(
        ("name", "text", "number"),
        [
            ("cpu.max", "nonsense", errno.EINVAL),
            ("cpu.max", "999", errno.EINVAL),
            ("cpu.max", "10000 999", errno.EINVAL),
            ("cpu.max", "10000 1000001", errno.EINVAL),
            ("cpu.max.burst", "-1", errno.EINVAL),
            ("cpu.max.burst", "max", errno.EINVAL),
            ("cpu.weight", "0", errno.ERANGE),
            ("cpu.weight", "10001", errno.ERANGE),
            ("cpu.idle", "2", errno.EINVAL),
            ("cpuset.cpus", "900", errno.ERANGE),
            ("cpuset.cpus", "1-0", errno.EINVAL),
            ("cpuset.cpus", "x", errno.EINVAL),
            ("memory.max", "-1", errno.EINVAL),
            ("memory.high", "nonsense", errno.EINVAL),
            ("memory.low", "-1", errno.EINVAL),
            ("memory.min", "x", errno.EINVAL),
            ("memory.oom.group", "2", errno.EINVAL),
            ("memory.current", "1", errno.EINVAL),
            ("pids.max", "-1", errno.EINVAL),
            ("pids.max", "4194305", errno.EINVAL),
            ("io.max", "nonsense", errno.EINVAL),
            ("io.max", "240:1 rbps=1", errno.ENODEV),
            ("io.max", "{disk} rbps=0", errno.ERANGE),
            ("io.max", "{disk} rbps=x", errno.EINVAL),
            ("io.max", "{disk} nonsense=1", errno.EINVAL),
            ("io.weight", "0", errno.EINVAL),
            ("io.weight", "default 10001", errno.EINVAL),
        ],
    )
    def test_nonsense_is_refused(self, bed: Bed, name: str, text: str, number: int) -> None:
        cgroup = bed.tree.create("a")
        with refused(number):
            bed.write(cgroup, name, text.format(disk=bed.disks[0].number))
        assert bed.read(cgroup, name) == UNLIMITED.get(name, "0")

    def test_a_byte_a_second_is_refused_by_old_kernels(self, bed: Bed) -> None:
        """Measured: 6.1 refuses it, 7.3 does not."""
        cgroup = bed.tree.create("a")
        limit = f"{bed.disks[0].number} rbps=1"
        if bed.kernel >= (7, 0):
            bed.write(cgroup, "io.max", limit)
            assert bed.read(cgroup, "io.max").startswith(limit)
            return
        with refused(errno.EINVAL):
            bed.write(cgroup, "io.max", limit)

    def test_a_controller_that_is_used_below_cannot_be_disabled(self, bed: Bed) -> None:
        bed.tree.create("a")
        control = bytes(bed.tree.root / "cgroup.subtree_control")
        with refused(errno.EBUSY):
            bed.filesystem.write(control, "-cpu")

    def test_an_idle_cgroup_takes_no_weight(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        bed.write(cgroup, "cpu.idle", "1")
        with refused(errno.EINVAL):
            bed.write(cgroup, "cpu.weight", "50")
        bed.write(cgroup, "cpu.idle", "0")
        assert bed.read(cgroup, "cpu.weight") == "100"

    def test_an_attribute_of_a_cgroup(self, bed: Bed) -> None:
        path = os.fsencode(bed.tree.create("a").path)
        assert bed.filesystem.attribute(path, WEIGHT_BEFORE) is None
        for value in (b"100", b"50", None, None):
            bed.filesystem.set_attribute(path, WEIGHT_BEFORE, value)
            assert bed.filesystem.attribute(path, WEIGHT_BEFORE) == value
        with refused(errno.ENOENT):
            bed.filesystem.set_attribute(path + b"-not-there", WEIGHT_BEFORE, b"100")

    def test_the_most_processes(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        bed.write(cgroup, "pids.max", "0")
        assert bed.read(cgroup, "pids.max") == "0"

    def test_memory_reclaim_can_only_be_written(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        for act in (lambda: bed.read(cgroup, "memory.reclaim"), lambda: bed.write(cgroup, "memory.reclaim", "max")):
            with refused(errno.EINVAL):
                act()

    def test_where_there_is_nothing_to_reclaim(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        with refused(errno.EAGAIN):
            bed.write(cgroup, "memory.reclaim", str(MIB))
        assert cgroup.reclaim(MIB) == 0
        assert cgroup.shrink_memory(32 * MIB) == Shrunk(32 * MIB, 0, 0)

    def test_a_value_that_cannot_be_written_becomes_the_nearest_that_can(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        wanted = Confinement(disk_read_bytes_per_s=1, disk_write_ops_per_s=1, disk_read_ops_per_s=1 << 33)
        assert cgroup.confine(wanted).failed == {}
        assert set(bed.read(cgroup, "io.max").splitlines()) == {
            f"{disk.number} rbps=2 wbps=max riops=max wiops=2" for disk in bed.disks
        }

    def test_files_come_and_go_with_the_controllers_of_the_parent(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        below = bed.below(cgroup, "below")
        assert not below.has("memory.max") and below.has("cpu.stat") and below.has("memory.pressure")
        bed.write(cgroup, "cgroup.subtree_control", "+memory")
        assert below.has("memory.max") and not below.has("pids.max")
        bed.write(cgroup, "cgroup.subtree_control", "-memory")
        assert not below.has("memory.max")

    def test_a_cgroup_with_controllers_for_its_children_takes_no_process(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        process = bed.enter(other)
        bed.write(cgroup, "cgroup.subtree_control", "+memory")
        with refused(errno.EBUSY):
            bed.write(cgroup, "cgroup.procs", str(process.pid))
        assert other.pids() == [process.pid]

    def test_more_than_any_host_has_is_taken(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        wanted = Confinement(memory_max_bytes=1 << 50, cpu_cores=1000, cpu_weight=10_000, pids_max=4_194_304)
        assert cgroup.confine(wanted).failed == {}
        assert cgroup.confine(wanted) == Applied()

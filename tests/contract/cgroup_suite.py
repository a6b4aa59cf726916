"""What any cgroup2 tree does, the kernel's and the fake one: each test class below is subclassed with a ``bed``."""

from __future__ import annotations

import errno
import select
import signal

import pytest

from agent.cgroups import Cgroup, CgroupTree, Disk
from penstock.model import Limits
from tests.contract.cgroup_beds import Bed, echo


def wait_until_frozen(bed: Bed, cgroup: Cgroup) -> None:
    """The kernel freezes within milliseconds, and says when it has."""
    if not cgroup.frozen():
        with (cgroup.path / "cgroup.events").open("rb", buffering=0) as events:
            watch = select.poll()
            watch.register(events, select.POLLPRI)
            while b"frozen 0" in events.read(4096):
                assert watch.poll(30_000), "it does not freeze"
                events.seek(0)


class ProcessesContract:
    """What needs no controller: processes, freezing, killing, making and removing."""

    def test_a_new_cgroup_is_empty(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a-1")
        assert bed.tree.existing() == ["a-1"]
        assert (cgroup.pids(), cgroup.populated(), cgroup.frozen()) == ([], False, False)
        sample = cgroup.sample()
        assert sample is not None
        assert (sample.pids, sample.memory_current_bytes, sample.oom_kills) == (0, 0, 0)

    def test_a_process_enters_through_the_descriptor(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        process = bed.enter(cgroup)
        assert cgroup.pids() == [process.pid]
        assert cgroup.populated() and not other.populated()
        sample = cgroup.sample()
        assert sample is not None and sample.pids == 1

    def test_what_has_a_process_cannot_be_removed(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        assert not cgroup.remove()
        process.kill()
        process.wait(30)
        assert not cgroup.populated()
        assert cgroup.remove()
        assert bed.tree.existing() == []

    def test_killing_ends_every_process(self, bed: Bed) -> None:
        cgroup, other = bed.tree.create("a"), bed.tree.create("b")
        processes = [bed.enter(cgroup) for _ in range(3)]
        spared = bed.enter(other)
        cgroup.kill()
        assert [process.wait(30) for process in processes] == [-signal.SIGKILL] * 3
        assert echo(spared, "still here") == "still here"
        assert cgroup.pids() == []

    def test_freezing_stops_and_thawing_resumes(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        cgroup.freeze(True)
        wait_until_frozen(bed, cgroup)
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("ping\n")
        process.stdin.flush()
        assert select.select([process.stdout], [], [], 0.2)[0] == []
        cgroup.freeze(False)
        assert process.stdout.readline() == "ping\n"
        assert not cgroup.frozen()

    def test_killing_works_on_what_is_frozen(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        process = bed.enter(cgroup)
        cgroup.freeze(True)
        wait_until_frozen(bed, cgroup)
        cgroup.kill()
        assert process.wait(30) == -signal.SIGKILL

    def test_a_cgroup_that_vanished_is_an_ordinary_result(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.remove()
        assert cgroup.sample() is None
        assert (cgroup.pids(), cgroup.populated(), cgroup.frozen()) == ([], False, False)
        cgroup.freeze(True)
        cgroup.kill()
        assert cgroup.remove()
        assert not cgroup.has("cgroup.procs")
        with pytest.raises(FileNotFoundError):
            cgroup.open_procs()

    def test_what_a_container_made_below_goes_with_it(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        for below in ("x", "x/y", "z"):
            bed.filesystem.mkdir(bytes(cgroup.path / below))
        process = bed.enter(cgroup)
        assert not cgroup.remove()  # what is empty below may be gone already
        process.kill()
        process.wait(30)
        assert cgroup.remove()
        assert bed.tree.existing() == []

    def test_a_container_is_made_once(self, bed: Bed) -> None:
        bed.tree.create("a")
        with pytest.raises(FileExistsError):
            bed.tree.create("a")

    @pytest.mark.parametrize("name", ["", "..", "a/b", "A", "a\n", "/", "ä"])
    def test_what_is_no_container_id_is_never_a_path(self, bed: Bed, name: str) -> None:
        with pytest.raises(AssertionError):
            bed.tree.get(name)

    @pytest.mark.parametrize(
        ("name", "text", "number"),
        [
            ("cgroup.freeze", "2", errno.ERANGE),
            ("cgroup.freeze", "x", errno.EINVAL),
            ("cgroup.kill", "2", errno.ERANGE),
            ("cgroup.subtree_control", "+nonsense", errno.EINVAL),
            ("cgroup.procs", "x", errno.EINVAL),
            ("cgroup.procs", "99999999", errno.ESRCH),
            ("cgroup.nonsense", "1", errno.ENOENT),
        ],
    )
    def test_nonsense_is_refused(self, bed: Bed, name: str, text: str, number: int) -> None:
        cgroup = bed.tree.create("a")
        with pytest.raises(OSError) as caught:
            bed.write(cgroup, name, text)
        assert caught.value.errno == number

    def test_cgroup_kill_can_only_be_written(self, bed: Bed) -> None:
        with pytest.raises(OSError) as caught:
            bed.read(bed.tree.create("a"), "cgroup.kill")
        assert caught.value.errno == errno.EINVAL

    def test_preparing_again_changes_nothing(self, bed: Bed) -> None:
        bed.tree.create("a")
        again = CgroupTree(bed.tree.root, bed.disks, bed.filesystem)
        assert again.prepare() == bed.missing
        assert again.controllers == bed.tree.controllers
        assert again.existing() == ["a"]


UNLIMITED = {
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpu.idle": "0",
    "memory.high": "max",
    "memory.max": "max",
    "memory.swap.max": "max",
    "memory.oom.group": "0",
    "io.max": "",
    "pids.max": "max",
}


class ControllersContract:
    """What needs all controllers."""

    def test_every_controller_is_enabled(self, bed: Bed) -> None:
        assert bed.missing == {}
        assert bed.tree.controllers == {"cpu", "io", "memory", "pids"}

    def test_a_new_cgroup_has_no_limits(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert {name: bed.read(cgroup, name) for name in UNLIMITED} == UNLIMITED

    def test_limits_are_written_and_taken_back(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        limits = Limits(
            cpu_cores=0.5, cpu_weight=7, memory_high_bytes=32 << 20, memory_max_bytes=64 << 20,
            disk_read_bytes_per_s=5_000_000, disk_write_bytes_per_s=6_000_000, pids_max=100,
        )  # fmt: skip
        for _ in range(2):
            assert cgroup.apply(limits, opportunistic=False) == {}
            assert {name: bed.read(cgroup, name) for name in UNLIMITED if name != "io.max"} == {
                "cpu.max": "50000 100000",
                "cpu.weight": "7",
                "cpu.idle": "0",
                "memory.high": str(32 << 20),
                "memory.max": str(64 << 20),
                "memory.swap.max": "0",
                "memory.oom.group": "0",
                "pids.max": "100",
            }
            assert set(bed.read(cgroup, "io.max").splitlines()) == {
                f"{disk.number} rbps=5000000 wbps=6000000 riops=max wiops=max" for disk in bed.disks
            }
        assert cgroup.apply(Limits(), opportunistic=False) == {}
        assert {name: bed.read(cgroup, name) for name in UNLIMITED} == UNLIMITED

    def test_memory_is_rounded_down_to_pages(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        limits = Limits(memory_max_bytes=(64 << 20) + 1, memory_high_bytes=(64 << 20) - 1)
        assert cgroup.apply(limits, opportunistic=False) == {}
        assert bed.read(cgroup, "memory.max") == str(64 << 20)
        assert bed.read(cgroup, "memory.high") == str((64 << 20) - 4096)

    def test_less_cpu_than_the_kernel_can_give_out_is_the_least_that_it_can(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.apply(Limits(cpu_cores=0.0001), opportunistic=False) == {}
        assert bed.read(cgroup, "cpu.max") == "1000 100000"

    def test_the_opportunistic_class_comes_and_goes_in_place(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.apply(Limits(), opportunistic=True) == {}
        assert (bed.read(cgroup, "cpu.idle"), bed.read(cgroup, "cpu.weight")) == ("1", "0")
        assert cgroup.apply(Limits(cpu_weight=300), opportunistic=False) == {}
        assert (bed.read(cgroup, "cpu.idle"), bed.read(cgroup, "cpu.weight")) == ("0", "300")
        failed = cgroup.apply(Limits(cpu_weight=300), opportunistic=True)
        assert failed == {"cpu_weight": "cpu.weight: opportunistic work has no weight of its own"}
        assert bed.read(cgroup, "cpu.idle") == "1"

    def test_a_disk_that_is_gone_is_told_and_the_others_are_limited(self, bed: Bed) -> None:
        tree = CgroupTree(bed.tree.root, [Disk("gone", 240, 1), *bed.disks], bed.filesystem)
        assert tree.prepare() == {}
        cgroup = tree.create("a")
        failed = cgroup.apply(Limits(disk_read_bytes_per_s=1_000_000), opportunistic=False)
        assert failed.keys() == {"disk_read_bytes_per_s"} and "the disk is gone" in failed["disk_read_bytes_per_s"]
        assert f"{bed.disks[0].number} rbps=1000000 wbps=max" in bed.read(cgroup, "io.max")

    def test_limits_on_what_vanished(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        assert cgroup.remove()
        with pytest.raises(FileNotFoundError):
            cgroup.apply(Limits(cpu_cores=1), opportunistic=False)

    def test_a_limit_on_all_containers(self, bed: Bed) -> None:
        containers = bed.tree.root / "containers"
        bed.tree.cap_all((1 << 30) + 5)
        assert bed.filesystem.read(bytes(containers / "memory.max")).strip() == str(1 << 30)
        bed.tree.cap_all(None)
        assert bed.filesystem.read(bytes(containers / "memory.max")).strip() == "max"

    def test_where_a_process_sits_controllers_cannot_be_enabled(self, bed: Bed) -> None:
        nested = bed.tree.create("a")
        process = bed.enter(nested)
        tree = CgroupTree(nested.path, bed.disks, bed.filesystem)
        bed.filesystem.mkdir(bytes(nested.path / "containers"))
        missing = tree.prepare()
        with pytest.raises(OSError) as caught:
            bed.write(nested, "cgroup.subtree_control", "+memory")
        assert caught.value.errno == errno.EBUSY
        process.kill()
        process.wait(30)
        assert bed.read(nested, "cgroup.subtree_control") == ""
        assert missing.keys() == {"cpu", "io", "memory", "pids"}
        assert all("processes are in" in why and "remedy: move them" in why for why in missing.values())
        assert tree.prepare() == {}

    @pytest.mark.parametrize(
        ("name", "text", "number"),
        [
            ("cpu.max", "nonsense", errno.EINVAL),
            ("cpu.max", "999", errno.EINVAL),
            ("cpu.max", "10000 999", errno.EINVAL),
            ("cpu.max", "10000 1000001", errno.EINVAL),
            ("cpu.weight", "0", errno.ERANGE),
            ("cpu.weight", "10001", errno.ERANGE),
            ("cpu.idle", "2", errno.EINVAL),
            ("memory.max", "-1", errno.EINVAL),
            ("memory.high", "nonsense", errno.EINVAL),
            ("memory.oom.group", "2", errno.EINVAL),
            ("memory.current", "1", errno.EINVAL),
            ("pids.max", "-1", errno.EINVAL),
            ("io.max", "nonsense", errno.EINVAL),
            ("io.max", "240:1 rbps=1", errno.ENODEV),
            ("io.max", "{disk} rbps=0", errno.ERANGE),
            ("io.max", "{disk} rbps=x", errno.EINVAL),
            ("io.max", "{disk} nonsense=1", errno.EINVAL),
        ],
    )
    def test_nonsense_is_refused(self, bed: Bed, name: str, text: str, number: int) -> None:
        cgroup = bed.tree.create("a")
        with pytest.raises(OSError) as caught:
            bed.write(cgroup, name, text.format(disk=bed.disks[0].number))
        assert caught.value.errno == number
        assert bed.read(cgroup, name) == UNLIMITED.get(name, "0")

    def test_a_controller_that_is_used_below_cannot_be_disabled(self, bed: Bed) -> None:
        bed.tree.create("a")
        control = bytes(bed.tree.root / "cgroup.subtree_control")
        with pytest.raises(OSError) as caught:
            bed.filesystem.write(control, "-cpu")
        assert caught.value.errno == errno.EBUSY

    def test_an_idle_cgroup_takes_no_weight(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        bed.write(cgroup, "cpu.idle", "1")
        with pytest.raises(OSError) as caught:
            bed.write(cgroup, "cpu.weight", "50")
        assert caught.value.errno == errno.EINVAL
        bed.write(cgroup, "cpu.idle", "0")
        assert bed.read(cgroup, "cpu.weight") == "100"

    def test_the_most_processes(self, bed: Bed) -> None:
        cgroup = bed.tree.create("a")
        bed.write(cgroup, "pids.max", "0")
        assert bed.read(cgroup, "pids.max") == "0"

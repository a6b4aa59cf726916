"""What is written, what is not, and what is said where a limit cannot be had."""

from __future__ import annotations

import errno
import os
import subprocess
from typing import Any

import pytest
from msgspec.structs import replace

from agent.cgroups import Applied, Cgroup, CgroupTree, Disk
from agent.cgroups.files import V2Controller
from agent.cgroups.memory import MemoryFiles
from agent.core.confinement import Confinement
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import DISK, Make

A = "/fake/cgroup/containers/a"
MIB = 1 << 20
EVERYTHING = Confinement(
    cpu_cores=1.5, cpu_burst_s=0.02, cpu_weight=50, cpus="0", memory_min_bytes=MIB, memory_low_bytes=2 * MIB,
    memory_high_bytes=3 * MIB, memory_max_bytes=4 * MIB, oom_group=True, disk_read_bytes_per_s=1000,
    disk_write_bytes_per_s=2000, disk_read_ops_per_s=30, disk_write_ops_per_s=40, pids_max=5,
)  # fmt: skip
WRITTEN = (
    "cpu.weight", "cpu.max", "cpu.max.burst", "cpuset.cpus", "memory.min", "memory.low", "memory.high",
    "memory.swap.max", "memory.max", "memory.oom.group", "io.max", "pids.max",
)  # fmt: skip


class Watched(FakeCgroups):
    """Remembers what was read."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.reads: list[str] = []

    def read(self, path: bytes) -> str:
        """See FakeCgroups."""
        self.reads.append(os.fsdecode(path).rpartition("/")[2])
        return super().read(path)


def watched(make: Make, *disks: Disk) -> tuple[Watched, Cgroup]:
    """A cgroup on a fake that remembers."""
    fake, tree = make(disks or [DISK], of=Watched)
    cgroup = tree.create("a")
    fake.reads.clear()
    return fake, cgroup


def said(fake: FakeCgroups, name: str, container: str = "a") -> str:
    """What a file of a cgroup says."""
    return fake.read(f"/fake/cgroup/containers/{container}/{name}".encode()).strip()


def test_only_what_is_not_in_force_is_written(fake: FakeCgroups, cgroup: Cgroup) -> None:
    assert cgroup.confine(Confinement()) == Applied()
    assert fake.writes == []
    assert cgroup.confine(EVERYTHING) == Applied(written=WRITTEN)
    assert len(fake.writes) == len(WRITTEN) + 3  # four limits of one disk
    fake.writes.clear()
    assert cgroup.confine(EVERYTHING) == Applied()
    assert fake.writes == []


def test_a_look_for_drift_reads_each_file_once(make: Make) -> None:
    fake, cgroup = watched(make, DISK, Disk("vdb", 254, 16), Disk("vdc", 254, 32))
    cgroup.confine(EVERYTHING)
    fake.reads.clear()
    assert cgroup.confine(EVERYTHING) == Applied()
    assert sorted(fake.reads) == sorted(set(fake.reads))
    assert {"io.max", "memory.max", "cpu.max.burst"} <= set(fake.reads)


def test_a_look_for_drift_sees_what_it_has_written_itself(make: Make) -> None:
    fake, cgroup = watched(make, DISK, Disk("vdb", 254, 16))
    cgroup.confine(EVERYTHING)
    fake.pretend(f"{A}/io.max", "254:0 rbps=1000 wbps=2000 riops=30 wiops=40\n")
    assert cgroup.confine(EVERYTHING).written == ("io.max",)
    assert said(fake, "io.max").splitlines()[1] == "254:16 rbps=1000 wbps=2000 riops=30 wiops=40"


def test_of_what_is_known_to_be_in_force_nothing_is_read_or_written(make: Make) -> None:
    fake, cgroup = watched(make)
    cgroup.confine(EVERYTHING)
    fake.reads.clear()
    fake.writes.clear()
    assert cgroup.confine(EVERYTHING, since=EVERYTHING) == Applied()
    assert (fake.reads, fake.writes) == ([], [])
    assert cgroup.confine(replace(EVERYTHING, pids_max=6), since=EVERYTHING) == Applied(written=("pids.max",))
    assert (fake.reads, fake.writes) == (["pids.max"], [(f"{A}/pids.max", "6")])  # read back
    fake.reads.clear()
    more = replace(EVERYTHING, memory_max_bytes=5 * MIB, pids_max=6)
    assert cgroup.confine(more, since=replace(EVERYTHING, pids_max=6)).written == ("memory.max", "memory.swap.max")
    assert fake.reads == ["memory.max", "memory.swap.max"]


def test_every_change_from_what_is_known_is_what_a_first_writing_would_be(fake: FakeCgroups, tree: CgroupTree) -> None:
    """Field by field, up, down and away again."""
    fresh, stepwise = tree.create("a"), tree.create("b")
    names = ("cpu.max", "cpu.max.burst", "cpu.weight", "cpu.idle", "cpuset.cpus", "memory.min", "memory.low",
             "memory.high", "memory.max", "memory.oom.group", "io.max", "pids.max")  # fmt: skip
    known = Confinement()
    for wanted in (
        EVERYTHING,
        replace(EVERYTHING, cpu_cores=0.1, cpu_burst_s=0.01),
        replace(EVERYTHING, cpu_cores=0.05),  # the burst cannot stay what it was
        replace(EVERYTHING, cpu_cores=None),
        replace(EVERYTHING, opportunistic=True),
        replace(EVERYTHING, opportunistic=True, cpu_weight=70),
        replace(EVERYTHING, cpu_weight=70),
        replace(EVERYTHING, memory_high_bytes=None, memory_max_bytes=MIB),
        replace(EVERYTHING, cpus=None, disk_read_ops_per_s=None),
        Confinement(opportunistic=True),
        Confinement(),
    ):
        fresh.confine(wanted)
        stepwise.confine(wanted, since=known)
        known = wanted
        for name in names:
            assert said(fake, name) == said(fake, name, "b"), (name, wanted)


def test_what_throttles_stays_below_what_kills(fake: FakeCgroups, cgroup: Cgroup) -> None:
    small = Confinement(memory_high_bytes=MIB, memory_max_bytes=2 * MIB)
    large = Confinement(memory_high_bytes=3 * MIB, memory_max_bytes=4 * MIB)
    for since, wanted, order in ((small, large, ["max", "high"]), (large, small, ["high", "max"])):
        cgroup.confine(since)
        fake.writes.clear()
        assert cgroup.confine(wanted, since).failed == {}
        assert [path.rpartition(".")[2] for path, _ in fake.writes if "swap" not in path] == order


def test_memory_max_is_never_lowered_below_what_is_in_use(fake: FakeCgroups, cgroup: Cgroup) -> None:
    large, small = Confinement(memory_max_bytes=64 * MIB), Confinement(memory_max_bytes=16 * MIB, pids_max=3)
    cgroup.confine(large)
    fake.use(A, anon_bytes=8 * MIB, cache_bytes=24 * MIB)
    for since in (large, None):
        applied = cgroup.confine(small, since)
        assert applied.failed == {"memory_max_bytes": "32 MiB are in use; shrinking"}
        assert applied.shrink_to_bytes == 16 * MIB
        assert (said(fake, "memory.max"), said(fake, "pids.max")) == (str(64 * MIB), "3")
    fake.use(A, anon_bytes=8 * MIB)
    assert cgroup.confine(small, large) == Applied(written=("memory.swap.max", "memory.max", "pids.max"))
    assert said(fake, "memory.max") == str(16 * MIB)


def test_without_controllers_each_asked_limit_is_named_with_its_reason(make: Make) -> None:
    _fake, tree = make(controllers=["memory"])
    assert tree.controllers == {"memory"}
    cgroup = tree.create("a")
    failed = cgroup.confine(replace(EVERYTHING, opportunistic=True, disk_weight=1)).failed
    assert failed.keys() == {
        "cpu_cores", "cpu_burst_s", "cpu_weight", "cpus", "opportunistic", "disk_read_bytes_per_s", "pids_max",
        "disk_write_bytes_per_s", "disk_read_ops_per_s", "disk_write_ops_per_s", "disk_weight",
    }  # fmt: skip
    assert all("controller" in why and "remedy: " in why for why in failed.values())
    assert cgroup.confine(Confinement(memory_max_bytes=4096)).failed == {}


def test_before_cpu_idle_opportunistic_work_has_the_least_weight(make: Make) -> None:
    fake, tree = make(without=["cpu.idle"])
    cgroup = tree.create("a")
    for since, wanted, weight in (
        (None, Confinement(opportunistic=True, cpu_weight=7), "1"),
        (Confinement(opportunistic=True), Confinement(cpu_weight=100), "100"),
        (Confinement(), Confinement(opportunistic=True), "1"),
    ):
        assert cgroup.confine(wanted, since).failed == {}
        assert said(fake, "cpu.weight") == weight


@pytest.mark.parametrize(
    ("file", "wanted", "failed"),
    [
        ("memory.swap.max", Confinement(memory_max_bytes=MIB), {}),
        ("cpu.max.burst", Confinement(cpu_cores=1, pids_max=3), {}),
        (
            "cpu.max.burst",
            Confinement(cpu_burst_s=0.01, pids_max=3),
            {"cpu_burst_s": "this kernel has no cpu.max.burst; remedy: use Linux 5.14 or later"},
        ),
        ("io.weight", Confinement(pids_max=3), {}),
        (
            "memory.oom.group",
            Confinement(oom_group=True, pids_max=3),
            {"oom_group": "this kernel has no memory.oom.group; remedy: use Linux 4.19 or later"},
        ),
    ],
)
def test_on_an_older_kernel_the_rest_holds(make: Make, file: str, wanted: Confinement, failed: dict[str, str]) -> None:
    fake, tree = make(without=[file])
    cgroup = tree.create("a")
    for since in (None, Confinement()):
        assert cgroup.confine(wanted, since).failed == failed
    assert (said(fake, "pids.max"), said(fake, "memory.max")) in {("3", "max"), ("max", str(MIB))}


@pytest.mark.parametrize(("file", "taken"), [("io.weight", "default 7"), ("io.bfq.weight", "default 7")])
def test_a_disks_weight_is_written_and_what_it_is_worth_is_said(make: Make, file: str, taken: str) -> None:
    fake, tree = make(disks=[Disk("none-such", 254, 0)])
    cgroup = tree.create("a")
    fake.pretend(f"{A}/io.bfq.weight", "default 100\n")
    failed = cgroup.confine(Confinement(disk_weight=7)).failed
    assert failed["disk_weight"].startswith("neither bfq nor io.cost divides none-such by weight; remedy: modprobe bfq")
    assert said(fake, file) == taken
    assert cgroup.confine(Confinement()) == Applied(written=("io.weight", "io.bfq.weight"))


def test_without_a_disk(make: Make) -> None:
    _, tree = make(disks=[])
    cgroup = tree.create("a")
    assert cgroup.confine(Confinement()).failed == {}
    failed = cgroup.confine(Confinement(disk_write_bytes_per_s=1)).failed
    assert failed.keys() == {"disk_write_bytes_per_s"}
    assert failed["disk_write_bytes_per_s"].startswith(
        "no disk was found that io.max can limit; remedy: see /sys/block"
    )


def test_the_network_is_not_a_cgroups_business(fake: FakeCgroups, cgroup: Cgroup) -> None:
    assert cgroup.confine(Confinement(network_egress_bytes_per_s=1, network_rate_bytes_per_s=1)) == Applied()
    assert fake.writes == []


@pytest.mark.parametrize("since", [None, Confinement()])
@pytest.mark.parametrize("name", ["cpu.max", "memory.max", "io.max", "pids.max", "cpuset.cpus"])
def test_a_cgroup_that_vanishes_while_it_is_confined(
    fake: FakeCgroups, cgroup: Cgroup, monkeypatch: pytest.MonkeyPatch, since: Confinement | None, name: str
) -> None:
    write = fake.write

    def vanish(path: bytes, text: str) -> None:
        if path.endswith(f"/{name}".encode()):
            fake.vanish(A)
        write(path, text)

    monkeypatch.setattr(fake, "write", vanish)
    with pytest.raises(FileNotFoundError):
        cgroup.confine(EVERYTHING, since)


class Deaf(FakeCgroups):
    """Takes a write to the given file and does nothing, or answers with an error."""

    def __init__(self, **fields: Any) -> None:
        super().__init__(**fields)
        self.answers: dict[str, int] = {}

    def write(self, path: bytes, text: str) -> None:
        name = os.fsdecode(path).rpartition("/")[2]
        if name not in self.answers:
            super().write(path, text)
        elif self.answers[name]:
            raise OSError(self.answers[name], os.strerror(self.answers[name]), os.fsdecode(path))


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (0, "wrote '50000 100000', read back 'max 100000'"),
        (errno.EINVAL, "the kernel refuses this value for cpu.max"),
        (errno.EACCES, "Permission denied; remedy: run the agent under its delegated unit"),
        (errno.EROFS, "Read-only file system; remedy: run the agent under its delegated unit"),
        (errno.EBUSY, "cpu.max: Device or resource busy"),
    ],
)
def test_what_the_kernel_answers_is_said_with_the_remedy(make: Make, answer: int, why: str) -> None:
    fake, tree = make(of=Deaf)
    fake.answers = {"cpu.max": answer}
    failed = tree.create("a").confine(Confinement(cpu_cores=0.5, cpu_weight=7)).failed
    assert failed.keys() == {"cpu_cores"} and why in failed["cpu_cores"]


@pytest.mark.parametrize(
    ("cpus", "why"),
    [
        ("0-9999", "'0-9999' is beyond the last processor of any host; remedy: name some up to 8191"),
        ("1-0", "'1-0' ends before it begins; remedy: write 0-1"),
        ("0-7", "this host has no such processors; remedy: see /sys/devices/system/cpu/online"),
    ],
)
def test_processors_that_an_older_agent_accepted_are_not_enforced(
    fake: FakeCgroups, cgroup: Cgroup, cpus: str, why: str
) -> None:
    """An empty range lifted the limit; of a long one the agent made a set, of whatever size."""
    cgroup.confine(Confinement(cpus="0"))
    assert cgroup.confine(Confinement(cpus=cpus), Confinement(cpus="0")).failed == {"cpus": why}
    assert said(fake, "cpuset.cpus") == "0"


def test_what_is_killed_gets_the_processor_to_end(fake: FakeCgroups, cgroup: Cgroup) -> None:
    cgroup.confine(Confinement(opportunistic=True, cpu_cores=0.01))
    fake.writes.clear()
    cgroup.let_end()
    directory = str(cgroup.path)
    assert fake.writes == [
        (f"{directory}/cpu.idle", "0"), (f"{directory}/cpu.weight", "10000"), (f"{directory}/cpu.max", "max 100000")
    ]  # fmt: skip


def test_killing_without_cgroup_kill(make: Make) -> None:
    fake, tree = make(without=["cgroup.kill"])
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


@pytest.mark.parametrize("since", [None, Confinement(cpu_cores=0.5)])
def test_a_limit_that_cannot_be_lifted_is_told(make: Make, since: Confinement | None) -> None:
    fake, tree = make(of=Deaf)
    cgroup = tree.create("a")
    assert cgroup.confine(Confinement(cpu_cores=0.5)).failed == {}
    fake.answers = {"cpu.max": errno.EACCES}
    assert "Permission denied" in cgroup.confine(Confinement(), since).failed["cpu_cores"]


def test_a_descriptor_writes_through_cgroupspys_interface(fake: FakeCgroups, tree: CgroupTree) -> None:
    """cgroupspy's own parts do their share: its Controller lists the interfaces, its descriptors read and write."""
    path = tree.create("a").path
    files: Any = MemoryFiles(path, fake)
    assert isinstance(files, V2Controller)
    assert {"high", "max", "current", "oom_group"} <= files.list_interfaces().keys()
    files.oom_group = True
    assert files.get_content("oom_group") is True
    with pytest.raises(RuntimeError, match="readonly"):
        files.current = 1

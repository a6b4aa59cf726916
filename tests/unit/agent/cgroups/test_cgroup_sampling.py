"""Counters, as far as they are there."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from agent.cgroups import Cgroup, CgroupSample, CgroupTree
from agent.cgroups.filesystem import KERNEL, FdBudget, FdCache, OpenFile
from agent.cgroups.memory import MemoryFiles
from agent.cgroups.sample import Total
from agent.core.snapshot import HostUse
from agent.monitor import sampler
from agent.monitor.sampler import Sampler
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

A = "/fake/cgroup/containers/a"


SOME_AND_FULL = "some avg10=1.50 avg60=0.00 avg300=0.00 total={}\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=9\n"


def count(fake: FakeCgroups) -> None:
    """Let the kernel have counted."""
    for name, text in {
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_throttled 3\nthrottled_usec 125000\nanother 1\n",
        "memory.current": "5000\n",
        "memory.stat": (
            "anon 1\nfile 1500\nshmem 70\nfile_dirty 30\nfile_writeback 20\ninactive_file 1200\nactive_file 230\n"
            "unevictable 9\nanother 4\n"
        ),
        "memory.peak": "9000\n",
        "memory.events": "low 0\nhigh 4\nmax 5\noom 6\noom_kill 7\n",
        "cpu.pressure": "some avg10=1.50 avg60=0.00 avg300=0.00 total=1500000\n",
        "memory.pressure": SOME_AND_FULL.format(2000),
        "io.pressure": SOME_AND_FULL.format(7),
        "io.stat": "7:0 \n254:0 rbytes=10 cost.vrate=100.00 wbytes=20 rios=1 wios=1 dbytes=5\n8:0 rbytes=1 wbytes=2\n",
    }.items():
        fake.pretend(f"{A}/{name}", text)


def test_every_counter(fake: FakeCgroups, cgroup: Cgroup) -> None:
    count(fake)
    assert cgroup.sample() == CgroupSample(
        cpu_usage_s=2.5, cpu_throttled_s=0.125, cpu_stalled_s=1.5, memory_current_bytes=5000,
        memory_working_set_bytes=3800, memory_cache_bytes=1380, memory_anon_bytes=1,
        memory_peak_bytes=9000, memory_stalled_s=0.002, oom_kills=7, memory_high_events=4,
        io_read_bytes=11, io_write_bytes=22, io_stalled_s=7e-6, pids=0,
    )  # fmt: skip


def test_what_is_not_read_is_that_of_the_earlier_sample(fake: FakeCgroups, cgroup: Cgroup) -> None:
    count(fake)
    first = cgroup.sample()
    assert first is not None
    fake.pretend(f"{A}/cpu.stat", "usage_usec 3000000\nthrottled_usec 125000\n")
    fake.pretend(f"{A}/memory.events", "high 4\noom_kill 8\n")
    fake.pretend(f"{A}/io.pressure", SOME_AND_FULL.format(1_000_000))
    use = cgroup.use(first)
    assert use == replace(first, cpu_usage_s=3.0)
    assert cgroup.rest(use, stalled=False, shown=False) == use
    assert cgroup.rest(use, stalled=True, shown=False) == replace(use, io_stalled_s=1.0)
    assert cgroup.rest(use, stalled=False, shown=True) == replace(use, oom_kills=8)


def test_a_peak_that_was_read_before_is_not_below_the_present_memory(fake: FakeCgroups, cgroup: Cgroup) -> None:
    count(fake)
    sample, peaks = cgroup.sample(), []
    for current in (8000, 12000, 10000):
        fake.pretend(f"{A}/memory.current", f"{current}\n")
        assert sample is not None
        sample = cgroup.use(sample)
        assert sample is not None
        peaks.append(sample.memory_peak_bytes)
    assert peaks == [9000, 12000, 12000]


def test_what_a_container_has_used_in_the_end_takes_three_files(fake: FakeCgroups, cgroup: Cgroup) -> None:
    count(fake)
    assert cgroup.total() == Total(cpu_s=2.5, memory_peak_bytes=9000, oom_kills=7)
    assert fake.kept == 3
    fake.vanish(A)
    assert cgroup.total() is None


@pytest.mark.parametrize("lives", [True, False])
def test_at_its_end_a_cgroup_is_killed_only_if_a_process_lives(
    fake: FakeCgroups, cgroup: Cgroup, monkeypatch: pytest.MonkeyPatch, lives: bool
) -> None:
    count(fake)
    killed: list[str] = []
    monkeypatch.setattr(Cgroup, "kill", lambda self: killed.append(self.path.name))
    assert cgroup.end(lives) == cgroup.total()
    assert killed == ["a"] * lives


@pytest.fixture
def sampling(tree: CgroupTree, monkeypatch: pytest.MonkeyPatch) -> Sampler:
    """A sampler of the tree, a second apart."""
    clock = iter(range(10_000))
    monkeypatch.setattr(sampler.time, "monotonic", lambda: float(next(clock)))
    return Sampler(tree, SimpleNamespace(sample=HostUse))  # type: ignore[arg-type]


def use(fake: FakeCgroups, number: int) -> None:
    """Let the container run and stall for a second, after as many others."""
    fake.pretend(f"{A}/cpu.stat", f"usage_usec {number}000000\n")
    fake.pretend(f"{A}/cpu.pressure", f"some avg10=0.00 avg60=0.00 avg300=0.00 total={number}000000\n")


def test_a_look_at_the_use_alone_does_not_change_when_the_stalled_times_are_read(
    fake: FakeCgroups, sampling: Sampler, cgroup: Cgroup
) -> None:
    """Otherwise a container that stops has its former part of stalled time for as long as it is not read again."""
    for number in range(1, 10):
        use(fake, number)
        stalled = sampling.sample(["a"], {}, set()).containers["a"].cpu_stalled
    assert stalled > 0
    use(fake, 10)
    sampling.look(["a"])
    rates = [sampling.sample(["a"], {}, set()).containers["a"].cpu_stalled for _ in range(5)]
    assert rates[2:] == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("ticks", range(20, 24))
def test_after_a_repair_of_the_tree_the_stalled_time_is_still_that_since_it_was_read_last(
    fake: FakeCgroups, sampling: Sampler, tree: CgroupTree, cgroup: Cgroup, ticks: int
) -> None:
    """A repair that finds other controllers closes all files, and makes each cgroup's object anew."""
    for number in range(1, ticks):
        use(fake, number)
        sampling.sample(["a"], {}, set())
    tree.close()
    rates = []
    for number in range(ticks - 1, ticks + 10):  # it rests for a tick
        use(fake, number)
        rates.append(sampling.sample(["a"], {}, set()).containers["a"].cpu_stalled)
    assert max(rates) <= 1.0


def test_more_cache_than_memory_is_no_negative_working_set(fake: FakeCgroups, cgroup: Cgroup) -> None:
    """The two files are read one after the other."""
    fake.pretend(f"{A}/memory.stat", "inactive_file 6000\n")
    fake.pretend(f"{A}/memory.current", "5000\n")
    sample = cgroup.sample()
    assert sample is not None and sample.memory_working_set_bytes == 0


def test_without_controllers_there_is_still_cpu_time(make: Make) -> None:
    fake, tree = make(controllers=[])
    cgroup = tree.create("a")
    fake.pretend(f"{A}/cpu.stat", "usage_usec 1000000\nuser_usec 1\nsystem_usec 1\n")
    assert cgroup.sample() == CgroupSample(cpu_usage_s=1.0)
    assert cgroup.total() == Total(cpu_s=1.0, memory_peak_bytes=0, oom_kills=0)


LAST = ("cpu.stat", "memory.stat", "memory.current", "io.stat", "pids.current", "memory.events", "cpu.pressure",
        "memory.pressure", "io.pressure", "memory.peak")  # fmt: skip


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("last", LAST)
def test_a_cgroup_that_vanishes_while_it_is_read(
    fake: FakeCgroups, cgroup: Cgroup, monkeypatch: pytest.MonkeyPatch, last: str, kept: bool
) -> None:
    if kept:
        assert cgroup.sample() is not None
    read = fake.read

    def vanish(path: bytes) -> str:
        if path.endswith(f"/{last}".encode()):
            fake.vanish(A)
        return read(path)

    monkeypatch.setattr(fake, "read", vanish)
    assert cgroup.sample() is None


def test_descriptors_are_kept_until_they_are_let_go_of(fake: FakeCgroups, tree: CgroupTree) -> None:
    cgroups = [tree.create(name) for name in ("a", "b")]
    for _ in range(2):
        for cgroup in cgroups:
            assert cgroup.sample() is not None
        assert fake.kept == 2 * len(LAST)
    cgroups[0].close()
    assert fake.kept == len(LAST)
    assert cgroups[1].remove() and fake.kept == 0
    assert tree.memory_current() == 0 and fake.kept == 1
    tree.close()
    assert fake.kept == 0


def test_beyond_the_allowance_files_are_opened_each_time(make: Make) -> None:
    fake, _ = make()
    fd_budget = FdBudget(3)
    fd_cache = FdCache(fake, frozenset({b"cpu.stat", b"cpu.max", b"io.stat", b"memory.stat"}), fd_budget)
    paths = [f"/fake/cgroup/containers/{name}".encode() for name in ("cpu.stat", "cpu.max", "io.stat", "memory.stat")]
    for _ in range(2):
        assert [fd_cache.read(path) for path in paths] == [fake.read(path) for path in paths]
        assert (fake.kept, fd_budget.left) == (3, 0)
    fd_cache.close()
    assert (fake.kept, fd_budget.left) == (0, 3)


def test_only_use(fake: FakeCgroups, cgroup: Cgroup) -> None:
    count(fake)
    full = cgroup.sample()
    assert full is not None
    for name in ("memory.peak", "memory.events", "cpu.pressure"):
        fake.pretend(f"{A}/{name}", "garbled")  # not looked at
    fake.pretend(f"{A}/memory.current", "6000\n")
    assert cgroup.use(full) == replace(full, memory_current_bytes=6000, memory_working_set_bytes=4800)


@pytest.mark.parametrize("missing", ["memory.pressure", "cpu.pressure", "io.pressure", "memory.peak"])
def test_what_a_kernel_does_not_count_is_asked_for_once(make: Make, missing: str) -> None:
    fake, tree = make(without=[missing])
    cgroup = tree.create("a")
    fake.pretend(f"{A}/cpu.stat", "usage_usec 2500000\n")
    assert cgroup.total() == Total(cpu_s=2.5, memory_peak_bytes=0, oom_kills=0)
    assert cgroup.sample() == CgroupSample(cpu_usage_s=2.5)
    fake.pretend(f"{A}/{missing}", "some total=99\n")
    assert cgroup.sample() == CgroupSample(cpu_usage_s=2.5)


def test_pressure_that_is_switched_off(fake: FakeCgroups, cgroup: Cgroup, monkeypatch: pytest.MonkeyPatch) -> None:
    """With psi=0 some kernels have the files and answer EOPNOTSUPP."""
    read = fake.read

    def off(path: bytes) -> str:
        if path.endswith(b".pressure"):
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP), os.fsdecode(path))
        return read(path)

    monkeypatch.setattr(fake, "read", off)
    assert cgroup.sample() == CgroupSample()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("cpu.stat", "usage_usec"),
        ("memory.current", "many\n"),
        ("memory.stat", "anon x\n"),
        ("memory.events", "low 0\nhigh\n"),
        ("memory.current", ""),
    ],
)
def test_garbled_counters_are_an_error_and_no_number(fake: FakeCgroups, cgroup: Cgroup, name: str, text: str) -> None:
    fake.pretend(f"{A}/{name}", text)
    with pytest.raises(OSError, match="content has an unexpected format") as caught:
        cgroup.sample()
    assert caught.value.filename == f"{A}/{name}"


def test_stalled_time(fake: FakeCgroups, cgroup: Cgroup) -> None:
    files = MemoryFiles(cgroup.path, fake)
    assert files.stalled_us == 0
    fake.pretend(f"{A}/memory.pressure", "some avg10=1.25 avg60=0.50 avg300=0.10 total=123456\n")
    assert files.stalled_us == 123456


def test_long_lists_are_read_whole() -> None:
    """The kernel gives lists a page at a time; /proc/kallsyms is such a file on every host."""
    text = KERNEL.read(b"/proc/kallsyms")
    assert len(text) > 1_000_000  # its end changes when BPF programs come and go
    assert text[:1_000_000] == Path("/proc/kallsyms").read_text()[:1_000_000]


def test_a_counter_that_no_descriptor_was_free_for_is_read_again(
    fake: FakeCgroups, cgroup: Cgroup, monkeypatch: pytest.MonkeyPatch
) -> None:
    count(fake)
    keep = fake.keep

    def full(path: bytes) -> OpenFile:
        if path.endswith(b"memory.peak"):
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return keep(path)

    with monkeypatch.context() as patched:
        patched.setattr(fake, "keep", full)
        with pytest.raises(OSError, match="Too many open files"):
            cgroup.sample()
    sample = cgroup.sample()
    assert sample is not None and sample.memory_peak_bytes == 9000


def test_a_cgroup_without_any_below_it_is_not_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "above" / "below").mkdir(parents=True)
    if tmp_path.stat().st_nlink != 3:
        pytest.skip("this file system does not count directories, as that of cgroups does")
    listed, scandir = list[bytes](), os.scandir

    def noted(path: bytes) -> Any:
        listed.append(path)
        return scandir(path)

    monkeypatch.setattr("agent.cgroups.filesystem.os.scandir", noted)
    above = os.fsencode(tmp_path / "above")
    assert KERNEL.children(above) == ["below"]
    assert KERNEL.children(above + b"/below") == []
    assert listed == [above]

"""Counters, as far as they are there."""

from __future__ import annotations

from pathlib import Path

import pytest

from agent.cgroups import CgroupSample
from agent.cgroups.files import KERNEL
from penstock.testing.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

A = "/fake/cgroup/containers/a"


def count(fake: FakeCgroups) -> None:
    """Let the kernel have counted."""
    for name, text in {
        "cpu.stat": "usage_usec 2500000\nuser_usec 1\nnr_throttled 3\nthrottled_usec 125000\nanother 1\n",
        "memory.current": "5000\n",
        "memory.stat": "anon 1\nfile 1500\ninactive_file 1200\n",
        "memory.peak": "9000\n",
        "memory.events": "low 0\nhigh 4\nmax 5\noom 6\noom_kill 7\n",
        "io.stat": "7:0 \n254:0 rbytes=10 wbytes=20 rios=1 wios=1 dbytes=5 dios=0\n8:0 rbytes=1 wbytes=2\n",
    }.items():
        fake.pretend(f"{A}/{name}", text)


def test_every_counter(make: Make) -> None:
    fake, tree = make()
    cgroup = tree.create("a")
    count(fake)
    assert cgroup.sample() == CgroupSample(
        cpu_usage_s=2.5, cpu_throttled_s=0.125, memory_current_bytes=5000, memory_working_set_bytes=3800,
        memory_peak_bytes=9000, oom_kills=7, memory_high_events=4, memory_max_events=5, io_read_bytes=11,
        io_write_bytes=22, pids=0,
    )  # fmt: skip


def test_before_memory_peak(make: Make) -> None:
    _fake, tree = make(without=["memory.peak"])
    cgroup = tree.create("a")
    sample = cgroup.sample()
    assert sample is not None and sample.memory_peak_bytes == 0


def test_more_cache_than_memory_is_no_negative_working_set(make: Make) -> None:
    """The two files are read one after the other."""
    fake, tree = make()
    cgroup = tree.create("a")
    fake.pretend(f"{A}/memory.stat", "inactive_file 6000\n")
    fake.pretend(f"{A}/memory.current", "5000\n")
    sample = cgroup.sample()
    assert sample is not None and sample.memory_working_set_bytes == 0


def test_without_controllers_there_is_still_cpu_time(make: Make) -> None:
    fake, tree = make(controllers=[])
    cgroup = tree.create("a")
    fake.pretend(f"{A}/cpu.stat", "usage_usec 1000000\nuser_usec 1\nsystem_usec 1\n")
    assert cgroup.sample() == CgroupSample(cpu_usage_s=1.0)


@pytest.mark.parametrize(
    "last", ["cpu.stat", "memory.stat", "memory.current", "memory.peak", "io.stat", "pids.current"]
)
def test_a_cgroup_that_vanishes_while_it_is_read(make: Make, monkeypatch: pytest.MonkeyPatch, last: str) -> None:
    fake, tree = make()
    cgroup = tree.create("a")
    read = fake.read

    def vanish(path: bytes) -> str:
        if path.endswith(f"/{last}".encode()):
            fake.vanish(A)
        return read(path)

    monkeypatch.setattr(fake, "read", vanish)
    assert cgroup.sample() is None


def test_a_removed_cgroup_answers_enodev_to_readers(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    """kernfs says ENODEV when the file was opened before its cgroup was removed."""
    fake, tree = make()
    cgroup = tree.create("a")

    def gone(path: bytes) -> str:
        fake.vanish(A)
        raise OSError(19, "No such device")

    monkeypatch.setattr(fake, "read", gone)
    assert cgroup.sample() is None


def test_long_lists_are_read_whole() -> None:
    """The kernel gives lists a page at a time; /proc/kallsyms is such a file on every host."""
    text = KERNEL.read(b"/proc/kallsyms")
    assert len(text) == len(Path("/proc/kallsyms").read_text()) > 100_000

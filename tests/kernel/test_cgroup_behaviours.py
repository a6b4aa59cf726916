"""The properties of cgroup v2 that runtimes rely on and that need a kernel with controllers; the contract suites have
the rest.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from agent.cgroups import Cgroup
from agent.cgroups.pressure import PressureTrigger
from agent.core.confinement import Confinement
from tests.contract.cgroup_beds import Bed, wait_for
from tests.contract.events_watch import EventsWatch
from tests.kernel.cgroup_bed import confined, wait_for_line, whole_bed

MIB = 1 << 20
ON = "print('on', flush=True)\n"
SPIN = f"{ON}while True: pass"
#: Hold some MiB, and as many more for each line of input.
HOLD = f"""
import sys
held = [b"x" * (1 << 20) for _ in range(int(sys.argv[1]))]
{ON}
for line in sys.stdin:
    held += [b"x" * (1 << 20) for _ in range(int(line))]
    print("more", flush=True)
"""
#: Reads a file into the cache, then holds some MiB, then as HOLD.
CACHE = """
import sys
with open(sys.argv[2], "rb", buffering=0) as file:
    while file.read(1 << 20): pass
""" + HOLD  # fmt: skip


@pytest.fixture
def bed() -> Iterator[Bed]:
    with whole_bed() as bed:
        yield bed


@pytest.fixture
def files() -> Iterator[list[Path]]:
    """Two of 100 MiB on a disk, not in the cache."""
    paths = [Path(f"/scratch/data-{os.getpid()}-{number}") for number in range(2)]
    for path in paths:
        with path.open("wb") as file:
            for _ in range(100):
                file.write(os.urandom(MIB))
            file.flush()
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    yield paths
    for path in paths:
        path.unlink()


def start(bed: Bed, cgroup: Cgroup, code: str, *arguments: object) -> subprocess.Popen[str]:
    """A process that is at work already."""
    process = bed.start(cgroup, code, *map(str, arguments))
    wait_for_line(process, "on")
    return process


def tell(process: subprocess.Popen[str], line: str) -> None:
    """One line to its standard input."""
    assert process.stdin is not None
    process.stdin.write(f"{line}\n")
    process.stdin.flush()


def used(cgroups: list[Cgroup], seconds: float) -> list[float]:
    """CPU seconds of each in the same time, which the slowest of the readings ends."""
    before = [sample.cpu_usage_s for cgroup in cgroups if (sample := cgroup.sample())]
    select.select([], [], [], seconds)  # the time over which is measured
    after = [sample.cpu_usage_s for cgroup in cgroups if (sample := cgroup.sample())]
    return [b - a for a, b in zip(before, after, strict=True)]


# ---------------------------------------------------------------- cpu


@pytest.mark.measured
def test_weights_divide_a_processor_only_under_contention(bed: Bed) -> None:
    """50, 100 and 150 split it 1 : 2 : 3; each alone has all of it."""
    cgroups = [confined(bed, f"w-{weight}", cpu_weight=weight, cpus="0") for weight in (50, 100, 150)]
    start(bed, cgroups[0], SPIN)
    [alone] = used(cgroups[:1], 2)
    for cgroup in cgroups[1:]:
        start(bed, cgroup, SPIN)
    used(cgroups, 1)
    together = used(cgroups, 5)
    shares = [6 * each / sum(together) for each in together]
    print("shares:", ", ".join(f"{share:.3f}" for share in shares), "alone:", f"{alone / 2:.3f}")
    assert shares == pytest.approx([1, 2, 3], rel=0.1)
    assert alone / 2 > 3 * together[0] / 5


@pytest.mark.measured
def test_weights_change_while_it_runs(bed: Bed) -> None:
    cgroups = [confined(bed, name, cpus="0") for name in ("a", "b")]
    for cgroup in cgroups:
        start(bed, cgroup, SPIN)
    assert cgroups[0].confine(Confinement(cpus="0", cpu_weight=900), Confinement(cpus="0")).failed == {}
    used(cgroups, 1)
    first, second = used(cgroups, 4)
    print(f"900 : 100 is {first / (first + second):.3f}")
    assert 0.85 < first / (first + second) < 0.95


def test_a_cpuset_binds_running_processes(bed: Bed) -> None:
    cgroup = confined(bed, "a", cpus="0")
    process = start(bed, cgroup, SPIN)
    assert os.sched_getaffinity(process.pid) == {0}
    assert cgroup.confine(Confinement(cpus="1"), Confinement(cpus="0")).failed == {}
    assert os.sched_getaffinity(process.pid) == {1}
    assert cgroup.confine(Confinement(), Confinement(cpus="1")).failed == {}
    assert os.sched_getaffinity(process.pid) == {0, 1}


@pytest.mark.measured
def test_a_quota_is_counted_when_it_throttles(bed: Bed) -> None:
    cgroup = confined(bed, "a", cpu_cores=0.2, cpu_burst_s=0.02)
    start(bed, cgroup, SPIN)
    [cores] = used([cgroup], 3)
    sample = cgroup.sample()
    assert sample is not None and sample.cpu_throttled_s > 1
    assert 0.19 < cores / 3 < 0.22  # the burst is spent at once, and not saved up again


@pytest.mark.parametrize("fields", [{"cpu_cores": 0.01}, {"memory_high_bytes": 16 * MIB}])
def test_killing_waits_for_no_limit(bed: Bed, fields: dict[str, object]) -> None:
    """Throttled to 1 % of a processor, or stalled for memory: SIGKILL comes through."""
    cgroup = bed.tree.create("a")
    process = start(bed, cgroup, HOLD, 0)
    assert cgroup.confine(Confinement(**fields)).failed == {}  # type: ignore[arg-type]
    tell(process, "200")
    if "memory_high_bytes" in fields:
        wait_for(cgroup, "memory.events", high=1)
    cgroup.kill()
    assert process.wait(60) == -signal.SIGKILL


# ---------------------------------------------------------------- memory


@pytest.mark.parametrize("group", [False, True])
def test_the_kernel_s_choice_of_a_process_to_kill_for_memory(bed: Bed, group: bool) -> None:
    """One process, as the kernel has it; with memory.oom.group the whole container."""
    cgroup = confined(bed, "a", memory_max_bytes=64 * MIB, oom_group=group)
    chill, bloat = start(bed, cgroup, HOLD, 5), start(bed, cgroup, HOLD, 5)
    tell(bloat, "200")
    assert bloat.wait(120) == -signal.SIGKILL
    found = wait_for(cgroup, "memory.events", oom_kill=1)
    if group:
        assert chill.wait(60) == -signal.SIGKILL
    else:
        tell(chill, "1")
        wait_for_line(chill, "more")
    sample = cgroup.sample()
    assert sample is not None and sample.memory_peak_bytes <= 64 * MIB
    assert found["oom"] >= 1  # with the group its first victim is counted twice (mm/oom_kill.c, oom_kill_process)
    assert sample.oom_kills == (3 if group else 1)


def test_the_peak_stays_when_memory_is_freed(bed: Bed) -> None:
    cgroup = confined(bed, "a")
    process = start(bed, cgroup, HOLD, 60)
    cgroup.kill()
    process.wait(60)
    wait_for(cgroup, "cgroup.events", populated=0)
    sample = cgroup.sample()
    assert sample is not None and sample.memory_peak_bytes >= 60 * MIB > sample.memory_current_bytes


def test_memory_stays_where_it_was_charged(bed: Bed) -> None:
    first, second = confined(bed, "a"), confined(bed, "b")
    process = start(bed, first, HOLD, 60)
    bed.write(second, "cgroup.procs", str(process.pid))
    tell(process, "20")
    wait_for_line(process, "more")
    samples = [first.sample(), second.sample()]
    charged = [sample.memory_anon_bytes // MIB for sample in samples if sample]
    print("charged, MiB:", charged)
    assert charged[0] >= 60 and 20 <= charged[1] < 30


def test_a_name_that_is_used_again_owes_nothing(bed: Bed) -> None:
    cgroup = confined(bed, "a", memory_max_bytes=64 * MIB, pids_max=7)
    process = start(bed, cgroup, HOLD, 30)
    cgroup.kill()
    process.wait(60)
    wait_for(cgroup, "cgroup.events", populated=0)
    assert cgroup.remove()
    again = bed.tree.create("a")
    sample = again.sample()
    assert sample is not None and (sample.memory_peak_bytes, sample.cpu_usage_s) == (0, 0.0)
    assert (bed.read(again, "memory.max"), bed.read(again, "pids.max")) == ("max", "max")


@pytest.mark.parametrize("field", ["memory_low_bytes", "memory_min_bytes"])
def test_protected_memory_stays_when_memory_is_reclaimed(bed: Bed, files: list[Path], field: str) -> None:
    """All containers together are reclaimed from; the promised one keeps its page cache."""
    protected, other = confined(bed, "a", **{field: 200 * MIB}), confined(bed, "b")
    for cgroup, path in ((protected, files[0]), (other, files[1])):
        start(bed, cgroup, CACHE, 1, path)
        sample = cgroup.sample()
        assert sample is not None and sample.memory_cache_bytes > 90 * MIB
    together = Cgroup(bed.tree.root / "containers", bed.tree.controllers, bed.tree.surroundings)
    freed = together.reclaim(80 * MIB)
    samples = [protected.sample(), other.sample()]
    left = [sample.memory_cache_bytes // MIB for sample in samples if sample]
    print("left, MiB:", left, "freed:", freed // MIB)
    assert left[0] > 90 and left[1] < 40


def test_memory_high_stalls_until_it_is_raised(bed: Bed) -> None:
    low = Confinement(memory_high_bytes=32 * MIB)
    cgroup = bed.tree.create("a")
    assert cgroup.confine(low).failed == {}
    process = start(bed, cgroup, HOLD, 1)
    with (
        closing(PressureTrigger(cgroup.path / "memory.pressure", 50_000, 500_000)) as trigger,
        EventsWatch(cgroup.path / "memory.events") as events,
    ):
        assert trigger.compromise is None
        tell(process, "100")
        assert select.select([trigger], [], [], 60)[0] and trigger.fired()
        assert select.select([events], [], [], 60)[0]
        changed = events.changed()
        assert changed is not None and changed["high"] > 0 and changed["oom_kill"] == 0
    assert process.poll() is None
    assert cgroup.confine(Confinement(memory_high_bytes=200 * MIB), low).failed == {}
    wait_for_line(process, "more")
    sample = cgroup.sample()
    assert sample is not None and sample.memory_stalled_s > 0 and sample.memory_anon_bytes > 100 * MIB


def test_shrinking_takes_cache_and_never_kills(bed: Bed, files: list[Path]) -> None:
    """100 MiB that stay and 100 MiB of cache, down to 120 and then to 50 MiB, while it allocates a little."""
    standing = Confinement(memory_max_bytes=400 * MIB, memory_high_bytes=390 * MIB)
    cgroup = bed.tree.create("a")
    assert cgroup.confine(standing).failed == {}
    process = start(bed, cgroup, CACHE, 100, files[0])
    sample = cgroup.sample()
    assert sample is not None and sample.memory_current_bytes > 195 * MIB
    wanted = Confinement(memory_max_bytes=120 * MIB, memory_high_bytes=390 * MIB)
    applied = cgroup.confine(wanted, standing)
    assert applied.failed.keys() == {"memory_max_bytes"} and applied.shrink_to_bytes == 120 * MIB
    assert bed.read(cgroup, "memory.max") == str(400 * MIB)

    shrunk = cgroup.shrink_memory(120 * MIB, within_s=30)
    print("to 120 MiB:", shrunk)
    assert shrunk.memory_max_bytes == 120 * MIB and shrunk.in_use_bytes <= 120 * MIB
    assert cgroup.confine(wanted).failed == {}  # it is in force now

    tell(process, "1")
    shrunk = cgroup.shrink_memory(50 * MIB, within_s=30)
    wait_for_line(process, "more")
    tell(process, "1")
    wait_for_line(process, "more")
    print("to 50 MiB:", shrunk)
    assert shrunk.memory_max_bytes is not None
    assert shrunk.unreclaimable_bytes < shrunk.memory_max_bytes < 1.15 * shrunk.unreclaimable_bytes
    assert 100 * MIB < shrunk.memory_max_bytes < 120 * MIB
    assert bed.read(cgroup, "memory.high") == str(390 * MIB)
    sample = cgroup.sample()
    assert process.poll() is None and sample is not None and sample.oom_kills == 0

    tell(process, "100")  # now the limit binds
    assert process.wait(120) == -signal.SIGKILL


def test_reclaiming_takes_cache_and_leaves_the_rest(bed: Bed, files: list[Path]) -> None:
    cgroup = confined(bed, "a")
    start(bed, cgroup, CACHE, 20, files[0])
    freed = cgroup.reclaim(60 * MIB)
    sample = cgroup.sample()
    print("freed, MiB:", freed // MIB)
    assert freed >= 50 * MIB and sample is not None
    assert sample.memory_anon_bytes >= 20 * MIB and sample.memory_cache_bytes < 50 * MIB
    assert bed.tree.memory_current() >= sample.memory_current_bytes  # type: ignore[operator]
    assert bed.tree.memory_working_set() < bed.tree.memory_current()  # type: ignore[operator]


# ---------------------------------------------------------------- pids


def test_a_fork_bomb_is_bounded_and_killed(bed: Bed) -> None:
    cgroup, other = confined(bed, "a", pids_max=50), confined(bed, "b")
    innocent = start(bed, other, HOLD, 1)
    bomb = "import os\nwhile True:\n  try: os.fork()\n  except OSError: pass"
    process = bed.start(cgroup, bomb)
    wait_for(cgroup, "pids.events", max=1)
    sample = cgroup.sample()
    assert sample is not None and 1 < sample.pids <= 50
    cgroup.kill()
    assert process.wait(60) == -signal.SIGKILL
    wait_for(cgroup, "cgroup.events", populated=0)
    assert cgroup.remove()
    tell(innocent, "1")
    wait_for_line(innocent, "more")


def test_a_limit_below_the_number_of_processes_kills_none(bed: Bed) -> None:
    cgroup = confined(bed, "a")
    fork = (
        f"import sys, os, time\n{ON}for line in sys.stdin:\n  try: os.fork() or time.sleep(99)\n"
        "  except OSError: print('no', flush=True)"
    )
    processes = [start(bed, cgroup, fork) for _ in range(3)]
    assert cgroup.confine(Confinement(pids_max=2), Confinement()).failed == {}
    assert all(process.poll() is None for process in processes) and len(cgroup.pids()) == 3
    tell(processes[0], "fork")
    wait_for_line(processes[0], "no")

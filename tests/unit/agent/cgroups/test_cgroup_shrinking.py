"""Memory is taken in steps, down to what cannot be had, and never by a limit below what is in use."""

from __future__ import annotations

import errno
import os

import pytest

from agent.cgroups import Cgroup, Shrunk
from agent.cgroups.shrink import margin_bytes
from agent.core.confinement import Confinement
from tests.fakes.fake_cgroups import FakeCgroups
from tests.unit.agent.cgroups.conftest import Make

A = "/fake/cgroup/containers/a"
MIB = 1 << 20


def used(make: Make, anon_mib: int, cache_mib: int, **fields: object) -> tuple[FakeCgroups, Cgroup]:
    """A container that holds memory, with a limit of 1 GiB."""
    fake, tree = make(**fields)
    cgroup = tree.create("a")
    cgroup.confine(Confinement(memory_max_bytes=1024 * MIB, memory_high_bytes=900 * MIB))
    fake.use(A, anon_bytes=anon_mib * MIB, cache_bytes=cache_mib * MIB)
    fake.writes.clear()
    return fake, cgroup


def wrote(fake: FakeCgroups, name: str) -> list[int]:
    """What was written to a file, in MiB."""
    return [int(text) // MIB for path, text in fake.writes if path == f"{A}/{name}"]


def killed(fake: FakeCgroups) -> bool:
    """Whether memory.max had to."""
    return "oom_kill 0" not in fake.read(f"{A}/memory.events".encode())


@pytest.mark.parametrize("without", [[], ["memory.reclaim"]])
def test_cache_goes_in_steps_and_the_limit_follows(make: Make, without: list[str]) -> None:
    fake, cgroup = used(make, 100, 100, without=without)
    assert cgroup.shrink_memory(120 * MIB, step_bytes=32 * MIB) == Shrunk(120 * MIB, 100 * MIB, 120 * MIB)
    assert wrote(fake, "memory.high") == [168, 136, 120, 900]
    assert wrote(fake, "memory.max") == [120]
    assert not killed(fake)


def test_what_cannot_be_reclaimed_stays(make: Make) -> None:
    fake, cgroup = used(make, 100, 100)
    shrunk = cgroup.shrink_memory(50 * MIB)
    least = 100 * MIB + margin_bytes(100 * MIB)
    assert 0 <= least - (shrunk.memory_max_bytes or 0) < 4096
    assert shrunk.unreclaimable_bytes == 100 * MIB and 100 * MIB <= shrunk.in_use_bytes <= least
    assert min(wrote(fake, "memory.high")) >= 100
    assert not killed(fake)


def test_what_is_not_freed_in_time_is_left_for_the_next_call(make: Make) -> None:
    fake, cgroup = used(make, 100, 400)
    shrunk = cgroup.shrink_memory(120 * MIB, within_s=0)
    assert shrunk.in_use_bytes == 500 * MIB
    assert 500 * MIB < (shrunk.memory_max_bytes or 0) < 600 * MIB  # nearer, and nobody is killed
    assert wrote(fake, "memory.high") == []
    assert cgroup.shrink_memory(120 * MIB).memory_max_bytes == 120 * MIB


class Stubborn(FakeCgroups):
    """Frees nothing: the cache is dirty, and its disk is slow."""

    def write(self, path: bytes, text: str) -> None:
        """See FakeCgroups."""
        name = os.fsdecode(path).rpartition("/")[2]
        if name == "memory.reclaim":
            raise OSError(errno.EAGAIN, os.strerror(errno.EAGAIN), os.fsdecode(path))
        if name == "memory.high":
            self.pretend(os.fsdecode(path), f"{text}\n")
            return
        super().write(path, text)


def test_a_cache_that_does_not_go_is_no_reason_to_kill_or_to_try_forever(make: Make) -> None:
    fake, tree = make(of=Stubborn)
    cgroup = tree.create("a")
    fake.use(A, anon_bytes=100 * MIB, cache_bytes=100 * MIB)
    shrunk = cgroup.shrink_memory(120 * MIB, within_s=3600)
    assert (shrunk.memory_max_bytes or 0) > shrunk.in_use_bytes == 200 * MIB
    assert not killed(fake)


def test_a_limit_never_grows_by_shrinking(make: Make) -> None:
    fake, cgroup = used(make, 100, 0)
    cgroup.confine(Confinement(memory_max_bytes=101 * MIB, memory_high_bytes=900 * MIB))
    assert cgroup.shrink_memory(50 * MIB).memory_max_bytes == 101 * MIB
    assert cgroup.shrink_memory(200 * MIB).memory_max_bytes == 101 * MIB
    assert not killed(fake)


def test_a_memory_high_that_somebody_asks_for_meanwhile_stays(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, cgroup = used(make, 100, 100)
    write = fake.write

    def resize(path: bytes, text: str) -> None:
        write(path, text)
        if path.endswith(b"memory.max"):
            write(f"{A}/memory.high".encode(), str(500 * MIB))

    monkeypatch.setattr(fake, "write", resize)
    cgroup.shrink_memory(120 * MIB)
    assert fake.read(f"{A}/memory.high".encode()).strip() == str(500 * MIB)


@pytest.mark.parametrize("without", [[], ["memory.reclaim"]])
def test_reclaiming(make: Make, without: list[str]) -> None:
    fake, cgroup = used(make, 100, 100, without=without)
    assert cgroup.reclaim(30 * MIB) == 30 * MIB
    assert cgroup.reclaim(0) == 0
    left = 70 * MIB - cgroup.reclaim(500 * MIB)
    assert left == 0 if not without else 0 < left <= margin_bytes(100 * MIB)  # memory.high below use would stall it
    assert fake.read(f"{A}/memory.high".encode()).strip() == str(900 * MIB)
    assert not killed(fake)


def test_what_is_frozen_or_gone(make: Make) -> None:
    fake, cgroup = used(make, 100, 100)
    cgroup.freeze(True)
    assert cgroup.shrink_memory(120 * MIB).memory_max_bytes == 120 * MIB
    fake.vanish(A)
    with pytest.raises(FileNotFoundError):
        cgroup.shrink_memory(110 * MIB)
    with pytest.raises(FileNotFoundError):
        cgroup.reclaim(MIB)

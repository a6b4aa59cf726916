"""How often memory is looked at between two samples, and when it is looked at in full."""

from __future__ import annotations

import asyncio
import errno
import os
import select
from pathlib import Path

import pytest

from agent.cgroups import CgroupTree
from agent.cgroups.pressure import PressureTrigger
from agent.monitor import memory_watch
from agent.monitor.memory_watch import MemoryWatch, pause_s
from tests.fakes.fake_cgroups import FakeCgroups

WATCHED = "c-1"
GIB = 1 << 30


@pytest.mark.parametrize(
    ("below_bytes", "processors", "expected_s"),
    [
        (-GIB, 2, 0.05),
        (0, 2, 0.05),
        (GIB, 2, 0.05),  # two processors take a GiB in 50 ms
        (4 * GIB, 2, 0.2),
        (4 * GIB, 8, 0.05),
        (1000 * GIB, 8, 0.5),
        (float("inf"), 2, 0.5),
    ],
)
def test_the_next_look_comes_before_the_rest_can_be_taken(
    below_bytes: float, processors: int, expected_s: float
) -> None:
    assert pause_s(below_bytes, 0.05, processors) == pytest.approx(expected_s)


def test_an_interval_that_is_configured_is_the_shortest() -> None:
    assert pause_s(0, 2.0, 2) == 2.0


@pytest.mark.parametrize(
    ("current_bytes", "inactive_bytes", "worth_it"), [(90, 0, False), (110, 0, True), (110, 20, False), (130, 20, True)]
)
def test_use_above_the_threshold_is_reported(current_bytes: int, inactive_bytes: int, worth_it: bool) -> None:
    looked = asyncio.run(_looked(current_bytes, inactive_bytes))
    assert looked == worth_it


async def _looked(current_bytes: int, inactive_bytes: int) -> bool:
    """Whether containers that use so much are looked at in full, of which 100 bytes are not worth it."""
    fake = FakeCgroups()
    tree = CgroupTree(Path("/fake/cgroup"), [], fake)
    assert tree.prepare() == {}
    fake.pretend("/fake/cgroup/containers/memory.current", f"{current_bytes}\n")
    fake.pretend("/fake/cgroup/containers/memory.stat", f"inactive_file {inactive_bytes}\n")
    looked = asyncio.get_running_loop().create_future()

    def look(stalled: tuple[str, ...]) -> bool:
        looked.set_result(stalled)
        return True

    class Tree:
        """The tree, read once."""

        reads = 0

        def memory_current(self) -> int | None:
            self.reads += 1
            if self.reads > 1 and not looked.done():
                looked.cancel()
            return tree.memory_current()

        def memory_working_set(self) -> int | None:
            return tree.memory_working_set()

    watch = MemoryWatch(Tree(), 0.001, 100.0, look)  # type: ignore[arg-type]
    watch.switch(True)
    running = asyncio.create_task(watch.run())
    await asyncio.wait([looked, running], return_when=asyncio.FIRST_COMPLETED)
    running.cancel()
    return not looked.cancelled()


class Trigger:
    """A trigger that the kernel refuses with these errors, one after the other, before it takes it."""

    def __init__(self, *errors: int) -> None:
        self.errors = list(errors)
        self.reads, self.writes = os.pipe()

    def __call__(self, path: Path, stall_us: int, window_us: int) -> Trigger:
        if self.errors:
            number = self.errors.pop(0)
            raise OSError(number, os.strerror(number))
        return self

    def fileno(self) -> int:
        return self.reads

    def close(self) -> None:
        os.close(self.reads)
        os.close(self.writes)


@pytest.mark.parametrize(
    ("errors", "watched"), [((errno.EMFILE, errno.ENFILE, errno.ENOMEM), True), ((errno.EPERM,), False)]
)
async def test_pressure_is_watched_once_descriptors_are_free(
    monkeypatch: pytest.MonkeyPatch, errors: tuple[int, ...], watched: bool
) -> None:
    monkeypatch.setattr(memory_watch, "PressureTrigger", Trigger(*errors))
    watch = MemoryWatch(CgroupTree(Path("/fake/cgroup"), [], FakeCgroups()), 1.0, 100.0, lambda _: True)
    watch.switch(True)
    for _ in errors:
        watch.promised([WATCHED])
        assert not watch._triggers
    watch.promised([WATCHED])
    assert (list(watch._triggers), watch.available) == ([WATCHED] if watched else [], watched)
    watch.close()


async def test_pressure_is_first_watched_with_a_sample_while_there_is_work_to_preempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(memory_watch, "PressureTrigger", Trigger())
    tree = CgroupTree(Path("/fake/cgroup"), [], FakeCgroups())
    watch = MemoryWatch(tree, 1.0, 100.0, lambda _: True)
    watch.promised([WATCHED])
    watch.switch(True)
    assert not watch._triggers
    assert not tree._cgroups  # the container may have been removed since the sample
    watch.promised([WATCHED])
    assert list(watch._triggers) == [WATCHED]
    watch.close()


async def test_triggers_are_closed_when_their_containers_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(memory_watch, "PressureTrigger", Trigger())
    watch = MemoryWatch(CgroupTree(Path("/fake/cgroup"), [], FakeCgroups()), 1.0, 100.0, lambda _: True)
    watch.switch(True)
    watch.promised([WATCHED])
    watch.switch(False)
    watch.promised([WATCHED])
    assert list(watch._triggers) == [WATCHED]
    watch.promised([])
    assert not watch._triggers


def test_a_trigger_without_a_second_descriptor_keeps_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def full() -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    monkeypatch.setattr(select, "epoll", full)
    (tmp_path / "memory.pressure").touch()
    before = len(list(Path("/proc/self/fd").iterdir()))
    with pytest.raises(OSError, match="Too many open files"):
        PressureTrigger(tmp_path / "memory.pressure", 50_000, 500_000)
    assert len(list(Path("/proc/self/fd").iterdir())) == before

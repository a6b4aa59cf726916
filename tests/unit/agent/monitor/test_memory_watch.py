"""How often memory is looked at between two samples, and when it is looked at in full."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent.cgroups import CgroupTree
from agent.monitor.memory_watch import MemoryWatch, pause_s
from tests.fakes.fake_cgroups import FakeCgroups

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
def test_what_is_used_above_the_threshold_is_looked_at(current_bytes: int, inactive_bytes: int, worth_it: bool) -> None:
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

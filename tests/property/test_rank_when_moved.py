"""Jobs are ranked only where their order may have changed.

A node that also ranks them after each sample, and after each change of the master's order, has the same.
"""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from agent.core import events as e
from agent.core.events import CpuTimesRead
from agent.core.instructions import StartContainer
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.wire.master_api import SetPriority
from tests.unit.agent.core.ranks_bed import Bed

_MASTER = {"has_master": True, "ranked": True, "job_wait_max_s": 3.0}


class Twins:
    """The same events for two nodes; ``forced`` ranks its jobs more often."""

    def __init__(self) -> None:
        self.usual, self.forced = Bed(**_MASTER), Bed(**_MASTER)
        self.used_s: dict[str, float] = {}
        self.count = 0

    def both(self, do: str, *args: object, **more: object) -> None:
        for bed in (self.usual, self.forced):
            getattr(bed, do)(*args, **more)

    def rank(self) -> None:
        for one in self.forced.node.ranks.rank(self.forced.now):
            self.forced.hear(one)

    def passes(self, seconds: float) -> None:
        for bed in (self.usual, self.forced):
            bed.now += seconds

    def comes(self, priority: float) -> None:
        """A command of a new job is placed here, and starts, while a slot is free."""
        if len(self.used_s) == 6:
            return
        self.count += 1
        job = f"j{self.count}"
        self.passes(0.01)  # no two jobs have waited for exactly as long
        self.both("command", "t", job=job, priority=priority)
        for bed in (self.usual, self.forced):
            started = next(one for one in bed.done if isinstance(one, StartContainer))
            bed.done.clear()
            bed.begin(started.container, 1000 + self.count)
            self.used_s[started.container] = 0.0

    def ends(self, at: int) -> None:
        if live := sorted(self.usual.node.containers.live):
            container = live[at % len(live)]
            self.passes(0.1)  # a node ranks at an end only if it has not done so a moment ago
            self.both("exit", container, cpu_s=self.used_s.pop(container))

    def moves(self, priorities: list[float]) -> None:
        jobs = sorted(record.job for record in self.usual.node.containers.live.values())
        if told := [SetPriority(job=job, priority=each) for job, each in zip(jobs, priorities, strict=False)]:
            self.both("decide", *told)

    def used(self, seconds: list[float], *, whole: bool) -> None:
        """CPU time is read: with a sample, or a look between two of them."""
        for container, more_s in zip(sorted(self.used_s), seconds, strict=False):
            self.used_s[container] += more_s
        uses = {container: ContainerUse(cpu_seconds=each) for container, each in self.used_s.items()}
        self.passes(1.0 if whole else 0.1)
        snapshot = Snapshot(self.usual.now, 1.0, containers=uses)
        self.both("send", e.Sampled(snapshot, self.usual.now) if whole else CpuTimesRead(snapshot))


priorities = st.sampled_from((0.0, 1.0, 2.0, 3.0, 4.0, 5.0))
seconds = st.lists(st.sampled_from((0.01, 0.7, 3.0)), min_size=4, max_size=4)
samples = st.tuples(st.just("sample"), seconds)
others = st.one_of(
    st.tuples(st.just("comes"), priorities),
    st.tuples(st.just("ends"), st.integers(0, 9)),
    st.tuples(st.just("moves"), st.lists(priorities, min_size=3, max_size=3)),
    st.tuples(st.just("look"), seconds),
)


@settings(max_examples=100)
@given(st.lists(st.one_of(samples, samples, others), min_size=10, max_size=40))
def test_the_order_is_that_of_a_node_that_ranks_after_each_event(events: list[tuple[str, object]]) -> None:
    twins = Twins()
    for priority in (3.0, 2.0, 1.0):
        twins.comes(priority)
    for what, value in events:
        if what in ("sample", "look"):
            twins.used(value, whole=what == "sample")  # type: ignore[arg-type]
        else:
            getattr(twins, what)(value)
        if what in ("sample", "moves"):
            twins.rank()
            assert _described(twins.usual) == _described(twins.forced)
            assert twins.usual.nice == twins.forced.nice
        assert twins.usual.node.cpu_times.cpu_s == twins.forced.node.cpu_times.cpu_s


def _described(bed: Bed) -> dict[str, object]:
    live = bed.node.containers.live
    return {each: bed.node.ranks.described(record) for each, record in live.items()}

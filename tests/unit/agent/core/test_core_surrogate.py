"""The monitor surrogate's reports: every slot once per connection, in pieces that fit, and no tail is lost."""

from __future__ import annotations

import msgspec
import pytest

from agent.core.snapshot import ContainerUse, Snapshot
from agent.core.surrogate import MOST_ENDED, MOST_SLOTS, MonitorSurrogate
from penstock.wire.master_api import ExecutorUse

PLENTY = 1_000_000
MIB = 2**20


def on_time(container: str) -> tuple[float, bool]:
    return (0.0, False)


class Bed:
    """A surrogate with slots of 3 s, sampled every second; its reports are put together as a master does it."""

    def __init__(self) -> None:
        self.surrogate = MonitorSurrogate(3.0)
        self.now = 0.0
        self.cpu_seconds: dict[str, float] = {}  # by the kernel's books
        self.heard: dict[str, list[tuple[int, int, int, int]]] = {}
        self.slot_s: dict[str, float] = {}
        self.over: set[str] = set()

    def begin(self, *names: str) -> None:
        for name in names:
            self.surrogate.began(name, "job", f"task-{name}", self.now)

    def sample(self, seconds: int = 1, cores: float = 1.0, memory_bytes: int = 100 * MIB, **more: float) -> None:
        for _ in range(seconds):
            self.now += 1.0
            uses = {}
            for name in self.surrogate._live:
                self.cpu_seconds[name] = self.cpu_seconds.get(name, 0.0) + cores
                uses[name] = ContainerUse(
                    cpu_cores=cores, memory_bytes=memory_bytes, disk_bytes_per_s=more.get("disk", 0.0),
                    cpu_seconds=self.cpu_seconds[name],
                )  # fmt: skip
            self.surrogate.sampled(Snapshot(self.now, 1.0, containers=uses))

    def end(self, name: str, cpu_seconds: float = 0.0) -> None:
        self.surrogate.ended(name, cpu_seconds, self.now)

    def report(self, room_bytes: int = PLENTY) -> list[ExecutorUse]:
        uses = self.surrogate.report(on_time, room_bytes)
        for use in uses:
            name = use.task.removeprefix("task-")
            known = self.heard.setdefault(name, [])
            if use.first == 0 or use.slot_s != self.slot_s.get(name):
                known.clear()
            assert use.first == len(known) and len(use.mean) == len(use.peak)
            self.slot_s[name] = use.slot_s
            known += use.mean
            assert name not in self.over, "something came after the end"
            if use.ended:
                self.over.add(name)
        return uses

    def reconnect(self) -> None:
        self.surrogate.report_all()
        self.heard.clear()
        self.over.clear()


@pytest.mark.parametrize(("read", "last_part"), [(True, 0.3333), (False, 1.0)])
def test_the_part_of_the_last_slot_is_reported_with_the_end_to_a_master_that_reads_it(
    bed: Bed, read: bool, last_part: float
) -> None:
    bed.surrogate.last_parts_read = read
    bed.begin("a")
    bed.sample(4)
    (use,) = bed.report()
    assert use.last_part == 1.0
    bed.end("a")
    (use,) = bed.report()
    assert (use.ended, use.last_part) == (True, last_part)
    assert (b"last_part" in msgspec.msgpack.encode(use)) == read, "a master of an earlier version refuses it"


def test_an_executor_that_ended_while_the_master_was_away_is_reported_from_the_start_and_not_for_ever(bed: Bed) -> None:
    names = [f"c{number}" for number in range(MOST_ENDED + 3)]
    bed.begin(*names)
    bed.sample(6)
    bed.report()
    for name in names:
        bed.end(name)
    bed.reconnect()
    bed.report()
    assert bed.over == set(names[3:]), "the oldest are forgotten"
    assert {len(slots) for slots in bed.heard.values()} == {2}


def test_nothing_is_learnt_of_an_executor_with_an_unknown_beginning(bed: Bed) -> None:
    bed.surrogate.resumed("a", "job", "task-a", None, None)
    bed.sample(7)
    assert bed.report() == [] and list(bed.surrogate.to_journal()) == []
    bed.end("a")
    (use,) = bed.surrogate.report(on_time, PLENTY)
    assert use.ended and use.mean == [] and use.first > 0, "a run whose beginning is missing is marked"


def test_slots_of_a_long_run_are_reported_anew_when_they_became_longer(bed: Bed) -> None:
    bed.begin("a")
    bed.sample(3 * (MOST_SLOTS - 1))
    bed.report()
    bed.sample(3)
    (use,) = bed.report()
    assert (use.slot_s, use.first, len(use.mean)) == (6.0, 0, MOST_SLOTS // 2)
    assert bed.report() == []


def test_being_stuck_is_reported_at_once_and_how_late_it_is_with_the_next_slot(bed: Bed) -> None:
    bed.begin("a")
    late = (1.25, False)
    bed.sample(1)
    assert bed.surrogate.report(lambda container: late, PLENTY) == []
    late = (1.501, True)
    (use,) = bed.surrogate.report(lambda container: late, PLENTY)
    assert (use.behind, use.stuck, use.mean) == (1.5, True, [])
    assert bed.surrogate.report(lambda container: late, PLENTY) == []
    late = (1.6, False)
    (use,) = bed.surrogate.report(lambda container: late, PLENTY)
    assert not use.stuck


def test_the_first_sample_counts_the_use_since_the_start(bed: Bed) -> None:
    """Its rates are since the sample before, and there was none."""
    bed.begin("a")
    use = ContainerUse(cpu_cores=0.0, cpu_seconds=0.6)
    bed.surrogate.sampled(Snapshot(1.0, 1.0, containers={"a": use}))
    bed.now = 1.0
    bed.sample(2, cores=0.0)
    (told,) = bed.report()
    assert told.mean[0][0] == pytest.approx(200)


def test_the_last_moment_has_the_kernel_s_counts_until_the_end(bed: Bed) -> None:
    """A run of seconds: two thirds of a second after its latest sample it ends, and all of that it worked."""
    bed.begin("a")
    bed.sample(3, cores=0.25, disk=2048.0)
    bed.sample(2, cores=0.5, disk=2048.0)
    bed.now += 2 / 3
    bed.end("a", cpu_seconds=0.75 + 1.0 + 4 / 3)
    (use,) = bed.report()
    assert use.mean == [(250, 2, 0, 100), (875, 2, 0, 100)], "1 s and 1.33 s of CPU in 2.67 s"
    assert [slot[0] for slot in use.peak] == [250, 2000]


def test_a_last_moment_that_is_short_is_no_peak(bed: Bed) -> None:
    bed.begin("a")
    bed.sample(2, cores=0.5)
    bed.now += 0.01
    bed.end("a", cpu_seconds=1.0 + 0.05)
    (use,) = bed.report()
    assert (use.mean[0][0], use.peak[0][0]) == (round(1000 * 1.05 / 2.01), round(1000 * 1.05 / 2.01))


def test_an_unknown_last_moment_is_left_out() -> None:
    for cpu_seconds in (0.0, 0.4):  # lost; and less than was seen, as of its first process only
        bed = Bed()
        bed.begin("a")
        bed.sample(1, cores=0.5)
        bed.now += 0.5
        bed.end("a", cpu_seconds=cpu_seconds)
        (use,) = bed.report()
        assert use.mean[0][0] == 500


def test_journaling_costs_few_writes_of_little(bed: Bed) -> None:
    bed.begin("a")
    writes: list[int] = []
    for _ in range(3 * MOST_SLOTS):
        bed.sample(1, cores=15.9, memory_bytes=60 * 2**30, disk=2e9)
        written = dict(bed.surrogate.to_journal())
        writes += [len(msgspec.msgpack.encode(each)) for each in written.values()]
        lost = len(bed.surrogate._live["a"].recording.slots) - bed.surrogate._live["a"].journaled
        assert lost <= max(0, 0.05 * len(bed.surrogate._live["a"].recording.slots))
    assert len(writes) < MOST_SLOTS / 10, "an hour of slots"
    assert max(writes) < 40 * MOST_SLOTS and sum(writes) < 40 * MOST_SLOTS * 30

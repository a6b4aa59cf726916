"""The monitor surrogate's reports: every slot once per connection, in pieces that fit, and no tail is lost."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.executors import HEARTBEAT_BYTES
from agent.core.snapshot import ContainerUse, Snapshot
from agent.core.surrogate import MOST_ENDED, MOST_SLOTS, MonitorSurrogate, Recorded
from penstock.model import KindAmounts
from penstock.wire.master_api import ExecutorUse, Heartbeat, Load

PLENTY = 1_000_000
MIB = 2**20


def on_time(container: str) -> tuple[float, bool]:
    return (0.0, False)


class Bed:
    """A surrogate with slots of 3 s, sampled every second; what is reported is put together as a master does it."""

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
        self.surrogate.tell_all()
        self.heard.clear()
        self.over.clear()


def test_complete_slots_are_told_once_in_the_units_of_the_wire() -> None:
    bed = Bed()
    bed.begin("a")
    bed.sample(2, cores=0.5, disk=2048.0)
    assert bed.report() == [], "no slot is complete yet"
    bed.sample(2, cores=2.0, memory_bytes=200 * MIB)
    (use,) = bed.report()
    assert (use.job, use.task, use.slot_s, use.first, use.ended) == ("job", "task-a", 3.0, 0, False)
    assert use.mean == [(1000, 1, 0, 133)]
    assert use.peak == [(2000, 2, 0, 200)]
    assert bed.report() == []
    bed.sample(5)
    (use,) = bed.report()
    assert (use.first, len(use.mean)) == (1, 2)


def test_a_new_connection_is_told_again_from_the_first_slot_on() -> None:
    bed = Bed()
    bed.begin("a")
    bed.sample(9)
    bed.report()
    bed.reconnect()
    (use,) = bed.report()
    assert (use.first, len(use.mean)) == (0, 3)


def test_the_tail_is_told_with_the_end_and_only_once() -> None:
    bed = Bed()
    bed.begin("a")
    bed.sample(4)
    bed.report()
    bed.end("a")
    assert bed.surrogate.owes
    (use,) = bed.report()
    assert (use.first, len(use.mean), use.ended) == (1, 1, True)
    assert bed.report() == []
    assert not bed.surrogate.owes


@pytest.mark.parametrize(("read", "last_part"), [(True, 0.3333), (False, 1.0)])
def test_the_part_of_the_last_slot_is_told_with_the_end_to_a_master_that_reads_it(read: bool, last_part: float) -> None:
    bed = Bed()
    bed.surrogate.last_parts_read = read
    bed.begin("a")
    bed.sample(4)
    (use,) = bed.report()
    assert use.last_part == 1.0
    bed.end("a")
    (use,) = bed.report()
    assert (use.ended, use.last_part) == (True, last_part)
    assert (b"last_part" in msgspec.msgpack.encode(use)) == read, "a master of an earlier version refuses it"


def test_who_ended_while_the_master_was_away_is_told_of_from_the_start_and_not_for_ever() -> None:
    bed = Bed()
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


def test_of_what_nobody_knows_when_it_began_nothing_is_learnt() -> None:
    bed = Bed()
    bed.surrogate.resumed("a", "job", "task-a", None, None)
    bed.sample(7)
    assert bed.report() == [] and list(bed.surrogate.to_journal()) == []
    bed.end("a")
    (use,) = bed.surrogate.report(on_time, PLENTY)
    assert use.ended and use.mean == [] and use.first > 0, "a run whose beginning is missing says so"


def test_one_that_ended_before_it_was_sampled_has_nothing_to_tell() -> None:
    bed = Bed()
    bed.begin("a")
    bed.end("a")
    (use,) = bed.report()
    assert use.ended and use.mean == []


def test_slots_of_a_long_run_are_told_anew_when_they_became_longer() -> None:
    bed = Bed()
    bed.begin("a")
    bed.sample(3 * (MOST_SLOTS - 1))
    bed.report()
    bed.sample(3)
    (use,) = bed.report()
    assert (use.slot_s, use.first, len(use.mean)) == (6.0, 0, MOST_SLOTS // 2)
    assert bed.report() == []


def test_stages_end_in_the_slot_in_which_they_are_told_and_those_before_the_start_do_not_count() -> None:
    bed = Bed()
    bed.surrogate.stages_ended("job", 2)
    bed.begin("a")
    bed.sample(7)
    bed.surrogate.stages_ended("job", 3)
    bed.surrogate.stages_ended("job", 3)
    bed.surrogate.stages_ended("another", 9)
    (use,) = bed.report()
    assert use.stages == [2]
    bed.surrogate.stages_ended("job", 4)
    (use,) = bed.report()
    assert (use.stages, use.mean) == ([2, 3], []), "a stage that ended is told though no slot has"


def test_being_stuck_is_told_at_once_and_how_late_it_is_with_the_next_slot() -> None:
    bed = Bed()
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


def test_the_first_sample_counts_what_was_used_since_the_start() -> None:
    """Its rates are since the sample before, and there was none."""
    bed = Bed()
    bed.begin("a")
    use = ContainerUse(cpu_cores=0.0, cpu_seconds=0.6)
    bed.surrogate.sampled(Snapshot(1.0, 1.0, containers={"a": use}))
    bed.now = 1.0
    bed.sample(2, cores=0.0)
    (told,) = bed.report()
    assert told.mean[0][0] == pytest.approx(200)


def test_the_last_moment_has_what_the_kernel_counted_until_the_end() -> None:
    """A run of seconds: two thirds of a second after its latest sample it ends, and all of that it worked."""
    bed = Bed()
    bed.begin("a")
    bed.sample(3, cores=0.25, disk=2048.0)
    bed.sample(2, cores=0.5, disk=2048.0)
    bed.now += 2 / 3
    bed.end("a", cpu_seconds=0.75 + 1.0 + 4 / 3)
    (use,) = bed.report()
    assert use.mean == [(250, 2, 0, 100), (875, 2, 0, 100)], "1 s and 1.33 s of CPU in 2.67 s"
    assert [slot[0] for slot in use.peak] == [250, 2000]


def test_a_last_moment_that_is_short_is_no_peak() -> None:
    bed = Bed()
    bed.begin("a")
    bed.sample(2, cores=0.5)
    bed.now += 0.01
    bed.end("a", cpu_seconds=1.0 + 0.05)
    (use,) = bed.report()
    assert (use.mean[0][0], use.peak[0][0]) == (round(1000 * 1.05 / 2.01), round(1000 * 1.05 / 2.01))


def test_a_last_moment_of_which_nobody_knows_is_left_out() -> None:
    for cpu_seconds in (0.0, 0.4):  # lost; and less than was seen, as of its first process only
        bed = Bed()
        bed.begin("a")
        bed.sample(1, cores=0.5)
        bed.now += 0.5
        bed.end("a", cpu_seconds=cpu_seconds)
        (use,) = bed.report()
        assert use.mean[0][0] == 500


# ---------------------------------------------------------------- over a restart of the agent


def restarted(bed: Bed, journal: dict[str, Recorded], away_s: float, *, began: float = 0.0) -> Bed:
    """Another agent on a clock of its own, with what was journaled; the kernel has counted on meanwhile."""
    fresh = Bed()
    fresh.now = 1000.0
    fresh.cpu_seconds = {name: seconds + away_s for name, seconds in bed.cpu_seconds.items()}
    for name in bed.surrogate._live:
        written = journal.get(name)
        kept = msgspec.msgpack.decode(msgspec.msgpack.encode(written), type=Recorded) if written else None
        fresh.surrogate.resumed(name, "job", f"task-{name}", fresh.now - (bed.now + away_s - began), kept)
    return fresh


def test_a_recording_goes_on_where_the_agent_before_left_it() -> None:
    bed = Bed()
    journal: dict[str, Recorded] = {}
    bed.surrogate.stages_ended("job", 1)
    bed.begin("a")
    for second in range(60):
        bed.sample(1, cores=2.0 if second < 30 else 0.5, memory_bytes=300 * MIB, disk=2048.0)
        if second == 29:
            bed.surrogate.stages_ended("job", 2)
        journal.update(bed.surrogate.to_journal())
    bed.sample(2, cores=0.5)  # of a slot that is not complete
    before = bed.report()[0].mean
    fresh = restarted(bed, journal, away_s=1.0)
    fresh.sample(1, cores=0.0, memory_bytes=100 * MIB)
    fresh.surrogate.stages_ended("job", 2)  # the master says again what it had said
    fresh.sample(6, cores=3.0)
    fresh.surrogate.stages_ended("job", 3)
    fresh.end("a")
    (use,) = fresh.report()
    assert use.ended and use.first == 0 and use.slot_s == 3.0
    assert use.mean[:20] == before
    # 2 s that were not journaled yet, 1 s between the agents, 1 s of a sample that knows no rates: 2 s of CPU in 4 s by
    # the kernel's books; then three cores.
    assert [slot[0] for slot in use.mean[20:]] == [500, 2167, 3000, 3000]
    assert [slot[1] for slot in use.mean[19:21]] == [2, 2], "the disk is taken to have gone on as it was"
    assert use.mean[20][3] == 100
    assert use.stages == [10, 23, 24], "none is counted twice"


def test_a_run_of_which_too_little_was_seen_is_not_learnt_from() -> None:
    for length_s, whole in ((30, False), (120, True)):
        bed = Bed()
        journal: dict[str, Recorded] = {}
        bed.begin("a")
        bed.sample(length_s)
        journal.update(bed.surrogate.to_journal())
        fresh = restarted(bed, journal, away_s=5.0)
        fresh.sample(3)
        told = fresh.surrogate.report(on_time, PLENTY)
        assert told[0].first == 0, "what comes later may yet make it whole"
        fresh.end("a")
        (use,) = fresh.surrogate.report(on_time, PLENTY)
        assert use.ended and (use.first == len(told[0].mean)) == whole
        assert whole or (use.mean, use.stages) == ([], [])


def test_each_gap_counts() -> None:
    bed = Bed()
    journal: dict[str, Recorded] = {}
    bed.begin("a")
    began = 0.0
    for _ in range(4):  # 30 s seen and 4 s not, again and again
        bed.sample(30)
        journal.update(bed.surrogate.to_journal())
        fresh = restarted(bed, journal, away_s=4.0, began=began)
        began += fresh.now - (bed.now + 4.0)
        bed = fresh
    bed.sample(30)
    bed.end("a")
    (use,) = bed.surrogate.report(on_time, PLENTY)
    assert use.first > 0 and use.mean == []


def test_who_ended_before_the_next_agent_saw_it_is_not_learnt_from() -> None:
    bed = Bed()
    journal: dict[str, Recorded] = {}
    bed.begin("a")
    bed.sample(300)
    journal.update(bed.surrogate.to_journal())
    fresh = restarted(bed, journal, away_s=1.0)
    fresh.end("a")
    (use,) = fresh.surrogate.report(on_time, PLENTY)
    assert use.ended and use.first > 0


def test_journaling_costs_few_writes_of_little() -> None:
    bed = Bed()
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


def heartbeat_bytes(uses: list[ExecutorUse]) -> int:
    load = Load(rates=KindAmounts(1e8, 1e8, 1e8), pending=KindAmounts(1e9, 1e9, 1e9), idle=KindAmounts(16, 4, 2))
    return len(msgspec.msgpack.encode(Heartbeat(load=load, decided=10**6, executors=uses)))


def test_a_heartbeat_of_twenty_executors_is_small() -> None:
    """Elasecutor's reports are ≤ 12 KB per heartbeat; with all their slots to tell again they come in pieces."""
    bed = Bed()
    names = [f"executor-{number:02}-of-an-application-with-a-name" for number in range(20)]
    bed.begin(*names)
    bed.sample(3000, cores=15.9, memory_bytes=60 * 2**30, disk=2e9)
    before = heartbeat_bytes([])
    assert before < HEARTBEAT_BYTES // 4
    bed.report()
    bed.sample(3, cores=15.9, memory_bytes=60 * 2**30, disk=2e9)
    assert heartbeat_bytes(bed.report(HEARTBEAT_BYTES - before)) < HEARTBEAT_BYTES // 2, "one slot of each"
    bed.reconnect()
    bed.end(names[7])
    heard_of = []
    while True:
        uses = bed.report(HEARTBEAT_BYTES - before)
        if not uses:
            break
        assert heartbeat_bytes(uses) <= HEARTBEAT_BYTES
        heard_of.append({use.task for use in uses})
        assert len(heard_of) < 100_000 // 1000 * 20, "it never comes to an end"
    assert f"task-{names[7]}" in heard_of[0], "who ended comes first"
    assert set.union(*heard_of[:40]) == {f"task-{name}" for name in names}, "nobody waits until all others are told"
    assert {len(slots) for slots in bed.heard.values()} == {1001}
    assert bed.over == {names[7]}


OPERATIONS = st.lists(
    st.one_of(
        st.tuples(st.just("begin"), st.integers(0, 4)),
        st.tuples(st.just("sample"), st.integers(1, 9)),
        st.tuples(st.just("end"), st.integers(0, 4)),
        st.tuples(st.just("report"), st.integers(300, 2000)),
        st.tuples(st.just("reconnect"), st.just(0)),
    ),
    max_size=60,
)


@given(OPERATIONS)
def test_every_slot_is_told_exactly_once_per_connection(operations: list[tuple[str, int]]) -> None:
    bed = Bed()
    live: dict[int, str] = {}
    cores = 0
    recorded: dict[str, list[int]] = {}
    fresh = 0
    for what, number in operations:
        match what:
            case "begin" if number not in live:
                live[number] = f"{number}-{fresh}"
                fresh += 1
                recorded[live[number]] = []
                bed.begin(live[number])
            case "sample":
                for _ in range(number):
                    cores += 1
                    bed.sample(1, cores=float(cores))
                    for name in live.values():
                        recorded[name].append(cores)
            case "end" if number in live:
                bed.end(live.pop(number))
            case "report":
                bed.report(number)
            case "reconnect":
                bed.reconnect()
            case _:
                pass
    told_before = set(bed.over)
    while bed.report(400):
        pass
    for name in [*live.values(), *(bed.over - told_before)]:
        samples = recorded[name]
        complete = [samples[at : at + 3] for at in range(0, len(samples), 3)]
        if name in live.values() and complete and len(complete[-1]) < 3:
            complete.pop()
        means = [slot[0] for slot in bed.heard.get(name, [])]
        assert means == [round(1000 * sum(slot) / len(slot)) for slot in complete]
    assert not bed.surrogate.owes

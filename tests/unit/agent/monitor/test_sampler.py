"""Which containers are read at a tick: all that may have used something since the last one, and no others."""

from __future__ import annotations

from collections.abc import Set as AbstractSet
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from msgspec import structs
from msgspec.structs import replace

from agent.cgroups import CgroupSample, SummedUse
from agent.core.snapshot import ContainerUse, HostUse
from agent.monitor import sampler
from agent.monitor.sampler import Sampler
from agent.network import Counters

ROUND = sampler._ROUND
NAMES = [f"c-{number}" for number in range(20)]
STALLED = ("cpu_stalled_s", "memory_stalled_s", "io_stalled_s")
SHOWN = ("memory_peak_bytes", "oom_kills", "memory_high_events", "pids")


class FakeTree:
    """Counters that a test moves; ``read`` has the containers whose files were read, in order."""

    controllers = frozenset({"cpu", "memory", "io"})

    def __init__(self) -> None:
        self.samples = {name: CgroupSample(memory_working_set_bytes=1000) for name in NAMES}
        self.gone = SummedUse(0.0, 0, 0)
        self.read: list[str] = []
        self.shown: list[str] = []  # those of which what is only shown was read, too
        self.stalled: list[str] = []  # those of which the stalled times were read, too
        self.vanishing: set[str] = set()  # those that vanish between the read of their use and that of the rest
        self.sums = 0  # how often the use of all together was read
        self._name = ""

    def get(self, name: str) -> FakeTree:
        self._name = name
        return self

    def use(self, since: CgroupSample) -> CgroupSample | None:
        self.read.append(self._name)
        found = self.samples.get(self._name)
        if found is None:
            return None
        peak_bytes = since.memory_peak_bytes and max(since.memory_peak_bytes, found.memory_current_bytes)
        kept = {each: getattr(since, each) for each in (*STALLED, *SHOWN)}
        return replace(found, **kept | {"memory_peak_bytes": peak_bytes})

    def rest(self, use: CgroupSample, *, stalled: bool, shown: bool) -> CgroupSample | None:
        self.shown += [self._name] * shown
        self.stalled += [self._name] * stalled
        if self._name in self.vanishing:
            return None
        found = self.samples[self._name]
        names = STALLED * stalled + SHOWN * shown
        return replace(use, **{each: getattr(found, each) for each in names})

    @property
    def path(self) -> str:
        return self._name

    def cpu_s(self) -> float | None:
        self.read.append(self._name)
        found = self.samples.get(self._name)
        return None if found is None else found.cpu_usage_s

    def summed_use(self) -> SummedUse:
        self.sums += 1
        there = self.samples.values()
        return SummedUse(
            self.gone.cpu_s + sum(each.cpu_usage_s for each in there),
            self.gone.disk_bytes + sum(each.io_read_bytes + each.io_write_bytes for each in there),
            sum(each.memory_current_bytes for each in there),
        )

    def spend(self, name: str, cpu_s: float = 0.0, disk_bytes: int = 0, **more: Any) -> None:
        was = self.samples[name]
        changed = replace(was, cpu_usage_s=was.cpu_usage_s + cpu_s, io_read_bytes=was.io_read_bytes + disk_bytes)
        self.samples[name] = replace(changed, **more)

    def remove(self, name: str) -> None:
        gone = self.samples.pop(name)
        self.gone = SummedUse(self.gone.cpu_s + gone.cpu_usage_s, self.gone.disk_bytes + gone.io_read_bytes, 0)


class NoHost:
    def sample(self) -> HostUse:
        return HostUse()


class Bed:
    """A second passes between two ticks."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch | None = None) -> None:
        self.tree = FakeTree()
        self.sampler = Sampler(self.tree, NoHost())  # type: ignore[arg-type]
        self.now = 100.0
        if monkeypatch is not None:
            monkeypatch.setattr(sampler.time, "monotonic", lambda: self.now)

    def tick(
        self, traffic: dict[str, Counters] | None = None, closely: AbstractSet[str] = frozenset()
    ) -> tuple[list[str], dict[str, ContainerUse]]:
        self.now += 1.0
        self.tree.read.clear()
        snapshot = self.sampler.sample(list(self.tree.samples), traffic or {}, closely)
        return list(self.tree.read), snapshot.containers


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch) -> Bed:
    return Bed(monkeypatch)


def test_of_containers_that_use_nothing_a_part_is_read_and_each_in_its_turn(bed: Bed) -> None:
    for _ in range(2):
        assert set(bed.tick()[0]) == set(NAMES)
    rounds = [bed.tick() for _ in range(ROUND)]
    assert all(len(read) <= -(-len(NAMES) // ROUND) for read, _ in rounds)
    assert sorted(name for read, _ in rounds for name in read) == sorted(NAMES)
    assert all(set(uses) == set(NAMES) for _, uses in rounds)
    assert all(use.memory_bytes == 1000 and use.cpu_cores == 0 for _, uses in rounds for use in uses.values())


def test_what_is_only_shown_is_read_at_first_and_then_in_each_fourth_tick(bed: Bed) -> None:
    read = []
    for _ in range(5):
        for name in NAMES:
            bed.tree.spend(name, cpu_s=0.5)
        bed.tree.shown.clear()
        bed.tick()
        read.append(len(bed.tree.shown))
    assert read == [len(NAMES), *4 * [len(NAMES) // sampler._SHOWN]]


def test_what_is_only_shown_is_read_in_time_while_earlier_containers_end(bed: Bed) -> None:
    last, shown = NAMES[-1], []
    bed.tick()
    for name in NAMES[: sampler._SHOWN]:
        bed.tree.remove(name)
        bed.tree.spend(last, cpu_s=0.5)
        bed.tree.shown.clear()
        bed.tick()
        shown.append(bed.tree.shown.count(last))
    assert sum(shown) == 1


def test_stalled_times_are_read_at_each_tick_of_those_that_are_watched_closely(bed: Bed) -> None:
    watched, read = NAMES[0], []
    for _ in range(sampler._SHOWN + 1):
        for name in NAMES:
            bed.tree.spend(name, cpu_s=0.5)
        bed.tree.stalled.clear()
        bed.tick(closely={watched})
        assert watched in bed.tree.stalled
        read.append(len(bed.tree.stalled))
    assert sum(read[1:]) == (sampler._SHOWN - 1) + len(NAMES), "each of the others once in four ticks"
    assert max(read) < len(NAMES) / 2


def test_the_part_of_time_that_a_container_stalls_is_that_since_its_stalled_times_were_read_last(bed: Bed) -> None:
    shares = []
    for number in range(4 * sampler._SHOWN):
        bed.tree.spend("c-0", cpu_s=0.5, cpu_stalled_s=0.25 * number, memory_stalled_s=0.5 * number)
        _, uses = bed.tick()
        shares.append((uses["c-0"].cpu_stalled, uses["c-0"].memory_stalled))
    assert sorted(set(shares)) == [(0.0, 0.0), (0.25, 0.5)]
    assert shares[2 * sampler._SHOWN :] == 2 * sampler._SHOWN * [(0.25, 0.5)]


def test_without_a_memory_controller_the_memory_of_the_processes_of_one_that_runs_is_read_at_each_tick(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether opportunistic work is admitted depends on it (:class:`agent.core.ledger.Ledger`)."""
    memory_bytes: dict[str, int] = {}
    monkeypatch.setattr(sampler, "memory_of", lambda name: memory_bytes.get(name, 0))
    monkeypatch.setattr(FakeTree, "controllers", frozenset({"cpu"}))
    for number in range(2 * sampler._SHOWN):
        bed.tree.spend("c-0", cpu_s=0.5)
        memory_bytes["c-0"] = 100 + number
        _, uses = bed.tick()
        assert uses["c-0"].memory_bytes == 100 + number


def test_all_together_are_read_only_to_leave_out_some_of_them(bed: Bed) -> None:
    sums = []
    for busy in (False, False, False, False, True, True, True):
        before = bed.tree.sums
        for name in NAMES if busy else ():
            bed.tree.spend(name, cpu_s=0.5)
        bed.tick()
        sums.append(bed.tree.sums - before)
    assert sums[:4] == [0, 1, 2, 2], "two ticks find the quiet ones"
    assert sums[4:] == [2, 0, 0], "none is quiet any more"
    for name in NAMES:
        bed.tree.remove(name)
    before = bed.tree.sums
    assert bed.tick() == ([], {})
    assert bed.tree.sums == before


@pytest.mark.parametrize("used", [{"cpu_s": 0.5}, {"disk_bytes": 4096}])
def test_one_that_wakes_is_read_at_once_and_its_use_is_that_of_the_last_tick(bed: Bed, used: dict[str, Any]) -> None:
    for _ in range(5):
        bed.tick()
    bed.tree.spend("c-7", **used)
    read, uses = bed.tick()
    assert "c-7" in read
    assert uses["c-7"].cpu_cores == pytest.approx(used.get("cpu_s", 0.0))
    assert uses["c-7"].disk_bytes_per_s == pytest.approx(used.get("disk_bytes", 0))


def test_between_ticks_the_memory_can_be_read_with_its_peak(bed: Bed) -> None:
    bed.tree.spend("c-0", memory_current_bytes=2000, memory_peak_bytes=2500)
    bed.tick()
    bed.tree.spend("c-0", memory_current_bytes=3000, memory_working_set_bytes=3000)
    use = bed.sampler.look(["c-0"]).containers["c-0"]
    assert (use.memory_bytes, use.memory_peak_bytes) == (3000, 3000)


def test_between_ticks_the_processor_time_of_those_that_run_can_be_read(bed: Bed) -> None:
    for _ in range(3):
        bed.tree.spend("c-0", cpu_s=0.9)
        bed.tree.spend("c-1", cpu_s=0.5)
        _, uses = bed.tick()
    bed.tree.read.clear()
    bed.tree.spend("c-0", cpu_s=0.2)
    bed.tree.remove("c-1")
    bed.tree.samples["new"] = CgroupSample(cpu_usage_s=0.1)
    looked = bed.sampler.read_cpu_times(["c-0", "c-1", "c-2", "new"]).containers
    assert bed.tree.read == ["c-0", "c-1", "new"], "c-2 has been quiet"
    assert looked["c-0"] == structs.replace(uses["c-0"], cpu_seconds=pytest.approx(2.9))
    assert looked["new"].cpu_seconds == 0.1
    assert looked["c-1"] == uses["c-1"], "it is gone: its end tells the rest"
    bed.now += 1.0
    after = bed.sampler.sample(["c-0"], {}, set()).containers
    assert after["c-0"].cpu_cores == pytest.approx(0.2), "rates are those since the last tick"


def test_of_a_quiet_one_all_files_are_read_only_in_its_turn(bed: Bed) -> None:
    """Its processes have not run, so only others may have changed what its other files say."""
    for _ in range(2):
        bed.tick()
    bed.tree.shown.clear()
    bed.tree.stalled.clear()
    for _ in range(sampler._THOROUGH):
        bed.tick(closely=set(NAMES))
    assert sorted(bed.tree.shown) == sorted(bed.tree.stalled) == sorted(NAMES)
    bed.tree.spend("c-1", pids=7)  # a process from outside has entered it, and sleeps
    found = [bed.tick()[1]["c-1"].pids for _ in range(sampler._THOROUGH)]
    assert found[-1] == 7


def test_one_that_wakes_lets_the_use_of_all_be_read_but_only_its_own_other_files(bed: Bed) -> None:
    for _ in range(5):
        bed.tick()
    bed.tree.shown.clear()
    bed.tree.stalled.clear()
    bed.tree.spend("c-7", cpu_s=0.5, cpu_stalled_s=0.25, oom_kills=1)
    read, uses = bed.tick()
    assert set(read) == set(NAMES)
    assert bed.tree.shown == bed.tree.stalled == ["c-7"]
    assert (uses["c-7"].cpu_stalled, uses["c-7"].oom_kills) == (0.25, 1)


def test_those_that_work_are_read_at_each_tick_and_do_not_wake_the_others(bed: Bed) -> None:
    for number in range(10):
        bed.tree.spend("c-0", cpu_s=0.9, disk_bytes=100)
        read, uses = bed.tick()
        assert "c-0" in read
        if number:
            assert uses["c-0"].cpu_cores == pytest.approx(0.9)
    assert len(read) <= 1 + -(-len(NAMES) // ROUND)


@pytest.mark.parametrize("change", [{"cpu_stalled_s": 1.0}, {"memory_working_set_bytes": 2000}, {"oom_kills": 1}])
def test_one_that_stalls_or_changes_otherwise_is_not_quiet(bed: Bed, change: dict[str, Any]) -> None:
    bed.tick()
    bed.tree.spend("c-3", **change)
    bed.tick()
    assert "c-3" in bed.tick()[0]


def test_one_whose_memory_is_reclaimed_is_read_at_once(bed: Bed) -> None:
    """The kernel does that outside of the container: the container uses no processor for it."""
    for name in NAMES:
        bed.tree.spend(name, memory_current_bytes=100 << 20, memory_working_set_bytes=100 << 20)
    for _ in range(5):
        bed.tick()
    for name in NAMES[:ROUND]:
        bed.tree.spend(name, memory_current_bytes=60 << 20, memory_working_set_bytes=60 << 20)
    _, uses = bed.tick()
    assert [use.memory_bytes >> 20 for use in uses.values()] == [60] * ROUND + [100] * (len(NAMES) - ROUND)


def test_traffic_wakes_the_container_that_had_it(bed: Bed) -> None:
    for _ in range(3):
        bed.tick()
    traffic = {name: Counters(sent_bytes=5000) for name in NAMES[:ROUND]}
    read, uses = bed.tick(traffic)
    assert set(NAMES[:ROUND]) <= set(read) < set(NAMES)
    assert all(uses[name].network_send_bytes_per_s == pytest.approx(5000) for name in traffic)


def test_a_vanished_container_is_left_out_by_the_next_round(bed: Bed) -> None:
    for _ in range(3):
        bed.tick()
    bed.tree.spend("c-5", cpu_s=1.0)
    bed.tree.remove("c-5")
    _, uses = bed.tick()
    assert set(uses) == set(NAMES) - {"c-5"}


def test_a_container_that_vanishes_while_it_is_read_is_left_out(bed: Bed) -> None:
    bed.tick()
    for name in ("c-5", "new"):
        bed.tree.samples[name] = CgroupSample(cpu_usage_s=1.0)
        bed.tree.vanishing.add(name)
    for _ in range(2):
        _, uses = bed.tick()
        assert set(uses) == set(NAMES) - {"c-5"}


@pytest.mark.parametrize("stalled", STALLED)
def test_one_that_was_overlooked_stalls_for_no_more_than_all_of_the_time(bed: Bed, stalled: str) -> None:
    for _ in range(5):
        bed.tick(closely={"c-7"})
    shares = []
    for number in range(2 * ROUND):
        bed.tree.spend("c-7", cpu_s=0.001, **{stalled: 0.3 * (number + 1)})
        _, uses = bed.tick(closely={"c-7"})
        shares.append(getattr(uses["c-7"], stalled.removesuffix("_s").replace("io", "disk")))
    assert max(shares) == 1.0, "its waits of several ticks"


class Uses(RuleBasedStateMachine):
    """After any events a container's figures are true within one round, and sums lose nothing."""

    def __init__(self) -> None:
        super().__init__()
        self.bed = Bed()
        self.bed.tick()

    @rule(name=st.sampled_from(NAMES), cpu_s=st.sampled_from((0.0, 0.0001, 0.5)), disk_bytes=st.sampled_from((0, 512)))
    def use(self, name: str, cpu_s: float, disk_bytes: int) -> None:
        if name in self.bed.tree.samples:
            self.bed.tree.spend(name, cpu_s, disk_bytes)

    @rule(name=st.sampled_from(NAMES))
    def remove(self, name: str) -> None:
        if name in self.bed.tree.samples:
            self.bed.tree.remove(name)

    @rule()
    def tick(self) -> None:
        self.bed.tick()

    @invariant()
    def after_a_round_every_sum_is_the_kernel_s(self) -> None:
        for _ in range(ROUND):
            _, uses = self.bed.tick()
        told = {name: use.cpu_seconds for name, use in uses.items()}
        assert told == {name: sample.cpu_usage_s for name, sample in self.bed.tree.samples.items()}


TestUses = Uses.TestCase
TestUses.settings = settings(max_examples=10, stateful_step_count=20)

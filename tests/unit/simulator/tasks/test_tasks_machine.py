"""A simulated node's hardware: the share of each, and the times of ends."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent.core.confinement import Confinement
from penstock.model import Capacity, ResourceKind
from simulator.tasks.clock import Clock
from simulator.tasks.machine import Link, Machine, share
from simulator.tasks.node_spec import NodeSpec
from simulator.tasks.running_command import RunningCommand
from simulator.tasks.usage import Level, Usage
from simulator.tasks.workload import Phase, SimulatedCommand, SimulatedMonotask

GB = 10**9


def confinement(promised_cores: float = 1.0, **settings: Any) -> Confinement:
    """What an agent would write for this promise."""
    return Confinement(cpu_weight=max(1, round(100 * promised_cores)), **settings)


class Bench:
    """One machine, its clock, and the times of ends."""

    def __init__(self, cores: float = 4, isolated_disk: bool = True, disks: int = 1) -> None:
        self.clock = Clock()
        self.usage = Usage({"cpu": cores, "memory": GB, "disk": float(disks), "network": 100.0}, 0.0)
        capacity = Capacity(cores=cores, memory_bytes=GB, disk_slots=disks)
        spec = NodeSpec(capacity, 10.0, 100.0, 100.0, isolated_disk)
        self.machine = Machine(self.clock, spec, self.usage)
        self.ended: dict[str, float] = {}

    def end(self, name: str) -> None:
        self.ended[name] = self.clock.now_s

    def execute(self, name: str, kind: ResourceKind, size: int) -> None:
        self.machine.execute(SimulatedMonotask(kind, size), lambda: self.end(name))

    def begin(
        self,
        name: str,
        *phases: Phase,
        cpu_cores: float = 1.0,
        opportunistic: bool = False,
        limits: dict[str, float] | None = None,
    ) -> RunningCommand:
        told = confinement(cpu_cores, opportunistic=opportunistic, **(limits or {}))
        running = RunningCommand(SimulatedCommand(phases, cpu_cores), told)
        self.machine.begin(name, running, lambda: self.end(name))
        return running

    def run(self, until_s: float = 1e3) -> dict[str, float]:
        self.clock.run(lambda: False, until_s)
        return {name: round(at_s, 6) for name, at_s in self.ended.items()}


def test_a_link_is_shared_evenly_by_its_flows() -> None:
    """100 B/s: 50 B and 150 B together: the first has its 50 B after 1 s, the second then goes twice as fast."""
    bench = Bench()
    bench.execute("small", ResourceKind.NETWORK, 50)
    bench.execute("large", ResourceKind.NETWORK, 150)
    assert bench.run() == {"small": 1.0, "large": 2.0}
    assert bench.usage.resources(2.0, 2.0)["network"].utilization == pytest.approx(1.0)


def test_a_flow_that_joins_slows_the_others() -> None:
    bench = Bench()
    bench.execute("first", ResourceKind.NETWORK, 200)
    bench.clock.after(1.0, bench.execute, "second", ResourceKind.NETWORK, 50)
    assert bench.run() == {"first": 2.5, "second": 2.0}


@given(st.lists(st.tuples(st.floats(0, 10), st.integers(0, 10_000)), min_size=1, max_size=20))
def test_a_link_does_all_work_at_its_rate_and_never_faster(flows: list[tuple[float, int]]) -> None:
    clock = Clock()
    usage = Usage({"network": 100.0}, 0.0)
    link = Link(clock, 100.0, usage.used["network"], 100.0)
    ends: list[float] = []
    for at_s, size in flows:
        clock.after(at_s, link.start, size, lambda: ends.append(clock.now_s))
    clock.run(lambda: False, 1e9)
    assert len(ends) == len(flows)
    usage.resources(clock.now_s, 1.0)
    assert usage.used["network"].integral == pytest.approx(sum(size for _, size in flows), rel=1e-6, abs=1e-6)


def test_cpu_and_disk_monotasks_have_their_slot_to_themselves() -> None:
    bench = Bench(disks=2)
    for name in ("a", "b"):
        bench.execute(name, ResourceKind.CPU, 20)
        bench.execute(f"disk-{name}", ResourceKind.DISK, 50)
    assert bench.run() == {"a": 2.0, "b": 2.0, "disk-a": 0.5, "disk-b": 0.5}


def test_disk_monotasks_beyond_the_slots_share_the_disks() -> None:
    """Two disks of 100 B/s: three monotasks get 66.7 B/s each, and the disks do no more than they can."""
    bench = Bench(disks=2)
    for name, size in (("a", 50), ("b", 100), ("c", 150)):
        bench.execute(name, ResourceKind.DISK, size)
    assert bench.run() == {"a": 0.75, "b": 1.25, "c": 1.75}
    disk = bench.usage.resources(1.75, 1.75)["disk"]
    assert disk.utilization == pytest.approx(3.0 / 3.5)
    assert disk.utilization_efficiency == pytest.approx(1.0)


@given(st.floats(0, 100), st.lists(st.tuples(st.floats(0, 50), st.floats(0.01, 10)), min_size=1, max_size=12))
def test_sharing_gives_everything_out_and_no_more_than_wanted(
    capacity: float, wants: list[tuple[float, float]]
) -> None:
    wanted, weights = [want for want, _ in wants], [weight for _, weight in wants]
    given_out = share(capacity, wanted, weights)
    assert all(got <= want + 1e-9 for got, want in zip(given_out, wanted, strict=True))
    assert sum(given_out) == pytest.approx(min(capacity, sum(wanted)), rel=1e-9, abs=1e-9)
    short = [got / weight for got, want, weight in zip(given_out, wanted, weights, strict=True) if got < want - 1e-6]
    per_weight = [got / weight for got, weight in zip(given_out, weights, strict=True)]
    assert all(level >= max(per_weight) - 1e-6 for level in short), (
        "one with less than it wants has as much as any other"
    )


def test_a_command_goes_through_its_phases() -> None:
    bench = Bench()
    running = bench.begin("c", Phase(2.0, cpu_cores=1.0, memory_bytes=100.0), Phase(3.0, memory_bytes=400.0))
    bench.run(until_s=1.0)
    bench.machine.look()
    assert bench.ended == {}
    bench.clock.after(3.5, lambda: None)
    bench.run(until_s=3.5)
    bench.machine.look()
    assert running.memory_bytes() == pytest.approx(250, abs=1), "half way from 100 to 400"
    assert running.cpu_seconds == pytest.approx(2.0)
    assert bench.run() == {"c": 5.0}


def test_regular_commands_go_first_and_opportunistic_ones_have_the_remainder() -> None:
    """One core: the regular one takes three quarters of it for 4 s, the other gets a quarter of its demand."""
    bench = Bench(cores=1)
    bench.begin("opportunistic", Phase(2.0, cpu_cores=1.0), opportunistic=True)
    bench.begin("regular", Phase(4.0, cpu_cores=0.75))
    assert bench.run() == {"regular": 4.0, "opportunistic": 5.0}


def test_regular_commands_share_by_their_promises() -> None:
    bench = Bench(cores=3)
    bench.begin("two", Phase(3.0, cpu_cores=3.0), cpu_cores=2.0)
    bench.begin("one", Phase(3.0, cpu_cores=3.0), cpu_cores=1.0)
    assert bench.run() == {"two": 4.5, "one": 6.0}


@pytest.mark.parametrize(("isolated", "regular_s"), [(True, 1.0), (False, 2.0)])
def test_disks_are_isolated_or_not(isolated: bool, regular_s: float) -> None:
    bench = Bench(isolated_disk=isolated)
    bench.begin("regular", Phase(1.0, disk_bytes_per_s=100.0))
    bench.begin("other", Phase(1.0, disk_bytes_per_s=100.0), opportunistic=True)
    assert bench.run() == {"regular": regular_s, "other": 2.0}


def test_a_frozen_container_makes_no_progress_and_holds_its_memory() -> None:
    bench = Bench()
    running = bench.begin("c", Phase(2.0, cpu_cores=1.0, memory_bytes=100.0), opportunistic=True)
    bench.clock.after(1.0, lambda: bench.machine.freeze("c", True))
    bench.clock.after(6.0, lambda: bench.machine.freeze("c", False))
    bench.run(until_s=5.0)
    assert running.memory_bytes() == 50
    assert bench.run() == {"c": 7.0}


def test_cpu_monotasks_come_before_commands_without_a_promise() -> None:
    bench = Bench(cores=1)
    bench.begin("c", Phase(2.0, cpu_cores=1.0), cpu_cores=0.0)
    bench.clock.after(1.0, bench.execute, "m", ResourceKind.CPU, 30)
    assert bench.run() == {"m": 4.0, "c": 5.0}


def test_a_promised_command_and_monotasks_share_by_the_weights_that_the_agent_writes() -> None:
    """Two cores, one of them promised: weights of 100 and of 95. Two of 30 B at 10 B/s want 3 s of a core each."""
    bench = Bench(cores=2)
    bench.begin("c", Phase(10.0, cpu_cores=2.0))
    for name in ("m", "n"):
        bench.execute(name, ResourceKind.CPU, 30)
    each_cores = 2 * 95 / 195 / 2
    monotasks_s = 3.0 / each_cores
    left_s = 10.0 - monotasks_s * (1 - each_cores)
    ended = {"m": monotasks_s, "n": monotasks_s, "c": monotasks_s + left_s}
    assert bench.run() == pytest.approx(ended, abs=1e-4)
    assert bench.usage.used["cpu"].integral == pytest.approx(2 * 10.0 + 2 * 3.0), "all that was wanted, and no more"


def test_monotasks_beside_a_promise_of_every_core_have_the_least_weight() -> None:
    """Of one core a weight of 100 and of 2; the monotask goes on alone once the command has ended."""
    bench = Bench(cores=1)
    bench.begin("c", Phase(2.0, cpu_cores=1.0))
    bench.execute("m", ResourceKind.CPU, 30)
    assert bench.run() == pytest.approx({"c": 2.04, "m": 2.04 + 3.0 - 0.04}, abs=1e-4)


def test_a_command_is_as_fast_as_its_least_limit_allows_and_leaves_the_rest_to_others() -> None:
    """It wants 2 cores and 50 B/s for 4 s. A limit of 1 core makes it 8 s, one of 12.5 B/s 16 s."""
    phase = Phase(4.0, cpu_cores=2.0, disk_bytes_per_s=50.0)
    bench = Bench(cores=2)
    running = bench.begin("c", phase, cpu_cores=2.0, limits={"cpu_cores": 1.0})
    bench.execute("m", ResourceKind.CPU, 60)
    assert bench.run() == {"m": 6.0, "c": 8.0}, "the monotask has the other core"
    assert running.cpu_seconds == pytest.approx(8.0)
    bench = Bench(cores=2)
    bench.begin("c", phase, cpu_cores=2.0, limits={"cpu_cores": 1.0, "disk_read_bytes_per_s": 12.5})
    assert bench.run() == {"c": 16.0}


def test_a_limit_that_changes_takes_effect_at_once() -> None:
    bench = Bench(cores=2)
    bench.begin("c", Phase(4.0, cpu_cores=2.0), cpu_cores=2.0, limits={"cpu_cores": 1.0})
    bench.clock.after(2.0, bench.machine.confine, "c", confinement(2.0, cpu_cores=2.0), 2.0)
    assert bench.run() == {"c": 5.0}


def test_promised_cores_that_fall_are_for_monotasks() -> None:
    """One core: promised, monotasks have a fiftieth of it; once nothing is promised, all that they want."""
    bench = Bench(cores=1)
    bench.begin("c", Phase(2.0, cpu_cores=1.0))
    bench.clock.after(1.0, bench.machine.confine, "c", confinement(0.0), 0.0)
    bench.clock.after(1.0, bench.execute, "m", ResourceKind.CPU, 30)
    assert bench.run() == {"m": 4.0, "c": 5.0}


def test_memory_that_reaches_its_limit_holds_a_command_back_until_that_rises() -> None:
    """From 0 to 400 B in 4 s: at 200 B after 2 s. What shrinks needs no room."""
    bench = Bench()
    phases = (Phase(4.0, cpu_cores=1.0, memory_bytes=400.0), Phase(1.0, cpu_cores=1.0, memory_bytes=100.0))
    running = bench.begin("c", *phases, limits={"memory_high_bytes": 200})
    bench.run()  # until nothing happens any more, at 2 s
    assert (running.memory_bytes(), running.lacks) == (200, "memory")
    bench.clock.after(1.0, bench.machine.confine, "c", confinement(memory_high_bytes=400), 1.0)
    assert bench.run() == {"c": 6.0}


def test_a_killed_command_does_not_end_by_itself() -> None:
    bench = Bench()
    bench.begin("c", Phase(2.0, cpu_cores=1.0))
    bench.clock.after(1.0, bench.machine.end, "c")
    assert bench.run() == {}
    assert bench.usage.resources(2.0, 2.0)["cpu"].utilization == pytest.approx(1.0 / 8)


def test_a_level_remembers_its_integral_and_its_means_over_steps() -> None:
    level = Level(step_s=2.0)
    level.change(1.0, 4.0)
    level.change(3.0, -1.0)
    level.advance(5.0)
    assert level.integral == pytest.approx(4 * 2 + 3 * 2)
    assert level.bins == pytest.approx([4.0, 4.0 + 3.0, 3.0])
    assert level.peak == 4.0

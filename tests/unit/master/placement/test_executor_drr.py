"""DRR and MinFrag on the paper's own examples (Elasecutor, Fig. 1, 5 and 6), and on its statements in words."""

from __future__ import annotations

import numpy as np
import pytest

from master.placement.drr import Floats, drr, remaining_with, trc
from master.placement.executors import RESOURCES, Demands, Launch, WaitingExecutors
from master.placement.minfrag import MinFrag
from research.papers.elasecutor_examples import remaining
from simulator.executors.machines import PlannedMachines


def one_machine(capacity: list[float], slots: int) -> PlannedMachines:
    return PlannedMachines(["m0"], np.array([capacity]), slots)


def ask(slots: int, resources: int, *demands: Floats) -> WaitingExecutors:
    pending = WaitingExecutors(Demands(slots, RESOURCES[:resources]))
    for number, demand in enumerate(demands, start=1):
        pending.add(number, pending.demands.add(np.array(demand, dtype=float)))
    return pending


def carry_out(machines: PlannedMachines, pending: WaitingExecutors, launches: list[Launch]) -> None:
    for launch in launches:
        assert pending.take(launch.demand) == launch.executor
        machines.launch(launch.machine, launch.executor, pending.demands.of(launch.demand))


# ---------------------------------------------------------------- Fig. 5


def test_figure_5_drr_is_a_quarter_at_the_first_end() -> None:
    """Capacity 8 and 6, three executors until t1 < t2 < t3: R/C is 1/4 of the CPU and 1/6 of the memory at t1."""
    machines = one_machine([8.0, 6.0], slots=6)
    machines.launch(0, "until t1", np.array([[1.0, 3.0], [2.0, 1.0]]))
    machines.launch(0, "until t2", np.array([[2.0, 2.0, 6.0, 6.0], [2.0, 2.0, 1.0, 1.0]]))
    machines.launch(0, "until t3", np.array([[2.0, 2.0, 1.0, 1.0, 8.0, 8.0], [1.0, 2.0, 3.0, 3.0, 6.0, 6.0]]))
    assert machines.first_end(0) == 2
    fractions = remaining(machines.available(0), machines.capacity[0], machines.first_end(0))
    assert fractions == pytest.approx([1 / 4, 1 / 6])
    assert drr(fractions) == pytest.approx(1 / 4)
    assert trc(fractions) == pytest.approx(1 / 4 + 1 / 6)


# ---------------------------------------------------------------- Fig. 6: T is 8 slots; cores, GB, Gbps, MB/s

FIG_6_CAPACITY = [16.0, 64.0, 10.0, 500.0]


def figure_6() -> tuple[PlannedMachines, WaitingExecutors]:
    """Series whose integrals are the paper's: θ(1) = max{53/112, 165/448, 3/70, 6/35} and θ(2) = max{13/32, …}.

    The figure itself is a picture; executor 2 takes all the network of a slot, and executor 1 needs some in that slot.
    """
    machines = one_machine(FIG_6_CAPACITY, slots=9)
    free = np.array(
        [
            [10.0] * 8,  # 80 core-slots until T
            [40.0] * 8,
            [2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0, 2.0],
            [150.0] * 8,
        ]
    )
    machines.launch(0, "until T", np.array(FIG_6_CAPACITY)[:, None] - free)
    first = np.array(
        [
            [3.0, 3.0, 3.0, 2.0, 2.0, 2.0, 2.0],  # 70 − 17 = 53 of 112 are left
            [15.0, 15.0, 15.0, 15.0, 15.0, 20.0, 20.0],  # 280 − 115 = 165 of 448
            [1.0, 1.0, 1.0, 2.0, 2.0, 2.0, 2.0],  # 14 − 11 = 3 of 70
            [50.0, 50.0, 50.0, 75.0, 75.0, 75.0, 75.0],  # 1,050 − 450 = 600 of 3,500
        ]
    )
    second = np.array(
        [
            [4.0, 4.0, 4.0, 4.0, 3.0, 3.0, 3.0, 3.0, 3.0],  # 80 − 28 = 52 of 128 are left at T
            [18.0, 18.0, 18.0, 18.0, 18.0, 18.0, 20.0, 20.0, 20.0],  # 320 − 148 = 172 of 512
            [2.0, 2.0, 1.0, 1.0, 0.5, 0.5, 0.5, 0.5, 0.5],  # 16 − 8 = 8 of 80, and nothing in the first slots
            [150.0, 150.0, 150.0, 150.0, 100.0, 100.0, 100.0, 100.0, 100.0],  # 1,200 − 1,000 = 200 of 4,000
        ]
    )
    return machines, ask(9, 4, first, second)


def test_figure_6_horizons_include_the_candidate() -> None:
    """θ(1, j) is taken at 0.875 T, where executor 1 ends, θ(2, j) at T, though executor 2 ends at 1.125 T."""
    machines, pending = figure_6()
    demands = pending.demands
    fractions, horizon = remaining_with(
        machines.available(0),
        machines.capacity[0],
        machines.first_end(0),
        demands.cumulative,
        demands.lengths,
        np.array([0, 1]),
    )
    assert horizon.tolist() == [7, 8]
    assert fractions[0] == pytest.approx([53 / 112, 165 / 448, 3 / 70, 6 / 35])
    assert fractions[1] == pytest.approx([13 / 32, 43 / 128, 1 / 10, 1 / 20])
    assert drr(fractions) == pytest.approx([53 / 112, 13 / 32])


def test_figure_6_executor_2_is_scheduled_and_leaves_no_network() -> None:
    """Equality fits: executor 2 takes the last of the network, and then no other can be taken."""
    machines, pending = figure_6()
    (launch,) = MinFrag().heartbeat(machines, 0, pending)
    assert launch.executor == 2
    assert launch.why == (
        "minfrag: DRR 0.406 = remaining over 8 slots: cpu 0.406 disk 0.336 network 0.100 memory 0.050"
    )
    carry_out(machines, pending, [launch])
    assert machines.available(0)[2, 0] == 0
    assert MinFrag().heartbeat(machines, 0, pending) == []


# ---------------------------------------------------------------- Fig. 1

FIG_1 = ([[6.0, 6.0, 1.0, 1.0]], [[2.0, 2.0, 6.0, 6.0]], [[1.0, 1.0, 6.0, 6.0]])


def test_figure_1_elastic_allocation_halves_the_makespan() -> None:
    """Capacity 8, three applications whose peaks exclude each other: 12 slots one after the other, 6 packed."""
    machines, pending = one_machine([8.0], slots=4), ask(4, 1, *map(np.array, FIG_1))
    begun: dict[object, int] = {}
    for slot in range(12):
        launches = MinFrag().heartbeat(machines, 0, pending)
        carry_out(machines, pending, launches)
        begun |= {launch.executor: slot for launch in launches}
        machines.tick(0)
        for executor, at in begun.items():
            if at + 4 == slot + 1:
                machines.end(0, executor)
    static = sum(len(demand[0]) for demand in FIG_1)
    assert begun == {2: 0, 1: 0, 3: 2}
    assert static == 12 and max(begun.values()) + 4 == static / 2


# ---------------------------------------------------------------- Algorithm 1


def test_the_largest_goes_first_and_ties_go_to_the_longest_waiting() -> None:
    machines = one_machine([10.0, 10.0], slots=2)
    pending = ask(2, 2, [[2.0] * 2] * 2, [[5.0] * 2] * 2, [[5.0] * 2] * 2)
    assert [launch.executor for launch in MinFrag().heartbeat(machines, 0, pending)] == [2, 3]


def test_executors_of_one_application_share_a_demand() -> None:
    machines, demands = one_machine([10.0], slots=2), Demands(2, RESOURCES[:1])
    pending = WaitingExecutors(demands)
    number = demands.add(np.array([[3.0, 3.0]]))
    for executor in "abcde":
        pending.add(executor, number)
    launches = MinFrag().heartbeat(machines, 0, pending)
    assert [launch.executor for launch in launches] == ["a", "b", "c"]
    carry_out(machines, pending, launches)
    assert len(pending) == 2 and pending.peek(number) == "d"


def test_a_peak_that_comes_later_does_not_bar_it() -> None:
    """§I, fragmentation 1: the peak falls where the other one has finished."""
    machines, pending = one_machine([4.0], slots=4), ask(4, 1, [[1.0, 1.0, 4.0, 4.0]])
    machines.launch(0, "short", np.array([[3.0, 3.0]]))
    assert [launch.executor for launch in MinFrag().heartbeat(machines, 0, pending)] == [1]


def test_drr_and_trc_can_disagree() -> None:
    """One leaves (0.5, 0) and one (0.3, 0.3): the largest is less in the second, the sum in the first."""
    demands = [[[5.0], [10.0]], [[7.0], [7.0]]]
    chosen = {}
    for metric in ("drr", "trc"):
        machines, pending = one_machine([10.0, 10.0], slots=1), ask(1, 2, *map(np.array, demands))
        chosen[metric] = MinFrag(metric).heartbeat(machines, 0, pending)[0].executor
    assert chosen == {"drr": 2, "trc": 1}


def test_no_waiting_executors() -> None:
    assert MinFrag().heartbeat(one_machine([1.0], slots=3), 0, WaitingExecutors(Demands(3, RESOURCES[:1]))) == []

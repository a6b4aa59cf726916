"""The availability of machines slot by slot, and the order of waiting executors."""

from __future__ import annotations

import numpy as np
import pytest

from master.placement.executors import Demands, WaitingExecutors, fitting, machines_with_room
from simulator.executors.machines import PlannedMachines


def machines(slots: int, count: int = 1) -> PlannedMachines:
    return PlannedMachines([f"m{index}" for index in range(count)], np.full((count, 1), 10.0), slots)


def row(*values: float) -> np.ndarray[tuple[int, int], np.dtype[np.float64]]:
    return np.array([values], dtype=float)


def test_time_wanders_over_the_plan() -> None:
    one = machines(slots=3)
    one.launch(0, "a", row(1, 2, 3))
    for expected in ([9, 8, 7], [8, 7, 10], [7, 10, 10], [10, 10, 10]):
        assert one.available(0)[0].tolist() == expected
        one.tick(0)
    one.launch(0, "b", row(4, 5))
    assert one.available(0)[0].tolist() == [6, 5, 10]


def test_an_early_end_gives_back_the_rest() -> None:
    one = machines(slots=3)
    one.launch(0, "a", row(1, 2, 3))
    one.tick(0)
    one.end(0, "a")
    assert one.available(0)[0].tolist() == [10, 10, 10]
    assert one.executors(0) == []


def test_a_peak_is_held_until_it_is_given_back() -> None:
    one = machines(slots=1)
    one.launch(0, "a", row(4))
    for _ in range(5):
        one.tick(0)
    assert one.free().tolist() == [[6.0]]
    one.end(0, "a")
    assert one.free().tolist() == [[10.0]]


def test_a_promise_beyond_the_capacity_is_refused() -> None:
    one = machines(slots=2)
    one.launch(0, "a", row(6, 6))
    for name, demand in (("b", row(4, 5)), ("a", row(1))):
        with pytest.raises(ValueError, match=r"does not fit|runs on"):
            one.launch(0, name, demand)
    one.launch(0, "b", row(4, 4))


def test_planning_anew_leaves_the_others_alone() -> None:
    one = machines(slots=3)
    one.launch(0, "a", row(6, 6, 0))
    one.launch(0, "b", row(2, 2))
    assert one.replan(0, "b", row(8, 3, 8)).tolist() == [[4.0, 3.0, 8.0]]
    assert one.held(0, "a").tolist() == [[6.0, 6.0, 0.0]]
    assert one.available(0)[0].tolist() == [0, 1, 2]


def test_an_executor_that_is_cut_short_is_cut_in_all_resources() -> None:
    one = PlannedMachines(["m0"], np.array([[10.0, 100.0]]), slots=1)
    one.launch(0, "a", np.array([[8.0], [0.0]]))
    one.launch(0, "b", np.array([[1.0], [10.0]]))
    assert one.replan(0, "b", np.array([[4.0], [40.0]])).tolist() == [[2.0], [20.0]]


def test_the_first_end() -> None:
    one = machines(slots=5)
    assert one.first_end(0) == 5
    one.launch(0, "a", row(1, 1, 1, 1))
    one.launch(0, "b", row(1, 1))
    assert one.first_end(0) == 2
    one.tick(0)
    one.tick(0)  # b is late: it holds nothing any more and has not ended
    assert one.first_end(0) == 2


def test_demands_grow_and_name_their_errors() -> None:
    demands = Demands(slots=2, names=("cpu",))
    for number in range(20):
        assert demands.add(row(number)) == number
    assert demands.of(19).tolist() == [[19.0]] and len(demands) == 20
    assert demands.cumulative[19, 0].tolist() == [0.0, 19.0, 19.0]
    for wrong, why in ((row(1, 2, 3), "3 slots"), (row(-1), "from 0"), (row(np.inf), "finite"), (row(), "0 slots")):
        with pytest.raises(ValueError, match=why):
            demands.add(wrong)


def test_ranks_order_waiting_executors() -> None:
    demands = Demands(slots=1, names=("cpu",))
    small, large = demands.add(row(1)), demands.add(row(2))
    pending = WaitingExecutors(demands)
    pending.add("late", small, rank=5)
    pending.add("early", large, rank=2)
    pending.add("earliest", small, rank=1)
    numbers, counts = pending.waiting()
    assert (numbers.tolist(), counts.tolist()) == ([small, large], [2, 1])
    assert pending.take(small) == "earliest"
    assert pending.waiting()[0].tolist() == [large, small]
    assert (pending.take(large), pending.take(small), len(pending)) == ("early", "late", 0)


@pytest.mark.parametrize("slot", [0, 1, 15, 16, 50, 199])
def test_one_slot_too_much_does_not_fit_wherever_it_is(slot: int) -> None:
    demands = Demands(slots=200, names=("cpu",))
    demand = np.full((1, 200), 5.0)
    equal, above = demands.add(demand), demand.copy()
    above[0, slot] = 5.001
    numbers = np.array([demands.add(above), equal])
    available = np.full((1, 200), 9.0)
    available[0, slot] = 5.0
    assert fitting(demands, numbers, available, np.array([1e-9])).tolist() == [False, True]


def test_machines_without_room_for_any_need_no_heartbeat() -> None:
    three = machines(slots=2, count=3)
    three.launch(1, "runs", row(9, 0))
    pending = WaitingExecutors(Demands(2, ("cpu",)))
    pending.add("a", pending.demands.add(row(2, 10)))
    assert machines_with_room(three, np.array([1, 2]), pending) == [2]
    three.tick(1)
    assert machines_with_room(three, np.array([0, 1]), pending) == [0, 1]

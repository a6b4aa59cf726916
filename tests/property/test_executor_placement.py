"""For any waiting and running executors: nothing over-committed, nothing that fits left waiting, the same again."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from master.placement.drr import METRICS, drr, remaining_with
from master.placement.executors import Demands, ExecutorPolicy, WaitingExecutors, fitting
from master.placement.executors_named import EXECUTOR_POLICIES, executor_policy
from master.placement.minfrag import MinFrag
from research.papers.elasecutor_examples import remaining
from simulator.executors.machines import PlannedMachines

SLOTS = 12
#: Whole sixteenths of a machine of 16: sums are exact, so that "fits" has one meaning for us and for the code.
AMOUNT = st.integers(0, 16)


@st.composite
def profiles(draw: st.DrawFn) -> Any:
    length = draw(st.integers(1, SLOTS))
    rows = draw(st.lists(st.lists(AMOUNT, min_size=length, max_size=length), min_size=4, max_size=4))
    scale = draw(st.sampled_from([1.0, 0.5, 0.25]))
    return np.array(rows, dtype=float) * scale


WORK = st.lists(st.tuples(profiles(), st.integers(1, 3)), max_size=8)
POLICY = st.sampled_from(EXECUTOR_POLICIES)
DRAWS = st.integers(0, 2**32)


def policy_of(name: str, seed: int) -> ExecutorPolicy:
    return executor_policy(name, np.random.default_rng(seed).random)


def cluster(count: int, slots: int) -> PlannedMachines:
    return PlannedMachines([f"m{index}" for index in range(count)], np.full((count, 4), 16.0), slots)


def asking(policy: ExecutorPolicy, work: list[tuple[Any, int]], slots: int) -> WaitingExecutors:
    pending = WaitingExecutors(Demands(slots))
    for number, (profile, executors) in enumerate(work):
        demand = pending.demands.add(policy.demand(np.minimum(profile, 16.0)))
        for executor in range(executors):
            pending.add((number, executor), demand)
    return pending


def heartbeat(policy: ExecutorPolicy, machines: PlannedMachines, machine: int, pending: WaitingExecutors) -> int:
    launches = policy.heartbeat(machines, machine, pending)
    for launch in launches:
        assert pending.take(launch.demand) == launch.executor
        machines.launch(machine, launch.executor, pending.demands.of(launch.demand))
    return len(launches)


@settings(max_examples=40)
@given(POLICY, DRAWS, WORK, st.lists(st.integers(0, 2), max_size=20))
def test_nothing_is_over_committed_and_launching_changes_nothing_that_runs(
    name: str, seed: int, work: list[tuple[Any, int]], beats: list[int]
) -> None:
    policy = policy_of(name, seed)
    slots = SLOTS if policy.elastic else 1
    machines, pending = cluster(3, slots), asking(policy, work, slots)
    for machine in beats:
        before = {executor: machines.held(machine, executor).copy() for executor in machines.executors(machine)}
        heartbeat(policy, machines, machine, pending)
        for executor, held in before.items():
            assert (machines.held(machine, executor) == held).all()
        available = machines.available(machine)
        promised = sum(
            (np.pad(held, ((0, 0), (0, slots - held.shape[1]))) for held in _held(machines, machine)),
            np.zeros((4, slots)),
        )
        assert (available >= 0).all() and np.allclose(available + promised, 16.0)
        machines.tick(machine)


def _held(machines: PlannedMachines, machine: int) -> list[Any]:
    return [machines.held(machine, executor) for executor in machines.executors(machine)]


@settings(max_examples=30)
@given(st.sampled_from(sorted(METRICS)), WORK, WORK)
def test_minfrag_leaves_nothing_waiting_that_fits(metric: str, runs: list[Any], work: list[Any]) -> None:
    policy, machines = MinFrag(metric), cluster(1, SLOTS)
    heartbeat(policy, machines, 0, asking(policy, runs, SLOTS))
    machines.tick(0)
    pending = asking(policy, [*runs, *work], SLOTS)
    for executor in machines.executors(0):
        machines.end(0, executor)
        break
    begun = {executor: machines.held(0, executor) for executor in machines.executors(0)}
    for launch in policy.heartbeat(machines, 0, pending):
        pending.take(launch.demand)
        machines.launch(0, ("now", launch.executor), pending.demands.of(launch.demand))
    numbers, _ = pending.waiting()
    assert not fitting(pending.demands, numbers, machines.available(0), np.zeros(4)).any()
    assert begun.keys() <= set(machines.executors(0))


@settings(max_examples=60)
@given(POLICY, DRAWS, WORK)
def test_the_same_decisions_from_the_same_state(name: str, seed: int, work: list[Any]) -> None:
    slots = SLOTS if policy_of(name, seed).elastic else 1
    machines, pending = cluster(2, slots), asking(policy_of(name, seed), work, slots)
    before = copy.deepcopy(
        (machines.available(0), machines.available(1), [each.tolist() for each in pending.waiting()])
    )
    first = policy_of(name, seed).heartbeat(machines, 0, pending)
    second = policy_of(name, seed).heartbeat(machines, 0, pending)
    assert first == second
    after = (machines.available(0), machines.available(1), [each.tolist() for each in pending.waiting()])
    assert all(np.array_equal(a, b) for a, b in zip(before[:2], after[:2], strict=True)) and before[2] == after[2]


@settings(max_examples=30)
@given(WORK)
def test_drr_is_a_fraction_before_and_after_each_launch(work: list[Any]) -> None:
    policy, machines = MinFrag(), cluster(1, SLOTS)
    pending = asking(policy, work, SLOTS)
    capacity = machines.capacity[0]
    for launch in policy.heartbeat(machines, 0, pending):
        candidate = np.array([launch.demand])
        demands, end = pending.demands, machines.first_end(0)
        fractions, horizon = remaining_with(
            machines.available(0), capacity, end, demands.cumulative, demands.lengths, candidate
        )
        machines.launch(0, launch.executor, demands.of(launch.demand))
        assert 0 <= drr(fractions)[0] <= 1
        # The prediction is exact: θ(i, j) before the launch is θ(j) after it.
        assert np.allclose(fractions[0], remaining(machines.available(0), capacity, int(horizon[0])))
        assert f"DRR {drr(fractions)[0]:.3f}" in launch.why


def by_the_book(metric: str, available: Any, first_end: int, work: list[tuple[int, Any]]) -> list[int]:
    """Return the executors that Algorithm 1 launches, as positions among the waiting ones: a second version with
    loops.
    """
    launched: list[int] = []
    waiting = list(work)
    while True:
        best: tuple[float, int] | None = None
        for place, (_, demand) in enumerate(waiting):
            length = demand.shape[1]
            if (demand > available[:, :length]).any():
                continue
            horizon = min(first_end, length)
            left = [sum(available[r, t] - demand[r, t] for t in range(horizon)) / (16.0 * horizon) for r in range(4)]
            theta = round(max(left) if metric == "drr" else sum(left), 12)
            if best is None or theta < best[0]:
                best = (theta, place)
        if best is None:
            return launched
        name, demand = waiting.pop(best[1])
        available = available.copy()
        available[:, : demand.shape[1]] -= demand
        first_end = min(first_end, demand.shape[1])
        launched.append(name)


@settings(max_examples=80)
@given(st.sampled_from(sorted(METRICS)), st.lists(profiles(), max_size=3), st.lists(profiles(), max_size=8))
def test_minfrag_decides_as_the_paper_read_with_loops(metric: str, runs: list[Any], work: list[Any]) -> None:
    policy, machines = MinFrag(metric), cluster(1, SLOTS)
    heartbeat(policy, machines, 0, asking(policy, [(profile, 1) for profile in runs], SLOTS))
    pending = asking(policy, [(profile, 1) for profile in work], SLOTS)
    expected = by_the_book(metric, machines.available(0).copy(), machines.first_end(0), list(enumerate(work)))
    got = [launch.executor for launch in policy.heartbeat(machines, 0, pending)]
    assert [number for number, _ in got] == expected

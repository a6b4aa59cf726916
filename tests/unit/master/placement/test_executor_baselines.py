"""The policies that reserve peaks: their holdings, and the machines that they choose."""

from __future__ import annotations

from itertools import cycle

import numpy as np
import pytest

from master.placement.drr import Floats
from master.placement.executors import Demands, ExecutorPolicy, WaitingExecutors
from master.placement.executors_named import EXECUTOR_POLICIES, executor_policy
from master.placement.peak import Dynamic, MostAvailable, RandomFit, Static, Tetris
from simulator.executors.machines import PlannedMachines

CAPACITY = np.array([16.0, 500e6, 1.25e9, 64e9])


def cluster(machines: int) -> PlannedMachines:
    return PlannedMachines([f"m{index}" for index in range(machines)], np.tile(CAPACITY, (machines, 1)), slots=1)


def share(cpu: float, disk: float, network: float, memory: float) -> Floats:
    """A constant profile of two slots, in fractions of a machine."""
    return np.tile((CAPACITY * (cpu, disk, network, memory))[:, None], (1, 2))


def ask(policy: ExecutorPolicy, *profiles: Floats) -> WaitingExecutors:
    pending = WaitingExecutors(Demands(1))
    for executor, profile in enumerate(profiles):
        pending.add(executor, pending.demands.add(policy.demand(profile)))
    return pending


def always(value: float) -> RandomFit:
    return RandomFit(lambda: value)


def test_tetris_prefers_the_best_aligned() -> None:
    machines, policy = cluster(1), Tetris()
    machines.launch(0, "runs", share(0.0, 0.9, 0.0, 0.5)[:, :1])
    pending = ask(policy, share(0.1, 0.1, 0.0, 0.4), share(0.4, 0.0, 0.0, 0.1))
    first, second = policy.heartbeat(machines, 0, pending)
    assert (first.executor, second.executor) == (1, 0)
    assert first.why == "tetris: peak demand · available = 0.450, the largest of 2"


def test_tetris_waits_for_the_network_and_tetris2_does_not() -> None:
    profile = share(0.1, 0.1, 0.6, 0.1)
    for name, launched in (("tetris", 1), ("tetris2", 3)):
        policy = executor_policy(name, lambda: 0.0)
        assert len(policy.heartbeat(cluster(1), 0, ask(policy, profile, profile, profile))) == launched


def test_tetris_reserves_the_peak_however_short() -> None:
    profile = share(0.1, 0.1, 0.1, 0.1)
    profile[1, 1] = CAPACITY[1]
    assert Tetris().demand(profile)[:, 0].tolist() == pytest.approx((CAPACITY * (0.1, 1.0, 0.1, 0.1)).tolist())


def test_static_reserves_cpu_and_memory_only() -> None:
    held = Static(lambda: 0.0).demand(share(0.25, 0.9, 0.9, 0.5))
    assert held[:, 0].tolist() == [4.0, 0.0, 0.0, 32e9]


@pytest.mark.parametrize(
    ("cores", "memory_bytes", "units"), [(3.0, 5.9e9, 3), (1.0, 5.9e9, 3), (0.3, 1e9, 1), (2.0, 4e9, 2), (2.1, 4e9, 3)]
)
def test_dynamic_holds_units_of_a_core_and_two_gigabytes(cores: float, memory_bytes: float, units: int) -> None:
    held = Dynamic(lambda: 0.0).demand(np.array([[cores], [1e6], [1e6], [memory_bytes]]))
    assert held[:, 0].tolist() == [units, 0.0, 0.0, units * 2e9]


def test_capacity_waits_for_the_machine_with_most_available() -> None:
    machines, policy = cluster(2), MostAvailable()
    machines.launch(0, "runs", share(0.2, 0.2, 0.2, 0.2)[:, :1])
    pending = ask(policy, *[share(0.1, 0.1, 0.1, 0.1)] * 5)
    assert policy.heartbeat(machines, 0, pending) == []
    launches = policy.heartbeat(machines, 1, pending)
    assert [launch.executor for launch in launches] == [0, 1, 2]  # at the third both have the same
    assert launches[0].why == "capacity: free ÷ capacity sums to 4.000 here and at most 3.200 elsewhere"


def test_capacity_does_not_wait_for_a_machine_that_it_does_not_fit() -> None:
    machines, policy = cluster(2), MostAvailable()
    machines.launch(0, "runs", share(0.5, 0.5, 0.5, 0.5)[:, :1])
    machines.launch(1, "runs", share(0.9, 0.0, 0.0, 0.0)[:, :1])
    pending = ask(policy, share(0.3, 0.1, 0.1, 0.1))
    assert [launch.executor for launch in policy.heartbeat(machines, 0, pending)] == [0]


def test_random_launches_here_with_one_over_the_machines_that_fit() -> None:
    pending = ask(always(0.0), share(0.1, 0.1, 0.1, 0.1))
    assert always(0.34).heartbeat(cluster(3), 0, pending) == []
    (launch,) = always(0.33).heartbeat(cluster(3), 0, pending)
    assert launch.why == "random: drawn from 3 machines with room"


def test_random_where_only_one_machine_fits() -> None:
    machines = cluster(3)
    for machine in (1, 2):
        machines.launch(machine, "runs", share(1.0, 0.0, 0.0, 0.0)[:, :1])
    assert len(always(0.999).heartbeat(machines, 0, ask(always(0.0), share(0.1, 0.1, 0.1, 0.1)))) == 1


def test_random_skips_those_of_one_demand_that_draw_another_machine() -> None:
    """Of 600 that wait and fit two machines, half draw this one."""
    rng = np.random.default_rng(1)
    policy = RandomFit(rng.random)
    pending = WaitingExecutors(Demands(1))
    number = pending.demands.add(policy.demand(share(0.001, 0.0, 0.0, 0.0)))
    for executor in range(600):
        pending.add(executor, number)
    launches = policy.heartbeat(cluster(2), 0, pending)
    assert [launch.executor for launch in launches] == list(range(len(launches)))
    assert 250 < len(launches) < 350


def test_random_draws_anew_for_each_demand() -> None:
    draws = cycle([0.9, 0.1])
    policy = RandomFit(lambda: next(draws))
    pending = ask(policy, *[share(0.2, 0.0, 0.0, 0.0) for _ in range(4)])
    assert [launch.executor for launch in policy.heartbeat(cluster(2), 0, pending)] == [1, 3]


@pytest.mark.parametrize("name", EXECUTOR_POLICIES)
def test_every_policy_fills_a_lonely_machine_to_its_last_core(name: str) -> None:
    policy = executor_policy(name, lambda: 0.5)
    machines = PlannedMachines(["m0"], CAPACITY[None].copy(), slots=2 if policy.elastic else 1)
    pending = WaitingExecutors(Demands(machines.slots))
    for executor in range(5):
        pending.add(executor, pending.demands.add(policy.demand(share(0.25, 0.1, 0.1, 0.125))))
    launches = policy.heartbeat(machines, 0, pending)
    assert [launch.executor for launch in launches] == [0, 1, 2, 3]
    assert all(launch.why and launch.machine == 0 for launch in launches)


def test_an_unknown_policy() -> None:
    with pytest.raises(KeyError):
        executor_policy("minfrog", lambda: 0.0)

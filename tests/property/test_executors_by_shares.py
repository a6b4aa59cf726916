"""Executors placed by shares go where the order of all jobs and a search of all nodes at each one would place them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from random import Random
from typing import Any
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from master.core import events as e
from master.core import executor_placement
from master.ordering import Key
from master.placement import Demands, Machines, turns
from master.placement.drr import Ints
from master.placement.executors import TOLERANCE
from tests.unit.master.cluster_bed import command
from tests.unit.master.core.executor_bed import ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import Plan

TREE = {"eve": "research/eve", "max": "research/max"}
SETTINGS: tuple[dict[str, Any], ...] = (
    {"ordering": "gittins", "tenants": TREE, "weights": {"research": 2.0}},
    {"ordering": "ejf", "weights": {"eve": 3.0}},
    {"ordering": "las_mq", "weights": {"eve": 1.0}},
    {"ordering": "las_mq"},
    {"ordering": "las", "tenants": TREE},
    {"ordering": "drf", "tenants": TREE},
    {"ordering": "drf"},
    {"ordering": "fair"},
    {"ordering": "fifo"},
)


class AllJobs:
    """The line of the jobs, by the keys of all of them."""

    def __init__(self, key: Callable[[str], Key], group: object, jobs: Iterable[str]) -> None:
        self._key = key
        self._jobs = list(enumerate(jobs))

    def first(self) -> str | None:
        return min(self._jobs, key=lambda one: (self._behind(one[1]), *one), default=(0, None))[1]

    def pop(self) -> None:
        first = self.first()
        self._jobs = [one for one in self._jobs if one[1] != first]

    def before(self, until: Key) -> list[str]:
        found: list[str] = []
        while (job := self.first()) is not None and self._behind(job) < tuple(-each for each in until):
            found.append(job)
            self.pop()
        return found

    def enter(self, jobs: Iterable[str]) -> None:
        self._jobs += [(-1, job) for job in jobs]

    def _behind(self, job: str) -> Key:
        return tuple(-each for each in self._key(job))


def all_that_fit(machines: Machines, which: Ints, demands: Demands, number: int) -> Iterator[int]:
    held = demands.of(number)
    for machine in which.tolist():
        slack = TOLERANCE * machines.capacity[machine][:, None]
        if (held <= machines.available(machine)[:, : held.shape[1]] + slack).all():
            yield machine


def waiting(seed: int) -> ExecutorBed:
    """Nodes, and jobs of some users with executors and commands."""
    rng = Random(seed)
    users, applications, nodes = ("eve", "max", "bob"), "xyz", [f"n{i:02}" for i in range(rng.choice([2, 5, 40]))]
    forecasts = {
        f"{user}/{application}": profile(
            *[(rng.randint(1, 4), 100 * rng.randint(1, 9)) for _ in range(rng.randint(1, 3))]
        )
        for user in users
        for application in applications
    }
    b = ExecutorBed(*nodes, forecasts=forecasts, share_chunk_tasks=rng.randint(1, 4), **rng.choice(SETTINGS))
    for name in rng.sample(nodes, len(nodes) // 2):
        b.beats(name, [(rng.randint(1, 4), 100 * rng.randint(1, 9)) for _ in range(3)])
    if rng.random() < 0.5:
        b.cluster.guarantees.plan = Plan(3.0)
    jobs = [f"j{number}" for number in range(rng.randint(2, 15))]
    for job in jobs:
        reserved = {"reservation": "r"} if rng.random() < 0.2 else {}
        b.job(nodes[0], job, at=float(rng.randint(0, 5)), user=rng.choice(users), **reserved)
        tasks = [
            executor(f"e{i}", rng.choice(applications), **some_nodes(rng, nodes)) for i in range(rng.randint(0, 6))
        ]
        tasks += [command(f"c{i}", cores=rng.choice((0.0, 0.5, 1.0))) for i in range(rng.randint(0, 3))]
        if tasks:
            b.ready(nodes[0], *tasks, job=job)
    if rng.random() < 0.3:
        b.serve(e.OrderRequested((rng.choice(jobs),), "root", of_all=True))
    return b


def some_nodes(rng: Random, nodes: list[str]) -> dict[str, Any]:
    return {"nodes": tuple(rng.sample(nodes, 2))} if rng.random() < 0.2 else {}


@given(st.integers(0, 10**9))
@settings(max_examples=60)
def test_the_first_job_of_each_tenant_and_the_first_nodes_are_enough(seed: int) -> None:
    fast, patient = waiting(seed), waiting(seed)
    fast.round()
    with patch.object(turns, "_Line", AllJobs), patch.object(executor_placement, "machines_that_fit", all_that_fit):
        patient.round()
    assert fast.sent == patient.sent

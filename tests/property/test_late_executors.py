"""Rounds that search nodes for executors on arrays place and keep room as rounds that look at each node's records."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from master.core import events as e
from master.core.executor_placement import ExecutorPlacement
from master.core.free_capacity import Grid, free_capacity
from master.core.job import Key
from master.core.kept_room import EPSILON, KeptRoom, Room, RoomSearch
from master.core.late_executors import _GROWS_WITHIN_S, LateExecutors, Tried
from master.core.node import Held, Node
from master.core.table import NodeTable
from master.core.user_quotas import RoundQuotas
from penstock.model import Capacity
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import command, placed_task
from tests.unit.master.core.executor_bed import CAPACITY, MIB, ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import STOPPED, Plan, end

ROUNDS = 45


def nearest(kept: KeptRoom, nodes: Iterable[Node], cores: float, memory: int, given_up: Mapping[str, float]) -> Any:
    """Search the nodes one by one."""
    found, least = None, (math.inf, math.inf)
    for node in nodes:
        more = cores - node.cores_free(), memory - node.memory_free_bytes()
        held = [each for each in node.held.values() if each.regular]
        lacks = max(more[0] / node.capacity.cores, more[1] / node.capacity.memory_bytes)
        rank = given_up.get(node.name, -math.inf), lacks
        if node.name in {room.node for room in kept.promised.values()} or lacks <= EPSILON or rank >= least:
            continue
        ends = sum(each.cores for each in held), sum(each.memory_bytes for each in held)
        if more[0] <= ends[0] + EPSILON and more[1] <= ends[1]:
            found, least = Room(node.name, cores, memory), rank
    return found


_ROOM = LateExecutors._room


def room(
    late: LateExecutors, key: Key, one: Tried | None, search: RoomSearch, limits: RoundQuotas | None, now: float
) -> Room | None:
    if one is None:
        return _ROOM(late, key, one, search, limits, now)
    late._given_up.by_row()  # drops nodes that are gone
    given_up = late._given_up._at
    nodes = [late._table.nodes[row] for row in search.rows.tolist()]
    may = [node for number, node in enumerate(nodes) if one.allowed is None or one.allowed[number]]
    awake = [node for node in may if now - given_up.get(node.name, -math.inf) >= _GROWS_WITHIN_S]
    found: Room | None = nearest(late._kept, awake, *one.demand.largest, given_up)
    return found


def cluster(rng: Random) -> ExecutorBed:
    """Nodes full of commands, and jobs with executors."""
    nodes = "abcdef"[: rng.randint(2, 6)]
    forecasts = {
        f"u/{name}": profile(*[(rng.choice((0.5, 2, 3, 4)), 100 * rng.randint(1, 9)) for _ in range(rng.randint(1, 3))])
        for name in "xyz"
    }
    b = ExecutorBed(*nodes, forecasts=forecasts, ordering=rng.choice(("fifo", "ejf", "drf")))
    if rng.random() < 0.3:
        b.cluster.guarantees.plan = Plan(3.0)
    b.ready("a", *[command(f"b{i}", rng.choice((0, 100)), rng.choice((0.5, 1.0, 2.0))) for i in range(6 * len(nodes))])
    for number in range(rng.randint(1, 6)):
        reserved: dict[str, Any] = {"reservation": "r"} if rng.random() < 0.2 else {}
        b.job("a", f"e{number}", at=float(rng.randint(1, 5)), **reserved)
        named: dict[str, Any] = (
            {"nodes": tuple(rng.sample(nodes, rng.randint(1, len(nodes))))} if rng.random() < 0.4 else {}
        )
        some = [executor(f"e{i}", rng.choice("xyz"), **named) for i in range(rng.randint(1, 4))]
        b.ready("a", *some, job=f"e{number}")
    return b


def nodes_leave_and_come(b: ExecutorBed, rng: Random, agents: dict[str, list[Held]]) -> None:
    """Nodes other than the jobs' origin are away, some until they are lost, and register, some with another capacity;
    nodes are drained. ``agents`` has what each node held when it was last connected.
    """
    nodes = b.cluster.nodes
    for name in sorted({*nodes, *agents} - {"a"}):
        if name in nodes and nodes[name].connected:
            agents[name] = [*nodes[name].held.values()]
            if rng.random() < 0.03:
                b.serve(e.NodeAway(name))
        elif rng.random() < 0.3:
            registers(b, name, rng, agents[name])
    if rng.random() < 0.02:
        registers(b, "g", rng, agents.get("g", []), cores=8)
    for name in [*nodes]:
        drained = nodes[name].draining is not None
        if rng.random() < (0.2 if drained else 0.01):
            b.serve(e.UndrainRequested((name,), "root") if drained else e.DrainRequested((name,), "root", 1000.0))


def registers(b: ExecutorBed, name: str, rng: Random, held: list[Held], cores: int | None = None) -> None:
    """A node registers with the tasks that it has."""
    placed = [
        placed_task(
            each.task, each.job, remaining=each.usage, memory_bytes=each.memory_bytes, opportunistic=each.opportunistic
        )
        for each in held
    ]
    b.numbers.pop(name, None)  # decisions are counted by connection
    capacity = Capacity(cores=cores or rng.choice((2, 4, 4, 6)), memory_bytes=rng.choice((500, 1000, 2000)) * MIB)
    b.node(name, capacity=capacity, placed=placed)


def something_happens(b: ExecutorBed, rng: Random, serial: int, endless: str, agents: dict[str, list[Held]]) -> None:
    """Commands end and come, but not on nodes whose work is ``endless``; nodes report, leave and come."""
    nodes_leave_and_come(b, rng, agents)
    nodes = b.cluster.nodes
    for name in [name for name, node in nodes.items() if node.connected]:
        for held in [held for held in nodes[name].held.values() if held.leaving]:
            end(b, held.task, job=held.job, node=name, ended=STOPPED)
        mine = [held for held in nodes[name].held.values() if not held.executor]
        for held in mine[: rng.choice((0, 0, 0, 1, 2)) if name not in endless else 0]:
            end(b, held.task, job=held.job, node=name)
            b.ready("a", command(f"c{serial}{held.task}", 0, rng.choice((0.5, 1.0))))
        running = [held for held in nodes[name].held.values() if held.executor]
        if running and rng.random() < 0.1:
            end(b, running[0].task, job=running[0].job, node=name)
        slots: list[tuple[float, int]] = [
            (rng.randint(0, 4), 100 * rng.randint(0, 9)) for _ in range(rng.choice((1, 3, 5)))
        ]
        if name == "a" or rng.random() < 0.95:
            b.beats(name, slots if rng.random() < 0.2 else None)


def run(b: ExecutorBed, rng: Random) -> list[Any]:
    """Return what is decided, and the room that is kept, round by round."""
    seen: list[Any] = []
    endless, agents = rng.choice(("", "a", "abc", "abcdef")), dict[str, list[Held]]()
    for serial in range(ROUNDS):
        something_happens(b, rng, serial, endless, agents)
        b.round(rng.choice((0.1, 1.0, 5.0, 5.0)))
        seen.append((len(b.sent), b.cluster._rounds._kept.rooms))
    return [*seen, b.sent]


@given(st.integers(0, 10**9))
@settings(max_examples=30)
def test_room_is_kept_and_executors_are_placed_as_by_a_look_at_each_node(seed: int) -> None:
    quick, patient = (Random(seed) for _ in range(2))
    found = run(cluster(quick), quick)
    with (
        patch.object(LateExecutors, "_room", room),
        patch.object(ExecutorPlacement, "_with_room", lambda placing: placing.examined.workers),
    ):
        assert run(cluster(patient), patient) == found


REPORTS = st.lists(
    st.tuples(
        st.lists(st.tuples(st.integers(0, 4000), st.integers(0, 1000)), min_size=1, max_size=70),
        st.sampled_from([0.5, 1.0, 3.0]),
        st.floats(0, 5),
    ),
    min_size=1,
    max_size=5,
)


@given(reports=REPORTS, after_s=st.floats(0, 80), slot_s=st.integers(1, 3), assigned=st.booleans())
@example(reports=[([(0, 0)] * 64 + [(4000, 1000)] * 6, 1.0, 0.0)], after_s=66.0, slot_s=1, assigned=False)
@settings(max_examples=100)
def test_no_node_has_more_available_than_the_bound_and_without_assignments_as_much(
    reports: list[Any], after_s: float, slot_s: int, *, assigned: bool
) -> None:
    b = ExecutorBed(*"abcde"[: len(reports)], forecasts={"u/x": profile((0.5, 50), (0.5, 50))})
    for name, (slots, each_s, elapsed_s) in zip("abcde", reports, strict=False):
        wire = [(cores, 0, 0, mib) for cores, mib in slots]
        report = api.Availability(slot_s=each_s, capacity=CAPACITY, slots=wire, elapsed_s=elapsed_s)
        b.heartbeat(name, availability=report)
    if assigned:
        b.ready("a", command("c", 100, 0.5), executor("e", "x"))
        b.round()
    now, nodes, table = b.now + after_s, [*b.cluster.nodes.values()], b.cluster.table
    grid = Grid(float(slot_s), 4)
    exact = free_capacity(grid, nodes, range(len(nodes)), np.ones(4, dtype=np.bool_), now).machines.free()
    bound = table.available_at_most(np.arange(len(nodes)), grid.slot_s, now)
    assert (exact[:, [0, 3]] <= bound[:, [0, 3]] + 1e-6).all()
    if not assigned and slot_s == 1:
        for row, (slots, each_s, _) in enumerate(reports):
            if len(slots) <= 60 and each_s >= 1.0:
                assert exact[row, [0, 3]] == pytest.approx(bound[row, [0, 3]])


def test_rows_follow_nodes_that_are_lost() -> None:
    b = ExecutorBed("a", "b", "c")
    for name, cores in (("a", 1), ("b", 2), ("c", 3)):
        b.beats(name, [(cores, 100)])
    table: NodeTable = b.cluster.table
    table.remove(b.cluster.nodes["b"])
    assert table.available_at_most(np.arange(2), 1.0, b.now)[:, [0, 3]].tolist() == [[1, 100 * MIB], [3, 100 * MIB]]

"""Collapse connected CPU operations into one operation, before monotasks are generated (Ursa §4.1.3).

"The JM simplifies its DAG by collapsing a connected subgraph consisting of only CPU Ops (connected with async
dependency) into one CPU Op before monotask generation." The paper omits the case in which that would close a circle:
A → B async, and also A → network → B (a dataset that is mapped with a value computed from it). Here A and B then stay
separate.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from penstock.model.resources import ResourceKind
from penstock.opgraph.checking import CheckedGraph, CheckedOp, Input
from penstock.opgraph.ops import Dependency, Op
from penstock.opgraph.order import first_possible, reachable


@dataclass(frozen=True, slots=True)
class Edge:
    """A dependency on an operation by its index in the plan."""

    before: int
    dependency: Dependency


@dataclass(frozen=True, slots=True)
class PlannedOp:
    """One operation, or several CPU operations that were collapsed, in the order of ``steps``.

    ``inputs`` come from other operations or from the job; ``outputs`` are the versions that other operations read, or
    that are results. Data that only passes from step to step is in neither.
    """

    index: int
    kind: ResourceKind
    name: str
    partitions: int
    steps: tuple[CheckedOp, ...]
    inputs: tuple[Input, ...]
    outputs: tuple[int, ...]
    after: tuple[Edge, ...]

    @property
    def memory_to_input(self) -> float | None:
        """Return m2i (§4.2.1): the largest given value of its operations; None if none has one."""
        return max(
            (step.op.memory_to_input for step in self.steps if step.op.memory_to_input is not None), default=None
        )

    @property
    def expansion(self) -> float:
        """Return output ÷ input size; 1 for several operations, for which it is not known."""
        return self.steps[0].op.expansion if len(self.steps) == 1 else 1.0


def collapse(graph: CheckedGraph, results: Iterable[int]) -> tuple[PlannedOp, ...]:
    """Return the operations to plan, in an order in which they can run; ``results`` are versions to keep."""
    order = _ordered(graph, _groups(graph))
    index = {op: place for place, group in enumerate(order) for op in group}
    wanted = set(results)
    return tuple(_planned(graph, place, group, index, wanted) for place, group in enumerate(order))


def _groups(graph: CheckedGraph) -> dict[Op, int]:
    """Return operation → group, after merging groups until no more can be merged."""
    group = {checked.op: place for place, checked in enumerate(graph.ops)}
    edges = [
        (before, op)
        for op in group
        for before, dependency in op.before.items()
        if dependency is Dependency.ASYNC and before.kind is op.kind is ResourceKind.CPU
    ]
    merged = True
    while merged:
        merged = False
        for before, op in edges:
            one, other = group[before], group[op]
            if one != other and _may_merge(group, one, other):
                merged = True
                group = {each: one if its == other else its for each, its in group.items()}
    return group


def _may_merge(group: dict[Op, int], one: int, other: int) -> bool:
    """Return whether there is no barrier between two groups and no path from one to the other through a third."""
    leads_to: dict[int, set[int]] = {}
    for op, target in group.items():
        for before, dependency in op.before.items():
            source = group[before]
            if (source, target) == (one, other) and dependency is Dependency.SYNC:
                return False
            if source != target:
                leads_to.setdefault(source, set()).add(target)
    return other not in reachable(leads_to[one] - {other}, leads_to)


def _ordered(graph: CheckedGraph, group: dict[Op, int]) -> list[list[Op]]:
    """Return the groups by dependencies, else by their first operation; a group is in the order of the graph."""
    members: dict[int, list[Op]] = {}
    for checked in graph.ops:
        members.setdefault(group[checked.op], []).append(checked.op)
    missing = {
        one: {group[before] for op in ops for before in op.before if group[before] != one}
        for one, ops in members.items()
    }
    return [members[one] for one in first_possible(missing)]


def _planned(graph: CheckedGraph, place: int, group: list[Op], index: dict[Op, int], wanted: set[int]) -> PlannedOp:
    inside = set(group)
    steps = tuple(checked for checked in graph.ops if checked.op in inside)
    made = [version for step in steps for version in step.outputs]
    own = set(made)
    inputs = dict.fromkeys(read for step in steps for read in step.inputs if read.version not in own)
    elsewhere = {read.version for one in graph.ops if one.op not in inside for read in one.inputs}
    edges: dict[int, Dependency] = {}
    for op in group:
        for before, dependency in op.before.items():
            if before not in inside and edges.get(index[before]) is not Dependency.SYNC:
                edges[index[before]] = dependency
    return PlannedOp(
        index=place,
        kind=group[0].kind,
        name="+".join(op.name for op in group),
        partitions=steps[0].partitions,
        steps=steps,
        inputs=tuple(inputs),
        outputs=tuple(version for version in made if version in elsewhere or version in wanted),
        after=tuple(Edge(before, edges[before]) for before in sorted(edges)),
    )

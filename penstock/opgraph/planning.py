"""Plan a dataflow: turn operations into monotasks, tasks and stages (Ursa §4.1.3).

Each operation becomes one monotask for each partition. Without the in-edges of all network monotasks the graph of
monotasks falls into connected components: the *tasks*, whose monotasks belong on one worker. "The set of tasks from
the same Ops forms a stage."

The paper omits the case in which a task would wait for itself: A → B async and A → network → B with a barrier. Here the
tasks of such a stage are cut between operations with different numbers of network operations before them. Data that
crosses the cut is fetched like any input, and the node with most of it is requested.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate

from penstock.model.resources import ResourceKind
from penstock.model.units import counted
from penstock.opgraph.checking import Version, check
from penstock.opgraph.collapsing import PlannedOp, collapse
from penstock.opgraph.ops import Data, Dependency, OpGraph
from penstock.opgraph.order import first_possible, reachable

#: Names of stages are also names at the agent, which allows 128 characters; tasks add their number.
_STAGE_NAME_CHARACTERS = 100


@dataclass(frozen=True, slots=True)
class PlannedMonotask:
    """A monotask: an operation on one partition."""

    index: int
    op: int
    partition: int
    task: int


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task: monotasks that belong on one worker, in an order in which they can run."""

    index: int
    name: str
    stage: int
    monotasks: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class PlannedStage:
    """A stage: the tasks from the same operations; ``after`` are the stages that they take data from."""

    index: int
    name: str
    ops: tuple[int, ...]
    tasks: tuple[int, ...]
    after: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Link:
    """A dependency of ``after`` on ``before``, both indices of operations; ``crosses``: it leads from task to task."""

    before: int
    after: int
    dependency: Dependency
    crosses: bool


@dataclass(frozen=True)
class Plan:
    """A dataflow ready to run. Its parts refer to each other by index."""

    ops: tuple[PlannedOp, ...]
    monotasks: tuple[PlannedMonotask, ...]
    tasks: tuple[PlannedTask, ...]
    stages: tuple[PlannedStage, ...]
    links: tuple[Link, ...]
    versions: tuple[Version, ...]
    parts: dict[int, int]
    writers: dict[int, int]  # version → the operation of the plan that makes it, for versions that outlive it
    results: tuple[int, ...]  # versions
    first: tuple[int, ...]  # operation → its first monotask; its other monotasks follow by partition

    def monotask(self, op: int, partition: int) -> PlannedMonotask:
        """Return the monotask of an operation on a partition."""
        return self.monotasks[self.first[op] + partition]

    def partitions(self, version: int) -> range:
        """Return the partitions of a version of a dataset."""
        return range(self.versions[version].data.partitions)

    def describe(self) -> str:
        """Return a readable form of the plan: each stage with the number of its tasks and its operations."""
        lines = []
        for stage in self.stages:
            lines.append(f"stage {stage.name}: {counted(len(stage.tasks), 'task')}")
            for op in (self.ops[index] for index in stage.ops):
                waits = [
                    f"{self.ops[one.before].name} ({one.dependency})" for one in self.links if one.after == op.index
                ]
                after = f"   after {', '.join(waits)}" if waits else ""
                lines.append(f"  {op.kind:<7} {op.name}: {counted(op.partitions, 'monotask')}{after}")
        return "\n".join(lines)


def plan(graph: OpGraph, results: Iterable[Data]) -> Plan:
    """Check a graph and plan it; ``results`` are the datasets to keep at the end.

    Raises:
        OpGraphError: the graph cannot be executed; the message is one line that names the operation.
    """
    checked = check(graph)
    wanted = tuple(checked.last(data).index for data in results)
    ops = collapse(checked, wanted)
    links = _links(ops)
    stages, tasks, monotasks = _group(ops, links)
    writers = {version: op.index for op in ops for version in op.outputs}
    return Plan(ops, monotasks, tasks, stages, links, checked.versions, checked.parts, writers, wanted, _starts(ops))


def _starts(ops: Sequence[PlannedOp]) -> tuple[int, ...]:
    return tuple(accumulate((op.partitions for op in ops[:-1]), initial=0))


# ---------------------------------------------------------------- where tasks end


def _links(ops: Sequence[PlannedOp]) -> tuple[Link, ...]:
    """Return every dependency, and whether it leads from task to task."""
    cut = _cuts(ops)
    return tuple(
        Link(edge.before, op.index, edge.dependency, op.kind is ResourceKind.NETWORK or (edge.before, op.index) in cut)
        for op in ops
        for edge in op.after
    )


def _cuts(ops: Sequence[PlannedOp]) -> set[tuple[int, int]]:
    """Return the in-edges of CPU and disk operations that must also be removed, so that no task waits for itself.

    In every stage on a circle of stages these are the edges that lead to an operation with more network operations
    before it. Each remaining part of the stage has one such number. Every edge from task to task raises it, so no
    circle is left.
    """
    depth = _depths(ops)
    inner = [(edge.before, op.index) for op in ops if op.kind is not ResourceKind.NETWORK for edge in op.after]
    stage = _components(len(ops), inner)
    # Stages that consist of a single task in any case.
    single = {stage[op.index] for op in ops if op.partitions == 1}
    single |= {
        stage[op.index]
        for op in ops
        if op.kind is not ResourceKind.NETWORK and any(edge.dependency is Dependency.SYNC for edge in op.after)
    }
    leads_to: dict[int, set[int]] = {}
    for op in ops:
        for edge in op.after if op.kind is ResourceKind.NETWORK else ():
            source, target = stage[edge.before], stage[op.index]
            # Within a task the order of its monotasks suffices: the task does not wait for itself.
            within = source == target and (edge.dependency is Dependency.ASYNC or source in single)
            if not within:
                leads_to.setdefault(source, set()).add(target)
    circular = {one for one in leads_to if one in reachable(leads_to[one], leads_to)}
    return {(one, other) for one, other in inner if stage[one] in circular and depth[one] < depth[other]}


def _depths(ops: Sequence[PlannedOp]) -> list[int]:
    """Return the largest number of network operations on a path to each operation, including itself."""
    depth: list[int] = []
    for op in ops:
        before = max((depth[edge.before] for edge in op.after), default=0)
        depth.append(before + (op.kind is ResourceKind.NETWORK))
    return depth


def _components(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """Return the connected component of each of ``count`` nodes, named by its smallest member (union-find)."""
    parent = list(range(count))

    def find(node: int) -> int:
        while parent[node] != node:
            parent[node] = parent[parent[node]]
            node = parent[node]
        return node

    for one, other in edges:
        low, high = sorted((find(one), find(other)))
        parent[high] = low
    return [find(node) for node in range(count)]


# ---------------------------------------------------------------- tasks and stages


def _group(
    ops: Sequence[PlannedOp], links: Sequence[Link]
) -> tuple[tuple[PlannedStage, ...], tuple[PlannedTask, ...], tuple[PlannedMonotask, ...]]:
    starts = _starts(ops)
    inner = [link for link in links if not link.crosses]
    component = _components(sum(op.partitions for op in ops), _monotask_edges(ops, starts, inner))
    members: dict[int, list[int]] = {}
    for monotask, one in enumerate(component):
        members.setdefault(one, []).append(monotask)
    owner = [op.index for op in ops for _ in range(op.partitions)]
    stage_of = _components(len(ops), ((link.before, link.after) for link in inner))
    stage_ops: dict[int, list[int]] = {}
    for op_index, one in enumerate(stage_of):
        stage_ops.setdefault(one, []).append(op_index)
    before: dict[int, dict[int, None]] = {one: {} for one in stage_ops}
    for link in links:
        if stage_of[link.before] != stage_of[link.after]:
            before[stage_of[link.after]][stage_of[link.before]] = None
    order = first_possible(before)  # by dependencies, else by the first operation

    stages: list[PlannedStage] = []
    tasks: list[PlannedTask] = []
    task_of: dict[int, int] = {}
    for number, one in enumerate(order):
        op_indices = stage_ops[one]
        name = f"{number} {ops[op_indices[-1]].name}"[:_STAGE_NAME_CHARACTERS]
        op_index = op_indices[0]
        firsts = dict.fromkeys(component[starts[op_index] + part] for part in range(ops[op_index].partitions))
        made = []
        for position, first in enumerate(firsts):
            made.append(len(tasks))
            tasks.append(PlannedTask(len(tasks), f"{name}/{position}", number, tuple(members[first])))
            task_of.update(dict.fromkeys(members[first], made[-1]))
        after = tuple(map(order.index, before[one]))
        stages.append(PlannedStage(number, name, tuple(op_indices), tuple(made), after))
    monotasks = tuple(PlannedMonotask(index, op, index - starts[op], task_of[index]) for index, op in enumerate(owner))
    return tuple(stages), tuple(tasks), monotasks


def _monotask_edges(
    ops: Sequence[PlannedOp], starts: Sequence[int], inner: Iterable[Link]
) -> Iterable[tuple[int, int]]:
    """Yield the edges between monotasks. A barrier's many-to-many edges are reduced to enough to connect all."""
    for link in inner:
        before, after = starts[link.before], starts[link.after]
        if link.dependency is Dependency.ASYNC:
            yield from ((before + part, after + part) for part in range(ops[link.after].partitions))
        else:
            yield from ((before, after + part) for part in range(ops[link.after].partitions))
            yield from ((before + part, after) for part in range(ops[link.before].partitions))

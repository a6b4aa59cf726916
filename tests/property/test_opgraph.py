"""Random dataflows: the plan follows Ursa §4.1.3, and however monotasks end, each runs once and in time."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from penstock.model.resources import KindAmounts, ResourceKind
from penstock.opgraph.dataflow import (
    Abandon,
    Data,
    DataflowManager,
    Dependency,
    Drop,
    FlowCancelled,
    FlowEvent,
    FlowOver,
    FlowStarted,
    FlowTaskPlaced,
    Made,
    MonotaskCompleted,
    MonotaskFailed,
    Op,
    OpGraph,
    PlaceTasks,
    Plan,
    RunMonotask,
    Take,
    TaskComplete,
    plan,
)

Node = tuple[int, int]  # an operation of a plan, a partition


class Drawn(NamedTuple):
    graph: OpGraph
    results: list[Data]


def same(*values: object) -> object:
    return values


@st.composite
def flows(draw: st.DrawFn) -> Drawn:
    graph = OpGraph()
    made: list[tuple[Op, Data]] = []
    parts: dict[int, int] = {}
    for index in range(draw(st.integers(1, 8))):
        kind = draw(st.sampled_from(["cpu", "cpu", "cpu", "network", "network", "disk"]))
        op = graph.create_op(kind, f"{kind}{index}")
        before: list[tuple[Op, Data]] = []
        if made:
            before = draw(
                st.lists(st.sampled_from(made), min_size=kind != "cpu", max_size=2, unique_by=lambda one: one[1].index)
            )
        before = before[: 1 if kind != "cpu" else None]
        widths = sorted({data.partitions for _, data in before} or {1, 2, 3})
        width = draw(st.sampled_from(widths)) if draw(st.booleans()) else draw(st.integers(1, 3))
        for other, data in before:
            one_to_one = data.partitions == width and draw(st.booleans())
            if one_to_one:
                other.to(op, draw(st.sampled_from(["async", "async", "sync"])))
                op.read(data, Take.OWN)
                continue
            other.to(op, "sync")
            shuffles = parts.get(data.index, width) == width and draw(st.booleans())
            if shuffles:
                parts[data.index] = width
            op.read(data, Take.PART if shuffles else Take.WHOLE)
        if not before:
            op.read(graph.create_input([0] * width, draw(st.lists(st.integers(0, 99), min_size=width, max_size=width))))
        data = graph.create_data(width)
        op.create(data)
        if op.kind is ResourceKind.CPU:
            op.set_udf(same)
        elif op.kind is ResourceKind.DISK:
            op.set_access(same)
        made.append((op, data))
    wanted = draw(st.lists(st.sampled_from(made), min_size=1, unique_by=lambda one: one[1].index))
    return Drawn(graph, [data for _, data in wanted])


def monotask_edges(planned: Plan) -> set[tuple[Node, Node]]:
    """The DAG of monotasks, written down edge by edge: many-to-many for sync, one-to-one for async."""
    edges = set()
    for op in planned.ops:
        for edge in op.after:
            for partition in range(op.partitions):
                sync = edge.dependency is Dependency.SYNC
                theirs: Iterable[int] = range(planned.ops[edge.before].partitions) if sync else (partition,)
                edges |= {((edge.before, other), (op.index, partition)) for other in theirs}
    return edges


def components(nodes: Iterable[Node], edges: Iterable[tuple[Node, Node]]) -> dict[Node, Node]:
    """Each node's component, found by walking (the plan uses union-find)."""
    near: dict[Node, set[Node]] = {node: set() for node in nodes}
    for one, other in edges:
        near[one].add(other)
        near[other].add(one)
    found: dict[Node, Node] = {}
    for start in near:
        pending = [start]
        while pending:
            node = pending.pop()
            if node not in found:
                found[node] = start
                pending += near[node]
    return found


def has_circle(edges: set[tuple[Node, Node]]) -> bool:
    """Find circles by repeated removal of the vertices that wait for none."""
    left = {node for edge in edges for node in edge}
    while left:
        free = {node for node in left if not any(after == node and before in left for before, after in edges)}
        if not free:
            return True
        left -= free
    return False


@given(flows())
def test_tasks_are_the_components_without_the_in_edges_of_network_monotasks(drawn: Drawn) -> None:
    planned = plan(*drawn)
    nodes = [(op.index, partition) for op in planned.ops for partition in range(op.partitions)]
    edges = monotask_edges(planned)
    into_network = {edge for edge in edges if planned.ops[edge[1][0]].kind is ResourceKind.NETWORK}
    literal = components(nodes, edges - into_network)
    between = {(literal[one], literal[other]) for one, other in edges if literal[one] != literal[other]}
    cut = {
        (link.before, link.after)
        for link in planned.links
        if link.crosses and planned.ops[link.after].kind is not ResourceKind.NETWORK
    }
    assert bool(cut) == has_circle(between), "cut where tasks would wait for themselves, and only there"
    removed = into_network | {edge for edge in edges if (edge[0][0], edge[1][0]) in cut}
    expected = components(nodes, edges - removed)
    task_of = {(each.op, each.partition): each.task for each in planned.monotasks}
    for one in nodes:
        for other in nodes:
            assert (expected[one] == expected[other]) == (task_of[one] == task_of[other])
    waits = {((task_of[one], 0), (task_of[other], 0)) for one, other in removed if task_of[one] != task_of[other]}
    assert not has_circle(waits), "no task waits for itself"


@given(flows())
def test_tasks_and_stages_are_partitions_of_the_monotasks(drawn: Drawn) -> None:
    planned = plan(*drawn)
    assert sorted(one for task in planned.tasks for one in task.monotasks) == list(range(len(planned.monotasks)))
    assert sorted(task for stage in planned.stages for task in stage.tasks) == list(range(len(planned.tasks)))
    assert sorted(op for stage in planned.stages for op in stage.ops) == list(range(len(planned.ops)))
    for task in planned.tasks:
        assert {planned.monotasks[one].op for one in task.monotasks} == set(planned.stages[task.stage].ops)
        assert all(planned.monotasks[one].task == task.index for one in task.monotasks)
        assert task.index in planned.stages[task.stage].tasks
    assert len({task.name for task in planned.tasks}) == len(planned.tasks)
    for op in planned.ops:
        for partition in range(op.partitions):
            assert planned.monotask(op.index, partition).partition == partition
            assert planned.monotask(op.index, partition).op == op.index


@given(flows())
def test_collapsing_takes_connected_cpu_operations_and_no_more(drawn: Drawn) -> None:
    graph, results = drawn
    planned = plan(graph, results)
    group = {step.op: op.index for op in planned.ops for step in op.steps}
    assert set(group) == set(graph.ops)
    for op in planned.ops:
        members = [step.op for step in op.steps]
        inner = [(b, m) for m in members for b in m.before if b in members]
        assert all(one.before[other] is Dependency.ASYNC for other, one in inner)
        assert len(members) == 1 or all(one.kind is ResourceKind.CPU for one in members)
        linked = components([(m.index, 0) for m in members], [((a.index, 0), (b.index, 0)) for a, b in inner])
        assert len(set(linked.values())) == 1
    leads = {
        ((group[before], 0), (group[op], 0)) for op in graph.ops for before in op.before if group[before] != group[op]
    }
    assert not has_circle(leads)
    for op in graph.ops:
        for before, dependency in op.before.items():
            both_cpu = before.kind is op.kind is ResourceKind.CPU
            if both_cpu and dependency is Dependency.ASYNC and group[before] != group[op]:
                one, other = (group[before], 0), (group[op], 0)
                merged = {(one if a == other else a, one if b == other else b) for a, b in leads}
                barrier = any(
                    group[a] == one[0] and group[b] == other[0] and b.before[a] is Dependency.SYNC
                    for b in graph.ops
                    for a in b.before
                )
                assert barrier or has_circle({edge for edge in merged if edge[0] != edge[1]}), "could have been merged"


class Drive:
    """Plays placement, workers and engine: obeys, and checks every instruction against the plan."""

    def __init__(self, planned: Plan, job_memory_bytes: int, draw: st.DataObject) -> None:
        self.plan = planned
        self.manager = DataflowManager(planned, job_memory_bytes=job_memory_bytes)
        self.job_memory_bytes = job_memory_bytes
        self.draw = draw
        self.unplaced: list[int] = []
        self.nodes: dict[int, str] = {}
        self.running: list[int] = []
        self.done: set[int] = set()
        self.asked: set[int] = set()
        self.complete: set[int] = set()
        self.dropped: set[tuple[int, int]] = set()
        self.sizes: dict[tuple[int, int], Made] = {}
        self.over: FlowOver | None = None
        self.before: dict[int, set[int]] = {each.index: set() for each in planned.monotasks}
        for (op, part), (other, other_part) in monotask_edges(planned):
            self.before[planned.monotask(other, other_part).index].add(planned.monotask(op, part).index)

    def say(self, event: FlowEvent) -> None:
        instructions = self.manager.handle(event)
        for instruction in instructions:
            assert self.over is None, "nothing follows the end"
            match instruction:
                case PlaceTasks():
                    self.place(instruction)
                case RunMonotask():
                    self.run(instruction)
                case TaskComplete(task):
                    assert task not in self.complete
                    assert set(self.plan.tasks[task].monotasks) <= self.done
                    self.complete.add(task)
                case Drop(version, partition):
                    self.drop(version, partition)
                case Abandon(monotasks, tasks):
                    assert sorted(monotasks) == sorted(self.running)
                    assert set(tasks) == (set(self.unplaced) | set(self.nodes)) - self.complete
                case FlowOver():
                    self.over = instruction
        if self.job_memory_bytes:
            placed = [demand for one in instructions if isinstance(one, PlaceTasks) for demand in one.demands]
            assert sum(demand.memory_bytes for demand in placed) <= self.job_memory_bytes + len(placed)

    def place(self, asked: PlaceTasks) -> None:
        assert asked.demands
        for demand in asked.demands:
            task = self.plan.tasks[demand.task]
            assert demand.task not in self.nodes
            assert demand.task not in self.unplaced
            assert asked.stage == self.plan.stages[task.stage].name
            outside = {other for one in task.monotasks for other in self.before[one]} - set(task.monotasks)
            assert outside <= self.done, "a task is ready when its parents are complete"
            assert all(self.plan.monotasks[other].task in self.complete for other in outside)
            self.unplaced.append(demand.task)

    def run(self, asked: RunMonotask) -> None:
        one = asked.monotask
        assert one not in self.asked, "each monotask once"
        assert self.before[one] <= self.done, "only after its inputs"
        monotask = self.plan.monotasks[one]
        assert asked.node == self.nodes[monotask.task]
        assert asked.kind is self.plan.ops[monotask.op].kind
        assert asked.input_bytes == sum(self.reads(one))
        assert not self.dropped & self.partitions_read(one)
        self.asked.add(one)
        self.running.append(one)

    def partitions_read(self, one: int) -> set[tuple[int, int]]:
        monotask = self.plan.monotasks[one]
        return {
            (read.version, other)
            for read in self.plan.ops[monotask.op].inputs
            for other in range(self.plan.versions[read.version].data.partitions)
            if read.take is not Take.OWN or other == monotask.partition
        }

    def reads(self, one: int) -> Iterable[int]:
        monotask = self.plan.monotasks[one]
        for read in self.plan.ops[monotask.op].inputs:
            data = self.plan.versions[read.version].data
            for other in range(data.partitions):
                if data.content is not None:
                    made = Made(data.sizes_bytes[other])
                elif (read.version, other) in self.sizes:
                    made = self.sizes[read.version, other]
                else:
                    continue
                if read.take is Take.PART:
                    yield made.part_bytes[monotask.partition]
                elif read.take is Take.WHOLE or other == monotask.partition:
                    yield made.size_bytes

    def drop(self, version: int, partition: int) -> None:
        assert (version, partition) not in self.dropped
        assert version not in self.plan.results
        for each in self.plan.monotasks:
            if (version, partition) in self.partitions_read(each.index):
                assert each.index in self.done, "it will still be read"
        self.dropped.add((version, partition))

    def finish(self, one: int) -> None:
        self.running.remove(one)
        self.done.add(one)
        monotask = self.plan.monotasks[one]
        made = []
        for version in self.plan.ops[monotask.op].outputs:
            count = self.plan.parts.get(version, 0)
            parts = tuple(self.draw.draw(st.lists(st.integers(0, 50), min_size=count, max_size=count)))
            made.append(Made(sum(parts) if count else self.draw.draw(st.integers(0, 50)), parts))
            self.sizes[version, monotask.partition] = made[-1]
        self.say(MonotaskCompleted(one, tuple(made)))

    def step(self) -> None:
        assert self.unplaced or self.running, "the job hangs"
        if self.unplaced and (not self.running or self.draw.draw(st.booleans())):
            task = self.draw.draw(st.sampled_from(self.unplaced))
            self.unplaced.remove(task)
            self.nodes[task] = self.draw.draw(st.sampled_from(["", "n1", "n2"]))
            self.say(FlowTaskPlaced(task, self.nodes[task]))
        else:
            self.finish(self.draw.draw(st.sampled_from(self.running)))


@given(flows(), st.sampled_from([0, 1, 100, 10**6]), st.data())
def test_every_monotask_runs_once_and_only_after_its_inputs(drawn: Drawn, memory: int, data: st.DataObject) -> None:
    drive = Drive(plan(*drawn), memory, data)
    drive.say(FlowStarted())
    while drive.over is None:
        drive.step()
        told = drive.manager.progress()
        assert sum(stage.done for stage in told) == len(drive.complete)
        assert all(stage.done < stage.tasks or stage.usage == KindAmounts() for stage in told), "nothing is left of it"
    assert drive.over == FlowOver(succeeded=True)
    assert drive.asked == drive.done == set(range(len(drive.plan.monotasks)))
    assert drive.complete == set(range(len(drive.plan.tasks)))
    # Intermediate data is dropped in the end; wanted data stays.
    made = {(v, p) for v in drive.plan.writers for p in range(drive.plan.versions[v].data.partitions)}
    assert made - drive.dropped == {(v, p) for v, p in made if v in drive.plan.results}


@given(flows(), st.integers(0, 12), st.booleans(), st.data())
def test_a_failure_or_a_cancellation_ends_it_once(drawn: Drawn, steps: int, fails: bool, data: st.DataObject) -> None:
    drive = Drive(plan(*drawn), 0, data)
    drive.say(FlowStarted())
    for _ in range(steps):
        if drive.over is None:
            drive.step()
    if drive.over is not None:
        return
    if fails and drive.running:
        drive.say(MonotaskFailed(drive.running[0], "broken"))
        assert drive.over == FlowOver(succeeded=False, reason="broken")
    else:
        drive.say(FlowCancelled())
        assert drive.over == FlowOver(succeeded=False, reason="cancelled")
    for one in drive.running:
        assert drive.manager.handle(MonotaskCompleted(one, ())) == []
    assert drive.manager.handle(FlowCancelled()) == []

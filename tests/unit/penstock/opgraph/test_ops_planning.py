"""Ursa §4.1.3: collapsing, monotasks, tasks, stages."""

from __future__ import annotations

import pytest

from penstock.model.resources import ResourceKind
from penstock.opgraph.dataflow import Data, Dependency, Op, OpGraph, Plan, Take, plan
from tests.unit.penstock.opgraph.flows import same

Made = tuple[Op, Data]


class Flow(OpGraph):
    def source(self, partitions: int, kind: str = "cpu", name: str = "source") -> Made:
        op = self.create_op(kind, name).read(self.create_input([0] * partitions, [10] * partitions))
        return self._made(op, partitions)

    def then(
        self,
        name: str,
        *before: Made,
        kind: str = "cpu",
        partitions: int | None = None,
        dependency: str = "async",
        take: Take | None = None,
    ) -> Made:
        op = self.create_op(kind, name)
        for other, data in before:
            op.read(data, take)
            other.to(op, dependency)
        return self._made(op, partitions or before[0][1].partitions)

    def _made(self, op: Op, partitions: int) -> Made:
        if op.kind is ResourceKind.CPU:
            op.set_udf(same)
        elif op.kind is ResourceKind.DISK:
            op.set_access(same)
        data = self.create_data(partitions, op.name)
        return op.create(data), data


def shuffled(flow: Flow, name: str, before: Made, partitions: int) -> Made:
    return flow.then(name, before, kind="network", partitions=partitions, dependency="sync")


def stages(planned: Plan) -> list[tuple[list[str], int]]:
    """The operations of each stage, and how many tasks it has."""
    return [([planned.ops[op].name for op in stage.ops], len(stage.tasks)) for stage in planned.stages]


@pytest.fixture
def flow() -> Flow:
    return Flow()


def test_a_shuffle_makes_two_stages_of_tasks(flow: Flow) -> None:
    source = flow.source(4)
    serialized = flow.then("ser", source)
    shuffle = shuffled(flow, "shuffle", serialized, 2)
    result = flow.then("deser", shuffle)
    planned = plan(flow, [result[1]])
    assert stages(planned) == [(["source+ser"], 4), (["shuffle", "deser"], 2)]
    assert [len(task.monotasks) for task in planned.tasks] == [1, 1, 1, 1, 2, 2]
    assert [task.name for task in planned.tasks][-2:] == ["1 deser/0", "1 deser/1"]
    [crossing] = [link for link in planned.links if link.crosses]
    assert (crossing.before, crossing.after, crossing.dependency) == (0, 1, Dependency.SYNC)


def test_the_plan_reads_as_a_list_of_stages(flow: Flow) -> None:
    shuffle = shuffled(flow, "shuffle", flow.source(1), 2)
    planned = plan(flow, [flow.then("deser", shuffle)[1]])
    assert planned.describe().splitlines() == [
        "stage 0 source: 1 task",
        "  cpu     source: 1 monotask",
        "stage 1 deser: 2 tasks",
        "  network shuffle: 2 monotasks   after source (sync)",
        "  cpu     deser: 2 monotasks   after shuffle (async)",
    ]


def test_only_cpu_operations_in_async_connection_collapse(flow: Flow) -> None:
    read = flow.source(2, "disk", "read")
    left = flow.then("left", read)
    right = flow.then("right", read)
    both = flow.then("both", left, right)
    late = flow.then("late", both, dependency="sync")
    planned = plan(flow, [late[1]])
    assert [op.name for op in planned.ops] == ["read", "left+right+both", "late"]
    assert [step.op.name for step in planned.ops[1].steps] == ["left", "right", "both"]
    assert len(planned.ops[1].inputs) == 1
    # A barrier without a network in between connects everything: one task, to be carried out at one place.
    assert stages(planned) == [(["read", "left+right+both", "late"], 1)]


def test_a_dataset_only_passed_from_step_to_step_is_no_output(flow: Flow) -> None:
    first = flow.source(2)
    second = flow.then("second", first)
    third = flow.then("third", second)
    assert plan(flow, [third[1]]).ops[0].outputs == plan(flow, [third[1]]).results
    kept = plan(flow, [first[1], third[1]])
    assert kept.ops[0].outputs == kept.results


def test_operations_stay_apart_where_collapsing_would_close_a_circle(flow: Flow) -> None:
    source = flow.source(3)
    everywhere = flow.then("pull", source, kind="network", dependency="sync", take=Take.WHOLE)
    both = flow.then("both", source, everywhere)
    planned = plan(flow, [both[1]])
    # All three belong to one component, whose tasks would wait for each other: cut where the network begins.
    assert stages(planned) == [(["source"], 3), (["pull", "both"], 3)]
    crossing = {(link.before, link.after, link.dependency) for link in planned.links if link.crosses}
    assert crossing == {(0, 1, Dependency.SYNC), (0, 2, Dependency.ASYNC)}


def test_a_join_with_local_data_is_one_task_as_in_the_paper(flow: Flow) -> None:
    here = flow.source(2, name="here")
    there = shuffled(flow, "shuffle", flow.source(3, name="there"), 2)
    joined = flow.then("join", here, there)
    planned = plan(flow, [joined[1]])
    assert stages(planned) == [(["there"], 3), (["shuffle", "here+join"], 2)]


def test_a_barrier_within_a_single_task_needs_no_cut() -> None:
    """It is one task by the letter of the paper, and it waits for none: the order of its monotasks is enough."""
    for partitions, dependency in ((1, "async"), (2, "sync")):
        flow = Flow()
        source = flow.source(partitions)
        pulled = flow.then("pull", source, kind="network", dependency="sync", take=Take.WHOLE)
        both = flow.then("both", source, pulled, dependency=dependency)
        assert stages(plan(flow, [both[1]])) == [(["source", "pull", "both"], 1)]


def test_a_barrier_beside_the_way_keeps_operations_apart(flow: Flow) -> None:
    first = flow.source(2)
    second = flow.then("second", first)
    third = flow.then("third", second)
    first[0].to(third[0], "sync")
    planned = plan(flow, [third[1]])
    assert [op.name for op in planned.ops] in (["source+second", "third"], ["source", "second+third"])
    assert len(planned.tasks) == 1


def test_one_to_one_transfer_within_a_task_needs_no_cut(flow: Flow) -> None:
    source = flow.source(2)
    moved = flow.then("move", source, kind="network")
    both = flow.then("both", source, moved)
    planned = plan(flow, [both[1]])
    assert stages(planned) == [(["source", "move", "both"], 2)]


def test_a_circle_of_two_stages_is_cut(flow: Flow) -> None:
    first = flow.source(2)
    away = flow.then("away", first, kind="network")
    there = flow.then("there", away)
    back = flow.then("back", there, kind="network")
    both = flow.then("both", first, back)
    planned = plan(flow, [both[1]])
    assert stages(planned) == [(["source"], 2), (["away", "there"], 2), (["back", "both"], 2)]


def test_names_of_stages_fit_the_wire(flow: Flow) -> None:
    made = flow.source(1, name="s" * 90)
    for step in range(5):
        made = flow.then(f"a_long_name_{step}" * 4, made)
    [task] = plan(flow, [made[1]]).tasks
    assert len(task.name) <= 128

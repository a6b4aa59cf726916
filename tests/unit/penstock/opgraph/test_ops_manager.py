"""The job manager of a dataflow: Ursa §4.1.3 "Task execution flow" and the estimates of §4.2.1."""

from __future__ import annotations

import pytest

from penstock.model.resources import KindAmounts, ResourceKind
from penstock.opgraph.checking import Input
from penstock.opgraph.dataflow import (
    Abandon,
    DataflowManager,
    Drop,
    FlowCancelled,
    FlowInstruction,
    FlowOver,
    FlowStarted,
    FlowTaskPlaced,
    Made,
    MonotaskCompleted,
    MonotaskFailed,
    OpGraph,
    PlaceTasks,
    Plan,
    RunMonotask,
    Take,
    TaskComplete,
    TaskDemand,
    plan,
)
from tests.unit.penstock.opgraph import flows
from tests.unit.penstock.opgraph.flows import same


def word_count() -> Plan:
    return flows.word_count(memory_to_input=3)


def only(instructions: list[FlowInstruction], kind: type[FlowInstruction]) -> list[FlowInstruction]:
    return [one for one in instructions if isinstance(one, kind)]


def start(manager: DataflowManager) -> tuple[TaskDemand, ...]:
    [asked] = manager.handle(FlowStarted())
    assert isinstance(asked, PlaceTasks)
    return asked.demands


def run_first_stage(manager: DataflowManager) -> list[FlowInstruction]:
    """Both tasks of the first stage, on nodes n0 and n1: parts of 10 and 20 bytes, and of 30 and 40."""
    start(manager)
    out: list[FlowInstruction] = []
    for task, parts in ((0, (10, 20)), (1, (30, 40))):
        manager.handle(FlowTaskPlaced(task, f"n{task}"))
        manager.handle(MonotaskCompleted(task, (Made(50),)))
        out = manager.handle(MonotaskCompleted(2 + task, (Made(sum(parts), parts),)))
    return out


def test_the_flow_of_a_word_count() -> None:
    manager = DataflowManager(word_count())
    assert start(manager)[0].name == "0 send/0"
    # Placed: of the task's two monotasks only the reading has its input, and it runs on the task's node.
    assert manager.handle(FlowTaskPlaced(0, "n0")) == [
        RunMonotask(0, ResourceKind.DISK, 100, "n0", "0 send", "0 send/0")
    ]
    # The read data turns out as 450 bytes; its source is the job's input and not ours to drop.
    assert manager.handle(MonotaskCompleted(0, (Made(450),))) == [
        RunMonotask(2, ResourceKind.CPU, 450, "n0", "0 send", "0 send/0")
    ]
    assert manager.handle(MonotaskCompleted(2, (Made(30, (10, 20)),))) == [Drop(1, 0), TaskComplete(0)]
    manager.handle(FlowTaskPlaced(1, "n1"))
    manager.handle(MonotaskCompleted(1, (Made(1000),)))
    # The barrier is open: both tasks of the second stage in one request, with their bytes to pull.
    drop, complete, asked = manager.handle(MonotaskCompleted(3, (Made(70, (30, 40)),)))
    assert (drop, complete) == (Drop(1, 1), TaskComplete(1))
    assert isinstance(asked, PlaceTasks)
    assert asked.stage == "1 merge"
    assert [demand.usage for demand in asked.demands] == [
        KindAmounts(cpu=40, network=40),
        KindAmounts(cpu=60, network=60),
    ]
    [pull] = manager.handle(FlowTaskPlaced(2, "n1"))
    assert (pull.monotask, pull.kind, pull.input_bytes) == (4, ResourceKind.NETWORK, 40)  # type: ignore[union-attr]
    manager.handle(FlowTaskPlaced(3, ""))
    manager.handle(MonotaskCompleted(4, (Made(40),)))
    # Parts are dropped when the last of those that pull them has.
    out = manager.handle(MonotaskCompleted(5, (Made(60),)))
    assert only(out, Drop) == [Drop(2, 0), Drop(2, 1)]
    manager.handle(MonotaskCompleted(6, (Made(7),)))
    out = manager.handle(MonotaskCompleted(7, (Made(7),)))
    assert out == [Drop(3, 1), TaskComplete(3), FlowOver(succeeded=True)]
    assert manager.metadata.place(4, 0) == "n1"
    assert manager.metadata.read_bytes(Input(4, Take.OWN), 0) == 7


def test_usage_of_a_task_that_reads_packed_data() -> None:
    """I(t) is the size on the disk; the CPU gets the unpacked size."""
    first, second = start(DataflowManager(word_count()))
    assert first.usage == KindAmounts(disk=100, cpu=400)
    assert second.usage == KindAmounts(disk=300, cpu=1200)


def test_memory_is_the_smaller_of_the_share_of_the_job_and_of_m2i_times_input() -> None:
    # m2i of the first stage is the default, 2; of the second 3. r is 100/400 and 300/400, then 40/100 and 60/100.
    assert [demand.memory_bytes for demand in start(DataflowManager(word_count(), job_memory_bytes=400))] == [100, 300]
    assert [demand.memory_bytes for demand in start(DataflowManager(word_count(), job_memory_bytes=10**6))] == [
        200,
        600,
    ]
    assert [demand.memory_bytes for demand in start(DataflowManager(word_count()))] == [200, 600]
    for given, expected in ((0, [120, 180]), (200, [80, 120]), (1000, [120, 180])):
        [asked] = only(run_first_stage(DataflowManager(word_count(), job_memory_bytes=given)), PlaceTasks)
        assert isinstance(asked, PlaceTasks)
        assert [demand.memory_bytes for demand in asked.demands] == expected


def test_the_share_counts_every_task_that_is_ready_and_has_no_node() -> None:
    """A ready task of another stage that still waits for its node takes its share of M(j), too."""
    graph = OpGraph()
    made = []
    for index, size in enumerate((100, 300)):
        data = graph.create_data(1)
        given = graph.create_input([0], [size])
        op = graph.create_op("cpu", f"source{index}").read(given).create(data).set_udf(same).estimate(memory_to_input=9)
        made.append((op, data))
    pulled, result = graph.create_data(1), graph.create_data(1)
    pull = graph.create_op("network", "pull").read(made[0][1]).create(pulled)
    made[0][0].to(pull, "sync")
    last = graph.create_op("cpu", "last").read(pulled).create(result).set_udf(same)
    pull.to(last)
    manager = DataflowManager(plan(graph, [result, made[1][1]]), job_memory_bytes=400)
    asked = manager.handle(FlowStarted())
    assert [demand.memory_bytes for one in asked if isinstance(one, PlaceTasks) for demand in one.demands] == [100, 300]
    manager.handle(FlowTaskPlaced(0, "n"))
    [later] = only(manager.handle(MonotaskCompleted(0, (Made(100, (100,)),))), PlaceTasks)
    assert isinstance(later, PlaceTasks)
    assert later.demands[0].memory_bytes == 100  # 100 of 400 bytes that are ready, of M(j) = 400


def test_learned_m2i_and_the_estimate_for_admission() -> None:
    learned = {"0 send": 5.0}
    assert [d.memory_bytes for d in start(DataflowManager(word_count(), learned_memory_to_input=learned))] == [
        500,
        1500,
    ]
    assert DataflowManager(word_count(), learned_memory_to_input=learned).estimated_memory_bytes() == 2000
    assert DataflowManager(word_count(), job_memory_bytes=77).estimated_memory_bytes() == 77


def test_writing_to_disk_counts_as_the_whole_input_of_the_task() -> None:
    """§4.2.1: "we simply estimate disk write usage as the total input size of the task"."""
    graph = OpGraph()
    data, written = graph.create_data(1), graph.create_data(1)
    filtered = graph.create_op("cpu").read(graph.create_input([0], [500])).create(data).set_udf(same)
    filtered.estimate(expansion=0.1)
    filtered.to(graph.create_op("disk").read(data).create(written).set_access(same))
    [demand] = start(DataflowManager(plan(graph, [written])))
    assert demand.usage == KindAmounts(cpu=500, disk=500)


def test_a_dataset_that_crosses_a_cut_asks_for_its_node() -> None:
    graph = OpGraph()
    data, everything, result = graph.create_data(2), graph.create_data(2), graph.create_data(2)
    source = graph.create_op("cpu", "source").read(graph.create_input([0, 0], [1, 1])).create(data).set_udf(same)
    pull = graph.create_op("network", "pull").read(data, Take.WHOLE).create(everything)
    both = graph.create_op("cpu", "both").read(data).read(everything).create(result).set_udf(same)
    source.to(pull, "sync")
    source.to(both)
    pull.to(both)
    manager = DataflowManager(plan(graph, [result]))
    start(manager)
    for task in (0, 1):
        manager.handle(FlowTaskPlaced(task, f"n{task}"))
    manager.handle(MonotaskCompleted(0, (Made(5),)))
    [asked] = only(manager.handle(MonotaskCompleted(1, (Made(6),))), PlaceTasks)
    assert isinstance(asked, PlaceTasks)
    assert [demand.nodes for demand in asked.demands] == [("n0",), ("n1",)]
    # The own partition crosses the cut, both come by the network: I(t) is 5 + 11 and 6 + 11.
    assert [demand.usage for demand in asked.demands] == [
        KindAmounts(network=11, cpu=16),
        KindAmounts(network=11, cpu=17),
    ]


def test_a_failure_ends_the_job_and_names_the_datasets_that_are_not_wanted_any_more() -> None:
    manager = DataflowManager(word_count())
    start(manager)
    manager.handle(FlowTaskPlaced(0, "n0"))
    assert manager.handle(MonotaskFailed(2, "never asked for")) == []
    assert manager.handle(MonotaskFailed(0, "no such file")) == [
        Abandon((0,), (0, 1)),
        FlowOver(succeeded=False, reason="no such file"),
    ]
    assert manager.over
    assert manager.handle(FlowTaskPlaced(1, "n1")) == []
    assert manager.handle(MonotaskCompleted(0, (Made(1),))) == []
    assert manager.handle(FlowCancelled()) == []


def test_cancelling_before_the_start_and_in_the_middle() -> None:
    assert DataflowManager(word_count()).handle(FlowCancelled()) == [FlowOver(succeeded=False, reason="cancelled")]
    manager = DataflowManager(word_count())
    run_first_stage(manager)
    assert manager.handle(FlowCancelled("no time")) == [
        Abandon((), (2, 3)),
        FlowOver(succeeded=False, reason="no time"),
    ]


def test_events_that_come_twice_are_no_news() -> None:
    manager = DataflowManager(word_count())
    start(manager)
    assert manager.handle(FlowStarted()) == []
    manager.handle(FlowTaskPlaced(0, "n0"))
    assert manager.handle(FlowTaskPlaced(0, "n1")) == []
    manager.handle(MonotaskCompleted(0, (Made(1),)))
    assert manager.handle(MonotaskCompleted(0, (Made(2),))) == []
    assert manager.metadata.read_bytes(Input(1, Take.OWN), 0) == 1


def test_a_completion_that_does_not_fit_its_operation_is_an_error() -> None:
    manager = DataflowManager(word_count())
    start(manager)
    manager.handle(FlowTaskPlaced(0, "n0"))
    with pytest.raises(ValueError, match="'read' makes 1 dataset, not 0"):
        manager.handle(MonotaskCompleted(0, ()))

"""The progress that a dataflow reports."""

from __future__ import annotations

from penstock.model.resources import KindAmounts
from penstock.opgraph.dataflow import (
    DataflowManager,
    Dependency,
    FlowStarted,
    FlowTaskPlaced,
    Made,
    MonotaskCompleted,
    OpGraph,
    Take,
    plan,
)
from penstock.wire.agent_api import StageProgress
from tests.unit.penstock.opgraph.flows import same, word_count


def complete(manager: DataflowManager, task: int, *made: tuple[int, Made]) -> None:
    manager.handle(FlowTaskPlaced(task, "n"))
    for monotask, one in made:
        manager.handle(MonotaskCompleted(monotask, (one,)))


def test_stages_that_are_not_ready_are_known_as_far_as_their_inputs_are() -> None:
    manager = DataflowManager(word_count())
    first, second = manager.progress()
    assert first == StageProgress(stage="0 send", tasks=2, usage=KindAmounts(disk=400.0, cpu=1600.0))
    assert second == StageProgress(stage="1 merge", tasks=2, after=["0 send"]), "nothing was sent yet"
    manager.handle(FlowStarted())
    assert manager.progress() == [first, second]
    complete(manager, 0, (0, Made(400)), (2, Made(30, (10, 20))))
    first, second = manager.progress()
    assert (first.tasks, first.done) == (2, 1)
    assert first.usage == KindAmounts(disk=200.0, cpu=800.0), "one of two: their mean"
    assert second.usage == KindAmounts(network=60.0, cpu=60.0), "the other file is expected to send as much"


def test_stages_that_are_ready_are_known_by_the_estimates_of_their_tasks() -> None:
    manager = DataflowManager(word_count())
    manager.handle(FlowStarted())
    complete(manager, 0, (0, Made(400)), (2, Made(30, (10, 20))))
    complete(manager, 1, (1, Made(1200)), (3, Made(70, (30, 40))))
    first, second = manager.progress()
    assert (first.done, first.usage) == (2, KindAmounts())
    assert second.usage == KindAmounts(network=100.0, cpu=100.0)
    complete(manager, 2, (4, Made(40)), (6, Made(1)))
    assert manager.progress()[1].usage == KindAmounts(network=50.0, cpu=50.0)
    complete(manager, 3, (5, Made(60)), (7, Made(1)))
    assert [stage.done for stage in manager.progress()] == [2, 2]
    assert manager.over


def test_a_dataset_read_whole_is_read_by_each() -> None:
    """A table of 50 bytes that each of three partitions is joined with, and the output of a task for its own input."""
    graph = OpGraph()
    table, items = graph.create_input(["t"], [50]), graph.create_input(["a", "b", "c"], [10, 20, 30])
    small, joined, saved = graph.create_data(1, "small"), graph.create_data(3, "joined"), graph.create_data(3, "saved")
    load = graph.create_op("cpu", "load").read(table).create(small).set_udf(same)
    get = graph.create_op("network", "get").read(small, Take.WHOLE)
    got = graph.create_data(3, "got")
    get.create(got)
    join = graph.create_op("cpu", "join").read(got).read(items).create(joined).set_udf(same)
    save = graph.create_op("disk", "save").read(joined).create(saved).set_access(same)
    load.to(get, Dependency.SYNC)
    get.to(join)
    join.to(save)
    manager = DataflowManager(plan(graph, [saved]))
    manager.handle(FlowStarted())
    complete(manager, 0, (0, Made(50)))
    [ready] = {stage.usage for stage in manager.progress()[1:]}
    assert ready == KindAmounts(network=150.0, cpu=210.0, disk=210.0)

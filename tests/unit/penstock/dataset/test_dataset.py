"""Datasets are lazy: they record a graph of operations."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.dataset import Dataset
from penstock.dataset.functions import combine_and_send, combined, grouped, joined, send
from penstock.model.resources import ResourceKind
from penstock.opgraph.dataflow import Dependency, Plan, Take, plan


def fail(*_: object) -> int:
    raise AssertionError("nothing is computed while a dataset is described")


def shape(planned: Plan) -> list[list[tuple[str, int]]]:
    """Each stage's operations and how many monotasks they have."""
    return [[(planned.ops[op].name, planned.ops[op].partitions) for op in stage.ops] for stage in planned.stages]


def test_nothing_is_computed() -> None:
    every = Dataset.from_items(range(10), 4)
    made = every.map(fail).filter(fail).flat_map(fail).map_partitions(fail).map(fail, every.broadcast())
    pairs: Dataset[tuple[int, int]] = made.map(fail)
    joined = pairs.group_by_key().join(pairs.reduce_by_key(fail))
    assert joined.count().dataset.plan().monotasks


def test_items_are_spread_evenly_and_in_order() -> None:
    graph, _ = Dataset.from_items("abcdefg", 3).flow()
    assert graph.data[0].content == (["a", "b"], ["c", "d"], ["e", "f", "g"])
    assert all(size > 0 for size in graph.data[0].sizes_bytes)
    assert Dataset.from_items([]).partitions == 1
    assert Dataset.from_items([1, 2]).partitions == 2
    assert Dataset.from_items(range(100)).partitions == 8
    assert Dataset.from_items([1], 5).partitions == 5
    assert Dataset.from_partitions([[1], []]).partitions == 2


def test_a_chain_is_one_operation() -> None:
    made = Dataset.from_items(range(4), 2).map(abs).filter(bool).flat_map(range)
    assert shape(made.plan()) == [[("from_items+map(abs)+filter(bool)+flat_map(range)", 2)]]


def test_a_reduction_is_the_example_of_the_paper() -> None:
    pairs = Dataset.from_items([("a", 1)], 4)
    planned = pairs.reduce_by_key(max, 3).plan()
    assert shape(planned) == [
        [("from_items+reduce_by_key.send", 4)],
        [("reduce_by_key.shuffle", 3), ("reduce_by_key", 3)],
    ]
    send, shuffle, _ = planned.ops
    assert shuffle.kind is ResourceKind.NETWORK
    assert [(read.version, read.take) for read in shuffle.inputs] == [(send.outputs[0], Take.PART)]
    assert shuffle.after[0].dependency is Dependency.SYNC
    assert pairs.group_by_key().partitions == 4


def test_a_join_pulls_both_sides_to_one_task() -> None:
    left, right = Dataset.from_items([(1, 2)], 2), Dataset.from_items([(1, 3)], 3)
    planned = left.join(right, selectivity=0.5).plan()
    assert shape(planned)[2] == [("join.left.shuffle", 3), ("join.right.shuffle", 3), ("join", 3)]
    assert planned.ops[-1].memory_to_input == 1.5
    assert left.map(fail).filter(fail).plan().ops[0].memory_to_input == 2.0


def test_a_broadcast_of_the_same_dataset() -> None:
    numbers = Dataset.from_items(range(4), 2)
    planned = numbers.map(fail, numbers.broadcast()).plan()
    assert shape(planned) == [[("from_items", 2)], [("map(fail).broadcast", 2), ("map(fail)", 2)]]
    assert planned.ops[1].inputs[0].take is Take.WHOLE


def test_the_common_source_of_two_datasets_is_made_once() -> None:
    source = Dataset.from_items([(1, 1)], 2).map(fail)
    planned = source.group_by_key().join(source.reduce_by_key(fail)).plan()
    assert sum("from_items" in op.name for op in planned.ops) == 1


def test_files_are_read_by_disk_monotasks_and_decoded_by_cpu_ones(tmp_path: Path) -> None:
    path = tmp_path / "text"
    path.write_text("one\ntwo\nthree\n")
    read = Dataset.read_text(str(path), partition_bytes=8)
    planned = read.plan()
    assert [(op.kind, op.name) for op in planned.ops] == [(ResourceKind.DISK, "read_text"), (ResourceKind.CPU, "lines")]
    assert planned.versions[0].data.sizes_bytes == (8, 6)
    assert len(planned.tasks) == 2
    assert Dataset.read_text([path, path]).partitions == 2


def test_thousands_of_steps() -> None:
    made = Dataset.from_items([0], 1)
    for _ in range(3000):
        made = made.map(fail)
    graph, data = made.flow()
    assert len(graph.ops) == 3001
    assert data.partitions == 1


@pytest.mark.parametrize("partitions", [0, -1])
def test_there_is_at_least_one_partition(partitions: int) -> None:
    says = f"at least one partition, not {partitions}"
    with pytest.raises(ValueError, match=says):
        Dataset.from_items([1], partitions)
    with pytest.raises(ValueError, match=says):
        Dataset.from_items([(1, 1)]).group_by_key(partitions)
    with pytest.raises(ValueError, match="not 0"):
        Dataset.from_partitions([])


def test_functions_by_key() -> None:
    pairs = [("b", 1), ("a", 2), ("b", 3)]
    assert combined(lambda one, other: one * 10 + other, pairs) == [("b", 13), ("a", 2)]
    assert grouped([pairs, [("a", 4)]]) == [("b", [1, 3]), ("a", [2, 4])]
    assert joined([pairs], [[("b", "x")], [("b", "y"), ("c", "z")]]) == [
        ("b", (1, "x")),
        ("b", (1, "y")),
        ("b", (3, "x")),
        ("b", (3, "y")),
    ]
    parts = send(3, pairs)
    assert sorted(pair for part in parts for pair in part) == sorted(pairs)
    assert [part for part in parts if ("b", 1) in part] == [part for part in parts if ("b", 3) in part]
    combined_parts = combine_and_send(max, 3, pairs)
    assert sorted(pair for part in combined_parts for pair in part) == [("a", 2), ("b", 3)]


def test_results_finish_partitions() -> None:
    numbers = Dataset.from_items(range(5), 2)
    assert numbers.collect().finish([[0, 1], [2, 3, 4]]) == [0, 1, 2, 3, 4]
    assert numbers.count().finish([2, 3]) == 5
    graph, data = numbers.count().dataset.flow()
    assert [op.name for op in graph.ops] == ["from_items", "count"]
    assert plan(graph, [data]).ops[0].name == "from_items+count"

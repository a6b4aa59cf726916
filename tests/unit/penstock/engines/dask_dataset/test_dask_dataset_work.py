"""The work of a dataset's Dask task, and the choice of workers."""

from __future__ import annotations

import pickle
import re
from typing import Any

import pytest

pytest.importorskip("distributed")  # an extra

from penstock.dataset import Dataset
from penstock.engines.dask_dataset.placement import Workers
from penstock.engines.dask_dataset.work import Keys, OpaqueValue, Step, Work, note, pick, pull, work_of
from penstock.model.resources import ResourceKind


def half(value: int) -> tuple[int, int]:
    return value // 2, value - value // 2


def test_steps_pass_values_on_by_slots() -> None:
    steps = (
        Step("half", half, (0,), (2, 3), (None, None)),
        Step("add", lambda one, other: one + other, (3, 1), (4,), (None,)),
    )
    assert Work(steps, (4,))(0, 7, 10) == 14
    assert Work(steps, (4, 2))(0, OpaqueValue(7), 10) == (14, 3)
    assert Work(steps[:1], ())(0, 7, 0) == ()


def test_an_item_that_does_not_fit_names_the_operation_and_the_partition() -> None:
    for step, says in (
        (Step("three", lambda value: (1, 2, 3), (0,), (1, 2), (None, None)), "returned 3 values for 2 datasets"),
        (Step("parts", lambda value: [[], []], (0,), (1,), (3,)), "returned 2 parts, not 3"),
    ):
        with pytest.raises(ValueError, match=says) as error:
            Work((step,), (1,))(5, 0)
        assert error.value.__notes__ == [f"in operation {step.name!r}, partition 5"]


def test_given_values_are_unwrapped_also_where_all_partitions_are_read() -> None:
    assert pull(0, OpaqueValue(3)) == 3
    assert pull(0, [OpaqueValue([1]), OpaqueValue([2])]) == [[1], [2]]
    assert pull(0, [[1], [2]]) == [[1], [2]]
    assert pick(([1, 2], [3]), (0, 1)) == 2
    assert pickle.loads(pickle.dumps(OpaqueValue([1]))).value == [1]


def test_everything_that_is_sent_can_be_pickled(tmp_path: Any) -> None:
    path = tmp_path / "text"
    path.write_text("a\n")
    pairs = Dataset.read_text(path).map(str.split).filter(bool).flat_map(zip).map_partitions(list)
    joined = pairs.group_by_key().join(pairs.reduce_by_key(max))  # type: ignore[misc]
    planned = joined.map(str, joined.broadcast()).count().dataset.plan()
    for op in planned.ops:
        assert pickle.loads(pickle.dumps(work_of(planned, op))) is not None


def test_keys_are_unique_and_group_by_operation() -> None:
    pairs = Dataset.from_items([(1, 2)], 3).map(tuple)
    planned = pairs.group_by_key(2).join(pairs.group_by_key(4), 3).plan()
    keys = Keys(planned, "0" * 32)
    made = [keys.monotask(op, part) for op in planned.ops for part in range(op.partitions)]
    picks = [key for op in planned.ops for part in range(op.partitions) for key in keys.picks(op, part)]
    assert len(set(made + picks)) == len(made) + len(picks)
    assert len({key[0] for key in made}) == len(planned.ops)
    assert all(re.fullmatch(r"[A-Za-z_.]+-0{32}-[0-9]+", key[0]) for key in made + picks)
    read = {key for op in planned.ops for part in range(op.partitions) for key in flat(keys.arguments(op, part))}
    kept = {
        key
        for version in planned.writers
        for part in range(planned.versions[version].data.partitions)
        for key in keys.kept(version, part)
    }
    results = {keys.whole(planned.results[0], part) for part in range(3)}
    assert read | results == kept <= set(made + picks)


def flat(arguments: list[Any]) -> list[Any]:
    keys = [each for one in arguments for each in (one if isinstance(one, list) else [one])]
    return [key for key in keys if not isinstance(key, OpaqueValue)]


def test_annotations_have_the_request_of_a_gated_worker() -> None:
    assert note(ResourceKind.CPU, "s", 5, task="t") == {
        "kind": "cpu", "monotask": "cpu", "stage": "s", "input_bytes": 5, "task": "t"
    }  # fmt: skip
    assert note(ResourceKind.DISK, "s") == {"kind": "disk", "monotask": "disk", "stage": "s"}
    assert note(ResourceKind.NETWORK, "s", 7) == {"kind": "none", "monotask": "network", "stage": "s", "input_bytes": 7}
    assert note(None, "s", 0) == {"kind": "none", "stage": "s", "input_bytes": 0}


def test_a_task_goes_to_the_worker_of_its_node_with_the_fewest_tasks() -> None:
    workers = Workers({"n1": ["a", "b"], "n2": ["c"], "": ["d"], "n3": []})
    assert set(workers.nodes) == {"n1", "n2"}
    assert [workers.assign(task, "n1") for task in range(3)] == ["a", "b", "a"]
    workers.complete(0)
    workers.complete(2)
    assert workers.assign(3, "n1") == "a"
    assert workers.assign(4, "n2") == "c"
    assert workers.assign(5, "n3") == workers.assign(6, "elsewhere") == workers.address(0) == ""
    assert workers.address(3) == "a"
    assert workers.used == {"a", "b", "c"}

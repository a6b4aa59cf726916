"""The conditions on a graph, and the errors of one that breaks them."""

from __future__ import annotations

import pytest

from penstock.opgraph import GraphError, TaskGraph, TaskNode


def node(name: str, *after: str, memory_bytes: int = 0) -> TaskNode:
    return TaskNode(name, name, after, memory_bytes)


@pytest.mark.parametrize(
    ("tasks", "message"),
    [
        ([], "no task"),
        ([node("a"), node("a")], "'a': there are two"),
        ([node("sort", "split"), node("spilt")], "'sort': after: there is no task 'split'; did you mean 'spilt'"),
        ([node("a", "a")], "circle: a → a"),
        ([node("x"), node("a", "x", "c"), node("b", "a"), node("c", "b"), node("d", "c")], r"circle: a → c → b → a"),
    ],
)
def test_bad_graphs_name_the_task(tasks: list[TaskNode], message: str) -> None:
    with pytest.raises(GraphError, match=message):
        TaskGraph(tasks)


def test_depth_and_memory_of_a_diamond() -> None:
    graph = TaskGraph(
        [
            node("join", "left", "right", memory_bytes=40),
            node("left", "split", memory_bytes=25),
            node("right", "split", "split", memory_bytes=25),
            node("split", memory_bytes=10),
        ]
    )
    assert graph.depth == {"split": 0, "left": 1, "right": 1, "join": 2}
    assert graph.largest_level_bytes() == 50
    assert sorted(graph.descendants("split")) == ["join", "left", "right"]
    assert graph.descendants("join") == []

"""Orders of graphs in which each node comes after all those that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


class CircleError(ValueError):
    """Nodes wait for each other; ``path`` is one circle, from each node to one that it waits for."""

    def __init__(self, path: list[object]) -> None:
        super().__init__(" → ".join(map(str, path)))
        self.path = path


def in_order(waits_for: Mapping[T, Collection[T]]) -> list[T]:
    """Return the nodes in an order in which they can run (Kahn's algorithm).

    Raises:
        CircleError: there is no such order.
    """
    after: dict[T, list[T]] = {node: [] for node in waits_for}
    for node, others in waits_for.items():
        for other in dict.fromkeys(others):
            after[other].append(node)
    missing = {node: len(set(others)) for node, others in waits_for.items()}
    ready = [node for node, count in missing.items() if not count]
    for node in ready:  # grows while it is walked
        for dependent in after[node]:
            missing[dependent] -= 1
            if not missing[dependent]:
                ready.append(dependent)
    if len(ready) == len(waits_for):
        return ready
    # Each node that never became ready waits for another of these.
    path = [next(node for node, count in missing.items() if count)]
    while True:
        step = next(node for node in waits_for[path[-1]] if missing[node])
        if step in path:
            raise CircleError([*path[path.index(step) :], step])
        path.append(step)


def first_possible(waits_for: Mapping[T, Collection[T]]) -> list[T]:
    """Return the nodes of a graph without circles; the next one is always the first that can follow."""
    missing = {node: set(others) for node, others in waits_for.items()}
    order: list[T] = []
    while missing:
        ready = next(node for node, waits in missing.items() if not waits)
        del missing[ready]
        order.append(ready)
        for waits in missing.values():
            waits.discard(ready)
    return order

"""Orders of graphs in which each node comes after all those that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T", bound=Hashable)


class CircleError(ValueError):
    """Nodes that wait for each other; ``circle`` goes from each one to one that waits for it."""

    def __init__(self, circle: list[Any]) -> None:
        super().__init__(circle)
        self.circle = circle


def in_order(waits_for: Mapping[T, Collection[T]]) -> list[T]:
    """Return the nodes in an order in which they can run.

    Raises:
        CircleError: there is no such order.
    """
    if not any(waits_for.values()):
        return list(waits_for)
    from graphlib import CycleError, TopologicalSorter  # most jobs of commands are without an order

    sorter = TopologicalSorter[T](dict.fromkeys(waits_for, ()))  # nodes without an order keep the mapping's
    for node, others in waits_for.items():
        sorter.add(node, *others)
    try:
        return list(sorter.static_order())
    except CycleError as error:
        raise CircleError(error.args[1]) from None


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


def reachable(starts: Iterable[T], leads_to: Mapping[T, Iterable[T]]) -> dict[T, None]:
    """Return all nodes on paths that begin at one of ``starts``, which are included."""
    found: dict[T, None] = {}
    pending = list(starts)
    while pending:
        node = pending.pop()
        if node not in found:
            found[node] = None
            pending += leads_to.get(node, ())
    return found

"""Orders of graphs in which each node comes after all those that it waits for. Pure."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping
from graphlib import TopologicalSorter
from typing import TypeVar

T = TypeVar("T", bound=Hashable)


def in_order(waits_for: Mapping[T, Collection[T]]) -> list[T]:
    """Return the nodes in an order in which they can run.

    Raises:
        graphlib.CycleError: there is no such order; its second argument is one circle, from each node to one that
            waits for it.
    """
    sorter = TopologicalSorter[T](dict.fromkeys(waits_for, ()))  # nodes without an order keep the mapping's
    for node, others in waits_for.items():
        sorter.add(node, *others)
    return list(sorter.static_order())


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

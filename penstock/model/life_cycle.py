"""PURE. Life cycles as tables: which event leads from which state to which."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

S = TypeVar("S", bound=str)
E = TypeVar("E", bound=str)


class TransitionError(RuntimeError):
    """An event came in a state in which it cannot come."""


def next_state(table: Mapping[tuple[S, E], S], state: S, event: E) -> S:
    """Return the state after an event.

    Raises: TransitionError: the table has no such row.
    """
    after = table.get((state, event))
    if after is None:
        raise TransitionError(f"{str(event)!r} cannot follow the state {str(state)!r}")
    return after

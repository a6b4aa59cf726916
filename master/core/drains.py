"""What operators have said of nodes: which are drained, and which are to take work again and do not know it yet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from penstock.wire.cluster_api import Draining


@dataclass(frozen=True, slots=True)
class DrainSaid:
    """Of one node: it is drained, or (None) it takes work again."""

    draining: Draining | None


class Drains:
    """Node → what was said of it, be it here or not. What a node knows itself, and takes work, is forgotten."""

    def __init__(self) -> None:
        self._said: dict[str, DrainSaid] = {}
        #: What is to be written down since :meth:`take_changes`; None: nothing is said of the node any more.
        self._changed: dict[str, DrainSaid | None] = {}

    def get(self, node: str) -> DrainSaid | None:
        """What was said of it; None: nothing."""
        return self._said.get(node)

    def draining(self, node: str) -> Draining | None:
        """Who drains it, if anybody does."""
        said = self._said.get(node)
        return said.draining if said is not None else None

    def __iter__(self) -> Iterator[str]:
        """Those that are drained, in the order in which that was said."""
        return (node for node, said in self._said.items() if said.draining is not None)

    def say(self, node: str, draining: Draining | None) -> None:
        """It is so from now on."""
        said = DrainSaid(draining)
        if self._said.get(node) != said:
            self._said[node] = self._changed[node] = said

    def confirmed(self, node: str) -> None:
        """The node has written down itself that it takes work."""
        said = self._said.get(node)
        if said is not None and said.draining is None:
            del self._said[node]
            self._changed[node] = None

    def remember(self, said: Mapping[str, DrainSaid]) -> None:
        """What the master before this one wrote down."""
        self._said.update(said)

    def take_changes(self) -> dict[str, DrainSaid | None]:
        """What is to be written down, each once."""
        changed, self._changed = self._changed, {}
        return changed

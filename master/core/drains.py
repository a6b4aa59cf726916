"""Operators' drain requests: nodes that are drained, and nodes that take work again but have not confirmed it."""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass

from master.changes import Changes
from penstock.wire.cluster_api import Draining


@dataclass(frozen=True, slots=True)
class DrainRequest:
    """The request for one node: its drain, or None where it takes work again."""

    draining: Draining | None


class Drains:
    """Node → latest request, for connected and absent nodes. A confirmed end of a drain is removed."""

    def __init__(self) -> None:
        self._requests: dict[str, DrainRequest] = {}
        self.unstored = Changes[str, DrainRequest]()

    def get(self, node: str) -> DrainRequest | None:
        """Return the request for a node; None where there is none."""
        return self._requests.get(node)

    def draining(self, node: str) -> Draining | None:
        """Return the node's drain; None where it is not drained."""
        request = self._requests.get(node)
        return request.draining if request is not None else None

    def __iter__(self) -> Iterator[str]:
        """Iterate over the drained nodes, in the order of the requests."""
        return (node for node, request in self._requests.items() if request.draining is not None)

    def set(self, node: str, draining: Draining | None) -> None:
        """Set the request for a node."""
        request = DrainRequest(draining)
        if self._requests.get(node) != request:
            self._requests[node] = self.unstored[node] = request

    def confirmed(self, node: str) -> None:
        """The node has stored that it takes work."""
        request = self._requests.get(node)
        if request is not None and request.draining is None:
            del self._requests[node]
            self.unstored[node] = None

    def restore(self, requests: Mapping[str, DrainRequest]) -> None:
        """Restore the requests stored by the previous master."""
        self._requests.update(requests)

    def note(self, nodes: Container[str]) -> str:
        """Return a note on the drained ones of these nodes for the reason why something waits; empty without any."""
        return node_note("drained", [name for name in self if name in nodes])


def node_note(what: str, names: Sequence[str]) -> str:
    """Return a note on some nodes for the reason why something waits; empty without any."""
    more = f" and {len(names) - 3} more" if len(names) > 3 else ""
    return f" ({what}: {', '.join(names[:3])}{more})" if names else ""

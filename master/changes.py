"""PURE. Changes of a store in memory that are not on disk yet."""

from __future__ import annotations

from typing import TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Changes(dict[K, "V | None"]):
    """Changed entries of a store by key, in the order of the changes; None: removed. Only the store adds to them."""

    def take(self) -> dict[K, V | None]:
        """Return the changes since the last call."""
        taken = dict(self)
        self.clear()
        return taken

"""The functions of datasets' CPU operations. They are objects, not closures, so that any engine can pickle them.

A partition is a list of items. A network operation's result is a list of parts (a shuffle) or of partitions (a
broadcast).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from penstock.dataset.keys import partition_of

Items = list[Any]
Pair = tuple[Any, Any]


def items(content: Iterable[Any]) -> Items:
    """Return a given partition as a list."""
    return list(content)


@dataclass(frozen=True)
class ByPartition:
    """``map_partitions``: ``function(items, *broadcasts)`` → the items of the new partition."""

    function: Callable[..., Iterable[Any]]

    def __call__(self, part: Items, *broadcasts: list[Items]) -> Items:
        """Return the new partition; ``broadcasts`` are the pulled partitions of each broadcast dataset."""
        return list(self.function(part, *map(concatenate, broadcasts)))


@dataclass(frozen=True)
class MapItems:
    """``map``."""

    function: Callable[..., Any]

    def __call__(self, part: Items, *values: Items) -> Items:
        """Return the new partition; ``values`` are the broadcast values."""
        return [self.function(item, *values) for item in part]


@dataclass(frozen=True)
class FilterItems:
    """``filter``."""

    function: Callable[..., object]

    def __call__(self, part: Items, *values: Items) -> Items:
        """Return the new partition; ``values`` are the broadcast values."""
        return [item for item in part if self.function(item, *values)]


@dataclass(frozen=True)
class FlatMapItems:
    """``flat_map``."""

    function: Callable[..., Iterable[Any]]

    def __call__(self, part: Items, *values: Items) -> Items:
        """Return the new partition; ``values`` are the broadcast values."""
        return [one for item in part for one in self.function(item, *values)]


def concatenate(parts: Iterable[Items]) -> Items:
    """Return all items, in order."""
    return list(itertools.chain.from_iterable(parts))


# ---------------------------------------------------------------- by key


@dataclass(frozen=True)
class Send:
    """Divides pairs by key into one part for each new partition."""

    partitions: int

    def __call__(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        """Return the parts of a partition of pairs."""
        parts: list[list[Pair]] = [[] for _ in range(self.partitions)]
        for key, value in pairs:
            parts[partition_of(key, self.partitions)].append((key, value))
        return parts


@dataclass(frozen=True)
class CombineAndSend:
    """Combines the values of each key before sending: "apply combiner locally and serialize" (Ursa §4.1.2)."""

    combine: Callable[[Any, Any], Any]
    partitions: int

    def __call__(self, pairs: Iterable[Pair]) -> list[list[Pair]]:
        """Return the combined parts of a partition of pairs."""
        return Send(self.partitions)(combined(self.combine, pairs))


@dataclass(frozen=True)
class Combine:
    """Combines the values of each key over all parts."""

    combine: Callable[[Any, Any], Any]

    def __call__(self, parts: list[list[Pair]]) -> list[Pair]:
        """Return the combined pairs of the pulled parts."""
        return combined(self.combine, itertools.chain.from_iterable(parts))


def combined(combine: Callable[[Any, Any], Any], pairs: Iterable[Pair]) -> list[Pair]:
    """Return the values of each key, folded in order; keys are in the order of their first value."""
    found: dict[Any, Any] = {}
    for key, value in pairs:
        found[key] = combine(found[key], value) if key in found else value
    return list(found.items())


def grouped(parts: list[list[Pair]]) -> list[tuple[Any, Items]]:
    """Return the values of each key in order, for ``group_by_key``; keys are in the order of their first value."""
    found: dict[Any, Items] = {}
    for key, value in itertools.chain.from_iterable(parts):
        found.setdefault(key, []).append(value)
    return list(found.items())


def joined(left: list[list[Pair]], right: list[list[Pair]]) -> list[tuple[Any, Pair]]:
    """Return the inner join: for each pair of the left, in order, each value of its key on the right, in order."""
    values = dict(grouped(right))
    pairs = itertools.chain.from_iterable(left)
    return [(key, (value, other)) for key, value in pairs for other in values.get(key, ())]

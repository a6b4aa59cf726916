"""The functions of datasets' CPU operations. Arguments are bound by ``functools.partial``, which any engine can pickle.

A partition is a list of items. A network operation's result is a list of parts (a shuffle) or of partitions (a
broadcast).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable
from typing import Any

from penstock.dataset.keys import partition_of

Items = list[Any]
Pair = tuple[Any, Any]


def by_partition(function: Callable[..., Iterable[Any]], part: Items, *broadcasts: list[Items]) -> Items:
    """``map_partitions``: return the new partition; ``broadcasts`` are the pulled partitions of each broadcast."""
    return list(function(part, *map(concatenate, broadcasts)))


def map_items(function: Callable[..., Any], part: Items, *values: Items) -> Items:
    """``map``: return the new partition; ``values`` are the broadcast values, here and below."""
    return [function(item, *values) for item in part]


def filter_items(function: Callable[..., object], part: Items, *values: Items) -> Items:
    """``filter``: return the new partition."""
    return [item for item in part if function(item, *values)]


def flat_map_items(function: Callable[..., Iterable[Any]], part: Items, *values: Items) -> Items:
    """``flat_map``: return the new partition."""
    return [one for item in part for one in function(item, *values)]


def concatenate(parts: Iterable[Items]) -> Items:
    """Return all items, in order."""
    return list(itertools.chain.from_iterable(parts))


# ---------------------------------------------------------------- by key


def send(partitions: int, pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Divide pairs by key into one part for each new partition."""
    parts: list[list[Pair]] = [[] for _ in range(partitions)]
    for key, value in pairs:
        parts[partition_of(key, partitions)].append((key, value))
    return parts


def combine_and_send(combine: Callable[[Any, Any], Any], partitions: int, pairs: Iterable[Pair]) -> list[list[Pair]]:
    """Combine the values of each key before sending: "apply combiner locally and serialize" (Ursa §4.1.2)."""
    return send(partitions, combined(combine, pairs))


def combine_parts(combine: Callable[[Any, Any], Any], parts: list[list[Pair]]) -> list[Pair]:
    """Combine the values of each key over all pulled parts."""
    return combined(combine, itertools.chain.from_iterable(parts))


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

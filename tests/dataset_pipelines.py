"""Random pipelines of datasets, each with the result of plain Python for the same items."""

from __future__ import annotations

from collections.abc import Callable
from operator import add
from typing import NamedTuple

from hypothesis import strategies as st

from penstock.dataset import Dataset


class Both(NamedTuple):
    """A dataset, and its items evaluated by lists and dictionaries; without a shuffle also their order is known."""

    dataset: Dataset[int]
    items: list[int]
    ordered: bool

    def agrees(self, collected: list[int]) -> bool:
        """Whether an engine's items are ours."""
        return collected == self.items if self.ordered else sorted(collected) == sorted(self.items)


Step = Callable[[Both, Both], Both | None]


def mapped(one: Both, other: Both) -> Both:
    return Both(one.dataset.map(lambda item: 3 * item + 1), [3 * item + 1 for item in one.items], one.ordered)


def filtered(one: Both, other: Both) -> Both:
    return Both(one.dataset.filter(lambda item: item % 3), [item for item in one.items if item % 3], one.ordered)


def flat_mapped(one: Both, other: Both) -> Both:
    def several(item: int) -> list[int]:
        return [item] * (item % 3)

    return Both(one.dataset.flat_map(several), [each for item in one.items for each in several(item)], one.ordered)


def mapped_by_partition(one: Both, other: Both) -> Both:
    made = one.dataset.map_partitions(lambda items: (item - 7 for item in items))
    return Both(made, [item - 7 for item in one.items], one.ordered)


def mapped_with_all_of_another(one: Both, other: Both) -> Both:
    made = one.dataset.map(lambda item, others: item + sum(others) % 11 + len(others), other.dataset.broadcast())
    return Both(made, [item + sum(other.items) % 11 + len(other.items) for item in one.items], one.ordered)


def filtered_by_two(one: Both, other: Both) -> Both:
    made = one.dataset.filter(
        lambda item, mine, others: item in mine and item % 5 != len(others) % 5,
        one.dataset.broadcast(),
        other.dataset.broadcast(),
    )
    return Both(made, [item for item in one.items if item % 5 != len(other.items) % 5], one.ordered)


def keyed(one: Both) -> Dataset[tuple[int, int]]:
    return one.dataset.map(lambda item: (item % 4, item))


def reduced(one: Both, other: Both) -> Both:
    made = keyed(one).reduce_by_key(add, 3).map(lambda pair: 100 * pair[0] + pair[1])
    found: dict[int, int] = {}
    for item in one.items:
        found[item % 4] = found.get(item % 4, 0) + item
    return Both(made, [100 * key + value for key, value in found.items()], False)


def grouped(one: Both, other: Both) -> Both:
    made = keyed(one).group_by_key().map(lambda pair: 10 * len(pair[1]) + max(pair[1]) + pair[0])
    found: dict[int, list[int]] = {}
    for item in one.items:
        found.setdefault(item % 4, []).append(item)
    return Both(made, [10 * len(values) + max(values) + key for key, values in found.items()], False)


def joined(one: Both, other: Both) -> Both | None:
    if len(one.items) * len(other.items) > 200:
        return None
    made = keyed(one).join(keyed(other), 2).map(lambda pair: pair[0] + 2 * pair[1][0] + 5 * pair[1][1])
    items = [a % 4 + 2 * a + 5 * b for a in one.items for b in other.items if a % 4 == b % 4]
    return Both(made, items, False)


STEPS: list[Step] = [
    mapped,
    filtered,
    flat_mapped,
    mapped_by_partition,
    mapped_with_all_of_another,
    filtered_by_two,
    reduced,
    grouped,
    joined,
]


@st.composite
def pipelines(draw: st.DrawFn) -> Both:
    """Return the last of a few datasets, each made from earlier ones, so that they share their sources."""
    pool = []
    for _ in range(draw(st.integers(1, 2))):
        items = draw(st.lists(st.integers(-20, 20), max_size=9))
        pool.append(Both(Dataset.from_items(items, draw(st.integers(1, 3))), items, True))
    for _ in range(draw(st.integers(1, 6))):
        step = draw(st.sampled_from(STEPS))
        made = step(draw(st.sampled_from(pool)), draw(st.sampled_from(pool)))
        pool += [made] if made is not None else []
    return pool[-1]

"""The sentence on a job's place in the order: the jobs before it, and nodes where these differ."""

from __future__ import annotations

import pytest

from master.core.order import Place
from master.explain.sentence import sentence
from master.ordering import Reason
from penstock.model.units import ordinal
from penstock.wire.cluster_api import NodeRanks

ORDER = ["a", "b", "c", "d", "e", "f"]


def sentence_of(job: str, nodes: dict[str, list[str]] | None = None, order: list[str] = ORDER) -> str:
    """``nodes`` has the order of the jobs on each."""
    place = Place(order.index(job) + 1, len(order), Reason("41 s so far"))
    ranks = {node: NodeRanks(jobs=[(each, 1) for each in here], of=len(here)) for node, here in (nodes or {}).items()}
    return sentence(job, place, "las", order, ranks, lambda each: f"{each} ({each.upper()})")


def test_it_names_the_jobs_before_it() -> None:
    assert sentence_of("a") == "first of 6 by las: 41 s so far."
    assert sentence_of("b") == "second of 6 by las: 41 s so far; before it a (A)."
    assert sentence_of("d") == "fourth of 6 by las: 41 s so far; before it a (A), b (B) and c (C)."


def test_of_many_the_nearest() -> None:
    assert sentence_of("e") == "fifth of 6 by las: 41 s so far; before it b (B), c (C), d (D) and 1 other."
    assert sentence_of("f") == "sixth of 6 by las: 41 s so far; before it c (C), d (D), e (E) and 2 others."


def test_a_node_that_keeps_to_the_order_is_not_named() -> None:
    assert sentence_of("c", {"x": ["a", "c", "d"], "y": ["c"], "z": ["a", "b"]}) == sentence_of("c")


def test_a_node_where_something_else_goes_first_is() -> None:
    beside = sentence_of("b", {"x": ["a", "c-1-1", "b"]})
    assert beside == (
        "second of 6 by las: 41 s so far; before it a (A); "
        "on x it is third of 3 after a (A) and container c-1-1 of no job."
    )
    assert sentence_of("b", {"x": ["c", "b"]}).endswith("; on x it is second of 2 after c (C)."), (
        "its turn, or not told yet"
    )
    assert sentence_of("b", {"x": ["b", "a"]}).endswith("; before it a (A); on x it is first of 2.")


def test_nodes_with_the_same_sentence_are_named_together_and_of_many_a_few() -> None:
    alike = {node: ["c", "b"] for node in "vwxyz"}
    assert sentence_of("b", alike).endswith("; on x, y, z and 2 others it is second of 2 after c (C).")
    different = {f"n{place}": [f"c-{place}", "b"] for place in range(9)}
    assert sentence_of("b", different).count("; on n") == 3


@pytest.mark.parametrize(
    ("rank", "word"),
    [
        (1, "first"),
        (10, "tenth"),
        (11, "11th"),
        (12, "12th"),
        (21, "21st"),
        (22, "22nd"),
        (103, "103rd"),
        (112, "112th"),
    ],
)
def test_ordinals(rank: int, word: str) -> None:
    assert ordinal(rank) == word

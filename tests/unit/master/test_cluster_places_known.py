"""The answer of an agent that tells its own jobs where their tasks are: it is not told of these again."""

from __future__ import annotations

import pytest

from master.core import events as e
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command


@pytest.fixture
def b() -> Bed:
    b = bed("a", "b")
    b.job("a")
    b.answering = False
    return b


def assigned_to(b: Bed, node: str) -> None:
    b.ready("a", command("t", nodes=(node,)))
    assert b.round() == [("t", node)]


def told(b: Bed) -> list[tuple[str, str]]:
    return [(node, decision.node) for node, decision in b.decisions_of(api.TellPlaced)]


@pytest.mark.parametrize(
    ("node", "places_known", "expected"),
    [("a", True, []), ("a", False, [("a", "a")]), ("b", True, [("a", "b")])],
    ids=["its own task", "an older agent", "a task elsewhere"],
)
def test_an_origin_is_told_what_it_does_not_know(
    b: Bed, node: str, places_known: bool, expected: list[tuple[str, str]]
) -> None:
    assigned_to(b, node)
    b.serve(e.Answered(node, b.numbers[node], [], places_known))
    assert told(b) == expected
    ended = api.CommandEnded(job="j", task="t", origin="a", ended=EXIT)
    b.serve(e.Received(node, ended))
    assert told(b) == expected
    assert [(to, decision.node) for to, decision in b.decisions_of(api.TellEnded)] == [("a", node)]


def test_a_refused_task_is_placed_again(b: Bed) -> None:
    assigned_to(b, "a")
    b.serve(e.Answered("a", b.numbers["a"], [api.Refusal(index=0, reason="no room")], places_known=True))
    assert told(b) == []
    b.heartbeat("a")
    assert b.round(1.0) == [("t", "a")]

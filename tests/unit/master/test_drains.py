"""Calls about nodes as agents relay them: the permitted users, the answers, and the invalid calls."""

from __future__ import annotations

from typing import Any

import pytest

from master import drains
from master.core import events as e
from penstock.wire import cluster_api as api
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.reservation_api import OnBehalf
from tests.unit.master.cluster_bed import Bed, bed, task


def call(b: Bed, name: str, *, operator: bool = True, **params: Any) -> list[tuple[str, str]]:
    """Return (node, state) of the answer."""
    asked = OnBehalf(user="eve", operator=operator, call=name, params=params)
    answered = drains.answer(b.cluster.drain, asked, b.serve, 1000.0)
    return [(node.node, node.state) for node in answered.nodes]


@pytest.mark.parametrize("method", ["drain", "undrain"])
def test_only_operators_say_which_nodes_take_work(method: str) -> None:
    b = bed("a")
    with pytest.raises(RpcError, match="eve is no operator") as caught:
        call(b, method, operator=False, nodes=["a"])
    assert caught.value.code is ErrorCode.REFUSED
    assert b.cluster.nodes["a"].takes_work
    assert call(b, "drains", operator=False, nodes=["a"]) == [("a", "connected")], "to look is everybody's"


def test_each_node_is_answered_once_and_saying_it_again_changes_nothing() -> None:
    b = bed("a", "b")
    assert call(b, "drain", nodes=["b", "a", "b"]) == [("b", "draining"), ("a", "draining")]
    since = b.cluster.nodes["a"].draining
    assert since == api.Draining("eve", 1000.0)
    drains.answer(
        b.cluster.drain, OnBehalf(user="root", operator=True, call="drain", params={"nodes": ["a"]}), b.serve, 2e3
    )
    assert b.cluster.nodes["a"].draining == since
    assert call(b, "undrain", nodes=["a"]) == [("a", "connected")]
    b.heartbeat("b")
    assert call(b, "drains", nodes=["b"]) == [("b", "drained")]


def test_work_there_is_named_to_operators_only() -> None:
    b = bed("a")
    b.job("a")
    b.ready("a", task("t"))
    b.round()
    b.serve(e.DrainRequested(("a",), "root", 0.0))
    asked = {"call": "drains", "params": {"nodes": ["a"]}}
    [to_operator] = drains.answer(b.cluster.drain, OnBehalf(user="root", operator=True, **asked), b.serve, 0.0).nodes
    [to_others] = drains.answer(b.cluster.drain, OnBehalf(user="eve", operator=False, **asked), b.serve, 0.0).nodes
    assert (to_operator.remaining, to_operator.jobs) == ([api.Remaining("task", "j/t", "j", "u")], ["j"])
    assert (to_others.remaining, to_others.jobs, to_others.count) == ([], [], 1)


@pytest.mark.parametrize(
    ("name", "params", "field", "said"),
    [
        ("drian", {}, "call", "one of drain, undrain, drains"),
        ("drain", {"nodes": ["a", "x"]}, "nodes", "no node 'x' in this cluster"),
        ("drains", {"nodes": ["x"]}, "nodes", "no node 'x' in this cluster"),
        ("undrain", {"nodes": ["x"]}, "nodes", "no node 'x' in this cluster"),
        ("drain", {"nodes": [7]}, "nodes[0]", "nodes"),
        ("drain", {"node": "a"}, "node", "node"),
    ],
)
def test_an_invalid_call_changes_nothing(name: str, params: dict[str, Any], field: str, said: str) -> None:
    b = bed("a")
    with pytest.raises(RpcError, match=said) as caught:
        call(b, name, **params)
    assert (caught.value.code, caught.value.body.field) == (ErrorCode.BAD_REQUEST, field)
    assert b.cluster.nodes["a"].takes_work


def test_a_node_that_only_others_have_spoken_of_is_none() -> None:
    b = bed("a")
    b.cluster.members.expect("ghost", 0.0)
    with pytest.raises(RpcError, match="no node 'ghost'"):
        b.serve(e.DrainRequested(("ghost",), "root", 0.0))

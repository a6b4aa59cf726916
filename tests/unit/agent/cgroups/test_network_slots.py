"""A container's place on the network is its own until it has left it. The network is a fake, slow with changes."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any, cast

import pytest

from agent import limit_enforcer as limit_enforcer_module
from agent.core.confinement import Confinement
from agent.limit_enforcer import LimitEnforcer
from tests.unit.agent.cgroups.conftest import Make
from tests.unit.agent.cgroups.slow_network import SlowNetwork

LIMIT_S = 30
B = Confinement(network_rate_bytes_per_s=7_000_000)


async def _leaving(make: Make) -> tuple[SlowNetwork, LimitEnforcer, asyncio.Task[None]]:
    """Container ``a``, which ended while one change of it was under way and the next one waited."""
    network, (_, tree) = SlowNetwork(), make()
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    await limit_enforcer.create("a", Confinement())
    limit_enforcer.confine("a", Confinement(rank=1))
    await network.asked()
    limit_enforcer.confine("a", Confinement(rank=2))
    removing = asyncio.create_task(limit_enforcer.remove("a"))
    await asyncio.sleep(0)  # it waits for the change
    assert not removing.done()
    return network, limit_enforcer, removing


async def test_who_comes_while_another_leaves_keeps_its_promise(make: Make) -> None:
    network, limit_enforcer, removing = await _leaving(make)
    await limit_enforcer.create("b", B)
    await network.answers()
    await network.answers()
    await asyncio.wait_for(removing, LIMIT_S)
    assert network.promises() == {"b": 7_000_000}
    limit_enforcer.confine("b", Confinement(network_rate_bytes_per_s=9_000_000))
    await network.answers()
    await limit_enforcer.settled("b")
    assert network.promises() == {"b": 9_000_000}
    assert not network.missed


async def test_a_repair_meanwhile_does_not_take_the_place_from_who_leaves(make: Make) -> None:
    network, limit_enforcer, removing = await _leaving(make)
    await limit_enforcer.repair()
    await network.answers()
    await network.answers()
    await asyncio.wait_for(removing, LIMIT_S)
    assert not network.missed, "its last change found its place"
    assert network.promises() == {}


async def test_a_place_that_was_left_is_given_again(make: Make) -> None:
    network, limit_enforcer, removing = await _leaving(make)
    (slot,) = network.held
    await network.answers()
    await network.answers()
    await asyncio.wait_for(removing, LIMIT_S)
    await limit_enforcer.create("b", B)
    assert list(network.held) == [slot]


async def test_a_place_that_is_being_left_still_has_the_counters_of_its_former_container(make: Make) -> None:
    network, (_, tree) = SlowNetwork(), make()
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    await limit_enforcer.create("first", Confinement())
    network.detached = Future()
    removing = asyncio.create_task(limit_enforcer.remove("first"))
    await asyncio.sleep(0)
    await limit_enforcer.create("b", Confinement())
    assert [name for name, _ in network.held.values()] == ["first", "b"]
    assert {name: each.sent_bytes for name, each in (await limit_enforcer.counters()).items()} == {"b": 1}
    network.detached.set_result(None)
    await asyncio.wait_for(removing, LIMIT_S)


async def test_a_container_beyond_the_last_place_runs_without_one_and_says_so(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limit_enforcer_module, "MAX_SLOT", 2)
    network, (_, tree) = SlowNetwork(), make()
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    for container in ("a", "b"):
        assert await limit_enforcer.create(container, B) == ({}, tree.get(container))
    not_enforced, _ = await limit_enforcer.create("c", B)
    assert list(not_enforced) == ["network_rate_bytes_per_s"]
    assert "no more can; remedy: end some" in not_enforced["network_rate_bytes_per_s"]
    assert (await limit_enforcer.create("d", Confinement()))[0] == {}
    await limit_enforcer.remove("c")
    await limit_enforcer.remove("a")
    await limit_enforcer.create("e", B)
    assert network.promises() == {"b": 7_000_000, "e": 7_000_000}


async def test_the_next_agent_has_no_more_places(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limit_enforcer_module, "MAX_SLOT", 1)
    network, (_, tree) = SlowNetwork(), make()
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    await limit_enforcer.take_back({"a": B, "b": B})
    assert list(network.held) == [1]


async def test_a_change_that_the_kernel_refuses_is_told_as_not_enforced(make: Make) -> None:
    network, (_, tree) = SlowNetwork(), make()
    told: list[tuple[str, dict[str, str]]] = []
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *confined: told.append(confined))
    await limit_enforcer.create("a", Confinement())
    limit_enforcer.confine("a", B)
    (await asyncio.wait_for(network.changes.get(), LIMIT_S)).set_exception(OSError("the link is busy"))
    await limit_enforcer.settled("a")
    assert told == [("a", {"network_rate_bytes_per_s": "the link is busy"})]


async def of_the_second_rank_before_a_rate_is_known(make: Make) -> tuple[SlowNetwork, LimitEnforcer]:
    network, (_, tree) = SlowNetwork(), make()
    network.sharing = False
    limit_enforcer = LimitEnforcer(tree, cast(Any, network), lambda *_: None)
    await limit_enforcer.create("a", Confinement())
    limit_enforcer.confine("a", Confinement(rank=1))
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    return network, limit_enforcer


async def test_a_rank_is_set_on_the_network_only_where_the_rate_of_a_link_is_known(make: Make) -> None:
    network, limit_enforcer = await of_the_second_rank_before_a_rate_is_known(make)
    assert network.changes.empty(), "it would wake the network's thread for nothing"
    limit_enforcer.confine("a", Confinement(rank=1, network_egress_bytes_per_s=9_000_000))
    await network.answers()
    network.sharing = True
    limit_enforcer.confine("a", Confinement(rank=2, network_egress_bytes_per_s=9_000_000))
    await network.answers()
    await asyncio.wait_for(limit_enforcer.settled("a"), LIMIT_S)
    assert [shape.rank for _, shape in network.held.values()] == [2]


async def test_a_repair_sets_the_ranks_from_before_the_rate_of_a_link_was_known(make: Make) -> None:
    network, limit_enforcer = await of_the_second_rank_before_a_rate_is_known(make)
    network.sharing = True
    await limit_enforcer.repair()
    assert [shape.rank for _, shape in network.held.values()] == [1]

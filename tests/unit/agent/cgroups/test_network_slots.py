"""A container's place on the network is its own until it has left it. The network is a fake, slow with changes."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, cast

from agent.core.confinement import Confinement
from agent.limit_enforcer import LimitEnforcer
from agent.network import Shape
from tests.unit.agent.cgroups.conftest import Make

LIMIT_S = 30
B = Confinement(network_rate_bytes_per_s=7_000_000)


class SlowNetwork:
    """Does everything in the order of the calls, as the limiter does; who asked for a change hears of it later."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, Shape]] = {}
        self.changes: asyncio.Queue[Future[dict[str, str]]] = asyncio.Queue()
        self.missed: list[int] = []

    def attach(self, slot: int, cgroup: Path, shape: Shape) -> Future[dict[str, str]]:
        self.held[slot] = (cgroup.name, shape)
        return _done({})

    def change(self, slot: int, shape: Shape) -> Future[dict[str, str]]:
        if slot in self.held:
            self.held[slot] = (self.held[slot][0], shape)
        else:
            self.missed.append(slot)
        answer: Future[dict[str, str]] = Future()
        self.changes.put_nowait(answer)
        return answer

    def detach(self, slot: int, cgroup: Path | None) -> Future[None]:
        self.held.pop(slot, None)
        return _done(None)

    def reconcile(self, known: Mapping[int, tuple[Path, Shape]], under: Path) -> Future[list[str]]:
        self.held = {slot: (cgroup.name, shape) for slot, (cgroup, shape) in known.items()}
        return _done([])

    def not_enforced(self) -> Future[dict[int, dict[str, str]]]:
        return _done({slot: {} for slot in self.held})

    async def asked(self) -> None:
        """Wait until a change is asked for."""
        self.changes.put_nowait(await asyncio.wait_for(self.changes.get(), LIMIT_S))

    async def answers(self) -> None:
        (await asyncio.wait_for(self.changes.get(), LIMIT_S)).set_result({})

    def promises(self) -> dict[str, int | None]:
        return {container: shape.rate_bytes_per_s for container, shape in self.held.values()}


def _done(result: Any) -> Future[Any]:
    done: Future[Any] = Future()
    done.set_result(result)
    return done


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

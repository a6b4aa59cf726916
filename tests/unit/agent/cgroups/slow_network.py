"""A network limiter whose changes are answered when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any

from agent.network import Counters, Shape

LIMIT_S = 30


class SlowNetwork:
    """Does everything in the order of the calls, as the limiter does; who asked for a change hears of it later."""

    def __init__(self) -> None:
        self.held: dict[int, tuple[str, Shape]] = {}
        self.changes: asyncio.Queue[Future[dict[str, str]]] = asyncio.Queue()
        self.missed: list[int] = []
        self.detached: Future[None] = _done(None)  # the answer to each detachment
        self.draining = False
        self.sharing = True  # the rate of a link is known

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
        if self.detached.done():
            self.held.pop(slot, None)
        return self.detached

    def counters(self) -> dict[int, Counters]:
        return {slot: Counters(sent_bytes=len(container)) for slot, (container, _) in self.held.items()}

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

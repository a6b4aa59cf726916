"""A gate without an agent, whose slots a test gives and takes."""

from __future__ import annotations

import asyncio
import threading
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest

from penstock.client.errors import JobCancelled
from penstock.wire.agent_api import StageProgress

WAIT_S = 30.0


class FakeSlot:
    """As the gate's, and it knows its fate."""

    def __init__(self, gate: FakeGate, kind: str, input_bytes: int, stage: str, task: str) -> None:
        self.gate = gate
        self.kind = kind
        self.input_bytes = input_bytes
        self.stage = stage
        self.task = task
        self.gated = True
        self.error: Exception | None = None
        self.ended = ""

    def release(self, *, failed: bool = False) -> None:
        self.gate.end(self, "failed" if failed else "done")

    def cancel(self) -> None:
        self.gate.end(self, "cancelled")


class FakeGate:
    """So many slots of each kind, granted in order; keeps the requests and the most slots that were held at once."""

    speaks = True

    def __init__(self, slots: int, job: str = "job-1") -> None:
        self.slots = slots
        self.job = job
        self.workers: list[Any] = []
        self.told: list[StageProgress] = []
        self.asked: list[FakeSlot] = []
        self.held: Counter[str] = Counter()
        self.most: Counter[str] = Counter()
        self.closed = False
        self.refuses: Exception | None = None
        self.cancelled: JobCancelled | None = None
        self._waiting: deque[tuple[FakeSlot, Callable[[Any], object]]] = deque()
        self._holding: set[FakeSlot] = set()
        self._changed = threading.Condition(threading.RLock())

    def progress(self, stages: list[StageProgress]) -> None:
        self.told = stages

    def submit(
        self, kind: str, input_bytes: int, granted: Callable[[Any], object], *, stage: str = "", task: str = ""
    ) -> FakeSlot:
        slot = FakeSlot(self, str(kind), input_bytes, stage, task)
        with self._changed:
            self.asked.append(slot)
            self._waiting.append((slot, granted))
            self._changed.notify_all()
        self.grant()
        return slot

    def acquire(self, kind: str, input_bytes: int, *, stage: str = "", task: str = "") -> FakeSlot:
        done = threading.Event()
        slot = self.submit(kind, input_bytes, lambda _: done.set(), stage=stage, task=task)
        assert done.wait(WAIT_S), f"no grant for {stage}"
        if slot.error is not None:
            raise slot.error
        return slot

    async def acquire_async(self, kind: str, input_bytes: int, *, stage: str = "", task: str = "") -> FakeSlot:
        loop = asyncio.get_running_loop()
        done = asyncio.Event()
        slot = self.submit(kind, input_bytes, lambda _: loop.call_soon_threadsafe(done.set), stage=stage, task=task)
        try:
            await done.wait()
        except BaseException:
            slot.cancel()
            raise
        if isinstance(slot.error, JobCancelled):
            self.cancelled = slot.error
        if slot.error is not None:
            raise slot.error
        return slot

    def end(self, slot: FakeSlot, how: str) -> None:
        with self._changed:
            if not slot.ended:
                slot.ended = how
                if slot in self._holding:
                    self._holding.remove(slot)
                    self.held[slot.kind] -= 1
                self._changed.notify_all()
        self.grant()

    def grant(self, slots: int | None = None) -> None:
        """Grant all that can be granted; ``slots`` changes their number."""
        ready = []
        with self._changed:
            self.slots = self.slots if slots is None else slots
            for slot, granted in list(self._waiting):
                if slot.ended:
                    self._waiting.remove((slot, granted))
                elif self.refuses is not None:
                    self._waiting.remove((slot, granted))
                    slot.error = self.refuses
                    ready.append((slot, granted))
                elif self.held[slot.kind] < self.slots:
                    self._waiting.remove((slot, granted))
                    self._holding.add(slot)
                    self.held[slot.kind] += 1
                    self.most[slot.kind] = max(self.most[slot.kind], self.held[slot.kind])
                    ready.append((slot, granted))
        for slot, granted in ready:
            granted(slot)

    def wait_for(self, condition: Callable[[], bool]) -> None:
        """Until something about the slots is so."""
        with self._changed:
            assert self._changed.wait_for(condition, WAIT_S)

    def wait_connected(self, timeout_s: float) -> bool:
        return True

    def lend(self) -> None:
        """As a gate; there is no process to rank."""

    async def start(self) -> None:
        """As a cluster's gate: the agent is there."""

    def leave(self, worker: Any) -> bool:
        self.workers.remove(worker)
        return bool(self.workers)

    def counts(self) -> dict[str, int]:
        with self._changed:
            return {"waiting": len(self._waiting), "held": len(self._holding)}

    def close(self, *, done: bool | None = None, merged_into: str = "") -> None:
        self.closed = True

    def wait_closed(self, timeout_s: float) -> bool:
        return self.closed


@pytest.fixture
def make_gate() -> Callable[[int], FakeGate]:
    return FakeGate


@pytest.fixture
def cluster(make_gate: Callable[[int], FakeGate], monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """``async with cluster(slots, workers=…) as (client, gate, workers)``: see ``dask_bed.clusters``."""
    from tests.unit.penstock.engines.dask.dask_bed import clusters  # not without Dask, which is an extra

    return clusters(make_gate, monkeypatch)

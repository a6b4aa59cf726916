"""The workers of a cluster agree on one job, through nothing but the scheduler's metadata."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("distributed")

from penstock.engines.dask import jobs
from penstock.engines.dask.settings import Settings

SETTINGS = Settings(socket="/run/agent.sock", patience_s=0.1)


class FakeScheduler:
    """Metadata as the scheduler keeps it."""

    address = "tcp://127.0.0.1:8786"

    def __init__(self) -> None:
        self.metadata: dict[str, Any] = {}
        self.error: Exception | None = None

    async def set_metadata(self, keys: list[str], value: str) -> None:
        await asyncio.sleep(0)
        if self.error is not None:
            raise self.error
        inner = self.metadata
        for key in keys[:-1]:
            inner = inner.setdefault(key, {})
        inner[keys[-1]] = value

    async def get_metadata(self, keys: list[str]) -> Any:
        await asyncio.sleep(0)
        inner = self.metadata
        for key in keys:
            inner = inner[key]
        return inner


class FakeWorker:
    def __init__(self, scheduler: FakeScheduler, address: str) -> None:
        self.scheduler = scheduler
        self.address = address


class FakeAgent:
    """Jobs that live as long as somebody has them."""

    def __init__(self) -> None:
        self.gates: list[FakeGate] = []
        self.made = 0
        self.away = False

    @property
    def jobs(self) -> set[str]:
        return {gate.job for gate in self.gates if not gate.closed}


class FakeGate:
    def __init__(self, agent: FakeAgent, job: str) -> None:
        self.closed = False
        self.known = not job or job in agent.jobs
        if not job:
            agent.made += 1
        self.job = job or f"job-{agent.made}"
        self.away = agent.away
        if self.known:
            agent.gates.append(self)

    def wait_connected(self, timeout_s: float) -> bool:
        return self.known and not self.away

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def agent(monkeypatch: pytest.MonkeyPatch) -> FakeAgent:
    fake = FakeAgent()
    monkeypatch.setattr(jobs, "new_gate", lambda worker, settings, job="": FakeGate(fake, job))
    return fake


async def gate_of(scheduler: FakeScheduler, address: str, settings: Settings = SETTINGS) -> Any:
    return await jobs.connected_gate(FakeWorker(scheduler, address), settings)  # type: ignore[arg-type]


async def test_workers_that_start_at_once_agree(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    gates = await asyncio.gather(*(gate_of(scheduler, f"tcp://w{n}") for n in range(8)))
    assert len({gate.job for gate in gates}) == 1
    assert len(agent.jobs) == 1
    assert not any(gate.closed for gate in gates)


async def test_a_worker_that_comes_later_joins(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    first = await gate_of(scheduler, "tcp://w0")
    assert (await gate_of(scheduler, "tcp://w1")).job == first.job


async def test_a_job_that_is_over_is_not_joined(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    first = await gate_of(scheduler, "tcp://w0")
    first.close()
    second = await gate_of(scheduler, "tcp://w1")
    assert second.job != first.job
    assert (await gate_of(scheduler, "tcp://w2")).job == second.job


async def test_clusters_and_agents_do_not_mix(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    gates = [
        await gate_of(scheduler, "tcp://w0"),
        await gate_of(FakeScheduler(), "tcp://w1"),
        await gate_of(scheduler, "tcp://w2", Settings(socket="/run/another.sock")),
    ]
    assert len({gate.job for gate in gates}) == 3


async def test_who_does_not_want_to_share_does_not_ask(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    first = await gate_of(scheduler, "tcp://w0", Settings(share_job=False))
    assert scheduler.metadata == {}
    assert not first.closed


async def test_without_agent_or_scheduler_a_worker_keeps_its_own_gate(agent: FakeAgent) -> None:
    scheduler = FakeScheduler()
    scheduler.error = OSError("nobody there")
    assert not (await gate_of(scheduler, "tcp://w0")).closed
    agent.away = True
    away = await gate_of(FakeScheduler(), "tcp://w1")
    assert not away.closed

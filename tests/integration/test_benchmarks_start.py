"""Benchmarks whose agents have a stand-in for the master: they still start, and measure something."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from bench import elasecutor_overhead, grant_latency


def test_the_latency_of_grants(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("COUNT", "WARM_UP", "QUEUED"):
        monkeypatch.setattr(grant_latency, name, 5)
    measured = [(loop, what) for loop, what, quantiles in grant_latency.measure(tmp_path) if quantiles.p50 > 0]
    assert len(measured) == len(set(measured)) == 8, "four figures of each loop"


def test_the_cost_of_executors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elasecutor_overhead, "_SETTLE_S", 2.5)  # some heartbeats
    cost = asyncio.run(elasecutor_overhead.agent_cost(2.5, 1, executors=True))
    assert cost.heartbeat_bytes > 0 and cost.memory_bytes > 0  # its CPU time is counted in ticks of 10 ms

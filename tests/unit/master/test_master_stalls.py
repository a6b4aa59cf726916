"""A master that was suspended or busy: the silence of nodes counts only while it listens."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from master.core import Cluster, MasterSettings
from master.core import events as e
from master.service import MasterService
from penstock.model import Capacity
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import MB, job_state, load, task

TIMEOUT_S = 5.0
#: The longest time between two rounds in which the master listens.
USUAL_S = 1.1


def registered(*nodes: str, now: float = 0.0) -> Cluster:
    cluster = Cluster(MasterSettings(gather_s=0.0, node_timeout_s=TIMEOUT_S))
    for name in nodes:
        capacity = Capacity(cores=4, memory_bytes=1000 * MB)
        message = api.Register(protocol=1, node=name, version="0", capacity=capacity, load=load(), complete=True)
        cluster.handle(e.Received(name, message), now)
    return cluster


@given(st.lists(st.floats(0.1, 100.0), max_size=40), st.booleans())
def test_a_silent_node_is_lost_by_the_time_that_the_master_listened(gaps: list[float], away: bool) -> None:
    cluster, now, listened_s = registered("beats", "silent"), 0.0, 0.0
    if away:
        cluster.handle(e.NodeAway("silent"), now)
    for gap_s in gaps:
        now += gap_s
        listened_s += min(gap_s, USUAL_S)
        # Heartbeats of the time of a stall are received only after the round that is due at its end.
        cluster.handle(e.RoundDue(1000.0 + now, stalled_s=max(0.0, gap_s - USUAL_S)), now)
        assert "beats" in cluster.nodes
        if abs(listened_s - TIMEOUT_S) > 1e-6:
            assert ("silent" in cluster.nodes) == (listened_s < TIMEOUT_S)
        cluster.handle(e.Received("beats", api.Heartbeat(load=load(), decided=0)), now)


def test_a_late_round_counts_as_a_stall_of_the_master(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = SimpleNamespace(now=1000.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9 + clock.now)
    monkeypatch.setattr("master.service.time", fake)

    async def rounds(*gaps_s: float) -> Cluster:
        cluster = registered("a", now=clock.now)
        cluster.handle(e.Received("a", api.Heartbeat(load=load(promised_memory_bytes=800 * MB), decided=0)), clock.now)
        cluster.handle(e.Received("a", job_state("j")), clock.now)
        cluster.handle(e.Received("a", api.ReadyTasks(job="j", stage="s", tasks=[task("waits", 300)])), clock.now)
        service = MasterService(cluster, CollectorRegistry())
        for gap_s in gaps_s:
            clock.now += gap_s
            service._watch_due_s = clock.now + 1.0
            service.wake()  # the round is due at once
            ran = asyncio.Event()
            asyncio.get_running_loop().call_later(0.0, ran.set)
            await ran.wait()
        return cluster

    assert "a" in asyncio.run(rounds(60.0, 1.0, 1.0, 1.0)).nodes
    assert "a" not in asyncio.run(rounds(60.0, 1.0, 1.0, 1.0, 1.0, 1.0)).nodes


@pytest.mark.parametrize(
    ("late_s", "stalls_s"),
    [
        # The watch is on time again at once.
        ([0.0, 0.6, 0.0, 0.0], [0.0, 0.59, 0.0, 0.0]),
        # It leaves out the multiple that is near, and waits longer than a heartbeat.
        ([0.0, 0.95, 0.0, 0.0], [0.0, 0.94, 0.0, 0.0]),
        ([0.0, 30.0, 0.0, 0.0], [0.0, 29.99, 0.0, 0.0]),
    ],
)
async def test_the_watch_after_a_stall_is_no_second_stall(
    monkeypatch: pytest.MonkeyPatch, late_s: list[float], stalls_s: list[float]
) -> None:
    clock = SimpleNamespace(now=1000.0)
    fake = SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9 + clock.now)
    monkeypatch.setattr("master.service.time", fake)
    service, stalled_s = MasterService(Cluster(MasterSettings(interval_s=0.01)), CollectorRegistry()), []
    due = SimpleNamespace(at=clock.now)
    loop = SimpleNamespace(time=lambda: clock.now, call_at=lambda at, work: setattr(due, "at", at))
    monkeypatch.setattr(service, "_loop", loop)
    monkeypatch.setattr(service, "dispatch", lambda event: stalled_s.append(event.stalled_s))
    for each_s in late_s:
        clock.now = due.at + each_s
        service._watch_nodes()
    assert stalled_s == pytest.approx(stalls_s)


def test_a_round_waits_for_the_messages_right_behind_a_registration(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are about tasks of that registration, which a round would place before."""
    monkeypatch.setattr("master.service._BEHIND_S", 0.5)  # a host may take longer than a millisecond to the next turn
    cluster = registered("b", now=time.monotonic())

    async def register_and_cancel() -> None:
        service, ran = MasterService(cluster, CollectorRegistry()), asyncio.Event()
        service.overview = SimpleNamespace(received=lambda event, at: None)  # type: ignore[assignment]
        service._last_round -= 0.5  # a round is due at once
        run = service._run_round
        service._run_round = lambda: (run(), ran.set())  # type: ignore[method-assign,assignment,func-returns-value]
        connection: Any = SimpleNamespace(node="a", address="", host="", heard_at=0.0, send=lambda decisions: None)
        ready = api.ReadyTasks(job="j", stage="s", tasks=[task("t")])
        capacity = Capacity(cores=4, memory_bytes=1000 * MB)
        message = api.Register(
            protocol=1, node="a", version="0", capacity=capacity, load=load(), jobs=[job_state("j", admitted=True)],
            ready=[ready], complete=True,
        )  # fmt: skip
        service.register(connection, message)
        behind = e.Received("a", api.TasksCancelled(job="j", tasks=["t"]))
        asyncio.get_running_loop().call_soon(service.received, connection, behind)
        await asyncio.wait_for(ran.wait(), 30)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(register_and_cancel())
    assert cluster.counts["assigned"] == 0

"""A master that was suspended or busy: the silence of nodes counts only while it listens."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
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


@given(st.lists(st.tuples(st.sampled_from("abc"), st.floats(0.0, 2.0)), max_size=40))
def test_nodes_are_lost_one_by_one_as_each_was_heard_last(heard: list[tuple[str, float]]) -> None:
    cluster, now, last = registered("a", "b", "c"), 0.0, dict.fromkeys("abc", 0.0)
    for name, gap_s in heard:
        now += gap_s
        cluster.handle(e.RoundDue(1000.0 + now), now)
        last = {each: at for each, at in last.items() if now - at <= TIMEOUT_S}
        assert cluster.nodes.keys() == last.keys()
        if name in last:
            cluster.handle(e.Received(name, api.Heartbeat(load=load(), decided=0)), now)
            last[name] = now


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
    assert due.at % 1.0 == pytest.approx(0.5), "the process wakes once for all that looks between two samples"


class FakeLoop:
    """The timer of the next round, by its arguments."""

    def __init__(self, clock: SimpleNamespace) -> None:
        self._clock = clock
        self.due: float | None = None
        self.ran = 0

    def call_later(self, delay_s: float, work: Callable[[], None]) -> SimpleNamespace:
        assert self.due is None, "two timers"
        self.due, self._work = self._clock.now + delay_s, work
        return SimpleNamespace(cancel=lambda: setattr(self, "due", None))

    def go_to(self, now: float) -> None:
        """Let time pass, and run the round that is due meanwhile."""
        while self.due is not None and self.due <= now:
            self._clock.now, self.due = self.due, None
            self.ran += 1
            self._work()
        self._clock.now = now


@pytest.fixture
async def clocked(monkeypatch: pytest.MonkeyPatch) -> tuple[MasterService, FakeLoop, SimpleNamespace]:
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(
        "master.service.time", SimpleNamespace(monotonic=lambda: clock.now, time=lambda: 1e9 + clock.now)
    )
    service, loop = MasterService(registered("b", now=clock.now), CollectorRegistry()), FakeLoop(clock)
    monkeypatch.setattr(service, "_loop", loop)
    service.overview = SimpleNamespace(received=lambda event, at: None)  # type: ignore[assignment]
    return service, loop, clock


def register(service: MasterService, node: str, *ready: str, memory: int = 300) -> Any:
    """Register a node with tasks that are to be placed; return its connection."""
    connection: Any = SimpleNamespace(node=node, address="", host="", heard_at=0.0, send=lambda decisions: None)
    asked = [api.ReadyTasks(job=f"j-{node}", stage="s", tasks=[task(name, memory) for name in ready])]
    message = api.Register(
        protocol=1, node=node, version="0", capacity=Capacity(cores=4, memory_bytes=1000 * MB), load=load(),
        jobs=[job_state(f"j-{node}", admitted=True)], ready=asked, complete=True,
    )  # fmt: skip
    service.register(connection, message)
    return connection


async def test_a_round_waits_for_the_messages_right_behind_a_registration(clocked: Any) -> None:
    """They are about tasks of that registration, which a round would place before. They may come in a later read."""
    service, loop, clock = clocked
    connection = register(service, "a", "t")
    loop.go_to(clock.now + 0.015)
    service.received(connection, e.Received("a", api.TasksCancelled(job="j-a", tasks=["t"])))
    loop.go_to(clock.now + 1.0)
    assert service.cluster.counts["assigned"] == 0


async def test_a_round_that_is_about_to_run_waits_for_the_messages_behind_a_registration(clocked: Any) -> None:
    service, loop, clock = clocked
    register(service, "0", "x", memory=9000)
    loop.go_to(loop.due - 0.001)
    ran, connection = loop.ran, register(service, "a", "t")
    loop.go_to(clock.now + 0.015)
    assert loop.ran == ran
    service.received(connection, e.Received("a", api.TasksCancelled(job="j-a", tasks=["t"])))
    loop.go_to(clock.now + 1.0)
    assert (loop.ran > ran, service.cluster.counts["assigned"]) == (True, 0)


async def test_registrations_neither_hasten_rounds_nor_stop_them(clocked: Any) -> None:
    service, loop, clock = clocked
    began, every_s = clock.now, service.cluster.settings.interval_s
    for number in range(200):
        register(service, f"n{number}", "t", memory=9000)
        loop.go_to(clock.now + 0.0085)
    most = (clock.now - began) / every_s
    assert most / 4 <= loop.ran <= most + 1


async def test_tasks_hasten_a_round_that_has_none_to_place(clocked: Any) -> None:
    """A job makes a round due when it comes, as the order of the others changes; its tasks come just behind it."""
    service, loop, clock = clocked
    connection = register(service, "a", "runs")
    loop.go_to(clock.now + 10.0)
    placed = service.cluster.counts["assigned"]
    for job in ("first", "second"):
        service.received(connection, e.Received("a", job_state(job)))
        loop.go_to(clock.now + 0.005)
    assert loop.due > clock.now
    service.received(connection, e.Received("a", api.ReadyTasks(job="second", stage="s", tasks=[task("t")])))
    loop.go_to(clock.now + 0.005)
    assert service.cluster.counts["assigned"] == placed + 1


async def test_a_round_that_has_just_run_does_not_delay_the_place_of_a_job(clocked: Any) -> None:
    service, loop, clock = clocked
    connection = register(service, "a", "runs")
    for pause_s in (10.0, 0.5):  # the second round has no order to compute
        loop.go_to(clock.now + pause_s)
        service._run_round()
    service.received(connection, e.Received("a", job_state("new")))
    assert not service.cluster.jobs["new"].ranked
    loop.go_to(clock.now + 0.021)
    assert service.cluster.jobs["new"].ranked


async def test_rounds_that_may_not_place_yet_keep_to_the_interval(clocked: Any) -> None:
    service, loop, clock = clocked
    service.cluster.dues.gathers_until = clock.now + 10.0
    register(service, "a", "waits")
    loop.go_to(clock.now + 5.0)
    assert loop.ran <= 5.0 / service.cluster.settings.interval_s + 1

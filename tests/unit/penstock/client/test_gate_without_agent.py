"""The gate while its agent is away, hangs or refuses."""

from __future__ import annotations

import asyncio
import sys
import threading
import warnings
from pathlib import Path
from queue import SimpleQueue

import pytest

from penstock.client.gate import Gate, Slot
from penstock.client.gate_link import GateLink
from penstock.wire.errors import refused, unavailable
from tests.fakes.agent_thread import AgentThread
from tests.unit.penstock.client.conftest import LONG_S, TIMEOUT_S, Make, in_thread


def test_with_no_agent_ever_work_goes_on_after_patience_with_one_warning(make: Make, warned: list[str]) -> None:
    gate = make(patience_s=0.2)
    for _ in range(3):
        with gate.acquire("cpu", 1) as slot:
            assert not slot.gated
    assert not gate.connected
    assert gate.job == ""
    [line] = warned
    assert "agent.sock" in line
    assert "penstock up" in line
    assert gate.counts() | {"ungated": 3, "released": 3, "outages": 1, "granted": 0} == gate.counts()


async def test_coroutines_and_callbacks_go_on_too(make: Make) -> None:
    gate = make(patience_s=0.0)
    async with await gate.acquire_async("cpu", 1) as slot:
        assert not slot.gated
    called: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
    loop = asyncio.get_running_loop()
    gate.submit("cpu", 1, lambda one: loop.call_soon_threadsafe(called.set_result, one))
    assert not (await asyncio.wait_for(called, TIMEOUT_S)).gated


def test_an_agent_that_comes_within_patience_is_waited_for(tmp_path: Path, make: Make, warned: list[str]) -> None:
    gate = make(patience_s=LONG_S)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    with AgentThread(tmp_path):
        assert waiting().gated
        assert gate.connected
        assert gate.job == "job-1"
        gate.close()
    assert warned == []


def test_gated_again_when_the_agent_is_back(agent: AgentThread, make: Make, warned: list[str]) -> None:
    gate = make(patience_s=0.1)
    assert gate.wait_connected(TIMEOUT_S)
    held = gate.acquire("cpu", 1)
    agent.stop()
    assert not gate.acquire("cpu", 1).gated
    assert not gate.connected
    agent.start()
    assert gate.wait_connected(TIMEOUT_S)
    agent.until(lambda fake: any(spec.running for asked in fake.called("submit") for spec in asked.monotasks))
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)  # a slot from before is announced, and is held again
    held.release()
    assert waiting().gated
    assert len(warned) == 1


def test_a_waiting_caller_survives_a_short_absence(agent: AgentThread, gate: Gate, warned: list[str]) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    agent.stop()
    agent.start()
    agent.until(lambda fake: len(fake.queued) == 1)
    first.release()
    assert waiting().gated
    assert warned == []


def test_each_outage_is_reported_once(
    agent: AgentThread, make: Make, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.monotask_session.SETTLED_S", 0.0)
    gate = make(patience_s=0.2)
    for outage in (1, 2, 3):
        assert gate.wait_connected(TIMEOUT_S)
        waiting = [in_thread(lambda: gate.acquire("cpu", 1)) for _ in range(4)]
        agent.until(lambda fake: len(fake.queued) == 3)
        agent.stop()
        for each in waiting:
            each().release()
        assert len(warned) == outage
        agent.start()


def test_a_hung_agent_counts_as_gone_until_it_answers(
    agent: AgentThread, make: Make, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.gate_engine._ASK_EVERY_S", 0.05)
    monkeypatch.setattr("penstock.client.gate_engine._ANSWER_S", 1.0)
    gate = make(patience_s=0.2)
    assert gate.wait_connected(TIMEOUT_S)
    held = gate.acquire("cpu", 1)
    go_on = agent.pause()
    assert not gate.acquire("cpu", 1).gated
    assert "does not answer" in warned[0]
    assert not gate.connected
    held.release()
    go_on()
    assert gate.wait_connected(TIMEOUT_S)
    with gate.acquire("cpu", 1) as slot:
        assert slot.gated
    assert len(warned) == 1
    assert agent.do(lambda fake: fake.called("hello")) != []
    assert len(agent.agent.called("hello")) == 1  # the connection was kept


def test_an_agent_that_answers_but_grants_nothing_is_waited_for(
    agent: AgentThread, make: Make, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("penstock.client.gate_engine._ASK_EVERY_S", 0.01)
    monkeypatch.setattr("penstock.client.gate_engine._ANSWER_S", 30.0)
    gate = make(patience_s=0.01)
    assert gate.wait_connected(TIMEOUT_S)
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.called("tasks_done")) >= 5)
    assert gate.counts()["waiting"] == 1
    first.release()
    assert waiting().gated
    assert warned == []


def test_an_agent_that_refuses_the_job_is_no_agent(agent: AgentThread, make: Make, warned: list[str]) -> None:
    agent.do(lambda fake: fake.refuse.update(register_job=refused("no more jobs")))
    gate = make(patience_s=0.1)
    agent.until(lambda fake: len(fake.called("register_job")) >= 2)  # so it has received the first refusal
    assert not gate.acquire("cpu", 1).gated
    assert "no more jobs" in warned[0]
    assert gate.refused
    agent.do(lambda fake: fake.refuse.clear())
    assert gate.wait_connected(TIMEOUT_S)
    assert not gate.refused
    assert gate.acquire("cpu", 1).gated


def test_a_job_that_is_over_is_not_waited_for(agent: AgentThread, make: Make) -> None:
    agent.do(lambda fake: fake.refuse.update(register_job=refused("the job is over")))
    gate = make(job="job-7")
    answer: SimpleQueue[bool] = SimpleQueue()
    for _ in range(2):  # while the agent is asked, and afterwards
        threading.Thread(target=lambda: answer.put(gate.wait_connected(threading.TIMEOUT_MAX)), daemon=True).start()
        assert not answer.get(timeout=TIMEOUT_S)
    assert gate.refused


def test_an_agent_that_cannot_take_the_job_now_has_refused_nothing(agent: AgentThread, make: Make) -> None:
    agent.do(lambda fake: fake.refuse.update(register_job=unavailable("the master is away")))
    gate = make(patience_s=0.1)
    agent.until(lambda fake: len(fake.called("register_job")) >= 2)
    assert not gate.refused


def test_a_restarted_agent_that_refuses_the_job_at_first(agent: AgentThread, make: Make) -> None:
    gate = make(patience_s=LONG_S)
    assert gate.wait_connected(TIMEOUT_S)
    held = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    agent.stop()
    agent.agent.refuse["register_job"] = refused("not yet")
    agent.start()
    agent.until(lambda fake: len(fake.called("register_job")) >= 3)
    agent.do(lambda fake: fake.refuse.clear())
    assert waiting().gated
    held.release()  # of a job that is gone: nothing to report
    assert gate.counts()["held"] == 1


def test_a_warning_is_shown_for_each_outage_and_is_no_error_in_the_thread(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with warnings.catch_warnings(record=True) as shown:
        warnings.simplefilter("default")
        for _ in range(2):
            with Gate("test", socket=tmp_path / "none", patience_s=0.0) as gate:
                assert not gate.acquire("cpu", 1).gated
    assert [each.category for each in shown] == [RuntimeWarning, RuntimeWarning]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with Gate("test", socket=tmp_path / "none", patience_s=0.0) as gate:
            assert not gate.acquire("cpu", 1).gated
    assert "goes on without grants" in caplog.text


def test_without_uvloop(agent: AgentThread, make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "uvloop", None)
    gate = make(patience_s=LONG_S)
    with gate.acquire("cpu", 1) as slot:
        assert slot.gated


def test_a_defect_in_the_thread_stops_no_caller(
    make: Make, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(link: GateLink) -> None:
        await asyncio.to_thread(asked.wait, TIMEOUT_S)
        raise KeyError("ours")

    asked = threading.Event()
    monkeypatch.setattr(GateLink, "keep", broken)
    gate = make(patience_s=LONG_S)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    while gate.counts()["waiting"] == 0:
        pass
    asked.set()
    assert not waiting().gated
    assert not gate.acquire("cpu", 1).gated
    assert "the thread of a gate failed" in caplog.text

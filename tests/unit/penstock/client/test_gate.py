"""The gate, from threads and coroutines, with an agent that is there."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock.client import gate_link
from penstock.client.errors import JobCancelled
from penstock.client.gate import Gate, Slot
from penstock.wire.agent_api import StageProgress
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent_thread import AgentThread
from tests.fakes.at_once import AtOnce
from tests.unit.penstock.client.conftest import LONG_S, TIMEOUT_S, Make, in_thread


def test_the_second_waits_for_the_first(agent: AgentThread, gate: Gate) -> None:
    first = gate.acquire("cpu", 1, stage="s", task="t")
    assert first.gated
    second = in_thread(lambda: gate.acquire("cpu", 2))
    agent.until(lambda fake: len(fake.queued) == 1)
    first.release()
    slot = second()
    assert slot.gated
    slot.release(failed=True)
    agent.until(lambda fake: len(fake.called("complete")) == 2)
    assert [asked.monotasks[0].failed for asked in agent.agent.called("complete")] == [False, True]
    spec = agent.agent.called("submit")[0].monotasks[0]
    assert (spec.kind, spec.input_bytes, spec.stage, spec.task) == ("cpu", 1, "s", "t")


def test_progress_is_passed_on(agent: AgentThread, gate: Gate) -> None:
    said = [StageProgress(stage="map", tasks=4, done=1)]
    gate.progress(said)
    agent.until(lambda fake: bool(fake.called("progress")))
    [asked] = agent.agent.called("progress")
    assert (asked.job, asked.stages) == (gate.job, said)


def test_a_gate_that_closes_leaves_the_job_that_it_registered_in_order(agent: AgentThread, make: Make) -> None:
    own = make()
    assert own.wait_connected(TIMEOUT_S)
    joined = make(job=own.job)
    assert joined.wait_connected(TIMEOUT_S)
    job = own.job
    joined.close()
    own.close()
    assert joined.wait_closed(TIMEOUT_S)
    assert own.wait_closed(TIMEOUT_S)
    agent.until(lambda fake: bool(fake.called("leave_job")))
    assert [(asked.job, asked.merged_into) for asked in agent.agent.called("leave_job")] == [(job, "")]


def test_a_gate_lends_its_process_where_it_may_be_ranked(agent: AgentThread, make: Make) -> None:
    own, other = make(rank=True), make(rank=True, process=4711)
    assert own.wait_connected(TIMEOUT_S) and other.wait_connected(TIMEOUT_S)
    agent.until(lambda fake: len(fake.called("lend")) == 2)
    assert {(asked.job, asked.pid) for asked in agent.agent.called("lend")} == {(own.job, 0), (other.job, 4711)}
    assert make().wait_connected(TIMEOUT_S)
    assert len(agent.agent.called("lend")) == 2, "a gate without that order moves none"


def test_a_gate_lends_its_process_again_to_an_agent_that_is_back(agent: AgentThread, make: Make) -> None:
    assert make(rank=True).wait_connected(TIMEOUT_S)
    agent.until(lambda fake: bool(fake.called("lend")))
    agent.stop()
    agent.start()
    agent.until(lambda fake: bool(fake.called("lend")))


def test_a_gate_lends_its_process_when_it_is_told_to_for_the_job_that_it_has_then(
    agent: AgentThread, make: Make
) -> None:
    def lent() -> list[tuple[str, int]]:
        return [(asked.job, asked.pid) for asked in agent.agent.called("lend")]

    first = make()
    assert first.wait_connected(TIMEOUT_S)
    first.close()  # the next agent gives the job of the second another id
    gate = make(process=4711)
    with gate.acquire("cpu", 1):
        assert lent() == []
    gate.lend()
    gate.lend()
    agent.until(lambda fake: bool(fake.called("lend")))
    with gate.acquire("cpu", 1):
        assert lent() == [("job-2", 4711)]
    agent.stop()
    agent.agent.known_jobs.add("job-2")
    agent.start()
    agent.until(lambda fake: bool(fake.called("lend")))
    assert lent() == [("job-2", 4711)]
    agent.stop()
    agent.start()
    agent.until(lambda fake: len(fake.called("register_job")) == 2)
    with gate.acquire("cpu", 1) as slot:
        assert slot.gated and lent() == [] and gate.job == "job-1"


def test_an_agent_that_does_not_rank_costs_one_line(
    agent: AgentThread, make: Make, warned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gate_link, "_WARNED", set())
    agent.agent.refuse["lend"] = refused("process 1 is in a cgroup with limits of its own")
    gates = [make(rank=True) for _ in range(3)]
    assert all(gate.wait_connected(TIMEOUT_S) for gate in gates)
    agent.until(lambda fake: len(fake.called("lend")) == 3)
    for gate in gates:
        with gate.acquire("cpu", 1) as slot:
            assert slot.gated
    (line,) = warned
    assert line.startswith("the processes of 'test' are not ranked with their job, and work goes on: ")
    assert "limits of its own" in line and "\n" not in line


def test_a_body_that_raises_gives_the_slot_back_as_failed(agent: AgentThread, gate: Gate) -> None:
    with pytest.raises(KeyError), gate.acquire("cpu", 1):
        raise KeyError
    agent.until(lambda fake: bool(fake.called("complete")))
    assert agent.agent.called("complete")[0].monotasks[0].failed


def test_a_slot_is_given_back_once(gate: Gate) -> None:
    slot = gate.acquire("cpu", 1)
    for _ in range(3):
        slot.release()
        slot.cancel()
    assert gate.counts() | {"released": 1, "cancelled": 0, "held": 0} == gate.counts()


def test_many_threads_never_hold_more_than_the_slots(tmp_path: Path, make: Make) -> None:
    slots, threads, each = 3, 64, 30
    with AgentThread(tmp_path, slots) as agent:
        gate = make(patience_s=LONG_S)
        at_once = AtOnce()

        def work() -> None:
            for number in range(each):
                with gate.acquire("cpu", number) as slot, at_once:
                    assert slot.gated

        with ThreadPoolExecutor(threads) as pool:
            for done in [pool.submit(work) for _ in range(threads)]:
                done.result(5 * TIMEOUT_S)
        counts = gate.counts()
        assert (counts["granted"], counts["released"], counts["held"]) == (threads * each, threads * each, 0)
        assert 1 <= at_once.most <= slots
        assert agent.agent.most_running <= slots


def test_submit_calls_back_with_the_grant(gate: Gate) -> None:
    granted: list[Slot] = []
    called = threading.Event()
    first = gate.acquire("cpu", 1)
    slot = gate.submit("cpu", 1, lambda one: (granted.append(one), called.set()))
    assert not called.is_set()
    first.release()
    assert called.wait(TIMEOUT_S)
    assert granted == [slot]
    assert slot.gated
    slot.release()


def test_a_cancelled_one_is_never_called_back(agent: AgentThread, gate: Gate) -> None:
    called: list[Slot] = []
    first = gate.acquire("cpu", 1)
    slot = gate.submit("cpu", 1, called.append)
    agent.until(lambda fake: len(fake.queued) == 1)
    slot.cancel()
    agent.until(lambda fake: not fake.queued)
    first.release()
    gate.acquire("cpu", 1).release()
    assert called == []


def test_a_callback_that_raises_affects_no_other(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
    def broken(slot: Slot) -> None:
        slot.release()
        raise KeyError("mine")

    gate.submit("cpu", 1, broken)
    gate.acquire("cpu", 1).release()
    assert "a callback of a gate failed" in caplog.text


def test_a_refused_monotask_raises(agent: AgentThread, gate: Gate) -> None:
    agent.do(lambda fake: fake.refuse.update(submit=refused("not today")))
    with pytest.raises(RpcError, match="not today"):
        gate.acquire("cpu", 1)
    called = threading.Event()
    slot = gate.submit("cpu", 1, lambda _: called.set())
    assert called.wait(TIMEOUT_S)
    assert isinstance(slot.error, RpcError)
    agent.do(lambda fake: fake.refuse.clear())
    gate.acquire("cpu", 1).release()


def test_waiting_and_later_callers_get_the_name_of_the_user_who_cancelled_the_job(
    agent: AgentThread, gate: Gate
) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 2))
    agent.until(lambda fake: len(fake.queued) == 1)
    agent.do(lambda fake: fake.cancel_job(gate.job, "ann"))
    for asks in (waiting, lambda: gate.acquire("cpu", 3)):
        with pytest.raises(JobCancelled, match="job 'test' was cancelled by ann"):
            asks()
    first.release()


def test_a_gate_whose_job_was_cancelled_when_the_agent_died_refuses_work_at_the_next_agent(
    agent: AgentThread, gate: Gate
) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 2))
    agent.until(lambda fake: len(fake.queued) == 1)
    job = gate.job
    agent.stop()
    agent.agent.cancelled[job] = "ann"
    agent.start()
    for asks in (waiting, lambda: gate.acquire("cpu", 3)):
        with pytest.raises(JobCancelled, match="job 'test' was cancelled by ann"):
            asks()
    first.release()
    assert gate.wait_closed(TIMEOUT_S)
    assert agent.do(lambda fake: [asked.job for asked in fake.called("register_job")]) == [job]
    assert agent.do(lambda fake: fake.called("submit")) == []


def test_a_job_that_was_cancelled_while_the_gate_rejoins_is_not_registered_anew(agent: AgentThread, gate: Gate) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 2))
    agent.until(lambda fake: len(fake.queued) == 1)
    job = gate.job
    agent.stop()
    agent.agent.refuse["register_job"] = refused("was cancelled by ann", field="job", cancelled_by="ann")
    agent.start()
    for asks in (waiting, lambda: gate.acquire("cpu", 3)):
        with pytest.raises(JobCancelled, match="job 'test' was cancelled by ann"):
            asks()
    assert gate.wait_closed(TIMEOUT_S) and not gate.connected
    assert [asked.job for asked in agent.agent.called("register_job")][-1] == job
    first.release()


@pytest.mark.parametrize(("kind", "size"), [("gpu", 1), ("cpu", -1)])
def test_nonsense_is_refused_at_once(gate: Gate, kind: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"kind|input_bytes: .* not from 0 to"):
        gate.acquire(kind, size)


def test_names_that_the_protocol_does_not_take_are_made_to_fit(agent: AgentThread, gate: Gate) -> None:
    gate.acquire("cpu", 2**63 - 1, stage="s" * 500, task="\ud800é").release()
    spec = agent.agent.called("submit")[0].monotasks[0]
    assert (len(spec.stage), spec.task, spec.input_bytes) == (128, "?é", 2**63 - 1)


def test_the_job_is_as_described_and_another_gate_may_join_it(agent: AgentThread, make: Make, gate: Gate) -> None:
    other = make(job=gate.job, priority=2.0, memory_bytes=5, patience_s=LONG_S)
    assert other.wait_connected(TIMEOUT_S)
    assert other.job == gate.job
    asked = agent.agent.called("register_job")[-1]
    assert (asked.name, asked.job, asked.priority, asked.memory_bytes) == ("test", gate.job, 2.0, 5)
    slot = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: other.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    slot.release()
    assert waiting().gated


def test_an_unknown_job_to_join(make: Make, agent: AgentThread, warned: list[str]) -> None:
    assert not make(job="job-77", patience_s=0.1).acquire("cpu", 1).gated
    assert "job-77" in warned[0]


def test_without_its_slot_another_can_run(gate: Gate) -> None:
    with gate.acquire("cpu", 1) as slot:
        with slot.released():
            gate.acquire("cpu", 1).release()
        assert slot.gated
    assert gate.counts() | {"granted": 3, "released": 2, "cancelled": 1, "held": 0} == gate.counts()


def test_a_slot_of_a_task_that_was_given_back_is_acquired_again(agent: AgentThread, gate: Gate) -> None:
    with gate.acquire("cpu", 1, task="t") as slot:
        with slot.released():
            other = gate.acquire("cpu", 1)
            in_thread(lambda: (agent.until(lambda fake: len(fake.queued) == 1), other.release()))
        assert slot.gated
        assert gate.counts() | {"granted": 3, "held": 1} == gate.counts()


# ---------------------------------------------------------------- coroutines


async def test_coroutines_wait_without_blocking_their_loop(agent: AgentThread, gate: Gate) -> None:
    async with await gate.acquire_async("cpu", 1):
        second = asyncio.ensure_future(gate.acquire_async("cpu", 1))
        await asyncio.to_thread(agent.until, lambda fake: len(fake.queued) == 1)
        assert not second.done()
    async with asyncio.timeout(TIMEOUT_S), await second as slot:
        assert slot.gated


async def test_a_cancelled_wait_gives_the_monotask_back(agent: AgentThread, gate: Gate) -> None:
    async with await gate.acquire_async("cpu", 1):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await gate.acquire_async("cpu", 1)
        await asyncio.to_thread(agent.until, lambda fake: bool(fake.called("submit")) and not fake.queued)
    (await asyncio.wait_for(gate.acquire_async("cpu", 1), TIMEOUT_S)).release()


def test_a_loop_that_closed_while_waiting_leaves_nothing_behind(agent: AgentThread, gate: Gate) -> None:
    first = gate.acquire("cpu", 1)
    loop = asyncio.new_event_loop()
    waiting = loop.create_task(gate.acquire_async("cpu", 1))
    loop.call_soon(loop.stop)
    loop.run_forever()
    agent.until(lambda fake: len(fake.queued) == 1)
    loop.close()
    first.release()
    gate.acquire("cpu", 1).release()
    waiting._log_destroy_pending = False  # type: ignore[attr-defined]

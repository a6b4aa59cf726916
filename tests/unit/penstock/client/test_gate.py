"""The gate, from threads and coroutines, against an agent that can refuse, hang, die and come back."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from penstock.client import gate_link
from penstock.client.errors import JobCancelled
from penstock.client.gate import Gate, Slot
from penstock.client.gate_link import GateLink
from penstock.wire.agent_api import StageProgress
from penstock.wire.errors import RpcError, refused, unavailable
from tests.fakes.agent_thread import AgentThread
from tests.fakes.at_once import AtOnce

TIMEOUT_S = 60.0
LONG_S = 600.0  # patience that no test lives to see
Make = Callable[..., Gate]


@pytest.fixture
def warned() -> list[str]:
    return []


@pytest.fixture
def make(tmp_path: Path, warned: list[str]) -> Iterator[Make]:
    made: list[Gate] = []

    def gate(**options: Any) -> Gate:
        made.append(Gate("test", **{"socket": tmp_path / "agent.sock", "warn": warned.append, **options}))
        return made[-1]

    yield gate
    for each in made:
        each.close()


@pytest.fixture
def gate(agent: AgentThread, make: Make) -> Gate:
    made = make(patience_s=LONG_S)
    assert made.wait_connected(TIMEOUT_S)
    return made


def in_thread(work: Callable[[], Any]) -> Callable[[], Any]:
    """Start it; the result waits for it."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(work)
    pool.shutdown(wait=False)
    return lambda: future.result(TIMEOUT_S)


# ---------------------------------------------------------------- with the agent there


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
    assert len(agent.agent.called("lend")) == 2, "a gate that was not told so moves nobody"


def test_a_gate_lends_its_process_again_to_an_agent_that_is_back(agent: AgentThread, make: Make) -> None:
    assert make(rank=True).wait_connected(TIMEOUT_S)
    agent.until(lambda fake: bool(fake.called("lend")))
    agent.stop()
    agent.start()
    agent.until(lambda fake: bool(fake.called("lend")))


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


def test_a_callback_that_raises_hurts_nobody_else(gate: Gate, caplog: pytest.LogCaptureFixture) -> None:
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


def test_who_waits_and_who_asks_later_hears_who_cancelled_the_job(agent: AgentThread, gate: Gate) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 2))
    agent.until(lambda fake: len(fake.queued) == 1)
    agent.do(lambda fake: fake.cancel_job(gate.job, "ann"))
    for asks in (waiting, lambda: gate.acquire("cpu", 3)):
        with pytest.raises(JobCancelled, match="job 'test' was cancelled by ann"):
            asks()
    first.release()


@pytest.mark.parametrize(("kind", "size"), [("gpu", 1), ("cpu", -1)])
def test_nonsense_is_told_at_once(gate: Gate, kind: str, size: int) -> None:
    with pytest.raises(ValueError, match=r"kind|negative"):
        gate.acquire(kind, size)


def test_names_that_the_protocol_does_not_take_are_made_to_fit(agent: AgentThread, gate: Gate) -> None:
    gate.acquire("cpu", 2**70, stage="s" * 500, task="\ud800é").release()
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


def test_a_job_to_join_that_nobody_knows(make: Make, agent: AgentThread, warned: list[str]) -> None:
    assert not make(job="job-77", patience_s=0.1).acquire("cpu", 1).gated
    assert "job-77" in warned[0]


@pytest.mark.parametrize("options", [{"patience_s": -1.0}, {"memory_bytes": -1}])
def test_nonsense_options(make: Make, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="negative"):
        make(**options)


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


# ---------------------------------------------------------------- without the agent


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
    agent.until(lambda fake: len(fake.queued) == 1)  # what was held before is announced, and holds its slot
    held.release()
    assert waiting().gated
    assert len(warned) == 1


def test_who_waits_survives_a_short_absence(agent: AgentThread, gate: Gate, warned: list[str]) -> None:
    first = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    agent.stop()
    agent.start()
    agent.until(lambda fake: len(fake.queued) == 1)
    first.release()
    assert waiting().gated
    assert warned == []


def test_each_outage_is_told_once(
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
    agent.until(lambda fake: len(fake.called("register_job")) >= 2)  # so it has heard the first refusal
    assert not gate.acquire("cpu", 1).gated
    assert "no more jobs" in warned[0]
    assert gate.refused
    agent.do(lambda fake: fake.refuse.clear())
    assert gate.wait_connected(TIMEOUT_S)
    assert not gate.refused
    assert gate.acquire("cpu", 1).gated


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
    held.release()  # of a job that is gone: nothing to tell
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


def test_a_defect_in_the_thread_stops_nobody(
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


# ---------------------------------------------------------------- the end


def test_closing_wakes_who_waits_and_gives_all_back(agent: AgentThread, gate: Gate) -> None:
    held = gate.acquire("cpu", 1)
    waiting = in_thread(lambda: gate.acquire("cpu", 1))
    agent.until(lambda fake: len(fake.queued) == 1)
    gate.close()
    with pytest.raises(RuntimeError, match="closed"):
        waiting()
    with pytest.raises(RuntimeError, match="closed"):
        gate.acquire("cpu", 1)
    held.release()
    gate.close()
    agent.until(lambda fake: not fake.running and not fake.queued)
    assert gate.counts()["held"] == 0


def test_a_forgotten_gate_ends_with_its_last_slot(agent: AgentThread, tmp_path: Path) -> None:
    before = threading.active_count()
    slot = Gate("test", socket=tmp_path / "agent.sock", patience_s=LONG_S).acquire("cpu", 1)
    agent.do(lambda fake: None)
    assert slot.gated
    assert agent.agent.running
    slot.release()
    agent.until(lambda fake: bool(fake.called("complete")))
    del slot
    agent.until(lambda fake: not fake._peers)
    for thread in threading.enumerate():
        if thread.name == "penstock-gate":
            thread.join(TIMEOUT_S)
    assert threading.active_count() == before


def run_python(code: str, socket: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, str(socket), *more],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
    )


@pytest.mark.parametrize("there", [True, False])
def test_an_interpreter_ends_without_a_word(tmp_path: Path, there: bool) -> None:
    code = """
import sys, threading
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=0.1)
if sys.argv[2] == "True": gate.wait_connected(60)
held = gate.acquire("cpu", 1)
queued = gate.submit("cpu", 1, lambda slot: None)
threading.Thread(target=lambda: [gate.acquire("disk", 1).release() for _ in range(50)]).start()
threading.Thread(target=lambda: gate.acquire("cpu", 1), daemon=True).start()
def hammer():
    while True:
        gate.acquire("network", 1).release()
threading.Thread(target=hammer, daemon=True).start()
print(held.gated)
"""
    with AgentThread(tmp_path) as agent:
        ended = run_python(code, agent.socket if there else tmp_path / "none", str(there))
        assert (ended.stdout, ended.stderr, ended.returncode) == (f"{there}\n", "", 0)
        agent.until(lambda fake: not fake._peers)


@pytest.fixture
def interruptible() -> Iterator[None]:
    """Python raises no KeyboardInterrupt where its parent ignores SIGINT, as a shell does for what runs behind."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
def test_an_interrupted_wait_gives_the_monotask_back(agent: AgentThread, gate: Gate) -> None:
    held = gate.acquire("cpu", 1)
    main = threading.main_thread().ident
    assert main is not None

    def interrupt() -> None:
        agent.until(lambda fake: len(fake.queued) == 1)
        signal.pthread_kill(main, signal.SIGINT)

    interrupted = in_thread(interrupt)
    with pytest.raises(KeyboardInterrupt):
        gate.acquire("cpu", 1)
    interrupted()
    agent.until(lambda fake: not fake.queued)
    held.release()


def test_a_forked_child_has_a_connection_of_its_own(agent: AgentThread, tmp_path: Path) -> None:
    code = """
import os, sys
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=600.0)
held = gate.acquire("cpu", 1)
job = gate.job
child = os.fork()
if child == 0:
    held.release()  # the parent's, and not ours to give back
    with gate.acquire("disk", 1) as slot:
        ok = slot.gated and gate.job != job and gate.counts()["granted"] == 1
    sys.exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
print(os.waitstatus_to_exitcode(status), gate.counts()["held"], gate.acquire("disk", 1).gated)
"""
    ended = run_python(code, agent.socket)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("0 1 True\n", "", 0)


def test_a_child_does_not_keep_its_dead_parents_slots(agent: AgentThread) -> None:
    code = """
import os, sys
from pathlib import Path
from penstock.client.gate import Gate
gate = Gate("test", socket=Path(sys.argv[1]), patience_s=600.0)
held = gate.acquire("cpu", 1)
if os.fork() == 0:
    sys.stdin.read()  # outlives the parent
    os._exit(0)
os.kill(os.getpid(), 9)
"""
    with subprocess.Popen([sys.executable, "-c", code, str(agent.socket)], stdin=subprocess.PIPE) as process:
        assert process.wait(TIMEOUT_S) == -signal.SIGKILL
        agent.until(lambda fake: bool(fake.called("submit")) and not fake.running)

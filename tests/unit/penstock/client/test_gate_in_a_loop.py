"""A gate that lives in an event loop that runs already: no thread of its own, the same promises."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

from penstock.client.gate import Gate, Slot
from tests.fakes.agent_thread import AgentThread

TIMEOUT_S = 60.0
LONG_S = 600.0


def gate_here(tmp_path: Path, patience_s: float = LONG_S, warned: list[str] | None = None) -> Gate:
    """Return a gate; the agent has one slot of each kind."""
    warn = (warned if warned is not None else []).append
    loop = asyncio.get_running_loop()
    return Gate("test", socket=tmp_path / "agent.sock", patience_s=patience_s, warn=warn, loop=loop)


async def connected(gate: Gate) -> None:
    assert await asyncio.to_thread(gate.wait_connected, TIMEOUT_S)


async def test_it_needs_no_thread_and_asks_where_it_is(agent: AgentThread, tmp_path: Path) -> None:
    others = set(threading.enumerate())  # gates of other tests that have not quite ended
    with gate_here(tmp_path) as gate:
        await connected(gate)
        started = set(threading.enumerate()) - others
        assert not [thread for thread in started if thread.name == "penstock-gate"]
        called: asyncio.Queue[tuple[int, Slot]] = asyncio.Queue()
        gate.submit("cpu", 1, lambda slot: called.put_nowait((threading.get_ident(), slot)))
        thread, first = await asyncio.wait_for(called.get(), TIMEOUT_S)
        assert (thread, first.gated) == (threading.get_ident(), True)
        second = asyncio.ensure_future(gate.acquire_async("cpu", 1))
        await asyncio.to_thread(agent.until, lambda fake: len(fake.queued) == 1)
        assert not second.done()
        first.release()
        (await asyncio.wait_for(second, TIMEOUT_S)).release()
        await asyncio.to_thread(agent.until, lambda fake: not fake.running)
        assert gate.counts()["granted"] == 2


async def test_threads_wait_as_ever(agent: AgentThread, tmp_path: Path) -> None:
    most = running = 0
    lock = threading.Lock()

    def work(gate: Gate) -> None:
        nonlocal most, running
        for _ in range(20):
            with gate.acquire("cpu", 1):
                with lock:
                    running += 1
                    most = max(most, running)
                with lock:
                    running -= 1

    with gate_here(tmp_path) as gate:
        await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(work, gate) for _ in range(4))), TIMEOUT_S)
        assert most == 1
        assert (await asyncio.to_thread(gate.counts))["released"] == 80


async def test_it_fails_open_and_is_gated_again(tmp_path: Path) -> None:
    warned: list[str] = []
    with gate_here(tmp_path, patience_s=0.05, warned=warned) as gate:
        assert not (await asyncio.wait_for(gate.acquire_async("cpu", 1), TIMEOUT_S)).gated
        assert len(warned) == 1
        with AgentThread(tmp_path):
            await connected(gate)
            with await asyncio.wait_for(gate.acquire_async("cpu", 1), TIMEOUT_S) as slot:
                assert slot.gated


async def test_a_waiting_caller_is_notified_when_it_is_closed(agent: AgentThread, tmp_path: Path) -> None:
    gate = gate_here(tmp_path)
    await connected(gate)
    first = await gate.acquire_async("cpu", 1)
    waiting = asyncio.ensure_future(gate.acquire_async("cpu", 1))
    await asyncio.to_thread(agent.until, lambda fake: len(fake.queued) == 1)
    gate.close()
    with pytest.raises(RuntimeError, match="closed"):
        await asyncio.wait_for(waiting, TIMEOUT_S)
    first.release()
    await asyncio.to_thread(agent.until, lambda fake: not fake.running)
    with pytest.raises(RuntimeError, match="closed"):
        gate.acquire("cpu", 1)


async def test_it_does_not_let_itself_be_blocked(agent: AgentThread, tmp_path: Path) -> None:
    with gate_here(tmp_path) as gate:
        await connected(gate)
        with pytest.raises(RuntimeError, match="acquire_async"):
            gate.acquire("cpu", 1)
        (await gate.acquire_async("cpu", 1)).release()

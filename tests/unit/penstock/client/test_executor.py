"""The executor keeps the contract of concurrent.futures, and its calls are monotasks."""

from __future__ import annotations

import asyncio
import concurrent.futures
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, wait
from pathlib import Path
from typing import Any

import pytest

from penstock.client.executor import MonotaskExecutor, released
from penstock.client.gate import Gate
from penstock.wire.errors import RpcError, refused
from tests.fakes.agent_thread import AgentThread
from tests.fakes.at_once import AtOnce

TIMEOUT_S = 60.0


@pytest.fixture
def gate(agent: AgentThread) -> Iterator[Gate]:
    with Gate("test", socket=agent.socket, patience_s=600.0) as made:
        assert made.wait_connected(TIMEOUT_S)
        yield made


@pytest.fixture
def executor(gate: Gate) -> Iterator[MonotaskExecutor]:
    with MonotaskExecutor(gate, 4, stage="stage") as made:
        yield made


def fail(error: BaseException) -> None:
    raise error


def occupy(executor: MonotaskExecutor) -> tuple[Future[bool], Callable[[], None]]:
    """A call that runs until the second is called."""
    go_on, started = threading.Event(), threading.Event()

    def work() -> bool:
        started.set()
        return go_on.wait(TIMEOUT_S)

    running = executor.submit(work)
    assert started.wait(TIMEOUT_S)
    return running, go_on.set


def test_results_and_arguments(executor: MonotaskExecutor, gate: Gate) -> None:
    future = executor.submit(pow, 2, exp=10)
    assert isinstance(future, Future)
    assert future.result(TIMEOUT_S) == 1024
    assert executor.submit(lambda self, fn: (self, fn), self=1, fn=2).result(TIMEOUT_S) == (1, 2)
    assert gate.counts()["granted"] == 2


def test_an_exception_is_the_result_and_the_monotask_failed(agent: AgentThread, executor: MonotaskExecutor) -> None:
    error = KeyError("mine")
    future = executor.submit(fail, error)
    assert future.exception(TIMEOUT_S) is error
    agent.until(lambda fake: bool(fake.called("complete")))
    assert agent.agent.called("complete")[0].monotasks[0].failed


def test_map_keeps_the_order_and_runs_no_more_at_once_than_is_granted(tmp_path: Path) -> None:
    at_once = AtOnce()

    def one(number: int) -> int:
        with at_once:
            return number * number

    with AgentThread(tmp_path, 2) as agent, Gate("test", socket=agent.socket, patience_s=600.0) as gate:
        with MonotaskExecutor(gate, 8) as executor:
            assert list(executor.map(one, range(300))) == [number * number for number in range(300)]
        assert at_once.most <= 2
        assert gate.counts() | {"granted": 300, "released": 300, "held": 0} == gate.counts()


def test_map_ends_at_an_exception_and_gives_the_rest_back(agent: AgentThread, executor: MonotaskExecutor) -> None:
    results = executor.map(lambda number: 1 // number, [1, 0, *range(1, 50)])
    assert next(results) == 1
    with pytest.raises(ZeroDivisionError):
        next(results)
    agent.until(lambda fake: not fake.queued)


def test_map_times_out(executor: MonotaskExecutor) -> None:
    go_on = threading.Event()
    with pytest.raises(concurrent.futures.TimeoutError):
        list(executor.map(lambda _: go_on.wait(TIMEOUT_S), [1], timeout=0.01))
    go_on.set()


def test_the_agent_sees_the_whole_queue_and_its_kinds(agent: AgentThread, executor: MonotaskExecutor) -> None:
    first, go_on = occupy(executor)
    futures = [first]
    futures += [executor.submit_monotask("cpu", size, int) for size in range(20)]
    agent.until(lambda fake: len(fake.queued) == 20)
    assert {spec.stage for _, _, spec in agent.agent.queued} == {"stage"}
    assert [spec.input_bytes for _, _, spec in agent.agent.queued] == list(range(20))
    disk = executor.submit_monotask("disk", 5, int)
    assert disk.result(TIMEOUT_S) == 0  # another resource is free
    go_on()
    assert wait(futures, TIMEOUT_S).not_done == set()


def test_a_cancelled_future_gives_its_queued_monotask_back(agent: AgentThread, executor: MonotaskExecutor) -> None:
    running, go_on = occupy(executor)
    queued = executor.submit(fail, AssertionError("it was cancelled"))
    agent.until(lambda fake: len(fake.queued) == 1)
    assert not running.cancel()
    assert queued.cancel()
    assert queued.cancel()
    agent.until(lambda fake: not fake.queued)
    assert wait([queued], TIMEOUT_S).done == {queued}  # though every thread may be busy
    with pytest.raises(CancelledError):
        queued.result(TIMEOUT_S)
    go_on()
    assert running.result(TIMEOUT_S)
    assert executor.submit(int).result(TIMEOUT_S) == 0


def test_shutdown_can_cancel_waiting_calls(agent: AgentThread, gate: Gate) -> None:
    executor = MonotaskExecutor(gate, 2)
    running, go_on = occupy(executor)
    queued = [executor.submit(int) for _ in range(10)]
    executor.shutdown(wait=False, cancel_futures=True)
    assert all(future.cancelled() for future in queued)
    agent.until(lambda fake: not fake.queued)
    with pytest.raises(RuntimeError, match="after shutdown"):
        executor.submit(int)
    go_on()
    executor.shutdown()
    assert running.done()


def test_shutdown_waits_for_submitted_calls(gate: Gate) -> None:
    executor = MonotaskExecutor(gate, 2)
    futures = [executor.submit(int) for _ in range(50)]
    executor.shutdown()
    assert all(future.done() for future in futures)


def test_a_task_may_wait_for_another_although_there_is_one_slot(executor: MonotaskExecutor, gate: Gate) -> None:
    def parent() -> int:
        children = [executor.submit(pow, 2, each) for each in range(3)]
        first = children[0].result(TIMEOUT_S)
        assert children[1].exception(TIMEOUT_S) is None
        with released():
            wait(children, TIMEOUT_S)
        return first + children[1].result() + children[2].result()

    assert executor.submit(parent).result(TIMEOUT_S) == 7
    assert gate.counts()["held"] == 0


def test_a_grant_without_a_free_thread_is_given_back(tmp_path: Path) -> None:
    with AgentThread(tmp_path, 4) as agent, Gate("test", socket=agent.socket, patience_s=600.0) as gate:
        with MonotaskExecutor(gate, 1) as executor:
            first, go_on = occupy(executor)
            rest = [executor.submit_monotask(kind, 1, int) for kind in ("cpu", "disk", "network") for _ in range(10)]
            agent.until(lambda fake: len(fake.called("submit")) > 1 and not fake.queued and len(fake.running) == 1)
            rest.pop().cancel()
            go_on()
            assert wait([first, *rest], TIMEOUT_S).not_done == set()
        assert gate.counts() | {"released": 30, "held": 0, "waiting": 0} == gate.counts()


def test_with_the_agent_away_no_more_run_at_once_than_there_are_threads(tmp_path: Path) -> None:
    at_once = AtOnce()

    def one() -> None:
        with at_once:
            pass

    with Gate("test", socket=tmp_path / "none", patience_s=0.0, warn=lambda _: None) as gate:
        with MonotaskExecutor(gate, 3) as executor:
            futures = [executor.submit(one) for _ in range(200)]
        assert all(future.exception() is None for future in futures)
    assert 1 <= at_once.most <= 3


def test_a_callback_that_submits_finds_its_thread_free(gate: Gate) -> None:
    with MonotaskExecutor(gate, 1) as executor:
        done = threading.Event()

        def follow(left: int) -> None:
            if left == 0:
                done.set()
            else:
                executor.submit(int).add_done_callback(lambda _: follow(left - 1))

        follow(50)
        assert done.wait(TIMEOUT_S)
    assert gate.counts() | {"granted": 50, "cancelled": 0} == gate.counts()


def test_a_refused_monotask_is_the_futures_exception(agent: AgentThread, executor: MonotaskExecutor) -> None:
    agent.do(lambda fake: fake.refuse.update(submit=refused("not today")))
    assert isinstance(executor.submit(int).exception(TIMEOUT_S), RpcError)
    agent.do(lambda fake: fake.refuse.clear())
    assert executor.submit(int).result(TIMEOUT_S) == 0


def test_a_closed_gate_leaves_no_future_open(agent: AgentThread, gate: Gate) -> None:
    executor = MonotaskExecutor(gate, 2)
    running, go_on = occupy(executor)
    queued = executor.submit(int)
    agent.until(lambda fake: len(fake.queued) == 1)
    gate.close()
    assert isinstance(queued.exception(TIMEOUT_S), RuntimeError)
    with pytest.raises(RuntimeError, match="closed"):
        executor.submit(int)
    go_on()
    assert running.result(TIMEOUT_S)
    executor.shutdown()


def test_arguments_and_results_are_not_kept(executor: MonotaskExecutor) -> None:
    class Big:
        pass

    argument = Big()
    gone = weakref.ref(argument)
    executor.submit(id, argument).result(TIMEOUT_S)
    del argument
    executor.submit(int).result(TIMEOUT_S)
    executor.submit(int).result(TIMEOUT_S)
    gc.collect()
    assert gone() is None


async def test_as_an_event_loops_executor(executor: MonotaskExecutor) -> None:
    loop = asyncio.get_running_loop()
    assert await asyncio.gather(*(loop.run_in_executor(executor, abs, -number) for number in range(20))) == [*range(20)]


@pytest.mark.parametrize("options", [{"max_workers": 0}, {"max_workers": 1, "kind": "gpu"}])
def test_nonsense_is_refused_at_once(gate: Gate, options: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"max_workers|is not a kind of resource"):
        MonotaskExecutor(gate, **options)


def test_a_negative_size_is_refused_at_once(executor: MonotaskExecutor) -> None:
    with pytest.raises(ValueError, match=r"^input_bytes: .* not from 0 to"):
        executor.submit_monotask("cpu", -1, int)


def test_an_interpreter_without_shutdown_still_does_the_work(agent: AgentThread) -> None:
    code = """
import sys
from pathlib import Path
from penstock.client.gate import Gate
from penstock.client.executor import MonotaskExecutor
executor = MonotaskExecutor(Gate("test", socket=Path(sys.argv[1]), patience_s=600.0), 2)
for number in range(5):
    executor.submit_monotask("cpu", 1, print, number)
"""
    ended = subprocess.run(
        [sys.executable, "-c", code, str(agent.socket)], capture_output=True, text=True, timeout=TIMEOUT_S
    )
    assert (sorted(ended.stdout.split()), ended.stderr, ended.returncode) == ([*"01234"], "", 0)

"""The pool whose calls wait for their grants, without any Dask worker around it."""

from __future__ import annotations

import gc
import pickle
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from typing import Any

import pytest

from tests.fakes.at_once import AtOnce

pytest.importorskip("distributed")

from distributed.threadpoolexecutor import rejoin, secede

from penstock.client import JobCancelled
from penstock.engines.dask import hooks
from penstock.engines.dask.pool import EXECUTING, DaskMonotask, GatedThreadPoolExecutor
from penstock.engines.dask.work_count import WorkCount
from penstock.wire.errors import ErrorCode, RpcError

WAIT_S = 30.0


@pytest.fixture
def make_pool(make_gate: Callable[[int], Any]) -> Iterator[Callable[..., Any]]:
    made = []

    def make(slots: int, threads: int) -> Any:
        pool = hooks.make_pool(make_gate(slots), threads, "test", WorkCount())
        made.append(pool)
        return pool

    yield make
    for pool in made:
        pool.gate.grant(1000)
        pool.shutdown(wait=True, timeout=WAIT_S)


def test_a_call_that_is_no_monotask_goes_through_dasks_own_pool(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(0, 1)
    pool.usual = None
    future = pool.submit(lambda: (secede(), pow(2, 5), rejoin()))  # type: ignore[no-untyped-call]
    assert type(future) is Future, "as any pool answers; it has no description, and makes no request"
    assert future.result(WAIT_S)[1] == 32
    assert pool.gate.asked == []


def test_a_call_that_raises_ends_its_monotask_as_failed(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, 1)
    with pytest.raises(ZeroDivisionError):
        pool.submit(divmod, 1, 0).result(WAIT_S)
    erred = pool.submit(dict, op="task-erred")
    erred.result(WAIT_S)
    assert [slot.ended for slot in pool.gate.asked] == ["failed", "failed"]


def test_no_more_calls_at_once_than_slots(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, 8)
    at_once, both = AtOnce(), threading.Barrier(2)

    def call() -> None:
        with at_once:
            both.wait(WAIT_S)  # two run at once, or neither goes on
        both.wait(WAIT_S)

    for future in [pool.submit(call) for _ in range(40)]:
        future.result(WAIT_S)
    assert at_once.most == 2
    assert pool.gate.most["cpu"] == 2


def test_an_unreferenced_result_does_not_wait_for_the_garbage_collector(make_pool: Callable[..., Any]) -> None:
    class Large:
        pass

    pool = make_pool(1, 1)
    pool.submit(int).result(WAIT_S)  # the threads' own beginnings
    gc.collect()
    gc.disable()
    try:
        large = weakref.ref(pool.submit(Large).result(WAIT_S))
        pool.submit(int).result(WAIT_S)  # the thread has let go of the turn before
        assert large() is None
    finally:
        gc.enable()


def test_a_cancelled_future_gives_its_monotask_back(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(0, 1)
    future = pool.submit(int)
    assert future.cancel()
    assert [slot.ended for slot in pool.gate.asked] == ["cancelled"]
    pool.gate.grant(1)
    assert pool.submit(int).result(WAIT_S) == 0


def test_a_granted_call_that_waits_for_a_thread_can_be_cancelled(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(2, 1)
    go = threading.Event()
    first = pool.submit(go.wait, WAIT_S)
    second = pool.submit(int)
    assert pool.gate.held["cpu"] == 2
    assert second.cancel()
    assert pool.gate.held["cpu"] == 1
    go.set()
    assert first.result(WAIT_S)


def test_a_refused_monotask_runs_all_the_same(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(0, 1)
    pool.gate.refuses = RpcError(ErrorCode.REFUSED, "not today")
    assert pool.submit(int).result(WAIT_S) == 0


def test_of_a_cancelled_job_nothing_runs_and_the_user_is_named(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, 1)
    pool.gate.refuses = JobCancelled("dask", "ann")
    ran: list[int] = []
    with pytest.raises(JobCancelled, match="job 'dask' was cancelled by ann"):
        pool.submit(ran.append, 1).result(WAIT_S)
    assert not ran
    again = pickle.loads(pickle.dumps(pool.gate.refuses))  # as Dask brings it to the client
    assert (str(again), again.by) == ("job 'dask' was cancelled by ann", "ann")


def test_shutdown_gives_back_waiting_calls_and_lets_running_ones_end(make_gate: Callable[[int], Any]) -> None:
    busy = WorkCount()
    pool = hooks.make_pool(make_gate(1), 2, "test", busy)
    began, go = threading.Event(), threading.Event()

    def call() -> str:
        began.set()
        go.wait(WAIT_S)
        return "ran"

    running, waiting = pool.submit(call), pool.submit(int)
    assert began.wait(WAIT_S)
    idle = threading.Event()
    busy.when_idle(idle.set)
    pool.shutdown(wait=False)
    with pytest.raises(CancelledError):
        waiting.result(WAIT_S)
    assert not idle.is_set()
    assert pool.gate.held["cpu"] == 1
    go.set()
    assert running.result(WAIT_S) == "ran"
    assert idle.wait(WAIT_S)
    assert [slot.ended for slot in pool.gate.asked] == ["done", "cancelled"]


def test_a_grant_after_the_shutdown_is_given_back(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(0, 1)
    future = pool.submit(int)
    (slot,) = pool.gate.asked
    GatedThreadPoolExecutor.__mro__[1].shutdown(pool, wait=True)  # Dask's own, behind our back
    pool.gate.grant(1)
    with pytest.raises(RuntimeError, match="shutdown"):
        future.result(WAIT_S)
    assert slot.ended == "cancelled"


@pytest.mark.parametrize("threads", [1, 2])
def test_a_task_that_secedes_gives_its_slot_to_others_and_gets_one_again(
    make_pool: Callable[..., Any], threads: int
) -> None:
    pool = make_pool(1, threads)
    order: list[str] = []

    def parent() -> None:
        for _ in range(3):
            secede()
            child = pool.submit(order.append, "child")
            child.result(WAIT_S)
            rejoin()
            order.append(f"parent holds {pool.gate.held['cpu']}")

    pool.submit(parent).result(WAIT_S)
    assert order == ["child", "parent holds 1"] * 3
    assert pool.gate.most["cpu"] == 1
    assert pool.gate.held["cpu"] == 0


def test_rejoining_beside_queued_calls_does_not_deadlock(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, 1)
    queued: list[Any] = []

    def parent() -> int:
        secede()
        queued.extend(pool.submit(pow, 2, n) for n in range(10))  # each is granted before the parent asks again
        rejoin()
        return pool.gate.held["cpu"]

    assert pool.submit(parent).result(WAIT_S) >= 1
    assert [future.result(WAIT_S) for future in queued] == [2**n for n in range(10)]
    assert pool.gate.most["cpu"] == 1


def test_a_late_word_of_seceding_does_not_take_the_slot_that_was_regained(make_pool: Callable[..., Any]) -> None:
    pool = make_pool(1, 1)
    said = DaskMonotask()
    held: list[int] = []

    def call() -> None:
        secede()
        rejoin()
        assert said.long_running is not None
        said.long_running()  # Dask's event loop comes to it only now
        held.append(pool.gate.held["cpu"])

    token = EXECUTING.set(said)
    try:
        pool.submit(call).result(WAIT_S)
    finally:
        EXECUTING.reset(token)
    assert held == [1]


def test_without_the_private_names_dasks_word_releases_the_slot(make_gate: Callable[[int], Any]) -> None:
    pool = GatedThreadPoolExecutor(make_gate(1), 1, "plain", WorkCount())
    said = DaskMonotask()
    held: list[int] = []

    def call() -> None:
        secede()
        assert said.long_running is not None
        held.append(pool.gate.held["cpu"])
        said.long_running()
        held.append(pool.gate.held["cpu"])

    token = EXECUTING.set(said)
    try:
        pool.submit(call).result(WAIT_S)
    finally:
        EXECUTING.reset(token)
    pool.shutdown()
    assert held == [1, 0]

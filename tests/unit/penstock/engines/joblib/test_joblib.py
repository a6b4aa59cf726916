"""joblib's batches are monotasks."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.client.gate import Gate
from tests.fakes.agent_thread import AgentThread
from tests.fakes.at_once import AtOnce

joblib = pytest.importorskip("joblib")
engine: Any = pytest.importorskip("penstock.engines.joblib")
TIMEOUT_S = 60.0


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[AgentThread]:
    with AgentThread(tmp_path, 2) as running:
        yield running


@pytest.fixture
def gate(agent: AgentThread) -> Iterator[Gate]:
    with Gate("joblib", socket=agent.socket, patience_s=600.0) as made:
        assert made.wait_connected(TIMEOUT_S)
        engine.register(made)
        yield made
    engine.register(None)


def test_a_gate_of_its_own_has_the_process_ranked(agent: AgentThread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_SOCKET", str(agent.socket))
    engine.register()
    try:
        with joblib.parallel_config("penstock"):
            assert joblib.Parallel()(joblib.delayed(square)(number) for number in range(2)) == [0, 1]
        agent.until(lambda fake: bool(fake.called("lend")))
    finally:
        engine.backend._own_gate().close()
        engine.register(None)


def square(number: int) -> int:
    return number * number


def fail_at(number: int) -> int:
    if number == 3:
        raise KeyError(number)
    return number


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
def test_every_batch_is_a_monotask(gate: Gate, agent: AgentThread, n_jobs: int | None) -> None:
    with joblib.parallel_config("penstock", n_jobs=n_jobs, stage="fit"):
        found = joblib.Parallel(batch_size=1)(joblib.delayed(square)(number) for number in range(20))
    assert found == [number * number for number in range(20)]
    assert gate.counts() | {"released": 20, "held": 0, "waiting": 0} == gate.counts()
    stages = {spec.stage for asked in agent.agent.called("submit") for spec in asked.monotasks}
    assert stages == {"fit"}


def test_no_more_at_once_than_is_granted(gate: Gate) -> None:
    at_once = AtOnce()

    def one() -> None:
        with at_once:
            pass

    with joblib.parallel_config("penstock", n_jobs=8):
        joblib.Parallel()(joblib.delayed(one)() for _ in range(200))
    assert 1 <= at_once.most <= 2
    assert gate.counts()["held"] == 0


def test_an_error_ends_it_and_waiting_calls_are_given_back(gate: Gate, agent: AgentThread) -> None:
    with joblib.parallel_config("penstock", n_jobs=4):
        with pytest.raises(KeyError):
            joblib.Parallel(batch_size=1)(joblib.delayed(fail_at)(number) for number in range(1000))
        agent.until(lambda fake: not fake.queued and not fake.running)
        with joblib.Parallel() as parallel:  # the backend is of use again
            assert parallel(joblib.delayed(square)(number) for number in range(3)) == [0, 1, 4]
            with pytest.raises(KeyError):
                parallel(joblib.delayed(fail_at)(number) for number in range(10))
            assert parallel(joblib.delayed(square)(number) for number in range(3)) == [0, 1, 4]


def test_results_as_they_come(gate: Gate) -> None:
    with joblib.parallel_config("penstock", n_jobs=2):
        results = joblib.Parallel(return_as="generator")(joblib.delayed(square)(number) for number in range(10))
        assert list(results) == [number * number for number in range(10)]


def test_nested_calls_run_in_the_slot_of_their_batch(gate: Gate) -> None:
    def outer(number: int) -> int:
        return sum(joblib.Parallel(n_jobs=4)(joblib.delayed(square)(number) for _ in range(3)))

    with joblib.parallel_config("penstock", n_jobs=2):
        found = joblib.Parallel(batch_size=1)(joblib.delayed(outer)(number) for number in range(6))
    assert found == [3 * number * number for number in range(6)]
    # grants that come while both threads are busy are given back, and granted once more
    assert gate.counts()["released"] == 6


def test_zero_jobs_make_no_sense(gate: Gate) -> None:
    with joblib.parallel_config("penstock", n_jobs=0), pytest.raises(ValueError, match="n_jobs"):
        joblib.Parallel()(joblib.delayed(square)(number) for number in range(2))


def test_the_ready_batches_of_an_aborted_call_are_not_the_next_call_s(gate: Gate) -> None:
    """joblib 1.6 cuts off several batches at a time, and leaves those that an error kept from being handed out."""
    with joblib.parallel_config("penstock", n_jobs=2), joblib.Parallel(batch_size=1) as parallel:
        parallel._ready_batches.put([(square, (7,), {})])
        parallel._backend.abort_everything(ensure_ready=True)
        assert parallel(joblib.delayed(square)(number) for number in range(3)) == [0, 1, 4]


def test_an_abort_waits_for_callbacks_that_are_under_way_but_not_for_its_own(gate: Gate) -> None:
    backend = engine.PenstockBackend()
    backend.configure(n_jobs=2)
    began, may_end, order = threading.Event(), threading.Event(), []

    def callback(_: object) -> None:
        began.set()
        assert may_end.wait(TIMEOUT_S)
        order.append("the callback is over")

    backend.submit(lambda: None, callback)
    assert began.wait(TIMEOUT_S)
    aborting = threading.Thread(target=lambda: (backend.abort_everything(), order.append("aborted")))
    aborting.start()
    may_end.set()
    aborting.join(TIMEOUT_S)
    assert order == ["the callback is over", "aborted"]
    aborts = backend.submit(lambda: None, lambda _: backend.abort_everything())
    aborts.result(TIMEOUT_S)
    backend.terminate()

"""Tasks on a real scheduler and real workers in this process, behind a gate whose slots the test gives."""

from __future__ import annotations

import asyncio
import math
import threading
from typing import Any

import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from distributed import get_worker, rejoin, secede, worker_client  # noqa: E402

from penstock.engines.dask import hooks  # noqa: E402
from penstock.engines.dask.plugin import PenstockSchedulerPlugin  # noqa: E402
from penstock.engines.dask.pool import GatedThreadPoolExecutor  # noqa: E402
from tests.unit.penstock.engines.dask.dask_bed import DASK_WARNS, WAIT_S, Cluster, until  # noqa: E402

pytestmark = DASK_WARNS


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> dict[str, threading.Event]:
    """Return the events.

    Tasks are pickled by value; they find the objects shared with a test by name, in the one process.
    """
    found = {name: threading.Event() for name in ("began", "go")}
    monkeypatch.setattr(dask, "penstock_test_events", found, raising=False)
    return found


async def test_tasks_wait_for_their_grants(cluster: Cluster) -> None:
    async with cluster(0) as (client, gate, _):
        future = client.submit(pow, 2, 5)
        await until(lambda: gate.asked)
        assert future.status == "pending"
        gate.grant(1)
        assert await future == 32
        await until(lambda: gate.asked[0].ended == "done")
        assert gate.asked[0].stage == "pow"


async def test_tasks_begin_at_once_where_ranks_decide_and_transfers_wait(cluster: Cluster) -> None:
    """The default: no slot for a task, unless it is annotated as something else than work for a processor."""
    async with cluster(0, workers=2, cpu=False) as (client, gate, workers):
        data = client.submit(bytes, 50_000, workers=[workers[0].address])
        assert len(await data) == 50_000
        assert not gate.asked
        length = client.submit(len, data, workers=[workers[1].address])
        await until(lambda: gate.asked)
        assert [(slot.kind, slot.stage) for slot in gate.asked] == [("network", "gather_dep")]
        gate.grant(1)
        assert await length == 50_000
        with dask.annotate(penstock={"kind": "disk"}):
            said = dask.delayed(pow)(2, 5)
        assert await client.compute(said) == 32
        assert gate.asked[-1].kind == "disk"


async def test_a_task_that_a_master_placed_waits_for_its_slot_all_the_same(cluster: Cluster) -> None:
    async with cluster(0, cpu=False) as (client, gate, _):
        with dask.annotate(penstock={"job": "job-7", "task": "t/1"}):
            future = client.compute(dask.delayed(pow)(2, 5))
        await until(lambda: gate.asked)
        assert gate.asked[0].kind == "cpu"
        gate.grant(1)
        assert await future == 32


async def test_a_task_announces_how_many_bytes_it_takes_and_where_it_belongs(cluster: Cluster) -> None:
    async with cluster(4) as (client, gate, _):
        data = client.submit(bytes, 50_000, key=("make-1234", 0))
        assert await client.submit(len, data, key=("count-1234", 0)) == 50_000
        by_stage = {slot.stage: slot for slot in gate.asked}
        assert by_stage["make-1234"].input_bytes == 0
        assert 50_000 <= by_stage["count-1234"].input_bytes < 51_000


class Boaster:
    """An object that says that it is larger than any memory."""

    def __sizeof__(self) -> int:
        return 2**62


async def test_a_task_of_objects_that_overstate_their_size_runs(cluster: Cluster) -> None:
    async with cluster(1, memory_limit=0) as (client, gate, _):
        boasters = [client.submit(Boaster, key=f"boaster-{number}") for number in range(2)]
        assert await asyncio.wait_for(client.submit(lambda *each: len(each), *boasters, key="count-1"), WAIT_S) == 2
        assert {slot.input_bytes for slot in gate.asked if slot.stage == "count"} == {2**63 - 1}


async def test_root_tasks_are_expected_to_read_as_much_as_similar_ones(cluster: Cluster, tmp_path: Any) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * 200_000)
    async with cluster(1) as (client, gate, _):
        for number in range(3):
            await client.submit(path.read_bytes, key=f"read-{number}")
        sizes = [slot.input_bytes for slot in gate.asked if slot.kind == "cpu"]
        assert sizes[0] == 0
        assert 200_000 <= sizes[1] < 300_000
        assert 200_000 <= sizes[2] < 300_000


async def test_annotations_set_kind_stage_and_bytes(cluster: Cluster) -> None:
    async with cluster(1) as (client, gate, _):
        with dask.annotate(penstock={"kind": "disk", "stage": "write out", "input_bytes": 4096}):
            delayed = dask.delayed(pow)(2, 3)
        assert await client.compute(delayed, optimize_graph=False) == 8
        (slot,) = gate.asked
        assert (slot.kind, slot.stage, slot.input_bytes) == ("disk", "write out", 4096)


@pytest.mark.parametrize("input_bytes", [math.inf, math.nan, 1e30, -1])
async def test_bytes_that_cannot_be_are_estimated(cluster: Cluster, input_bytes: float) -> None:
    async with cluster(1) as (client, gate, _):
        with dask.annotate(penstock={"kind": "disk", "input_bytes": input_bytes}):
            delayed = dask.delayed(pow)(2, 3)
        assert await asyncio.wait_for(client.compute(delayed, optimize_graph=False), WAIT_S) == 8
        (slot,) = gate.asked
        assert (slot.kind, slot.input_bytes) == ("disk", 0)


async def test_an_annotation_leaves_a_task_ungated(cluster: Cluster) -> None:
    async with cluster(0) as (client, gate, _):
        with dask.annotate(penstock={"kind": "none"}):
            delayed = dask.delayed(pow)(2, 3)
        assert await client.compute(delayed, optimize_graph=False) == 8
        assert gate.asked == []


async def test_errors_give_slots_back(cluster: Cluster) -> None:
    async with cluster(1) as (client, gate, _):
        futures = [client.submit(divmod, 1, 0, key=f"bad-{n}", retries=1) for n in range(3)]
        for future in futures:
            with pytest.raises(ZeroDivisionError):
                await future
        assert await client.submit(pow, 2, 2) == 4
        await until(lambda: gate.held["cpu"] == 0)
        assert [slot.ended for slot in gate.asked if slot.stage == "bad"] == ["failed"] * 6


async def test_a_cancelled_task_that_was_not_granted_is_withdrawn_and_can_run_later(cluster: Cluster) -> None:
    async with cluster(0) as (client, gate, (worker,)):
        future = client.submit(pow, 3, 3, key="three")
        await until(lambda: gate.asked)
        await client.cancel(future)
        await until(lambda: gate.asked[0].ended == "cancelled")
        await until(lambda: not worker.state.tasks)
        again = client.submit(pow, 3, 3, key="three")
        await until(lambda: len(gate.asked) == 2)
        gate.grant(1)
        assert await again == 27
        assert not worker.state.executing


async def test_a_task_wanted_again_while_it_is_withdrawn_is_run(cluster: Cluster) -> None:
    async with cluster(0) as (client, gate, _):
        future = client.submit(pow, 3, 3, key="three")
        for _ in range(20):
            await until(lambda: len(gate.asked) > 0 and not gate.asked[-1].ended)
            future.release()
            await asyncio.sleep(0)
            future = client.submit(pow, 3, 3, key="three")
        gate.grant(1)
        assert await asyncio.wait_for(future.result(), WAIT_S) == 27


async def test_coroutine_tasks_and_other_executors_are_gated(cluster: Cluster) -> None:
    async def coroutine() -> str:
        await asyncio.sleep(0)
        return "coroutine"

    async with cluster(0) as (client, gate, _):
        first = client.submit(coroutine, key="coroutine-0")
        with dask.annotate(executor="offload"):
            second = client.submit(pow, 2, 6, key="offloaded-0")
        await until(lambda: len(gate.asked) == 2)
        assert first.status == second.status == "pending"
        gate.grant(1)
        assert await first == "coroutine"
        assert await second == 64
        assert gate.most["cpu"] == 1
        await until(lambda: gate.held["cpu"] == 0)


async def test_a_cancelled_coroutine_task_that_was_not_granted_is_withdrawn(cluster: Cluster) -> None:
    async def coroutine() -> str:
        return "ran"

    async with cluster(0) as (client, gate, (worker,)):
        future = client.submit(coroutine, key="coroutine-0")
        await until(lambda: gate.asked)
        await client.cancel(future)
        await until(lambda: gate.asked[0].ended == "cancelled")
        await until(lambda: not worker.state.tasks)
        gate.grant(1)
        assert await client.submit(coroutine, key="coroutine-0") == "ran"


async def test_worker_client_lets_nested_work_run_with_one_slot(cluster: Cluster) -> None:
    def nested(n: int) -> int:
        total = 0
        for _ in range(2):
            with worker_client() as inner:
                total += sum(inner.gather(inner.map(pow, [n] * 3, [2] * 3, pure=False)))
            total += 1000 * (get_worker().executors["default"].gate.held["cpu"] == 1)
        return total

    async with cluster(1) as (client, gate, _):
        futures = client.map(nested, range(3), pure=False)
        assert [await asyncio.wait_for(each.result(), WAIT_S) for each in futures] == [2000, 2006, 2024]
        assert gate.most["cpu"] == 1
        await until(lambda: gate.held["cpu"] == 0)


async def test_secede_releases_and_rejoin_waits(cluster: Cluster, events: Any) -> None:
    def long() -> int:
        secede()
        dask.penstock_test_events["began"].set()
        dask.penstock_test_events["go"].wait(60)
        rejoin()
        return int(get_worker().executors["default"].gate.held["cpu"])

    async with cluster(1) as (client, gate, _):
        future = client.submit(long, key="long-0")
        await until(events["began"].is_set)
        assert await client.submit(pow, 2, 2) == 4
        await until(lambda: gate.held["cpu"] == 0)
        gate.grant(0)
        events["go"].set()
        await until(lambda: len([slot for slot in gate.asked if slot.stage == "long"]) == 2)
        assert future.status == "pending"
        gate.grant(1)
        assert await future == 1


async def test_the_worker_is_as_before_once_the_plugin_is_removed(cluster: Cluster) -> None:
    async with cluster(1) as (client, gate, (worker,)):
        assert isinstance(worker.executors["default"], GatedThreadPoolExecutor)
        assert await client.submit(pow, 2, 2) == 4
        await worker.plugin_remove("penstock")
        assert not isinstance(worker.executors["default"], GatedThreadPoolExecutor)
        assert not {"execute", "gather_dep"} & set(vars(worker))
        asked = len(gate.asked)
        assert await client.submit(pow, 2, 3) == 8
        assert len(gate.asked) == asked
        await until(lambda: gate.closed)


async def test_the_gate_is_closed_only_when_the_last_task_has_ended(cluster: Cluster, events: Any) -> None:
    def task() -> None:
        dask.penstock_test_events["began"].set()
        dask.penstock_test_events["go"].wait(60)

    async with cluster(1) as (client, gate, (worker,)):
        future = client.submit(task)
        await until(events["began"].is_set)
        closing = asyncio.create_task(worker.close(executor_wait=False, reason="test"))
        await until(lambda: worker.status.name in {"closing", "closed"})
        await closing
        assert gate.held["cpu"] == 1
        assert not gate.closed
        events["go"].set()
        await until(lambda: gate.closed)
        assert gate.held["cpu"] == 0
        del future


async def test_closing_a_worker_gives_back_waiting_requests(cluster: Cluster) -> None:
    async with cluster(0) as (client, gate, (worker,)):
        future = client.submit(pow, 2, 2)
        await until(lambda: gate.asked)
        await worker.close(reason="test")
        assert [slot.ended for slot in gate.asked] == ["cancelled"]
        del future


async def test_two_workers_of_a_process_share_its_gate(cluster: Cluster) -> None:
    async with cluster(1, workers=2) as (client, gate, workers):
        assert sum(await client.gather(client.map(pow, range(20), [2] * 20))) == 2470
        assert gate.most["cpu"] == 1
        await workers[0].close(reason="test")
        assert not gate.closed
    await until(lambda: gate.closed)


async def test_the_schedulers_plugin_gates_workers_that_know_nothing(cluster: Cluster) -> None:
    async with cluster(0, gated=False) as (client, gate, (worker,)):
        await client.register_plugin(PenstockSchedulerPlugin())
        assert isinstance(worker.executors["default"], GatedThreadPoolExecutor)
        future = client.submit(pow, 2, 7)
        await until(lambda: gate.asked)
        gate.grant(1)
        assert await future == 128


async def test_a_disabled_plugin_does_nothing(cluster: Cluster) -> None:
    with dask.config.set({"penstock.enabled": False}):
        async with cluster(0) as (client, gate, (worker,)):
            assert await client.submit(pow, 2, 2) == 4
            assert gate.asked == []
            assert not isinstance(worker.executors["default"], GatedThreadPoolExecutor)


async def test_a_misspelt_setting_is_one_line_and_work_goes_on_ungated(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    with dask.config.set({"penstock.patiense_s": 1.0}):
        async with cluster(0) as (client, gate, (worker,)):
            assert await client.submit(pow, 2, 2) == 4
            assert gate.asked == []
            assert not isinstance(worker.executors["default"], GatedThreadPoolExecutor)
    [record] = [record for record in caplog.records if record.levelname in {"WARNING", "ERROR"}]
    assert record.getMessage() == (
        "nothing is gated, and work goes on without grants: no such key in Dask's configuration: penstock.patiense_s; "
        "did you mean penstock.patience_s?"
    )
    assert record.exc_info is None


async def test_without_the_hooks_the_pool_is_gated_all_the_same(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(owner: object, name: str, _: object) -> Any:
        raise hooks.Missing([f"Worker.{name}"])

    monkeypatch.setattr(hooks, "replace_method", missing)
    monkeypatch.setattr(hooks, "_missed", {})
    monkeypatch.setattr(hooks, "_reported", set())
    async with cluster(1, workers=2) as (client, gate, _):
        assert sum(await client.gather(client.map(pow, range(20), [2] * 20))) == 2470
        assert gate.most["cpu"] == 1
    (record,) = [record for record in caplog.records if "not gated" in record.getMessage()]
    assert "Worker.execute, Worker.gather_dep, Worker._spill" in record.getMessage()

"""All movers of a worker's bytes request slots as tasks do: transfers, spilling, shuffles."""

from __future__ import annotations

import asyncio
import logging

import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from penstock.client import JobCancelled  # noqa: E402
from penstock.engines.dask.gating import GatedWorker  # noqa: E402
from penstock.engines.dask.settings import Settings  # noqa: E402
from tests.unit.penstock.engines.dask.conftest import FakeGate  # noqa: E402
from tests.unit.penstock.engines.dask.dask_bed import DASK_WARNS, WAIT_S, Cluster, until  # noqa: E402

pytestmark = DASK_WARNS


async def test_transfers_are_network_monotasks(cluster: Cluster) -> None:
    async with cluster(1, workers=2) as (client, gate, workers):
        data = client.submit(bytes, 300_000, workers=[workers[0].address])
        assert await client.submit(len, data, workers=[workers[1].address]) == 300_000
        (slot,) = [slot for slot in gate.asked if slot.kind == "network"]
        assert 300_000 <= slot.input_bytes < 301_000
        await until(lambda: slot.ended == "done")


async def test_spilling_waits_for_the_disk_and_not_on_the_event_loop(cluster: Cluster) -> None:
    with dask.config.set({"distributed.worker.memory.target": 0.001}):
        async with cluster(4, memory_limit="1GB") as (client, gate, (worker,)):
            gate.grant(0)
            with dask.annotate(penstock={"kind": "none"}):
                blobs = [dask.delayed(bytes)(400_000, dask_key_name=f"blob-{n}") for n in range(5)]
            futures = client.compute(blobs, optimize_graph=False)
            await distributed.wait(futures)
            await until(lambda: any(slot.stage == "spill" for slot in gate.asked))
            assert not worker.data.disk  # nothing went to disk behind the gate's back, and the loop still answers
            assert await client.run(lambda: "awake") == {worker.address: "awake"}
            gate.grant(4)
            await until(lambda: worker.data.fast.total_weight <= 1_000_000)
            assert worker.data.disk
            assert await client.submit(lambda *all_: sum(map(len, all_)), *futures) == 2_000_000
            assert any(slot.stage == "unspill" and slot.input_bytes >= 400_000 for slot in gate.asked)
            await until(lambda: gate.held["disk"] == 0)


async def test_a_worker_short_of_memory_waits_for_the_disk_but_not_for_ever(cluster: Cluster) -> None:
    with dask.config.set({"penstock.spill_patience_s": 0.2}):
        async with cluster(4, memory_limit="1GB") as (client, gate, (worker,)):
            futures = client.map(bytes, range(300_000, 300_005))
            await distributed.wait(futures)
            gate.grant(0)
            short = asyncio.create_task(worker.memory_manager._spill(worker, 2**40))
            await until(lambda: gate.asked[-1].stage == "spill")
            assert gate.asked[-1].input_bytes > 2**39
            assert not worker.data.disk
            assert await client.run(lambda: "awake") == {worker.address: "awake"}  # while it waits
            await asyncio.wait_for(short, WAIT_S)
            assert worker.data.disk
            assert gate.asked[-1].ended == "cancelled"


async def test_p2p_shuffles_ask_for_network_and_disk(cluster: Cluster) -> None:
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    async with cluster(1, workers=2) as (client, gate, _):
        left = frames.from_pandas(pandas.DataFrame({"k": range(4000), "x": [1.5] * 4000}), npartitions=6)
        right = frames.from_pandas(pandas.DataFrame({"k": range(0, 4000, 2), "y": [2] * 2000}), npartitions=5)
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            joined = left.merge(right, on="k", how="inner")
            assert await client.compute(joined.y.sum()) == 4000
        sent = [slot for slot in gate.asked if slot.stage == "p2p-send"]
        written = [slot for slot in gate.asked if slot.stage == "p2p-write"]
        assert {slot.kind for slot in sent} == {"network"}
        assert {slot.kind for slot in written} == {"disk"}
        assert sum(slot.input_bytes for slot in sent) > 50_000
        assert sum(slot.input_bytes for slot in written) > 50_000
        read = [slot for slot in gate.asked if slot.stage == "p2p-read"]
        assert {slot.kind for slot in read} == {"disk"}
        assert sum(slot.input_bytes for slot in read) > 50_000
        assert gate.most == {"cpu": 1, "network": 1, "disk": 1}
        await until(lambda: not any(gate.held.values()))


async def test_a_transfer_of_a_cancelled_job_ends_and_the_task_that_waits_for_it_names_the_user(
    cluster: Cluster,
) -> None:
    async with cluster(1, workers=2, cpu=False) as (client, gate, workers):
        data = client.submit(bytes, 300_000, workers=[workers[0].address])
        await distributed.wait(data)
        gate.refuses = JobCancelled("dask", "ann")
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(JobCancelled, match="job 'dask' was cancelled by ann"):
                await client.submit(len, data, workers=[workers[1].address])
            with pytest.raises(JobCancelled):  # that worker knows now
                await client.submit(int, workers=[workers[1].address], key="later")
            gate.refuses = gate.cancelled = None  # it has joined another job
            assert await client.submit(int, workers=[workers[1].address], key="in the other job") == 0


async def test_a_shuffle_of_a_cancelled_job_fails(cluster: Cluster) -> None:
    pytest.importorskip("pyarrow")
    pandas = pytest.importorskip("pandas")
    frames = pytest.importorskip("dask.dataframe")
    async with cluster(1, workers=2, cpu=False) as (client, gate, _):
        gate.refuses = JobCancelled("dask", "ann")
        frame = frames.from_pandas(pandas.DataFrame({"k": range(4000), "x": [1.5] * 4000}), npartitions=6)
        with dask.config.set({"dataframe.shuffle.method": "p2p"}):
            async with asyncio.timeout(WAIT_S):
                with pytest.raises(RuntimeError, match=r"cancelled by ann|failed during"):  # as Dask's shuffle says it
                    await client.compute(frame.shuffle("k").x.sum())


async def test_a_coroutine_task_of_a_cancelled_job_fails(cluster: Cluster) -> None:
    async def coroutine() -> str:
        return "ran"

    async with cluster(1) as (client, gate, _):
        gate.refuses = JobCancelled("dask", "ann")
        async with asyncio.timeout(WAIT_S):
            with pytest.raises(JobCancelled):
                await client.submit(coroutine)


async def test_the_log_names_why_shards_could_not_be_sent(caplog: pytest.LogCaptureFixture) -> None:
    gate = FakeGate(1)
    gating = GatedWorker(None, gate, Settings())  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING, "penstock"), pytest.raises(ConnectionResetError):
        async with gating._sending(100):
            raise ConnectionResetError("lost")
    assert "ConnectionResetError: lost" in caplog.text
    assert [(slot.kind, slot.stage, slot.ended) for slot in gate.asked] == [("network", "p2p-send", "failed")]

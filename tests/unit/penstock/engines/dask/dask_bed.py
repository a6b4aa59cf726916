"""A real scheduler and real workers in this process, behind a gate whose slots the test gives."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")

from distributed import Client, Scheduler, Worker  # noqa: E402

from penstock.engines.dask import plugin as plugin_module  # noqa: E402
from penstock.engines.dask.plugin import PenstockWorkerPlugin  # noqa: E402

# Dask's own, not ours: it warns of itself while it starts and stops.
DASK_WARNS = [
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning"),
]
WAIT_S = 60.0
#: Workers share this process: they must neither spill nor pause for the memory that other tests left in it.
_SETTINGS = {
    "distributed.scheduler.work-stealing": False,
    "distributed.admin.tick.limit": "1h",
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
}

Cluster = Callable[..., Any]


@asynccontextmanager
async def started(workers: int, gated: bool = True, cpu: bool = True, **keywords: Any) -> AsyncIterator[Any]:
    """Yield a client and the workers, of two threads each; ``cpu``: tasks are CPU monotasks, not the default."""
    with dask.config.set({**_SETTINGS, "penstock.cpu": cpu}):
        async with Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address="127.0.0.1:0") as scheduler:
            made = []
            for _ in range(workers):
                plugins = [PenstockWorkerPlugin()] if gated else []
                made.append(Worker(scheduler.address, host="127.0.0.1", nthreads=2, plugins=plugins, **keywords))
            try:
                await asyncio.gather(*made)
                async with Client(scheduler.address, asynchronous=True) as client:
                    yield client, made
            finally:
                await asyncio.gather(*(one.close() for one in made))


def clusters(make_gate: Callable[[int], Any], monkeypatch: pytest.MonkeyPatch) -> Cluster:
    """``async with cluster(slots, workers=…) as (client, gate, workers)``; the keywords are those of ``started``."""

    @asynccontextmanager
    async def start(slots: int, workers: int = 1, **keywords: Any) -> AsyncIterator[Any]:
        gate = make_gate(slots)

        def cluster_gate(worker: Any, _: Any) -> Any:
            gate.workers.append(worker)
            return gate

        monkeypatch.setattr(plugin_module, "ClusterGate", cluster_gate)
        async with started(workers, **keywords) as (client, made):
            try:
                yield client, gate, made
            finally:
                gate.grant(1000)

    return start


async def until(condition: Callable[[], object]) -> None:
    """Poll: actions of Dask in its loop cannot be waited for otherwise."""
    async with asyncio.timeout(WAIT_S):
        while not condition():  # noqa: ASYNC110 - there is no event for it
            await asyncio.sleep(0.005)

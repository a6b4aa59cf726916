"""One job at the agent for all workers of a Dask cluster on a host, agreed upon through the cluster's scheduler.

Every worker process first registers a job of its own, writes its id into the scheduler's metadata below the host's
name, and then reads all that are there: the one that was written first is everybody's. The scheduler needs nothing for
this; its dictionary keeps the order, and whoever reads has written before.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING

from penstock.client.gate import Gate
from penstock.engines.dask.settings import Settings

if TYPE_CHECKING:
    from distributed.worker import Worker

_LOG = logging.getLogger(__name__)
#: A scheduler that does not answer in time (seconds) costs the sharing, not the worker's start.
_ANSWER_S = 5.0


def new_gate(worker: Worker, settings: Settings, job: str = "") -> Gate:
    """The gate of a worker's process, made in the worker's event loop; ``job`` is the id of one to join.

    It lives in that loop: a thread of its own would contend with it for Python's lock, at every task.
    """
    return Gate(
        settings.job or f"dask {worker.scheduler.address}",
        socket=settings.socket_path(),
        job=job,
        priority=settings.priority,
        memory_bytes=settings.memory_bytes,
        patience_s=settings.patience_s,
        warn=_LOG.warning,
        loop=None if settings.own_thread else asyncio.get_running_loop(),
    )


async def connected_gate(worker: Worker, settings: Settings) -> Gate:
    """A gate in the cluster's job where there is one, else in a job of its own.

    Waits for the agent for ``patience_s`` at most; a gate that is late, or whose scheduler does not answer, keeps a job
    of its own.
    """
    gate = new_gate(worker, settings)
    if not settings.share_job or not await _connected(gate, settings.patience_s):
        return gate
    offered = await _offers(worker, settings, gate.job)
    for job in offered:
        if job == gate.job:
            break
        joined = new_gate(worker, settings, job)
        if await _connected(joined, settings.patience_s) and joined.job == job:
            gate.close()
            return joined
        joined.close()  # that job is over: its workers are gone
    return gate


async def _connected(gate: Gate, timeout_s: float) -> bool:
    return await asyncio.to_thread(gate.wait_connected, timeout_s)


async def _offers(worker: Worker, settings: Settings, job: str) -> list[str]:
    """The jobs that workers of this cluster have on this host, oldest first, this one among them."""
    place = ["penstock", f"{socket.gethostname()} {settings.socket}"]
    try:
        async with asyncio.timeout(_ANSWER_S):
            await worker.scheduler.set_metadata(keys=[*place, worker.address], value=job)
            offers = await worker.scheduler.get_metadata(keys=place)
    except (OSError, TimeoutError) as error:
        _LOG.info("no answer from the scheduler about a common job: %s", error)
        return [job]
    return [str(each) for each in offers.values()]

"""One job at the agents for all workers of a Dask cluster, agreed upon through the cluster's scheduler.

Every worker process first registers a job of its own, writes its id into the scheduler's metadata below the host's
name, and then reads all that are there: the one that was written first is everybody's. The scheduler needs nothing for
this; its dictionary keeps the order, and whoever reads has written before. An agent, or a scheduler, that is slow to
answer holds nobody up: the worker begins in its own job, and joins the others as soon as it can. So do the workers of
further hosts with the job of the host that was first, where one master knows their agents; else each host has a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from penstock.client.gate import Gate, Slot
from penstock.engines.dask.belonging import BELONGS
from penstock.engines.dask.settings import Settings
from penstock.model.resources import ResourceKind

if TYPE_CHECKING:
    from distributed.worker import Worker

_LOG = logging.getLogger(__name__)
#: A scheduler that does not answer in time (seconds) costs the sharing for now, not the worker's start.
_ANSWER_S = 5.0
#: How often a process looks whether its job is still the one that was agreed upon (seconds).
LOOK_S = 1.0
#: How often one that joined a job looks whether it is to speak for it: who did so may have gone (seconds).
HEIR_S = 30.0
#: An agent that does not take notice of a worker's end holds it up for so long at most (seconds).
CLOSE_S = 2.0


def new_gate(worker: Worker, settings: Settings, job: str = "", *, guest: bool = False) -> Gate:
    """The gate of a worker's process, made in the worker's event loop; ``job`` is the id of one to join.

    It lives in that loop: a thread of its own would contend with it for Python's lock, at every task. A ``guest`` joins
    a job that is not its cluster's: what becomes of that one is for others to say, and to pay for.
    """
    return Gate(
        settings.job or f"dask {worker.scheduler.address}",
        socket=settings.socket_path(),
        job=job,
        priority=settings.priority,
        memory_bytes=0 if guest else settings.memory_bytes,
        patience_s=settings.patience_s,
        warn=_LOG.info if guest else _LOG.warning,
        loop=None if settings.own_thread else asyncio.get_running_loop(),
        rank=settings.rank and not guest,
        process=process_of(worker),
    )


def process_of(worker: Worker) -> int:
    """The process that is lent for the job's rank: 0 is this one.

    Where a nanny started this one, it is the nanny's, with all that it started: in a ``LocalCluster`` that is the
    client's and the scheduler's, too.
    """
    parent = multiprocessing.parent_process()
    if worker.nanny and parent is not None and parent.pid == os.getppid():
        return os.getppid()
    return 0


class ClusterGate:
    """What the workers of a process ask for their grants: in the name of their cluster's job on this host.

    Made in the workers' event loop. What a task does that belongs to another job is asked for in that one's name, see
    :mod:`penstock.engines.dask.belonging`.
    """

    def __init__(self, worker: Worker, settings: Settings) -> None:
        #: The workers of this process; the first speaks with the scheduler.
        self.workers = [worker]
        #: Whether this process is the one that says how far the job is.
        self.speaks = True
        self._settings = settings
        self._gate = new_gate(worker, settings)
        self._loop = asyncio.get_running_loop()
        self._agreed = ""  # the id of the job about which nothing is left to be found out
        self._over: set[str] = set()  # jobs that cannot be joined any more
        self._left: list[Gate] = []  # of jobs that were left, until their last slot is given back
        self._keeping: asyncio.Task[None] | None = None

    @property
    def job(self) -> str:
        """The job's id at the agent; empty while not connected."""
        return self._gate.job

    def leave(self, worker: Worker) -> bool:
        """One worker less; whether any is left."""
        others = [each for each in self.workers if each is not worker]
        if others:
            self.workers = others
            self._agreed = ""  # what was offered may have been offered in that worker's name
        return bool(others)

    async def start(self) -> None:
        """Wait for the agent and for an agreement, for ``patience_s`` and :data:`_ANSWER_S` at most."""
        connected = await _connected(self._gate, self._settings.patience_s)
        if self._settings.share_job:
            if connected:
                await self._agree()
                self._agreed = ""  # there may be other hosts
            self._keeping = self._loop.create_task(self._keep(), name="penstock-job")

    def close(self) -> None:
        """Give everything back, and leave the cluster's job in order; blocks, not for the workers' event loop."""
        if self._keeping is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._keeping.cancel)
        job = self._gate.job
        self._gate.close(done=True)
        for gate in self._left:
            gate.close(done=True, merged_into=job)
        for gate in (self._gate, *self._left):
            gate.wait_closed(CLOSE_S)

    # ------------------------------------------------------------ as any gate

    def submit(
        self, kind: ResourceKind | str, input_bytes: int, granted: Callable[[Slot], object], *, stage: str = ""
    ) -> Slot:
        """See :meth:`penstock.client.gate.Gate.submit`."""
        gate, task = self._whose()
        return gate.submit(kind, input_bytes, granted, stage=stage, task=task)

    def acquire(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "") -> Slot:
        """See :meth:`penstock.client.gate.Gate.acquire`."""
        gate, task = self._whose()
        return gate.acquire(kind, input_bytes, stage=stage, task=task)

    async def acquire_async(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "") -> Slot:
        """See :meth:`penstock.client.gate.Gate.acquire_async`."""
        gate, task = self._whose()
        return await gate.acquire_async(kind, input_bytes, stage=stage, task=task)

    def progress(self, stages: Any) -> None:
        """See :meth:`penstock.client.gate.Gate.progress`."""
        self._gate.progress(stages)

    def _whose(self) -> tuple[Gate, str]:
        ours = BELONGS.get()
        if ours is None or ours.gate.job != ours.job:  # no such job here, or the agent is away
            return self._gate, ""
        return ours.gate, ours.task

    # ------------------------------------------------------------ which job that is

    async def _keep(self) -> None:
        """The agent may have been slow, may be restarted and have forgotten, and who was first may go."""
        looked = self._loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._close_left()
                await self._agree()
                if not self.speaks and self._loop.time() - looked > HEIR_S:
                    looked = self._loop.time()
                    self.speaks = await self._is_heir()
            except Exception as error:  # noqa: BLE001 - the root of a task: the next look may be luckier
                _LOG.info("no look at the cluster's job: %s", error)

    async def _agree(self) -> None:
        """Join the job that was offered first, unless it is the one that we have."""
        own = self._gate.job
        if not own or own == self._agreed:
            return
        first, ours = await self._offer(own)
        offered = ours if self._keeping is None else {**first, **ours}  # another host's job can wait until we work
        for job in dict.fromkeys(offered.values()):
            if job == own:
                break
            if job not in self._over and await self._join(job):
                return
        here = self.workers[0].address
        self.speaks = next((address for address, job in ours.items() if job == own), here) == here
        if ours and self._keeping is not None and (not self.speaks or next(iter(offered)) == here):
            self._agreed = own  # else, whoever was before us may yet come back with another job

    async def _join(self, job: str) -> bool:
        joined = new_gate(self.workers[0], self._settings, job)
        if not await _connected(joined, self._settings.patience_s) or joined.job != job:
            if joined.refused:  # its workers are gone; an agent that is slow to answer is asked again
                self._over.add(job)
            joined.close()
            return False
        self._left.append(self._gate)
        self._gate, self._agreed, self.speaks = joined, job, False
        self._close_left()
        await self._offer(job)
        return True

    def _close_left(self) -> None:
        for gate in list(self._left):
            counts = gate.counts()
            if not counts["waiting"] and not counts["held"]:
                self._left.remove(gate)
                gate.close(done=True, merged_into=self._gate.job)

    async def _offer(self, job: str) -> tuple[dict[str, str], dict[str, str]]:
        """Workers → their jobs, oldest first: on the cluster's first host, and on this one, ours among them."""
        worker = self.workers[0]
        place = ["penstock", f"{socket.gethostname()} {self._settings.socket}"]
        try:
            async with asyncio.timeout(_ANSWER_S):
                await worker.scheduler.set_metadata(keys=[*place, worker.address], value=job)
                said = await worker.scheduler.get_metadata(keys=["penstock"])
        except (OSError, TimeoutError) as error:
            _LOG.info("no answer from the scheduler about a common job: %s", error)
            return {}, {}
        return next(each for each in said.values() if isinstance(each, dict)), said[place[1]]

    async def _is_heir(self) -> bool:
        """Whether those who have had the job for longer are gone."""
        _, offers = await self._offer(self._gate.job)
        having = [address for address, job in offers.items() if job == self._gate.job]
        alive = await self.workers[0].scheduler.ncores(workers=having)
        return next((address for address in having if address in alive), "") == self.workers[0].address


async def _connected(gate: Gate, timeout_s: float) -> bool:
    return await asyncio.to_thread(gate.wait_connected, timeout_s)

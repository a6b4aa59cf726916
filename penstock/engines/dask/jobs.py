"""One job at the agents for all workers of a Dask cluster, agreed upon through the cluster's scheduler.

Every worker process first registers a job of its own, writes its id into the scheduler's metadata under the host's
name, and then reads all entries: the first one written is the job of all. The scheduler needs no code for this: its
dictionary keeps the order, and every reader has written before. A slow agent or scheduler does not delay the work: the
worker starts in its own job, and joins the others as soon as it can. In the same way the workers of further hosts join
the job of the first host, if one master knows their agents; otherwise each host has a job.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import multiprocessing
import os
import socket
from collections.abc import Callable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from penstock.client.errors import JobCancelled
from penstock.client.gate import Gate, Slot
from penstock.client.program import program_name
from penstock.engines.dask.annotated_tasks import GRANT_OWNER
from penstock.engines.dask.settings import Settings
from penstock.model.resources import ResourceKind

if TYPE_CHECKING:
    from distributed.worker import Worker

_LOG = logging.getLogger(__name__)
#: Dask's own commands, which start workers for any program.
_COMMANDS = frozenset({"dask", "dask-worker", "dask-ssh", "dask-spec"})
#: A scheduler that takes longer to answer (seconds) delays the sharing, not the worker's start.
_ANSWER_S = 5.0
#: The interval of checks that this process's job is still the agreed one (seconds).
LOOK_S = 1.0
#: The interval at which a process that joined a job checks whether it must report for it, as the reporter may be gone.
HEIR_S = 30.0
#: The longest wait for an agent to confirm a worker's end (seconds).
CLOSE_S = 2.0


def new_gate(worker: Worker, settings: Settings, job: str = "", *, guest: bool = False) -> Gate:
    """Return the gate of a worker's process, made in the worker's event loop; ``job`` is the id of a job to join.

    The gate lives in that loop: a thread of its own would contend with the loop for the GIL at every task. A ``guest``
    joins a job other than the cluster's: its warnings, memory and rank are the concern of that job's owner. Where
    workers share a job, :class:`ClusterGate` has the process ranked, once they have agreed.
    """
    process = process_of(worker)
    return Gate(
        settings.job or program_of(process) or f"dask {worker.scheduler.address}",
        socket=settings.socket_path(),
        job=job,
        priority=settings.priority,
        memory_bytes=0 if guest else settings.memory_bytes,
        patience_s=settings.patience_s,
        warn=_LOG.info if guest else _LOG.warning,
        loop=None if settings.own_thread else asyncio.get_running_loop(),
        rank=settings.rank and not guest and not settings.share_job,
        process=process,
    )


def program_of(process: int = 0) -> str:
    """Return the name of the program that has the cluster, in this process (0) or another; empty: it has none, or is a
    command of Dask itself.

    Runs of a program are known by its name: an address never comes again.
    """
    name = program_name(process)
    return "" if name in _COMMANDS or name.startswith("distributed.") else name


def process_of(worker: Worker) -> int:
    """Return the process that is ranked with the job; 0 is this one.

    If a nanny started this process, it is the nanny's parent process with all its descendants: in a ``LocalCluster``
    that includes the client and the scheduler.
    """
    parent = multiprocessing.parent_process()
    if worker.nanny and parent is not None and parent.pid == os.getppid():
        return os.getppid()
    return 0


class ClusterGate:
    """The gate of a process's workers, in the name of their cluster's job on this host.

    Made in the workers' event loop. Grants for tasks of other jobs are requested in those jobs' names, see
    :mod:`penstock.engines.dask.annotated_tasks`.
    """

    def __init__(self, worker: Worker, settings: Settings) -> None:
        #: The workers of this process; the first one talks to the scheduler.
        self.workers = [worker]
        #: Whether this process reports the job's progress.
        self.speaks = True
        #: The cancellation of the present job, once :meth:`acquire_async` was refused for it; then its tasks fail.
        self.cancelled: JobCancelled | None = None
        self._settings = settings
        self._gate = new_gate(worker, settings)
        self._loop = asyncio.get_running_loop()
        self._agreed = ""  # the id of the job, once it is final
        self._over: set[str] = set()  # jobs that cannot be joined any more
        self._left: list[Gate] = []  # gates of jobs that were left, until their last slot is given back
        self._keeping: asyncio.Task[None] | None = None

    @property
    def job(self) -> str:
        """The job's id at the agent; empty while not connected."""
        return self._gate.job

    def leave(self, worker: Worker) -> bool:
        """Remove a worker; return whether any is left."""
        others = [each for each in self.workers if each is not worker]
        if others:
            self.workers = others
            self._agreed = ""  # the offer may have been in that worker's name
        return bool(others)

    async def start(self) -> None:
        """Wait for the agent and for an agreement, at most ``patience_s`` and :data:`_ANSWER_S`."""
        connected = await self._connected(self._gate)
        if self._settings.share_job:
            if connected:
                await self._agree()
                self._agreed = ""  # other hosts may have offered jobs
            self._keeping = self._loop.create_task(self._keep(), name="penstock-job")

    def close(self) -> None:
        """Give all slots back and leave the cluster's job properly. Blocks: not for the workers' event loop."""
        if self._keeping is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._keeping.cancel)
        job = self._gate.job
        self._gate.close(done=True)
        for gate in self._left:
            gate.close(done=True, merged_into=job)
        for gate in (self._gate, *self._left):
            gate.wait_closed(CLOSE_S)

    # ------------------------------------------------------------ the gate's interface

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
        try:
            return await gate.acquire_async(kind, input_bytes, stage=stage, task=task)
        except JobCancelled as error:
            if gate is self._gate:  # else a job that was left meanwhile, or another one's whose task asked
                self.cancelled = error
            raise

    def progress(self, stages: Any) -> None:
        """See :meth:`penstock.client.gate.Gate.progress`."""
        self._gate.progress(stages)

    def _whose(self) -> tuple[Gate, str]:
        ours = GRANT_OWNER.get()
        if ours is None or ours.gate.job != ours.job:  # unknown job here, or the agent is away
            return self._gate, ""
        return ours.gate, ours.task

    # ------------------------------------------------------------ agreement on the job

    async def _keep(self) -> None:
        """Agree again from time to time: agents may be slow or restart without the job, and the reporter may leave."""
        looked = self._loop.time()
        while True:
            await asyncio.sleep(LOOK_S)
            try:
                self._close_left()
                await self._agree()
                if not self.speaks and self._loop.time() - looked > HEIR_S:
                    looked = self._loop.time()
                    self.speaks = await self._is_heir()
            except Exception as error:  # noqa: BLE001 - the outermost frame of a task: the next attempt may succeed
                _LOG.info("no look at the cluster's job: %s", error)

    async def _agree(self) -> None:
        """Join the first offered job, unless this process has it."""
        own = self._gate.job
        if not own or own == self._agreed:
            return
        first, ours = await self._offer(own)
        offered = ours if self._keeping is None else {**first, **ours}  # before the start, only this host's jobs matter
        earlier = [*takewhile(own.__ne__, dict.fromkeys(offered.values()))]
        for job in earlier:
            if job not in self._over and await self._join(job, final=job == earlier[0]):
                return
        if ours and self._over.issuperset(earlier):
            self._lend()
        here = self.workers[0].address
        self.speaks = next((address for address, job in ours.items() if job == own), here) == here
        # Where an earlier worker's job is over, it may yet return with another one, which all then join.
        final = next(iter(offered), "") == here or (not self.speaks and self._over.isdisjoint(earlier))
        if ours and self._keeping is not None and final:
            self._agreed = own

    async def _join(self, job: str, *, final: bool) -> bool:
        joined = new_gate(self.workers[0], self._settings, job)
        if not await self._connected(joined) or joined.job != job:
            if joined.refused:  # its workers are gone; an agent that is only slow is asked again
                self._over.add(job)
            joined.close()
            return False
        self._left.append(self._gate)
        self._gate, self._agreed, self.speaks = joined, job if final else "", False
        self.cancelled = None
        self._lend()
        self._close_left()
        await self._offer(job)
        return True

    def _lend(self) -> None:
        """Have the process ranked with the agreed job, not with an earlier one: a container stays in the cgroup of the
        job that it was made for, and those of a cluster on a host are to share one.
        """
        if self._settings.rank:
            self._gate.lend()

    def _close_left(self) -> None:
        for gate in list(self._left):
            counts = gate.counts()
            if not counts["waiting"] and not counts["held"]:
                self._left.remove(gate)
                gate.close(done=True, merged_into=self._gate.job)

    async def _offer(self, job: str) -> tuple[dict[str, str], dict[str, str]]:
        """Offer a job; return workers → jobs, oldest first: on the cluster's first host, and on this one with ours."""
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
        """Whether all workers that have had the job for longer are gone."""
        _, offers = await self._offer(self._gate.job)
        having = [address for address, job in offers.items() if job == self._gate.job]
        alive = await self.workers[0].scheduler.ncores(workers=having)
        return next((address for address in having if address in alive), "") == self.workers[0].address

    async def _connected(self, gate: Gate) -> bool:
        return await asyncio.to_thread(gate.wait_connected, self._settings.patience_s)

"""Placement of a dataset's tasks by the master, through this host's agent (Ursa §4.2.1, §4.2.2).

It fails open: Dask places a task for which the master has no answer.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any

from penstock.client import AgentClient, AgentUnavailable, Job, JobCancelled, NotPlaced
from penstock.client.blocking import LoopThread
from penstock.engines.dask.progress import AGAIN_S, EVERY_S
from penstock.model.work import TaskRequest
from penstock.opgraph.dataflow import PlaceTasks, TaskDemand
from penstock.wire.agent_api import JobWaiting, StageProgress
from penstock.wire.errors import RpcError

_LOG = logging.getLogger(__name__)


async def node_here(socket: str | None = None) -> str:
    """Return the name of this host's node from its agent; "" without an agent. Runs on each worker."""
    try:
        async with await AgentClient.connect(Path(socket) if socket else None, "dask-dataset") as agent:
            return agent.welcome.node
    except AgentUnavailable:
        return ""


class MasterPlacement:
    """A job at the agent, and a thread that asks the master for nodes.

    ``placed(task's index, node)`` is called in that thread, once for each requested task; ``node`` is "" if the master
    has none.
    """

    def __init__(self, agent: AgentClient, job: Job, loop: LoopThread, waits: list[JobWaiting]) -> None:
        """``waits`` gets the reasons why the job is not admitted yet, in the loop's thread."""
        self._agent = agent
        self._job = job
        self._loop = loop
        self._waits = waits
        self._asking: set[asyncio.Task[None]] = set()
        self._said: list[StageProgress] = []
        self._looked_at = self._said_at = -math.inf

    @classmethod
    def open(
        cls, name: str, memory_bytes: int, *, priority: float, socket: Path | None, patience_s: float
    ) -> MasterPlacement | None:
        """Register a job with M(j) = ``memory_bytes``; None if there is no agent, or it has no master.

        A later outage of the agent is tolerated for ``patience_s`` seconds.
        """
        loop = LoopThread("penstock-placement")
        waits: list[JobWaiting] = []

        def on_waiting(waiting: JobWaiting) -> None:
            if not waits and not waiting.never:
                _LOG.warning("the dataset's job %r waits: %s", name, waiting.why)
            waits.append(waiting)

        async def register() -> tuple[AgentClient, Job] | None:
            agent = await AgentClient.connect(socket, "dask-dataset", patience_s)
            if not agent.welcome.master:
                await agent.close()
                return None
            return agent, await agent.register_job(name, memory_bytes, priority, on_waiting=on_waiting)

        try:
            registered = loop.run(register())
        except (AgentUnavailable, RpcError):
            registered = None
        if registered is None:
            loop.stop()
            return None
        return cls(*registered, loop, waits)

    @property
    def job(self) -> str:
        """The job's id at the agent."""
        return self._job.id

    def ask(self, asked: PlaceTasks, nodes: Sequence[str], placed: Callable[[int, str], object]) -> None:
        """Request nodes for ready tasks, among ``nodes``: those with a worker."""
        self._loop.post(self._start, self._place(asked, nodes, placed))

    def complete(self, task: str) -> None:
        """Report an executed task, so that its node releases its resources."""
        self._loop.post(self._start, self._done(task))

    def progress(self, stages: Callable[[], list[StageProgress]], *, last: bool = False) -> None:
        """Report the job's progress to the master from time to time: call it after any change, and with ``last`` before
        the job ends. ``stages`` is called only if a report is due."""
        now = time.monotonic()
        if now - self._looked_at < EVERY_S and not last:
            return
        self._looked_at, found = now, stages()
        if found != self._said or now - self._said_at > AGAIN_S:
            self._said, self._said_at = found, now
            self._loop.post(self._job.progress, found)

    def check(self) -> None:
        """Check whether requests can still be answered.

        Raises:
            JobCancelled: a user cancelled the job.
            RuntimeError: the job can never be admitted.
        """
        if isinstance(failure := self._job.failure, JobCancelled):
            raise failure
        if self._waits and self._waits[-1].never:
            raise RuntimeError(f"job {self._job.name!r}: {self._waits[-1].why}; lower Options.memory_bytes")

    def close(self) -> None:
        """End the job; outstanding requests get no answer."""
        self._loop.run(self._close())
        self._loop.stop()

    # ------------------------------------------------------------ in the loop

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _place(self, asked: PlaceTasks, nodes: Sequence[str], placed: Callable[[int, str], object]) -> None:
        try:
            await self._job.admitted()
            await self._job.place(asked.stage, [_request(demand, nodes) for demand in asked.demands])
        except JobCancelled:
            return
        except (RpcError, AgentUnavailable, RuntimeError):  # refused, gone for good, or the job was ended
            for demand in asked.demands:
                placed(demand.task, "")
            return
        for demand in asked.demands:
            self._start(self._tell(demand, placed))

    async def _tell(self, demand: TaskDemand, placed: Callable[[int, str], object]) -> None:
        try:
            node = await self._job.placed(demand.name)
        except JobCancelled:
            return
        except (NotPlaced, AgentUnavailable):
            node = ""
        placed(demand.task, node)

    async def _done(self, task: str) -> None:
        try:
            await self._job.tasks_done([task])
        except (RpcError, AgentUnavailable):
            return  # it was never placed, or no agent holds resources for it any more

    async def _close(self) -> None:
        for task in list(self._asking):
            task.cancel()
        await asyncio.gather(*self._asking, return_exceptions=True)
        try:
            await self._job.end()
        except (RpcError, AgentUnavailable):
            pass  # the agent has ended it
        finally:
            await self._agent.close()


def _request(demand: TaskDemand, nodes: Sequence[str]) -> TaskRequest:
    wanted = demand.nodes if set(demand.nodes) <= set(nodes) else ()
    return TaskRequest(
        task=demand.name, usage=demand.usage, memory_bytes=demand.memory_bytes, nodes=wanted or tuple(nodes)
    )


class Workers:
    """The workers of each node; the next task goes to the worker with the fewest of this run's tasks."""

    def __init__(self, nodes: Mapping[str, Sequence[str]]) -> None:
        """``nodes``: a node's name → the addresses of its workers."""
        self.nodes = {node: tuple(addresses) for node, addresses in nodes.items() if node and addresses}
        #: The workers that were assigned a task so far: they may hold inputs of other tasks.
        self.used: set[str] = set()
        self._tasks: dict[int, str] = {}

    def assign(self, task: int, node: str) -> str:
        """Assign a task to a worker of a node; return its address, or "" if the node has none."""
        addresses = self.nodes.get(node, ())
        if not addresses:
            return ""
        busy = list(self._tasks.values())
        self._tasks[task] = min(addresses, key=busy.count)
        self.used.add(self._tasks[task])
        return self._tasks[task]

    def address(self, task: int) -> str:
        """Return the worker that a task was assigned to; "" for any."""
        return self._tasks.get(task, "")

    def complete(self, task: int) -> None:
        """Forget an ended task."""
        self._tasks.pop(task, None)

"""Ranking of a cluster's processes without workers, its scheduler and its clients, with the job of the workers.

The workers write the ids of their jobs into the scheduler's metadata (:mod:`penstock.engines.dask.jobs`). The process
reads the job of its own host's workers there, and lends itself to that job.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from penstock.client import AgentClient
from penstock.engines.dask.settings import Settings
from penstock.wire.errors import RpcError

_LOG = logging.getLogger(__name__)
#: The intervals of checks for a job: before and after the process is lent to one (seconds).
LOOK_S, AGAIN_S = 2.0, 10.0
#: An agent or a scheduler that takes longer to answer (seconds) is asked again at the next check.
_ANSWER_S = 5.0


class Lender:
    """Lends this process, in its event loop, until :meth:`stop`."""

    def __init__(self, settings: Settings, metadata: Callable[[], Any]) -> None:
        """``metadata`` returns the scheduler's metadata under ``penstock``, or an awaitable of it; None: nothing."""
        self._settings = settings
        self._metadata = metadata
        self._agent: AgentClient | None = None
        self._lent = ""
        self._over: set[str] = set()  # jobs that the process cannot be lent to
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep(), name="penstock-lend")

    def stop(self) -> None:
        """Stop checking; the process is given back when its job is over."""
        self._task.cancel()

    async def _keep(self) -> None:
        try:
            while True:
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        await self._look()
                except Exception as error:  # noqa: BLE001 - the outermost frame of a task: the next attempt may succeed
                    _LOG.info("no look at the cluster's job: %s: %s", type(error).__name__, error)
                    await self._hang_up()
                await asyncio.sleep(AGAIN_S if self._lent else LOOK_S)
        finally:
            await self._hang_up()

    async def _look(self) -> None:
        """Lend this process to the first job that is not over; lending it again is no error."""
        said = self._metadata()
        if asyncio.iscoroutine(said):
            said = await said
        self._lent = ""
        for job in jobs_of(said or {}, socket.gethostname()):
            if job not in self._over and await self._lend(job):
                self._lent = job
                return

    async def _lend(self, job: str) -> bool:
        if self._agent is None:
            self._agent = await AgentClient.connect(self._settings.socket_path(), client="dask", reconnect_s=0)
        try:
            await self._agent.lend(job)
        except RpcError as error:
            _LOG.info("this process is not ranked with job %s: %s", job, error)
            self._over.add(job)
            return False
        return True

    async def _hang_up(self) -> None:
        agent, self._agent = self._agent, None
        if agent is not None:
            await agent.close()


def jobs_of(said: Mapping[str, Any], host: str) -> Iterator[str]:
    """Yield the jobs of a host's workers, each once: the agreed one is the first that is not over."""
    offers = [each for place, each in said.items() if place.split(" ")[0] == host and isinstance(each, dict)]
    yield from dict.fromkeys(str(job) for each in offers for job in each.values())

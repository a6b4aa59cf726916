"""The processes of a cluster that run no worker, its scheduler and its clients: ranked with the job of the workers.

The workers write the ids of their jobs into the scheduler's metadata (:mod:`penstock.engines.dask.jobs`). Such a
process reads there which job the workers of its own host have, and lends itself for that.
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
#: How often a process looks which job it belongs to, and how often once it is lent for one (seconds).
LOOK_S, AGAIN_S = 2.0, 10.0
#: An agent or a scheduler that does not answer in time (seconds) is asked again at the next look.
_ANSWER_S = 5.0


class Lender:
    """For this process, in its event loop, until :meth:`stop`."""

    def __init__(self, settings: Settings, metadata: Callable[[], Any]) -> None:
        """``metadata`` returns what the scheduler keeps below ``penstock``, or an awaitable of it; None: nothing."""
        self._settings = settings
        self._metadata = metadata
        self._agent: AgentClient | None = None
        self._lent = ""
        self._over: set[str] = set()  # jobs for which it cannot be lent
        self._loop = asyncio.get_running_loop()
        self._task = self._loop.create_task(self._keep(), name="penstock-lend")

    def stop(self) -> None:
        """Look no more; what is lent is given back when its job is over."""
        self._task.cancel()

    async def _keep(self) -> None:
        try:
            while True:
                try:
                    async with asyncio.timeout(_ANSWER_S):
                        await self._look()
                except Exception as error:  # noqa: BLE001 - the root of a task: the next look may be luckier
                    _LOG.info("no look at the cluster's job: %s: %s", type(error).__name__, error)
                    await self._hang_up()
                await asyncio.sleep(AGAIN_S if self._lent else LOOK_S)
        finally:
            await self._hang_up()

    async def _look(self) -> None:
        """Lend this process for the first job that is not over; that it is lent already is no error."""
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
    """The jobs that workers of a host have, each once: what they agreed upon is the first that is not over."""
    offers = [each for place, each in said.items() if place.split(" ")[0] == host and isinstance(each, dict)]
    yield from dict.fromkeys(str(job) for each in offers for job in each.values())

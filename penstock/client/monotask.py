"""A submitted monotask, as a future and as a context manager."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Protocol

from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Leased


class MonotaskOwner(Protocol):
    """What a monotask asks of its job (:class:`penstock.client.job.Job`)."""

    def complete(
        self,
        one: MonotaskId,
        *,
        failed: bool = False,
        execution_s: float | None = None,
        leased: Leased | None = None,
    ) -> bool:
        """End the monotask; return False if it had ended already."""
        ...

    def cancel(self, one: MonotaskId) -> bool:
        """Withdraw the monotask; return False if it had ended already."""
        ...


class Monotask:
    """A submitted monotask. Await ``granted``, do the work, call :meth:`complete`.

    ``granted`` is a future; cancelling it (as a cancelled ``await`` does) gives the coming grant back. It raises
    ``RpcError`` if the agent refused the monotask and ``AgentUnavailable`` if the agent was away for too long.
    """

    __slots__ = ("_job", "granted", "id")

    def __init__(self, job: MonotaskOwner, monotask: MonotaskId, granted: asyncio.Future[None]) -> None:
        self._job = job
        self.id = monotask
        self.granted = granted

    def complete(self, failed: bool = False, execution_s: float | None = None, leased: Leased | None = None) -> bool:
        """Give the slot back; return False if the monotask had ended already.

        ``leased`` describes the monotasks that ran in the slot afterwards (see
        :meth:`penstock.client.job.Job.kept_until`); ``execution_s`` is then the run time of this one.

        Raises:
            ValueError: it was not granted yet.
        """
        return self._job.complete(self.id, failed=failed, execution_s=execution_s, leased=leased)

    def cancel(self) -> bool:
        """Withdraw the monotask, queued or granted; return False if it had ended already."""
        return self._job.cancel(self.id)


class Granted:
    """The context manager of ``async with job.monotask(…)``."""

    __slots__ = ("_monotask",)

    def __init__(self, monotask: Monotask) -> None:
        self._monotask = monotask

    async def __aenter__(self) -> Monotask:
        try:
            await self._monotask.granted
        except BaseException:
            self._monotask.cancel()
            raise
        return self._monotask

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._monotask.complete(failed=kind is not None)


def set_error(granted: asyncio.Future[None] | None, error: Exception) -> None:
    """Fail a waiter for a grant, if there is one, and mark the exception as retrieved."""
    if granted is not None and not granted.done():
        granted.set_exception(error)
        granted.exception()

"""A submitted monotask, as a future and as a context manager."""

from __future__ import annotations

import asyncio
from typing import Protocol, Self

from penstock.client.monotask_session import SessionMonotask
from penstock.model.resources import ResourceKind


class MonotaskOwner(Protocol):
    """What a monotask asks of its job (:class:`penstock.client.job.Job`)."""

    def complete(self, one: SessionMonotask, failed: bool) -> bool:
        """End the monotask; return False if it had ended already."""
        ...

    def cancel(self, one: SessionMonotask) -> bool:
        """Withdraw the monotask; return False if it had ended already."""
        ...


class Monotask(SessionMonotask):
    """A submitted monotask. Await ``granted``, do the work, call :meth:`complete`; or do the work in ``async with``.

    ``granted`` is a future; cancelling it (as a cancelled ``await`` does) gives the coming grant back. It raises
    ``RpcError`` if the agent refused the monotask and ``AgentUnavailable`` if the agent was away for too long.
    """

    __slots__ = ("_job", "granted")

    def __init__(
        self, job: MonotaskOwner, granted: asyncio.Future[None], kind: ResourceKind, input_bytes: int,
        stage: str, task: str,
    ) -> None:  # fmt: skip
        super().__init__(kind, input_bytes, stage, task)
        self._job = job
        self.granted = granted

    async def __aenter__(self) -> Self:
        try:
            await self.granted
        except BaseException:
            self.cancel()
            raise
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.complete(failed=kind is not None)

    def complete(self, failed: bool = False) -> bool:
        """Give the slot back; return False if the monotask had ended already.

        Raises:
            ValueError: it was not granted yet.
        """
        return self._job.complete(self, failed)

    def cancel(self) -> bool:
        """Withdraw the monotask, queued or granted; return False if it had ended already."""
        ended = self._job.cancel(self)
        self.granted.cancel()  # no effect on one that was granted
        return ended

    def decided(self, error: Exception | None = None, *, gated: bool = True) -> bool:
        """Called by the job: see :meth:`SessionMonotask.decided`. This face has no patience, so all are ``gated``."""
        granted = self.granted
        if granted.cancelled():
            return False
        if error is None:
            granted.set_result(None)
        elif not granted.done():
            granted.set_exception(error)
            granted.exception()  # avoids asyncio's warning where no caller waits
        return True

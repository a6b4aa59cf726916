"""Storage of the state for the next master, outside the event loop: operators' requests about nodes, how jobs ended,
learnt sizes and lengths, and orders by hand. An unavailable store stops nothing: then the state is lost with the
process.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Mapping
from dataclasses import replace
from itertools import islice

import structlog

from master.core.events import StateRestored
from master.core.finished_jobs import MOST, FinishedJob
from master.core.instructions import Keep
from master.store.database import Database, StoreError
from master.store.remembered import RememberedStore

log = structlog.get_logger()

#: Changes within this time are stored together, such as the ends of a command and of its job, and their sizes.
_TOGETHER_S = 0.1
#: Seconds until a failed write is retried, even without new changes.
_RETRY_S = 10.0
#: Longest time an operator's call waits for a write (seconds).
_PATIENCE_S = 2.0


class StateWriter:
    """Stores the state: call :meth:`start`, then :meth:`keep` and :meth:`written`, then :meth:`close`."""

    def __init__(self, database: str) -> None:
        """``database`` as in :class:`~master.store.database.Database`."""
        self._url = database
        self._store: RememberedStore | None = None
        self._unwritten = Keep()
        self._due = asyncio.Event()
        self._stop = asyncio.Event()
        self._hurry = asyncio.Event()  # a call waits for the unwritten changes
        self._attempt: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> StateRestored:
        """Return the state stored by the previous master; empty where the store is unavailable."""
        try:
            database = await asyncio.to_thread(Database, self._url)
            store = RememberedStore(database)
            try:
                known = await asyncio.to_thread(store.all)
            except StoreError:
                store.close()
                raise
        except StoreError as error:
            log.error("drains and ended jobs are forgotten when the master is restarted", why=str(error))
            return StateRestored({}, [])
        self._store = store
        self._task = asyncio.create_task(self._run())
        if known.drains or known.jobs:
            log.info("remembered", drains=len(known.drains), ended_jobs=len(known.jobs))
        return known

    def keep(self, changed: Keep) -> None:
        """Queue changes to be stored soon."""
        if self._store is None:
            return
        kept = self._unwritten.then(changed)
        if len(kept.jobs) > 2 * MOST:  # the store has been unavailable for long
            kept = replace(kept, jobs=_without_first_removals(kept.jobs, len(kept.jobs) - 2 * MOST))
        self._unwritten = kept
        self._due.set()

    async def written(self) -> None:
        """Wait until queued changes are stored, or storing has failed or takes too long; the log has the errors."""
        if self._task is not None and self._unwritten:
            self._hurry.set()
            await asyncio.wait([self._attempt], timeout=_PATIENCE_S)

    async def close(self) -> None:
        """Store the remaining changes."""
        if self._task is None or self._store is None:
            return
        self._stop.set()
        self._due.set()
        self._hurry.set()
        await self._task
        await asyncio.to_thread(self._store.close)

    async def _run(self) -> None:
        assert self._store is not None
        while not self._stop.is_set():
            await self._due.wait()
            await _wait(self._hurry, _TOGETHER_S)
            self._due.clear()
            self._hurry.clear()
            if not await self._write(self._store):
                self._due.set()
                await _wait(self._stop, _RETRY_S)
        await self._write(self._store)

    async def _write(self, store: RememberedStore) -> bool:
        """Store all queued changes; return whether that succeeded."""
        if not self._unwritten:
            return True
        writing, self._unwritten = self._unwritten, Keep()
        attempt = self._attempt
        self._attempt = asyncio.get_running_loop().create_future()
        try:
            await asyncio.to_thread(store.keep, writing)
        except StoreError as error:
            log.error("drains and ended jobs could not be written down", why=str(error))
            self._unwritten = writing.then(self._unwritten)
            return False
        finally:
            attempt.set_result(None)
        return True


def _without_first_removals(jobs: Mapping[str, FinishedJob | None], count: int) -> dict[str, FinishedJob | None]:
    """Leave out the first ``count`` removals, at most. The next master may read these jobs again; its own bounds
    decide which ones it removes.
    """
    removals = set(islice((job for job, past in jobs.items() if past is None), count))
    return {job: past for job, past in jobs.items() if job not in removals}


async def _wait(event: asyncio.Event, at_most_s: float) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(at_most_s):
            await event.wait()

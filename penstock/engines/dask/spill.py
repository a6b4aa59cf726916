"""Gated spilling: a worker's data is evicted to disk, and read back, under grants for the disk.

Dask's buffer evicts on the event loop in the middle of storing a result, where it cannot wait for a grant. Therefore
its limit (``n``, which may be changed at any time) is raised to infinity, and a task of the event loop evicts down to
the original limit, with a disk monotask for each batch. Meanwhile memory may exceed that limit. At its spill threshold
Dask's own monitor acts, which checks the process and not the buffer, and waits for a grant at most
``spill_patience_s``.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Self

from dask.typing import Key
from distributed.spill import SpillBuffer

from penstock.model.resources import ResourceKind

if TYPE_CHECKING:
    from distributed.worker import Worker

#: One grant evicts, or reads back, at most this many bytes plus one key, so that small requests do not wait longer.
BATCH_BYTES = 64 * 2**20

Held = Callable[[ResourceKind, int, str], AbstractAsyncContextManager[object]]


class Evictor:
    """Evicts and reads back one worker's buffer, in its event loop."""

    def __init__(self, data: SpillBuffer, held: Held) -> None:
        self._data = data
        self._held = held
        self._limit_bytes = data.n
        self._evicting: asyncio.Task[None] | None = None
        data.n = math.inf

    @classmethod
    def of(cls, worker: Worker, held: Held) -> Self | None:
        """Return an evictor; None if the worker does not spill by itself, or uses a buffer of the user's own."""
        data = worker.data
        return cls(data, held) if isinstance(data, SpillBuffer) and math.isfinite(data.n) else None

    def look(self) -> None:
        """Start evicting if the stored data exceeds the limit."""
        if self._excess_bytes() > 0 and self._evicting is None:
            self._evicting = asyncio.create_task(self._evict(), name="penstock-evict")
            self._evicting.add_done_callback(self._evicted)

    async def read_back(self, sizes: Iterable[tuple[Key, int]]) -> None:
        """Read a task's inputs back into memory, as accessing them would; ``sizes`` are (key, bytes in memory)."""
        disk = self._data.disk
        if not disk:
            return
        wanted = [(key, size_bytes) for key, size_bytes in sizes if key in disk]
        for key, size_bytes in wanted:
            async with self._held(ResourceKind.DISK, size_bytes, "unspill"):
                if key in disk:
                    self._data[key]
        if wanted:
            self.look()

    def remove(self) -> None:
        """Stop, and let Dask's buffer evict by itself again."""
        if self._evicting is not None:
            self._evicting.cancel()
        self._data.n = self._limit_bytes

    def _excess_bytes(self) -> float:
        return self._data.fast.total_weight - self._limit_bytes

    async def _evict(self) -> None:
        while (excess_bytes := self._excess_bytes()) > 0 and self._data.fast:
            batch_bytes = min(excess_bytes, BATCH_BYTES)
            async with self._held(ResourceKind.DISK, int(batch_bytes), "spill"):
                while batch_bytes > 0 and self._data.fast:
                    weight_bytes = self._data.evict()
                    if weight_bytes < 0:
                        return  # Dask has logged the cause: the disk is full, or a value cannot be pickled
                    batch_bytes -= weight_bytes
                    await asyncio.sleep(0)  # each write blocks the loop, as Dask's do; other work runs between them

    def _evicted(self, task: asyncio.Task[None]) -> None:
        self._evicting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "penstock: evicting to disk failed", "exception": error}
            )

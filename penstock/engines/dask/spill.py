"""Spilling in turn: a worker's data goes to disk, and comes back from it, when the disk is granted.

Dask's buffer evicts in the middle of storing a result, on the event loop, where nobody can wait. Here it is told to
keep everything (its ``n`` may be changed at any time), and a task of the event loop evicts down to the limit it had,
with a disk monotask for it. Meanwhile memory may exceed that limit; at its spill threshold Dask's own monitor comes in,
which looks at the process and not at the buffer, and waits for a grant no longer than ``spill_patience_s``.
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

#: One grant evicts, or reads back, at most so much and one key more: what is small waits no longer than that (bytes).
BATCH_BYTES = 64 * 2**20

Held = Callable[[ResourceKind, int, str], AbstractAsyncContextManager[object]]


class Evictor:
    """For one worker's buffer, in its event loop."""

    def __init__(self, data: SpillBuffer, held: Held) -> None:
        self._data = data
        self._held = held
        self._limit_bytes = data.n
        self._evicting: asyncio.Task[None] | None = None
        data.n = math.inf

    @classmethod
    def of(cls, worker: Worker, held: Held) -> Self | None:
        """None where the worker does not spill by itself, or into a buffer of the user's own."""
        data = worker.data
        return cls(data, held) if isinstance(data, SpillBuffer) and math.isfinite(data.n) else None

    def look(self) -> None:
        """Something was stored: evict if that is too much."""
        if self._excess_bytes() > 0 and self._evicting is None:
            self._evicting = asyncio.create_task(self._evict(), name="penstock-evict")
            self._evicting.add_done_callback(self._evicted)

    async def read_back(self, sizes: Iterable[tuple[Key, int]]) -> None:
        """Bring what a task needs back into memory, as reading it would; (key, bytes in memory) of each."""
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
        """Dask's buffer evicts by itself again."""
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
                        return  # Dask has logged why: disk full, or a value that cannot be pickled
                    batch_bytes -= weight_bytes
                    await asyncio.sleep(0)  # each write holds the loop, as Dask's do; between two it goes on

    def _evicted(self, task: asyncio.Task[None]) -> None:
        self._evicting = None
        if not task.cancelled() and (error := task.exception()) is not None:
            asyncio.get_running_loop().call_exception_handler(
                {"message": "penstock: evicting to disk failed", "exception": error}
            )

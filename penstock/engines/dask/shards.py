"""The reading of a P2P shuffle's shards from its files: a disk monotask within the task that wants them.

The task has its thread and its CPU slot meanwhile, as whoever has a thread must not wait for another CPU slot (see
``pool``). So the wait for the disk has an end: whoever holds the disk may in turn wait for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from penstock.engines.dask import hooks
from penstock.engines.dask.pool import GateLike, SlotLike, refused
from penstock.model.resources import ResourceKind
from penstock.wire.errors import RpcError

_LOG = logging.getLogger(__name__)


class ShardReads:
    """For one worker."""

    def __init__(self, gate: GateLike, patience_s: float) -> None:
        self._gate = gate
        self._patience_s = patience_s
        self._restore: Callable[[], None] | None = None

    def install(self) -> None:
        """From now on."""
        self._restore = hooks.attempt(
            "P2P disk reads",
            lambda: hooks.wrap_p2p_read("distributed.shuffle._disk", "DiskShardsBuffer", self.held),
        )

    def remove(self) -> None:
        """What is read from now on is not gated by this worker."""
        if self._restore is not None:
            self._restore()
            self._restore = None

    @contextmanager
    def held(self, input_bytes: int) -> Iterator[None]:
        """The disk, in the calling thread, but for a loop's, which must not wait."""
        slot = None if _in_loop() else self._wait(input_bytes)
        try:
            yield
        finally:
            if slot is not None:
                slot.release()

    def _wait(self, input_bytes: int) -> SlotLike | None:
        granted = threading.Event()
        try:
            slot = self._gate.submit(ResourceKind.DISK, input_bytes, lambda _: granted.set(), stage="p2p-read")
        except (RpcError, RuntimeError) as error:
            refused(error)
            return None
        if not granted.wait(self._patience_s):
            slot.cancel()
            _LOG.info("reading shards without a grant: the disk was busy for %g s", self._patience_s)
            return None
        if slot.error is not None:
            refused(slot.error)
            return None
        return slot


def _in_loop() -> bool:
    with contextlib.suppress(RuntimeError):
        asyncio.get_running_loop()
        return True
    return False

"""Gating of reads of a P2P shuffle's shards from its files: a disk monotask within the task that needs them.

The task keeps its thread and its CPU slot during the read, as a call with a thread must not wait for another CPU slot
(see ``pool``). The wait for the disk is therefore limited: the disk's holder may be waiting for a thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from penstock.client.gate import Slot
from penstock.engines.dask.pool import GateLike, refused
from penstock.model.resources import ResourceKind
from penstock.wire.errors import RpcError

_LOG = logging.getLogger(__name__)


class ShardReads:
    """The shard reads of one worker."""

    def __init__(self, gate: GateLike, patience_s: float) -> None:
        self._gate = gate
        self._patience_s = patience_s

    @contextmanager
    def held(self, input_bytes: int) -> Iterator[None]:
        """Hold the disk in the calling thread, unless it runs an event loop, which must not block."""
        slot = None if _in_loop() else self._wait(input_bytes)
        try:
            yield
        finally:
            if slot is not None:
                slot.release()

    def _wait(self, input_bytes: int) -> Slot | None:
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

"""Monotasks for threads, and for coroutines of any loop: wait for the grant, work, give the slot back; fails open."""

from __future__ import annotations

import asyncio
import os
import threading
import warnings
import weakref
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from penstock.client.gate_engine import Engine
from penstock.client.gate_link import Setup
from penstock.client.gate_slot import Slot
from penstock.model.resources import KINDS, ResourceKind
from penstock.wire.agent_api import StageProgress

__all__ = ["Gate", "Slot"]

_KINDS: dict[str, ResourceKind] = {kind.value: kind for kind in KINDS}
_LONGEST_NAME = 128
_MOST_BYTES = 2**63 - 1


class Gate:
    """One job with its host's agent, for every thread of this process.

    It *fails open*: an agent that is absent, goes away or stops to answer holds nobody up for longer than
    ``patience_s`` seconds, counted from when the outage began; then work goes on without grants (``Slot.gated`` is
    False), with one warning for each outage. Meanwhile the gate goes on trying to connect; when the agent is back, new
    work is gated again, and what still holds a grant from before is announced as running. An agent that answers but
    grants nothing is well: that wait has no limit.

    After ``os.fork`` the child's gate begins anew, with a connection and a job of its own; slots of the parent's mean
    nothing there. Every method may be called from any thread.
    """

    def __init__(
        self,
        name: str,
        *,
        socket: Path | None = None,
        job: str = "",
        priority: float = 0.0,
        memory_bytes: int = 0,
        patience_s: float = 1.0,
        warn: Callable[[str], object] | None = None,
        loop: asyncio.AbstractEventLoop | None = None,
        rank: bool = False,
        process: int = 0,
    ) -> None:
        """Never blocks, and needs no agent.

        ``job`` joins a job of the same user that is registered already; ``socket`` is the agent's
        (``paths.agent_socket()``); ``warn`` gets one line for each outage, in the gate's thread (``warnings.warn``).
        ``loop`` is an event loop that runs for as long as the gate is used: its thread then is the gate's, and whatever
        asks from there pays for no change of threads. Without it, the gate has a thread of its own.
        ``rank``: ``process`` (0: this one) and its descendants may be moved into a container of the job, to be ranked
        with it until it is over (docs/ranks.md). Where they cannot be, ``warn`` gets one line, and work goes on.

        Raises:
            ValueError: a negative patience or memory.
        """
        if patience_s < 0 or memory_bytes < 0:
            raise ValueError("patience_s and memory_bytes must not be negative")
        self.name = _name(name) or "python"
        lend = process if rank else None
        self._setup = Setup(self.name, socket, job, priority, memory_bytes, patience_s, warn or _warn_always, lend)
        self._loop = loop
        self._lock = threading.Lock()
        self._engine: Engine | None = None
        self._ending: weakref.finalize[[], Gate] | None = None
        self._closed = False
        _GATES.add(self)
        self._running()

    @property
    def job(self) -> str:
        """The job's id at the agent; empty while not connected."""
        return self._running().job

    @property
    def joined(self) -> bool:
        """Whether it joins a job that somebody else registered."""
        return bool(self._setup.job)

    @property
    def connected(self) -> bool:
        """Whether the agent is there and answers."""
        return self._running().connected.is_set()

    @property
    def refused(self) -> bool:
        """Whether the agent refused the job when it was last asked: it is over, or another user's."""
        return self._running().link.refused

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait for the agent; whether it is there."""
        return self._running().connected.wait(timeout_s)

    def acquire(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "", task: str = "") -> Slot:
        """Queue a monotask and block until it is granted, or until patience with an absent agent is over.

        ``stage`` and ``task`` are as in ``penstock.model.MonotaskSpec``, cut to 128 characters.

        Raises:
            ValueError: not a kind of resource, or a negative size.
            RpcError: the agent refuses it.
            RuntimeError: the gate was closed, or this is called where the gate lives.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        slot.wait()
        if slot.error is not None:
            raise slot.error
        return slot

    async def acquire_async(
        self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "", task: str = ""
    ) -> Slot:
        """As :meth:`acquire`, in any event loop; a cancelled wait gives the monotask back.

        Raises:
            ValueError: not a kind of resource, or a negative size.
            RpcError: the agent refuses it.
            RuntimeError: the gate was closed.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        if slot.passes():
            return slot
        loop = asyncio.get_running_loop()
        decided: asyncio.Future[None] = loop.create_future()
        try:
            slot.ask(partial(_wake, loop, decided))
            await decided
        except BaseException:
            slot.cancel()
            raise
        if slot.error is not None:
            raise slot.error
        return slot

    def submit(
        self,
        kind: ResourceKind | str,
        input_bytes: int,
        granted: Callable[[Slot], object],
        *,
        stage: str = "",
        task: str = "",
    ) -> Slot:
        """Queue a monotask and return at once.

        ``granted`` is called exactly once unless the slot is cancelled first: before this returns, where a slot is kept
        here under a lease, else from the gate's thread, which it must not block. A slot whose ``error`` is set then was
        refused, and holds nothing.

        Raises:
            ValueError: not a kind of resource, or a negative size.
            RuntimeError: the gate was closed.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        if slot.takes():
            granted(slot)
        else:
            slot.ask(granted)
        return slot

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """Say how far the job is, by stages in their order; see :meth:`penstock.client.Job.progress`. Never blocks."""
        engine = self._running()
        engine.post(engine.progress, list(stages))

    def counts(self) -> dict[str, int]:
        """Monotasks so far: granted, ungated, released, cancelled, refused; waiting and held now; outages.

        ``outages`` counts those in which work went on without grants.
        """
        return self._running().counts()

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait until the connection is closed after :meth:`close`; whether it is. Not where the gate lives."""
        return self._engine is None or self._engine.finished.wait(timeout_s)

    def close(self, *, done: bool | None = None, merged_into: str = "") -> None:
        """Give everything back and end the thread. Who waits, and who asks later, gets ``RuntimeError``.

        ``done``: the job is done, unless other connections take part in it; None: so it is if the gate registered it.
        ``merged_into``: the job in which its work goes on; then the master does not list this one.
        """
        with self._lock:
            self._closed = True
            engine = self._engine
        if self._ending is not None:
            self._ending.detach()
        if engine is not None:
            over = not self.joined if done is None else done
            engine.stop(merged_into if over else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forked(self) -> None:
        """Called in a child after a fork: what the parent has is the parent's."""
        self._lock = threading.Lock()
        engine = self._engine
        self._loop = None  # it does not run here
        if not self._closed:
            self._engine = None
        if self._ending is not None:
            self._ending.detach()
        if engine is not None:
            engine.abandon()
            _ABANDONED.append(engine)

    def _running(self) -> Engine:
        engine = self._engine
        if engine is None:
            with self._lock:
                engine = self._engine
                if engine is None:
                    engine = self._engine = Engine(self._setup, self._loop)
                    self._ending = weakref.finalize(self, engine.leave)
        return engine

    def _slot(self, kind: ResourceKind | str, input_bytes: int, stage: str, task: str) -> Slot:
        known = _KINDS.get(kind)
        if known is None:
            raise ValueError(f"{kind!r} is not a kind of resource; one of {', '.join(_KINDS)}")
        if input_bytes < 0:
            raise ValueError(f"input_bytes must not be negative: {input_bytes}")
        if self._closed:
            raise RuntimeError(f"the gate {self.name!r} is closed")
        return Slot(self._running(), self, known, min(int(input_bytes), _MOST_BYTES), _name(stage), _name(task))


#: One is told of a fork as long as it lives.
_GATES: weakref.WeakSet[Gate] = weakref.WeakSet()
#: In a forked child: loops of the parent, which must not be cleaned up as if they were ours.
_ABANDONED: list[Engine] = []


def _forked() -> None:
    for gate in list(_GATES):
        gate.forked()


os.register_at_fork(after_in_child=_forked)


def _name(text: str) -> str:
    """As the protocol takes it."""
    if not text:
        return text
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()
    return text[:_LONGEST_NAME]


def _wake(loop: asyncio.AbstractEventLoop, decided: asyncio.Future[None], slot: Slot) -> None:
    """From the gate's thread."""
    try:
        loop.call_soon_threadsafe(_decide, decided)
    except RuntimeError:  # that loop is closed, and nobody waits
        slot.cancel()


def _decide(decided: asyncio.Future[None]) -> None:
    if not decided.done():
        decided.set_result(None)


def _warn_always(text: str) -> None:
    """A ``RuntimeWarning`` for each outage: Python's registry would show the same text only once."""
    warnings.warn_explicit(text, RuntimeWarning, __file__, 0, module=__name__, registry={})

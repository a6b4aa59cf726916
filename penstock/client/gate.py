"""Gate: monotasks for threads and for coroutines of any loop; it fails open when the agent is away."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from penstock.client import arguments
from penstock.client.gate_engine import Engine
from penstock.client.gate_link import GateArguments, warn_always
from penstock.client.gate_slot import KeptSlot
from penstock.client.monotask_session import SessionMonotask
from penstock.model.resources import KINDS, ResourceKind, kind_of
from penstock.model.units import LIMIT
from penstock.wire.agent_api import StageProgress

_LOG = logging.getLogger("penstock.gate")
#: How often a waiting main thread checks for signals (seconds).
_LOOK_S = 0.5
_KINDS: dict[str, ResourceKind] = {kind.value: kind for kind in KINDS}


class Slot(SessionMonotask):
    """A monotask of a :class:`Gate`. Used as a context manager, it is released at the end of the body.

    The session's fields belong to the gate's thread; the others are set before the wait ends, or by the slot's user.
    """

    __slots__ = ("_ended", "_engine", "_gate", "_wake", "error", "gated", "kept", "known")

    def __init__(self, engine: Engine, gate: Gate, kind: ResourceKind, input_bytes: int, stage: str, task: str) -> None:
        super().__init__(kind, input_bytes, stage, task)
        #: False: not granted; the work goes on without a grant as the agent is away, or still waits.
        self.gated = False
        #: Why it will never be granted: ``RpcError`` (refused) or ``RuntimeError`` (the gate was closed).
        self.error: Exception | None = None
        self.known = False  # the session may have a record of it
        self.kept: KeptSlot | None = None  # the slot under a lease that it uses
        self._engine = engine
        self._gate = gate  # keeps the gate alive, which is closed when it is collected
        self._wake: Callable[[], object] | None = None
        self._ended = False

    def release(self, *, failed: bool = False) -> None:
        """Give the slot back at the end of the work. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            if self.kept is not None:
                self._give(self.kept, failed)
            elif self.known:
                self._engine.post(self._engine.end, self, failed)
            else:
                self._engine.idle.count("released")

    def cancel(self) -> None:
        """Withdraw the monotask, queued or granted. Thread-safe; never blocks; idempotent."""
        if not self._ended:
            self._ended = True
            if self.kept is not None and self.kept.holder is not self:
                self._give(self.kept, None)
            elif self.known:
                self._engine.post(self._engine.withdraw, self)

    @contextlib.contextmanager
    def released(self) -> Iterator[None]:
        """Give the slot back during the body, which waits for other gated work; then acquire one again.

        The agent sees one monotask, which counts at its end. The second wait blocks as ``acquire`` does; if no slot can
        be had (the gate was closed, the agent refuses) the work goes on ungated.
        """
        self.cancel()
        try:
            yield
        finally:
            self._ended, self.kept = False, None
            self.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release(failed=kind is not None)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self.release(failed=kind is not None)

    # ------------------------------------------------------------ for the gate

    def ask(self, wake: Callable[[], object]) -> None:
        """Queue the monotask; ``wake`` is called once, in the gate's thread, when the wait is over."""
        self._wake = wake
        self.known = True
        self._engine.post(self._engine.ask, self)

    def passes(self, *, ungated: bool = True) -> bool:
        """Return whether the work may start now: in an idle slot of the gate, or (``ungated``) as the agent is away."""
        engine = self._engine
        self.gated = False
        if ungated and engine.open:
            self.known = False
            engine.idle.count("ungated")
            return True
        if not self.task and engine.idle.of[self.kind]:  # the agent must see all monotasks of a task: it counts them
            self.kept = engine.idle.take(self, time.monotonic())
            self.gated = self.kept is not None
        return self.gated

    def wait(self) -> None:
        """Queue the monotask and block until it is granted, ungated or refused; an interrupted wait withdraws it."""
        if self.passes():
            return
        if self._engine.in_thread:
            raise RuntimeError("this would block the gate's own event loop for ever; await acquire_async() there")
        done = threading.Lock()
        done.acquire()
        try:
            self.ask(done.release)
            # A signal just before the thread sleeps does not wake it, and only the main thread handles signals.
            timeout_s = _LOOK_S if threading.current_thread() is threading.main_thread() else -1
            while not done.acquire(timeout=timeout_s):
                pass
        except BaseException:
            self.cancel()
            raise

    def decided(self, error: Exception | None = None, *, gated: bool = True) -> bool:
        """Called in the gate's thread: end the wait, by a grant, by an error, or (not ``gated``) without a grant."""
        self.gated = self.known = gated and error is None
        self.error = error
        if gated:
            self._engine.totals["granted" if error is None else "refused"] += 1
        if self.gated and self.keep and not self.task:
            self.kept = self._engine.keep(self)
        wake, self._wake = self._wake, None
        if wake is not None:
            try:
                wake()
            except Exception:  # noqa: BLE001 - the callback is the user's code
                _LOG.exception("a callback of a gate failed")
        return True

    def _give(self, kept: KeptSlot, failed: bool | None) -> None:
        """End this monotask's use of a kept slot; the agent is told when the lease ends."""
        if not self._engine.idle.give(kept, self, time.monotonic(), failed):
            self._engine.post(self._engine.give_back, kept)


class Gate:
    """One job at the host's agent, shared by all threads of this process.

    A gate *fails open*: when the agent is absent, lost or silent, work waits at most ``patience_s`` seconds, counted
    from the start of the outage, and then continues without grants (``Slot.gated`` is False), with one warning per
    outage. The gate keeps trying to connect; when the agent is back, new work is gated again, and slots granted before
    the outage are announced as running. A wait for a grant from an agent that answers has no limit.

    After ``os.fork`` the child's gate starts afresh, with its own connection and job; the parent's slots have no
    meaning there. All methods are thread-safe.
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
        """Create the gate; this never blocks, and needs no agent.

        ``job`` joins an existing job of the same user. ``socket`` is the agent's (default ``paths.agent_socket()``).
        ``warn`` is called with one line per outage, in the gate's thread (default ``warnings.warn``). ``loop`` is an
        event loop that runs as long as the gate is used: the gate then lives in that loop's thread, and requests from
        there need no thread switch. Without it the gate starts a thread of its own. ``rank`` allows the agent to move
        ``process`` (0: this one) and its descendants into a container of the job, ranked with the job until it ends
        (docs/ranks.md); where that fails, ``warn`` is called once and work continues.

        Raises:
            TypeError, ValueError: a name or number is of another type, or out of bounds; the line names it.
        """
        self.name = arguments.name("name", name) or "python"
        self._arguments = GateArguments(
            self.name, socket, job, arguments.priority(priority), arguments.size_bytes("memory_bytes", memory_bytes),
            arguments.duration_s("patience_s", patience_s), warn or warn_always, rank,
            arguments.whole("process", process, 0, "write its id, or 0 for this one"),
        )  # fmt: skip
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
    def connected(self) -> bool:
        """Whether the agent is connected and answers."""
        return self._running().connected.is_set()

    @property
    def refused(self) -> bool:
        """Whether the agent refused the job at the last attempt: the job is over, or another user's."""
        return self._running().link.refused

    def wait_connected(self, timeout_s: float) -> bool:
        """Wait up to ``timeout_s`` for the agent, or until it refuses ``job``; return whether it is connected."""
        return self._running().wait_connected(arguments.timeout_s(timeout_s))

    def acquire(self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "", task: str = "") -> Slot:
        """Queue a monotask and block until it is granted, or until the patience with an absent agent runs out.

        ``stage`` and ``task`` are as in ``penstock.model.MonotaskSpec``, cut to 128 characters.

        Raises:
            ValueError: unknown kind of resource, or a size below 0 or from 2⁶³ on; TypeError: the size is no number.
            RpcError: the agent refused the monotask.
            RuntimeError: the gate is closed, or the caller is the gate's own thread.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        slot.wait()
        if slot.error is not None:
            raise slot.error
        return slot

    async def acquire_async(
        self, kind: ResourceKind | str, input_bytes: int, *, stage: str = "", task: str = ""
    ) -> Slot:
        """As :meth:`acquire`, in any event loop; cancelling the wait withdraws the monotask.

        Raises:
            ValueError: unknown kind of resource, or a size below 0 or from 2⁶³ on; TypeError: the size is no number.
            RpcError: the agent refused the monotask.
            RuntimeError: the gate is closed.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        if slot.passes():
            return slot
        decided = asyncio.Event()
        try:
            slot.ask(partial(_wake, asyncio.get_running_loop(), decided, slot))
            await decided.wait()
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

        ``granted`` is called exactly once unless the slot is cancelled first: before this method returns if the gate
        has an idle slot under a lease, otherwise in the gate's thread, which it must not block. A slot whose ``error``
        is set was refused.

        Raises:
            ValueError: unknown kind of resource, or a size below 0 or from 2⁶³ on; TypeError: the size is no number.
            RuntimeError: the gate is closed.
        """
        slot = self._slot(kind, input_bytes, stage, task)
        if slot.passes(ungated=False):
            granted(slot)
        else:
            slot.ask(partial(granted, slot))
        return slot

    def lend(self) -> None:
        """Allow from now on what ``rank`` allows from the start: to rank ``process``, with the present job."""
        engine = self._running()
        engine.post(engine.link.lend)

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """Report the job's progress, stage by stage; see :meth:`penstock.client.Job.progress`. Never blocks."""
        engine = self._running()
        engine.post(engine.progress, list(stages))

    def counts(self) -> dict[str, int]:
        """Return how many monotasks were granted, ungated, released, cancelled and refused, and are waiting and held.

        ``outages`` counts the outages in which work continued without grants.
        """
        return self._running().counts()

    def wait_closed(self, timeout_s: float) -> bool:
        """Wait for the connection's end after :meth:`close`; return whether it ended. Not from the gate's thread."""
        return self._engine is None or self._engine.finished.wait(arguments.timeout_s(timeout_s))

    def close(self, *, done: bool | None = None, merged_into: str = "") -> None:
        """Give all slots back and end the thread. Pending and later requests fail with ``RuntimeError``.

        ``done`` ends the job unless other connections take part in it; the default ends it if this gate registered it.
        ``merged_into`` is the job that continues this job's work; the master then does not list this one.
        """
        with self._lock:
            self._closed = True
            engine = self._engine
        if self._ending is not None:
            self._ending.detach()
        if engine is not None:
            over = not self._arguments.job if done is None else done
            engine.stop(merged_into if over else None)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def forked(self) -> None:
        """Called in a child after a fork: drop the parent's connection and slots."""
        self._lock = threading.Lock()
        engine = self._engine
        self._loop = None  # it does not run in the child
        if not self._closed:
            self._engine = None
        if self._ending is not None:
            self._ending.detach()
        if engine is not None:
            engine.abandon()
            _ABANDONED.append(engine)

    def _running(self) -> Engine:
        with self._lock:
            if self._engine is None:
                self._engine = Engine(self._arguments, self._loop)
                self._ending = weakref.finalize(self, self._engine.leave)
            return self._engine

    def _slot(self, kind: ResourceKind | str, input_bytes: int, stage: str, task: str) -> Slot:
        known = _KINDS.get(kind) or kind_of(kind)
        if type(input_bytes) is not int or not 0 <= input_bytes < LIMIT:
            input_bytes = arguments.size_bytes("input_bytes", input_bytes)
        if self._closed:
            raise RuntimeError(f"the gate {self.name!r} is closed")
        engine = self._engine or self._running()
        if stage != "":
            stage = arguments.name("stage", stage)
        if task != "":
            task = arguments.name("task", task)
        return Slot(engine, self, known, input_bytes, stage, task)


#: All live gates, to be notified of a fork.
_GATES: weakref.WeakSet[Gate] = weakref.WeakSet()
#: In a forked child: the parent's engines, referenced so that their loops are not finalized here.
_ABANDONED: list[Engine] = []


def _forked() -> None:
    for gate in list(_GATES):
        gate.forked()


os.register_at_fork(after_in_child=_forked)


def _wake(loop: asyncio.AbstractEventLoop, decided: asyncio.Event, slot: Slot) -> None:
    """Wake the coroutine, from the gate's thread."""
    try:
        loop.call_soon_threadsafe(decided.set)
    except RuntimeError:  # that loop is closed, and with it the waiting coroutine
        slot.cancel()

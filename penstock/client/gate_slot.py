"""The slots of a gate: in use by a thread or coroutine, and idle under leases.

The agent's grant states the lease's duration, and that no other work waits (``keep``). Until its end a released slot
stays idle here for the next monotask of its kind, in any thread, without asking the agent. The agent is told of all
these monotasks at once, when the lease ends or when it recalls the slot because other work waits.
"""

from __future__ import annotations

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Protocol, Self

from penstock.client.monotask_session import SessionMonotask
from penstock.model.resources import KINDS, ResourceKind
from penstock.wire.agent_api import Leased

_LOG = logging.getLogger("penstock.gate")
#: How often a waiting main thread checks for signals (seconds).
_LOOK_S = 0.5
#: Larger monotasks ask for a slot of their own: the agent relies on knowing the amount of work in progress.
LARGEST_BYTES = 1 << 20


class KeptSlot:
    """A slot that the agent granted to ``holder`` under a lease, and the monotasks that ran in it."""

    __slots__ = ("_began", "_failed", "_first", "_used_bytes", "_used_s", "holder", "monotasks")

    def __init__(self, holder: SessionMonotask) -> None:
        self.holder = holder
        self.monotasks = 0  # monotasks that the agent does not know
        self._began = holder.began
        self._first: tuple[bool, float] | None = None
        self._failed = 0
        self._used_bytes = 0
        self._used_s = 0.0

    def lasts(self, now: float) -> bool:
        """Whether the lease is neither over nor recalled. The session ends it, in the gate's thread."""
        return self.holder.keep and now < self.holder.lease_until

    def begin(self, now: float) -> None:
        """Start another monotask in the slot."""
        self._began = now

    def ended(self, one: SessionMonotask, now: float, *, failed: bool) -> None:
        """Record the end of the running monotask."""
        took_s = max(0.0, now - self._began)
        if one is self.holder:
            self._first = failed, took_s
            return
        self.monotasks += 1
        if failed:
            self._failed += 1
        else:
            self._used_bytes += one.input_bytes
            self._used_s += took_s

    @property
    def first_failed(self) -> bool:
        """Whether the monotask that the agent knows failed."""
        return self._first is not None and self._first[0]

    @property
    def first_s(self) -> float | None:
        """The run time of the monotask that the agent knows, in seconds; None while it runs."""
        return None if self._first is None else self._first[1]

    def leased(self, now: float) -> Leased | None:
        """Return the report about the monotasks that the agent does not know; None without any."""
        if not self.monotasks:
            return None
        return Leased(
            monotasks=self.monotasks,
            failed=self._failed,
            input_bytes=self._used_bytes,
            execution_s=self._used_s,
            began_s=max(0.0, now - self._began),
        )


class IdleSlots:
    """The idle slots of one gate, and the numbers of monotasks that bypassed its loop. Thread-safe.

    ``waiting`` are the session's numbers of waiting monotasks: while one waits, no slot of its kind is kept.
    """

    def __init__(self, waiting: Mapping[ResourceKind, int]) -> None:
        self._waiting = waiting
        self._lock = threading.Lock()
        #: The idle slots of each kind. Without the lock, only their presence may be checked.
        self.of: dict[ResourceKind, list[KeptSlot]] = {kind: [] for kind in KINDS}
        self._outlived: set[KeptSlot] = set()  # their first monotask ended, which the agent was not told
        self._taken = self._ended = 0
        self._ungated = {"ungated": 0, "released": 0}

    def take(self, one: SessionMonotask, now: float) -> KeptSlot | None:
        """Take an idle slot for a monotask that starts now; None: it must ask the agent."""
        with self._lock:
            idle = self.of[one.kind]
            if not idle or one.input_bytes > LARGEST_BYTES or not idle[-1].lasts(now):
                return None
            kept = idle.pop()
            kept.begin(now)
            self._taken += 1
            return kept

    def give(self, kept: KeptSlot, one: SessionMonotask, now: float, failed: bool | None) -> bool:
        """End the slot's monotask (``failed`` None: it never ran); False: the slot must be returned to the agent."""
        if failed is not None:
            kept.ended(one, now, failed=failed)
        with self._lock:
            if one is not kept.holder:
                self._ended += 1
            if self._waiting[one.kind] or not kept.lasts(now):
                return False
            self._outlived.add(kept)
            self.of[one.kind].append(kept)
            return True

    def reclaim(self, kinds: Iterable[ResourceKind] = KINDS) -> list[KeptSlot]:
        """Take all idle slots of these kinds, to be returned to the agent."""
        with self._lock:
            back: list[KeptSlot] = []
            for kind in kinds:
                back += self.of[kind]
                self.of[kind] = []
            return back

    def expired(self, now: float) -> list[KeptSlot]:
        """Take the idle slots whose leases are over, to be returned to the agent."""
        with self._lock:
            back: list[KeptSlot] = []
            for kind, idle in self.of.items():
                back += [kept for kept in idle if not kept.lasts(now)]
                self.of[kind] = [kept for kept in idle if kept.lasts(now)]
            return back

    def returned(self, kept: KeptSlot) -> None:
        """Record that the slot was returned to the agent."""
        with self._lock:
            self._outlived.discard(kept)

    def count(self, what: str) -> None:
        """Count a monotask that went on (``ungated``) or ended (``released``) without a grant."""
        with self._lock:
            self._ungated[what] += 1

    def counts(self) -> dict[str, int]:
        """Return the corrections to the counts of monotasks that the session knows."""
        with self._lock:
            ended = self._ended + len(self._outlived)
            return {
                "granted": self._taken,
                "ungated": self._ungated["ungated"],
                "released": self._ungated["released"] + ended,
                "held": self._taken - ended,
                "leased": self._taken,
            }


class SlotEngine(Protocol):
    """Decides about slots in the gate's loop. The last four methods are events, which slots only post."""

    open: bool
    idle: IdleSlots
    totals: dict[str, int]

    @property
    def in_thread(self) -> bool:
        """Whether the caller runs in the gate's thread."""
        ...

    def post(self, event: Callable[..., None], *arguments: Any) -> None:
        """Queue an event for the loop."""
        ...

    def keep(self, slot: Slot) -> KeptSlot:
        """Keep a granted slot until its lease ends; for the loop's thread."""
        ...

    def ask(self, slot: Slot) -> None:
        """Handle a request for a slot."""
        ...

    def end(self, slot: Slot, failed: bool) -> None:
        """Handle the end of a slot's work."""
        ...

    def withdraw(self, slot: Slot) -> None:
        """Withdraw a slot that is no longer wanted."""
        ...

    def give_back(self, kept: KeptSlot) -> None:
        """Return a slot whose lease and last monotask are over."""
        ...


class Slot(SessionMonotask):
    """See :class:`penstock.client.gate.Gate`. Used as a context manager, it is released at the end of the body.

    The session's fields belong to the gate's thread; the others are set before the wait ends, or by the slot's user.
    """

    __slots__ = ("_ended", "_engine", "_gate", "_wake", "error", "gated", "kept", "known")

    def __init__(
        self, engine: SlotEngine, gate: object, kind: ResourceKind, input_bytes: int, stage: str = "", task: str = ""
    ) -> None:
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

    # ------------------------------------------------------------ inside

    def _give(self, kept: KeptSlot, failed: bool | None) -> None:
        """End this monotask's use of a kept slot; the agent is told when the lease ends."""
        if not self._engine.idle.give(kept, self, time.monotonic(), failed):
            self._engine.post(self._engine.give_back, kept)

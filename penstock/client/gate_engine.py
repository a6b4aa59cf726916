"""The thread behind a gate: an event loop that owns the gate's session and keeps its connection.

Other threads put events into an inbox and wake the loop once for all events that arrive until it runs. The gate may
share a loop that runs already.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from penstock.client.gate_link import GateArguments, GateLink
from penstock.client.gate_slot import IdleSlots, KeptSlot
from penstock.client.greeting import unavailable
from penstock.client.job import Job
from penstock.client.monotask_session import MonotaskSession, SessionMonotask
from penstock.model.resources import ResourceKind
from penstock.wire.agent_api import Leased, StageProgress
from penstock.wire.errors import RpcError

_LOG = logging.getLogger("penstock.gate")
#: After the patience plus this time without an answer, the agent counts as gone (seconds).
_ANSWER_S = 2.0
#: How often the agent's liveness is checked while monotasks wait (seconds).
_ASK_EVERY_S = 2.0
_JOIN_S = 3.0
_BARRIER_S = 5.0


class Engine:
    """One thread, one loop, one connection. Unless marked "for any thread", members belong to the loop's thread."""

    def __init__(self, arguments: GateArguments, loop: asyncio.AbstractEventLoop | None = None) -> None:
        """``loop`` is a loop that runs already; without it the engine starts a thread with its own loop."""
        self._arguments = arguments
        self._inbox: deque[tuple[Callable[..., None], tuple[Any, ...]]] = deque()
        self._woken = False
        self._session = MonotaskSession[SessionMonotask](arguments.patience_s, time.monotonic())
        self._job: Job | None = None
        self._unflushed = False  # the session has messages to send
        self._timer: asyncio.TimerHandle | None = None
        self._expiry: asyncio.TimerHandle | None = None
        self._expires_at = 0.0
        self._asking: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._reason = ""
        self._end: Exception | None = RuntimeError(f"the gate {arguments.name!r} is closed")
        self._pid = os.getpid()
        #: For any thread: the agent is away and patience is over, so that requests continue ungated at once.
        self.open = False
        #: For any thread: the engine has stopped.
        self.over = False
        self.connected, self.finished = threading.Event(), threading.Event()
        self._answered = threading.Event()  # connected, or the job that this gate joins was refused at the last attempt
        #: For any thread: slots that are idle under leases.
        self.idle = IdleSlots(self._session.waiting)
        #: Numbers of monotasks that the session has known.
        self.totals = dict.fromkeys(("granted", "ungated", "released", "cancelled", "refused"), 0)
        self.loop = loop or _new_loop()
        self._stop = asyncio.Event()
        self.link = GateLink(arguments, self, self._session)
        self._thread: threading.Thread | None = None
        self._living: asyncio.Task[None] | None = None
        if loop is None:
            self._thread = threading.Thread(target=self._run, name="penstock-gate", daemon=True)
            self._thread.start()
        else:
            self.post(self._settle)

    # ------------------------------------------------------------ for any thread

    @property
    def job(self) -> str:
        """The job's id; empty while not connected."""
        job = self._job
        return job.id if job is not None and self.connected.is_set() else ""

    @property
    def in_thread(self) -> bool:
        """Whether the caller runs in the gate's thread."""
        if self._thread is not None:
            return threading.get_ident() == self._thread.ident
        with contextlib.suppress(RuntimeError):  # no loop runs in this thread
            return asyncio.get_running_loop() is self.loop
        return False

    def post(self, event: Callable[..., None], *arguments: Any) -> None:
        """Queue an event for the loop; in a shared loop's own thread, handle it immediately."""
        if self._thread is None and not self._inbox and not self.over and self.in_thread:
            event(*arguments)
            self._arm()
            if self._unflushed and self._job is not None:
                self._unflushed = False
                self._job.flush_soon()
            return
        self._inbox.append((event, arguments))
        if self.over:
            self._turn_away()
        elif not self._woken:
            self._woken = True
            try:
                self.loop.call_soon_threadsafe(self._drain)
            except RuntimeError:  # the loop was closed concurrently
                self._turn_away()

    def wait_connected(self, timeout_s: float) -> bool:
        """See :meth:`penstock.client.gate.Gate.wait_connected`."""
        return self._answered.wait(timeout_s) and self.connected.is_set()

    def counts(self) -> dict[str, int]:
        """Return totals that include all events posted before this call."""
        if not self.in_thread and not self.over:
            settled = threading.Event()
            self.post(settled.set)
            settled.wait(_BARRIER_S)
        session = self._session
        now = {"waiting": sum(session.waiting.values()), "held": session.granted, "outages": session.outages}
        totals = self.totals | now | {"leased": 0}
        for what, number in self.idle.counts().items():
            totals[what] += number
        return totals

    def stop(self, left: str | None = None) -> None:
        """Close the connection and end the thread; waiters get ``RuntimeError``. ``left``: see the link."""
        if self._pid != os.getpid() or self.over:
            return
        self.link.left = left
        with contextlib.suppress(RuntimeError):  # the loop was closed concurrently
            self.loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None and not self.in_thread:
            self._thread.join(_JOIN_S)

    def leave(self) -> None:
        """As :meth:`stop`, at the interpreter's exit: waiters continue ungated, so that they end, too."""
        self._end = None
        self.stop(None if self._arguments.job else "")

    def abandon(self) -> None:
        """In a child after a fork: detach from everything that belongs to the parent."""
        self.over = True
        self.idle = IdleSlots(self._session.waiting)  # another thread of the parent may have held its lock
        self._inbox.clear()
        self.link.disown()

    # ------------------------------------------------------------ events

    def ask(self, slot: SessionMonotask) -> None:
        """Handle a request for a slot."""
        if self.idle.of[slot.kind]:
            self._recalled(slot.kind)  # this monotask could not use the idle slots, or would have taken one
        self._session.submit(slot)
        self._unflushed = True
        if not self._session.answers:
            self._give_up()

    def end(
        self, slot: SessionMonotask, failed: bool, execution_s: float | None = None, leased: Leased | None = None
    ) -> None:
        """Handle the end of a slot's work."""
        if slot.is_granted and self._job is not None:
            self.totals["released"] += 1
            self._job.complete(slot, failed, execution_s, leased)
        else:
            self.withdraw(slot)

    def give_back(self, kept: KeptSlot) -> None:
        """Return a slot whose lease and last monotask are over."""
        self.end(kept.holder, *kept.first, kept.leased(time.monotonic()))
        self.idle.returned(kept)

    def withdraw(self, slot: SessionMonotask) -> None:
        """Withdraw a slot that is no longer wanted."""
        if self._session.cancel(slot):
            self.totals["cancelled"] += 1
            self._unflushed = True

    def keep(self, slot: SessionMonotask) -> KeptSlot:
        """Keep a granted slot until its lease ends, for any thread of this process."""
        if self._expiry is None or slot.lease_until < self._expires_at:
            self._expire_at(slot.lease_until)
        return KeptSlot(slot)

    def progress(self, stages: list[StageProgress]) -> None:
        """Forward the job's progress."""
        if self._job is not None:
            self._job.progress(stages)

    def linked(self, job: Job) -> None:
        """Called by the link: the agent is connected and knows the job."""
        self._job = job
        job.on_recall = self._recalled
        self._back()

    def unlinked(self, reason: str) -> None:
        """Called by the link: the agent is away; ``reason`` is one line for the user."""
        self._reason = reason
        self.connected.clear()
        if self.link.refused and self._arguments.job:
            self._answered.set()
        else:
            self._answered.clear()
        self._session.lost(time.monotonic())
        self._return(self.idle.reclaim())
        self._arm()

    def forgotten(self, reason: str) -> None:
        """Called by the link: the agent no longer has any state of this job."""
        self.unlinked(reason)
        self._job = None
        self._session.job_over()

    def cancelled(self, error: Exception) -> None:
        """Called by the link: the job was cancelled; pending and later requests fail with ``error``."""
        self._end = error
        self._stop.set()

    def _recalled(self, kind: ResourceKind) -> None:
        self._return(self.idle.reclaim((kind,)))

    def _return(self, idle: Iterable[KeptSlot]) -> None:
        for kept in idle:
            self.give_back(kept)

    def _back(self) -> None:
        if self._session.open:
            _LOG.info("the agent is back: monotasks of %s are gated again", self._arguments.name)
        self.open = False
        self._session.back(time.monotonic())
        if self._job is not None:
            self._job.flush()
        self.connected.set()
        self._answered.set()
        self._arm()

    # ------------------------------------------------------------ inside

    def _drain(self) -> None:
        self._woken = False
        inbox = self._inbox
        for _ in range(len(inbox)):
            event, arguments = inbox.popleft()
            try:
                event(*arguments)
            except Exception:  # noqa: BLE001 - one failed event must not block the events behind it
                _LOG.exception("an event of a gate failed")
        if self._unflushed and self._job is not None:
            self._unflushed = False
            self._job.flush()
        self._arm()

    def _warn(self) -> None:
        self.open = True
        reason = self._reason or "the agent has not answered yet; see `penstock status`"
        text = f"{reason}: work of {self._arguments.name!r} goes on without grants until it is back"
        try:
            self._arguments.warn(text)
        except Exception:  # noqa: BLE001 - a warnings filter raised it, and no caller could catch it here
            _LOG.warning(text)

    def _arm(self) -> None:
        """Schedule the end of patience, and the liveness check while monotasks wait for the agent."""
        session = self._session
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if not session.answers:
            if (deadline := session.deadline) is not None:
                self._timer = self.loop.call_later(max(0.0, deadline - time.monotonic()), self._end_of_patience)
        elif self._asking is None and any(session.waiting.values()):
            self._asking = self.loop.call_later(_ASK_EVERY_S, self._check_liveness)

    def _end_of_patience(self) -> None:
        self._timer = None
        self._give_up()
        self._arm()

    def _give_up(self) -> None:
        """Let all waiting slots go on without grants if patience is over; warn once in an outage."""
        outages = self._session.outages
        slots = self._session.give_up(time.monotonic())
        if self._session.outages > outages:
            self._warn()
        for slot in slots:
            self.totals["ungated"] += 1
            slot.decided(gated=False)
        if slots and self._job is not None:
            self._job.flush()

    def _expire_at(self, at: float) -> None:
        """Return the idle slots whose leases are over at ``at``, and arrange the same for later ones."""
        if self._expiry is not None:
            self._expiry.cancel()
        self._expires_at = at
        self._expiry = self.loop.call_later(max(0.0, at - time.monotonic()), self._expire)

    def _expire(self) -> None:
        self._expiry, now = None, time.monotonic()
        self._return(self.idle.expired(now))
        if (at := self._session.next_expiry(now)) is not None:
            self._expire_at(at)

    def _check_liveness(self) -> None:
        self._asking = None
        if self._job is not None and self._session.answers and any(self._session.waiting.values()):
            self._asking = self.loop.create_task(self._wait_for_answer(self._job))

    async def _wait_for_answer(self, job: Job) -> None:
        """Treat an agent that does not answer as away, although connected; a late answer ends that outage."""
        began = time.monotonic()
        answer = asyncio.ensure_future(job.tasks_done([]))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the exception as retrieved
        try:
            await asyncio.wait([answer], timeout=self._arguments.patience_s + _ANSWER_S)
            if not answer.done() and self._session.answers:
                self._reason = str(unavailable(str(self.link.where), TimeoutError()))
                self.connected.clear()
                self._answered.clear()
                self._session.lost(began)
                self._give_up()
                self._arm()
                await asyncio.wait([answer])
                error = answer.exception()
                if job is self._job and self.link.up and (error is None or isinstance(error, RpcError)):
                    self._back()
        finally:
            answer.cancel()
            self._asking = None
        self._arm()

    # ------------------------------------------------------------ the thread

    def _run(self) -> None:
        try:
            self.loop.run_until_complete(self._live())
        finally:
            self.loop.close()

    def _settle(self) -> None:
        """Start in a loop that runs already."""
        self._living = self.loop.create_task(self._live())

    async def _live(self) -> None:
        try:
            await self._until_stopped()
        except Exception:  # noqa: BLE001 - the outermost frame of a thread or task
            _LOG.exception("the thread of a gate failed; work goes on without grants")
            self._end = None
        finally:
            self.open = self._end is None
            self.over = True
            self.connected.clear()
            self._return(self.idle.reclaim())  # the leases ended with the connection
            for slot in self._session.clear():
                slot.decided(self._end, gated=False)
            self._turn_away()
            self.finished.set()

    async def _until_stopped(self) -> None:
        connection = asyncio.ensure_future(self.link.keep())
        stopped = asyncio.ensure_future(self._stop.wait())
        tasks: list[asyncio.Future[Any]] = [connection, stopped]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if connection.done():
                connection.result()
        finally:
            if isinstance(self._asking, asyncio.Task):
                tasks.append(self._asking)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    def _turn_away(self) -> None:
        """Decide requests that arrive after the end, so that they do not wait for ever."""
        with contextlib.suppress(IndexError):
            while True:
                event, arguments = self._inbox.popleft()
                if event == self.ask:
                    [slot] = arguments
                    slot.decided(self._end, gated=False)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

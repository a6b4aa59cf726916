"""The thread behind a gate: an event loop that keeps the connection and executes the decisions of
:mod:`…client.gating`.

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
from collections.abc import Callable
from typing import Any

from penstock.client.gate_keeper import LeaseKeeper
from penstock.client.gate_lease import Lease, Leases
from penstock.client.gate_link import GateArguments, GateLink
from penstock.client.gate_slot import Slot
from penstock.client.gating import Complete, Gating, Go, Instruction, Refuse, Submit, Warn, Withdraw
from penstock.client.job import Job
from penstock.client.monotask import Monotask
from penstock.wire.agent_api import StageProgress
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
        self._gating: Gating[Slot] = Gating(arguments.patience_s, time.monotonic())
        self._job: Job | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._asking: asyncio.TimerHandle | asyncio.Task[None] | None = None
        self._reason = ""
        self._lock = threading.Lock()
        self._fast = {"ungated": 0, "released": 0}  # monotasks that bypassed the loop
        self._end: Exception | None = RuntimeError(f"the gate {arguments.name!r} is closed")
        self._pid = os.getpid()
        #: For any thread: the agent is away and patience is over, so that requests continue ungated at once.
        self.open = False
        #: For any thread: the engine has stopped.
        self.over = False
        self.connected, self.finished = threading.Event(), threading.Event()
        #: For any thread: slots held under leases.
        self.leases: Leases[Slot] = Leases()
        self.loop = loop or _new_loop()
        self._keeper = LeaseKeeper(self.leases, self.loop, self.give_back)
        self._stop = asyncio.Event()
        self.link = GateLink(arguments, self)
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

    def count(self, what: str) -> None:
        """Count a monotask that bypassed the loop."""
        with self._lock:
            self._fast[what] += 1

    def counts(self) -> dict[str, int]:
        """Return totals that include all events posted before this call."""
        if not self.in_thread and not self.over:
            settled = threading.Event()
            self.post(settled.set)
            settled.wait(_BARRIER_S)
        totals = self._gating.counts() | {"leased": 0}
        with self._lock:
            for counts in (self._fast, self.leases.counts()):
                for what, number in counts.items():
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
        self._lock = threading.Lock()  # another thread of the parent may have held the old one
        self.leases = Leases()
        self._inbox.clear()
        self.link.disown()

    # ------------------------------------------------------------ events

    def ask(self, slot: Slot) -> None:
        """Handle a request for a slot."""
        self._keeper.give_way(slot.kind)  # this monotask could not use the idle slots, or would have taken one
        self._do(self._gating.ask(slot, time.monotonic()))

    def end(self, slot: Slot, failed: bool) -> None:
        """Handle the end of a slot's work."""
        self._do(self._gating.release(slot, failed=failed))
        slot.monotask = None

    def give_back(self, lease: Lease[Slot]) -> None:
        """Return a slot whose lease and last monotask are over."""
        slot = lease.slot
        self._do(self._gating.release(slot, failed=lease.first_failed))
        slot.monotask = None
        self.leases.returned(lease)

    def withdraw(self, slot: Slot) -> None:
        """Withdraw a slot that is no longer wanted."""
        self._do(self._gating.cancel(slot))
        slot.monotask = None

    def progress(self, stages: list[StageProgress]) -> None:
        """Forward the job's progress."""
        if self._job is not None:
            self._job.progress(stages)

    def linked(self, job: Job) -> None:
        """Called by the link: the agent is connected and knows the job."""
        self._job = job
        job.on_recall = self._keeper.recall
        self._back()

    def unlinked(self, reason: str) -> None:
        """Called by the link: the agent is away; ``reason`` is one line for the user."""
        self._reason = reason
        self.connected.clear()
        self._keeper.recall_all()
        self._do(self._gating.lost(time.monotonic()))
        self._arm()

    def forgotten(self, reason: str) -> None:
        """Called by the link: the agent no longer has any state of this job."""
        self._reason = reason
        self._job = None
        self.connected.clear()
        self._keeper.recall_all()
        self._do(self._gating.forgotten(time.monotonic()))
        self._arm()

    def cancelled(self, error: Exception) -> None:
        """Called by the link: the job was cancelled; pending and later requests fail with ``error``."""
        self._end = error
        self._stop.set()

    def _granted(self, slot: Slot, monotask: Monotask, granted: asyncio.Future[None]) -> None:
        if granted.cancelled() or slot.monotask is not monotask:
            return
        error = granted.exception()
        if error is None:
            if not slot.task and self._job is not None and (until := self._job.kept_until(monotask.id)):
                slot.lease = self._keeper.lent(slot, until)
            self._do(self._gating.granted(slot))
        elif isinstance(error, RpcError) and self._job is not None and not self._job.over:  # else the job was refused
            self._do(self._gating.refused(slot, error))

    def _back(self) -> None:
        self.open = False
        if self._gating.open:
            _LOG.info("the agent is back: monotasks of %s are gated again", self._arguments.name)
        self._do(self._gating.back(time.monotonic()))
        self.connected.set()
        self._arm()

    # ------------------------------------------------------------ carrying out

    def _drain(self) -> None:
        self._woken = False
        inbox = self._inbox
        for _ in range(len(inbox)):
            event, arguments = inbox.popleft()
            try:
                event(*arguments)
            except Exception:  # noqa: BLE001 - one failed event must not block the events behind it
                _LOG.exception("an event of a gate failed")
        self._arm()

    def _do(self, instructions: list[Instruction[Slot]]) -> None:
        for each in instructions:
            match each:
                case Submit(slot):
                    self._submit(slot)
                case Go(slot, gated):
                    self._decide(slot, gated=gated)
                case Complete(slot, failed):
                    slot.complete(failed)
                case Withdraw(slot):
                    if slot.monotask is not None:
                        slot.monotask.cancel()
                        slot.monotask = None
                case Refuse(slot, error):
                    self._decide(slot, error=error)
                case Warn():
                    self._warn()

    def _submit(self, slot: Slot) -> None:
        assert self._job is not None
        try:
            monotask = self._job.submit(slot.kind, slot.input_bytes, slot.stage, slot.task)
        except Exception as error:  # noqa: BLE001 - a job that ended concurrently must not stop the user's work
            self.loop.call_soon(self.link.lost_for_good, f"the agent does not take monotasks: {error}")
            return
        slot.monotask = monotask
        monotask.granted.add_done_callback(lambda granted: self._granted(slot, monotask, granted))

    def _decide(self, slot: Slot, *, gated: bool = False, error: Exception | None = None) -> None:
        try:
            slot.decided(gated=gated, error=error)
        except Exception:  # noqa: BLE001 - the callback is the user's code
            _LOG.exception("a callback of a gate failed")

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
        deadline = self._gating.deadline
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if deadline is not None:
            self._timer = self.loop.call_later(max(0.0, deadline - time.monotonic()), self._tick)
        if self._asking is None and self._gating.linked and self._gating.waiting:
            self._asking = self.loop.call_later(_ASK_EVERY_S, self._ask_for_life)

    def _tick(self) -> None:
        self._timer = None
        self._do(self._gating.tick(time.monotonic()))
        self._arm()

    def _ask_for_life(self) -> None:
        self._asking = None
        if self._job is not None and self._gating.linked and self._gating.waiting:
            self._asking = self.loop.create_task(self._sign_of_life(self._job))

    async def _sign_of_life(self, job: Job) -> None:
        """Treat an agent that does not answer as away, although connected; a late answer ends that outage."""
        began = time.monotonic()
        answer = asyncio.ensure_future(job.tasks_done([]))
        answer.add_done_callback(lambda done: done.cancelled() or done.exception())  # marks the exception as retrieved
        try:
            await asyncio.wait([answer], timeout=self._arguments.patience_s + _ANSWER_S)
            if not answer.done() and self._gating.linked:
                self._silent(began)
                await asyncio.wait([answer])
                error = answer.exception()
                if job is self._job and self.link.up and (error is None or isinstance(error, RpcError)):
                    self._back()
        finally:
            answer.cancel()
            self._asking = None
        self._arm()

    def _silent(self, since: float) -> None:
        where = self.link.where
        self._reason = f"the agent at {where} does not answer; see its log, or restart it"
        self.connected.clear()
        self._do(self._gating.lost(since))
        self._do(self._gating.tick(time.monotonic()))
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
            self.leases.recall()  # the leases ended with the connection
            self._do(self._gating.close(self._end))
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
                    self._decide(slot, error=self._end)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()

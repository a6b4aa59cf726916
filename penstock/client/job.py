"""A job at the host's agent: monotasks that wait for their grants, tasks that wait for nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.client.errors import AgentUnavailable, JobCancelled, NotPlaced
from penstock.client.ledger import MonotaskLedger
from penstock.client.link import Link
from penstock.client.monotask import Granted, Monotask, set_error
from penstock.client.placements import PlacementLedger
from penstock.model.container import Ended, EndedBy
from penstock.model.resources import ResourceKind
from penstock.model.work import MonotaskId, Opportunistic, TaskRequest
from penstock.transport.peer import RpcPeer
from penstock.wire.agent_api import (
    Cancel,
    Complete,
    Done,
    Grants,
    JobRef,
    JobRegistered,
    JobWaiting,
    Leased,
    Params,
    Place,
    Progress,
    Recall,
    RegisterJob,
    Rejected,
    StageProgress,
    Submit,
    TaskEnded,
    TaskPlaced,
    TaskRefs,
    TaskStuck,
)  # fmt: skip
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.jobs_api import CancelledBy, SlotTakenBack

_LOG = logging.getLogger("penstock.client")
#: This many monotasks fit into a frame, with any stage and task names (up to 128 characters each).
MAX_BATCH = 5000


class Job:
    """A job of this process, made by :meth:`AgentClient.register_job`."""

    def __init__(
        self, link: Link, asked: RegisterJob, answer: JobRegistered, wants_flush: Callable[[Job, bool], None]
    ) -> None:
        self.id = answer.job
        self.name = asked.name
        self._asked = asked
        self._link = link
        self._wants_flush = wants_flush
        self._loop = asyncio.get_running_loop()
        self._monotasks = MonotaskLedger()
        self._monotasks.link()
        self._waiting: dict[MonotaskId, asyncio.Future[None]] = {}
        self._report: asyncio.TimerHandle | None = None  # deadline for reporting monotasks that ended under leases
        self._tasks = PlacementLedger()
        self._watched: dict[str, list[asyncio.Future[None]]] = {}
        self._may_place = answer.admitted
        self._admitted = asyncio.Event()
        if answer.admitted:
            self._admitted.set()
        self.failure: Exception | None = None  # why the job receives nothing more
        self.over = False
        self.on_recall: Callable[[ResourceKind], object] | None = None  # idle slots of a kind must be given back
        #: Called when an executor is late on a node without free resources: the tasks to run again, and where.
        self.on_stuck: Callable[[TaskStuck], object] = lambda stuck: None
        self.on_waiting: Callable[[JobWaiting], object] = lambda waiting: None  # the reason why it is not admitted yet
        #: Called when the agent took a slot back that was held too long; its monotask may run on.
        self.on_slot_taken_back: Callable[[SlotTakenBack], object] = lambda taken: _LOG.warning(taken.why)

    # ------------------------------------------------------------ monotasks

    def monotask(self, kind: ResourceKind | str, input_bytes: int, stage: str = "", task: str = "") -> Granted:
        """Submit, wait for the grant, run the body of ``async with``, complete (as failed if the body raised)."""
        return Granted(self.submit(kind, input_bytes, stage, task))

    def submit(self, kind: ResourceKind | str, input_bytes: int, stage: str = "", task: str = "") -> Monotask:
        """Queue a monotask. Monotasks submitted in one iteration of the loop are sent as one message.

        Raises:
            ValueError: unknown kind of resource, or an invalid size.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
            RuntimeError: the job is over.
        """
        self._check()
        if not 0 <= input_bytes < 1 << 63:
            raise ValueError(f"input_bytes must be from 0 to 2⁶³ − 1: {input_bytes}")
        if not isinstance(kind, ResourceKind):
            kind = ResourceKind(kind)
        one = self._monotasks.submit(kind, input_bytes, stage, task)
        granted = self._waiting[one] = self._loop.create_future()
        self._wants_flush(self, False)
        return Monotask(self, one, granted)

    def kept_until(self, one: MonotaskId) -> float:
        """Return until when (monotonic time) a granted slot may be used for further monotasks of its kind, and be idle.

        0: not at all. :attr:`on_recall` may end this earlier.
        """
        return self._monotasks.kept_until(one)

    def complete(
        self,
        one: MonotaskId,
        *,
        failed: bool = False,
        execution_s: float | None = None,
        leased: Leased | None = None,
    ) -> bool:
        """See :meth:`Monotask.complete`."""
        now = self._loop.time()
        while (passed := self._monotasks.pass_on(one, now, failed, execution_s, leased)) is not None:
            execution_s = leased = None
            then, report_by = passed
            if self._report is None:
                self._report = self._loop.call_at(report_by, self._report_leases)
            waiting = self._waiting.pop(then)
            if not waiting.cancelled():
                waiting.set_result(None)
                return True
            one, failed = then, True  # its waiter is gone: pass the slot to the next monotask
        ended = self._monotasks.complete(one, failed, execution_s, leased)
        if ended:  # a slot is free: the first completion of an iteration is sent at once, later ones in one message
            self._wants_flush(self, True)
        return ended

    def cancel(self, one: MonotaskId) -> bool:
        """See :meth:`Monotask.cancel`."""
        ended = self._monotasks.cancel(one)
        if ended:
            waiting = self._waiting.pop(one, None)
            if waiting is not None:
                waiting.cancel()
            self._wants_flush(self, False)
        return ended

    # ------------------------------------------------------------ tasks

    async def admitted(self) -> None:
        """Wait until the master has admitted the job.

        Raises:
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        await self._admitted.wait()
        if self.failure is not None:
            raise self.failure

    async def place(self, stage: str, tasks: Sequence[TaskRequest], opportunistic: Opportunistic = False) -> None:
        """Ask for nodes for the ready tasks of a stage. Pass all tasks that are ready together in one call.

        ``opportunistic``: tasks that find no regular resources may run on slack; ``"only"``: they run on slack only.

        Raises:
            RpcError: the agent refused all of them.
            ValueError: a task of this name was requested before.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
        """
        self._check()
        self._tasks.ask(stage, tasks, opportunistic=opportunistic)
        asked, names = list(tasks), [request.task for request in tasks]
        try:
            await self._link.call(
                "place", lambda: Place(job=self.id, stage=stage, tasks=asked, opportunistic=opportunistic), Done
            )
        except BaseException:
            self._tasks.withdraw(names)
            raise
        self._tasks.confirm(names)

    async def placed(self, task: str) -> str:
        """Wait for a task's placement and return its node.

        Raises:
            NotPlaced: the task ended without a node.
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
            KeyError: the task was never requested.
        """
        while True:
            if (node := self._tasks.node_of(task)) is not None:
                return node
            if (ended := self._tasks.end_of(task)) is not None:
                raise NotPlaced(task, ended)
            await self._change_of(task)

    async def ended(self, task: str) -> Ended:
        """Wait for a task's end and return its cause.

        Raises:
            AgentUnavailable: the agent was away for longer than ``reconnect_s``.
            KeyError: the task was never requested.
        """
        while (ended := self._tasks.end_of(task)) is None:
            await self._change_of(task)
        return ended

    async def tasks_done(self, tasks: Iterable[str]) -> None:
        """Report tasks that the framework itself has executed, so that their nodes release their resources."""
        names = list(tasks)
        for name in self._tasks.done(names):
            self._wake(name)
        await self._settle("tasks_done", lambda: TaskRefs(job=self.id, tasks=names))

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """Report the job's progress by stages, in their order; the master may order jobs by it. Replaces the last one.

        A report during an outage is dropped.
        """
        peer = self._link.peer()
        if peer is not None and not self.over:
            peer.notify("progress", Progress(job=self.id, stages=list(stages)))

    async def cancel_tasks(self, tasks: Iterable[str]) -> None:
        """Cancel tasks. All but running commands have ended when this returns; await :meth:`ended` for those."""
        names = list(tasks)
        await self._settle("cancel_tasks", lambda: TaskRefs(job=self.id, tasks=names))
        for name in self._tasks.cancel(names):
            self._wake(name)

    async def end(self) -> None:
        """End the job; its queued, granted and placed work is given back."""
        if self.over:
            return
        self._close(None)
        await self._settle("end_job", lambda: JobRef(job=self.id))

    # ------------------------------------------------------------ the client's side

    def flush(self, peer: RpcPeer) -> None:
        """Send pending messages."""
        out = self._monotasks.take()
        for start in range(0, len(out.submit), MAX_BATCH):
            batch = out.submit[start : start + MAX_BATCH]
            try:
                peer.notify("submit", Submit(job=self.id, monotasks=batch))  # refused by the notification `rejected`
            except (RpcError, ValueError, OverflowError) as error:  # too large for a frame, or not encodable
                self._refused([spec.id for spec in batch], error)
        if out.complete:
            peer.notify("complete", Complete(job=self.id, monotasks=out.complete))
        if out.cancel:
            peer.notify("cancel", Cancel(job=self.id, ids=out.cancel))

    def unlink(self) -> None:
        """Handle the loss of the connection."""
        self._monotasks.unlink()
        self._may_place = False

    async def relink(self, peer: RpcPeer) -> None:
        """Join the job at a restarted agent, or register it anew if it is unknown there; announce all live monotasks.

        Raises:
            ConnectionResetError: the connection was lost again.
        """
        try:
            answer = await self._register(peer)
        except RpcError as error:
            self._close(error)
            return
        self.id = answer.job
        self._monotasks.link()
        self.flush(peer)
        if answer.admitted:
            self.admit(peer)

    def fail(self, error: AgentUnavailable) -> None:
        """Close the job: the agent was away for too long."""
        self._close(error)

    def grant(self, ids: list[MonotaskId], lease_s: float, keep: bool = False) -> None:
        """Handle grants."""
        for one in self._monotasks.grant(ids, self._loop.time(), lease_s, keep):
            waiting = self._waiting.pop(one)
            if waiting.cancelled():
                self.cancel(one)
            else:
                waiting.set_result(None)

    def notified(self, peer: RpcPeer | None, params: Params) -> None:
        """Handle the agent's notifications about this job."""
        match params:
            case Grants(ids=ids, lease_s=lease_s, keep=keep):
                self.grant(ids, lease_s, keep)
            case Recall(kind=kind, idle=idle):
                self._monotasks.recall(kind, idle)
                self._wants_flush(self, False)
                if self.on_recall is not None:
                    self.on_recall(kind)
            case Rejected(ids=ids, error=error):
                self._refused(ids, RpcError.of(error))
            case TaskPlaced(task=task) | TaskEnded(task=task):
                if self._tasks.told(params):
                    self._wake(task)
            case SlotTakenBack():
                self.on_slot_taken_back(params)
            case TaskStuck() as stuck:
                self.on_stuck(stuck)
            case JobWaiting() as waiting:
                self.on_waiting(waiting)
            case JobRef():
                self.admit(peer)
            case CancelledBy(by=by):
                self._close(JobCancelled(self.name, by))

    def admit(self, peer: RpcPeer | None) -> None:
        """Handle the job's admission; after a reconnection, request the outstanding placements again."""
        self._admitted.set()
        if self._may_place or peer is None:
            return
        self._may_place = True
        for stage, opportunistic, requests in self._tasks.to_ask_again():
            names = [request.task for request in requests]
            asked = Place(job=self.id, stage=stage, tasks=requests, opportunistic=opportunistic)
            answer = peer.start_request("place", asked)
            answer.add_done_callback(partial(self._asked_again, names))

    # ------------------------------------------------------------ inside

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.over:
            raise RuntimeError(f"job {self.name!r} is over")

    async def _register(self, peer: RpcPeer) -> JobRegistered:
        again = msgspec.structs.replace(self._asked, job=self.id)
        try:
            return await peer.request("register_job", again, JobRegistered)
        except RpcError as error:
            if error.code is ErrorCode.REFUSED:  # it was cancelled in the meantime
                raise
        return await peer.request("register_job", msgspec.structs.replace(self._asked, job=""), JobRegistered)

    def _report_leases(self) -> None:
        self._report = None
        self._wants_flush(self, False)

    def _refused(self, ids: list[MonotaskId], error: Exception) -> None:
        for one in self._monotasks.refuse(ids):
            set_error(self._waiting.pop(one, None), error)

    def _asked_again(self, names: list[str], answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and isinstance(error := answer.exception(), RpcError):
            ended = Ended(by=EndedBy.REFUSED, reason=f"the restarted agent refused it: {error}")
            for name in names:
                if self._tasks.end(name, ended):
                    self._wake(name)

    async def _settle(self, method: str, params: Callable[[], Params]) -> None:
        """Report the end of something; if a restarted agent does not know it, that is the desired state."""
        try:
            await self._link.call_once(method, params, Done)
        except ConnectionResetError:
            with contextlib.suppress(RpcError):
                await self._link.call(method, params, Done)

    def _change_of(self, task: str) -> asyncio.Future[None]:
        if self.failure is not None:
            raise self.failure
        change: asyncio.Future[None] = self._loop.create_future()
        self._watched.setdefault(task, []).append(change)
        return change

    def _wake(self, task: str) -> None:
        for waiting in self._watched.pop(task, ()):
            if not waiting.done():
                waiting.set_result(None)

    def _close(self, error: Exception | None) -> None:
        """Close the job and fail all waiters."""
        if self.over:
            return
        self.over = True
        self.failure = error
        if self._report is not None:
            self._report.cancel()
        self._monotasks.clear()
        waiting, self._waiting = self._waiting, {}
        for granted in waiting.values():
            if error is None:
                granted.cancel()
            else:
                set_error(granted, error)
        if error is None:
            self._tasks.clear(Ended(by=EndedBy.CANCELLED, reason="the job was ended"))
        for task in list(self._watched):
            self._wake(task)
        self._admitted.set()

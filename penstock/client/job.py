"""A job at the host's agent: monotasks that wait for their grants, tasks that wait for nodes."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from penstock.client.arguments import size_bytes
from penstock.client.errors import JobCancelled, NotPlaced
from penstock.client.job_session import JobSession, NothingWanted
from penstock.client.link import Link, ask_over
from penstock.client.monotask import Monotask
from penstock.client.monotask_session import MonotaskSession, SessionMonotask
from penstock.client.progress import ProgressReports
from penstock.model.container import Ended, EndedBy
from penstock.model.resources import ResourceKind, kind_of
from penstock.model.work import MonotaskId, Opportunistic, TaskRequest, without_skipped
from penstock.transport.peer import RpcPeer
from penstock.wire import agent_api as api
from penstock.wire import agent_methods as m
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import LeaveJob, SlotTakenBack
from penstock.wire.method import Method, P

_LOG = logging.getLogger("penstock.client")
#: This many monotasks fit into a frame, with any stage and task names (up to 128 characters each).
MAX_BATCH = 5000


class Job(JobSession):
    """A job of this process, made by :meth:`AgentClient.register_job`.

    What needs the agent raises AgentUnavailable if it was away for longer than ``reconnect_s``.
    Without ``monotasks`` it has a session of its own. A session of the caller outlives the job: the caller ends its
    monotasks.
    """

    def __init__(
        self,
        link: Link,
        asked: api.RegisterJob,
        wants_flush: Callable[[Job, bool], None],
        monotasks: MonotaskSession[Any] | None = None,
    ) -> None:
        super().__init__(asked)
        self._link = link
        self._wants_flush = wants_flush
        self._loop = asyncio.get_running_loop()
        self._has_own_session = monotasks is None
        self._monotasks: MonotaskSession[Any] = MonotaskSession() if monotasks is None else monotasks
        self._report: asyncio.TimerHandle | None = None  # deadline for reporting monotasks that ended under leases
        self._progress = ProgressReports(self._send_progress)
        self._watched: dict[str, list[asyncio.Future[None]]] = {}
        self._admitted = asyncio.Event()
        self.on_recall: Callable[[ResourceKind], object] | None = None  # idle slots of a kind must be given back
        #: Called when an executor is late on a node without free resources: the tasks to run again, and where.
        self.on_stuck: Callable[[api.TaskStuck], object] = lambda stuck: None
        #: Called with the reason why the job is not admitted yet.
        self.on_waiting: Callable[[api.JobWaiting], object] = lambda waiting: None
        #: Called when the agent took a slot back that was held too long; its monotask may run on.
        self.on_slot_taken_back: Callable[[SlotTakenBack], object] = lambda taken: _LOG.warning(taken.why)
        #: Called when the job receives nothing more, with the cause; None: it was ended here.
        self.on_over: Callable[[Exception | None], object] = lambda error: None

    # ------------------------------------------------------------ monotasks

    def submit(self, kind: ResourceKind | str, input_bytes: int, stage: str = "", task: str = "") -> Monotask:
        """Queue a monotask. Monotasks submitted in one iteration of the loop are sent as one message.

        Raises:
            ValueError: unknown kind of resource, or an invalid size.
            TypeError: the size is no number.
            RuntimeError: the job is over.
        """
        self._check()
        if type(input_bytes) is not int or not 0 <= input_bytes < 1 << 63:
            input_bytes = size_bytes("input_bytes", input_bytes)
        if not isinstance(kind, ResourceKind):
            kind = kind_of(kind)
        one = Monotask(self, self._loop.create_future(), kind, input_bytes, stage, task)
        self._monotasks.submit(one)
        self._wants_flush(self, False)
        return one

    #: For ``async with job.monotask(…)``: wait for the grant, run the body, complete (as failed if the body raised).
    monotask = submit

    def complete(
        self, one: SessionMonotask, failed: bool, execution_s: float | None = None, leased: api.Leased | None = None
    ) -> bool:
        """See :meth:`Monotask.complete`.

        ``leased`` describes the monotasks that ran in the slot afterwards; ``execution_s`` is then the run time of
        this one.
        """
        if one.state == "ended":
            return False
        now = self._loop.time()
        while (then := self._monotasks.complete(one, now, failed, execution_s, leased)) is not None:
            if self._report is None:
                self._report = self._loop.call_at(then.lease_until, self._report_leases)
            if then.decided():
                return True
            one, failed, execution_s, leased = then, True, None, None  # nothing waits for it: pass the slot on again
        # A slot is free: the first completion of an iteration is sent at once, later ones in one message.
        self._wants_flush(self, True)
        return True

    def cancel(self, one: SessionMonotask) -> bool:
        """See :meth:`Monotask.cancel`."""
        ended = self._monotasks.cancel(one)
        if ended:
            self.flush_soon()
        return ended

    # ------------------------------------------------------------ tasks

    async def admitted(self) -> None:
        """Wait until the master has admitted the job."""
        await self._admitted.wait()
        if self.failure is not None:
            raise self.failure

    async def place(self, stage: str, tasks: Sequence[TaskRequest], opportunistic: Opportunistic = False) -> None:
        """Ask for nodes for the ready tasks of a stage. Pass all tasks that are ready together in one call.

        ``opportunistic``: tasks that find no regular resources may run on slack; ``"only"``: they run on slack only.

        Raises:
            RpcError: the agent refused all of them.
            ValueError: a task of this name was requested before.
        """
        self._check()
        names, request = self._request(stage, tasks, opportunistic)
        try:
            with contextlib.suppress(NothingWanted):
                await self._link.call(m.PLACE, request)
        except BaseException:
            self._tasks.withdraw(names)
            for name in names:
                self._wake(name)
            raise
        self._tasks.confirm(names)
        for name in names:  # those cancelled meanwhile have ended
            self._wake(name)

    async def placed(self, task: str) -> str:
        """Wait for a task's placement and return its node.

        Raises:
            NotPlaced: the task ended without a node.
            KeyError: the task was never requested, or the agent refused it.
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
            KeyError: the task was never requested, or the agent refused it.
        """
        while (ended := self._tasks.end_of(task)) is None:
            await self._change_of(task)
        return ended

    async def tasks_done(self, tasks: Iterable[str]) -> None:
        """Report tasks that the framework itself has executed, so that their nodes release their resources."""
        names = list(tasks)
        for name in self._tasks.done(names):
            self._wake(name)
        await self._settle(m.TASKS_DONE, lambda: api.TaskRefs(job=self.id, tasks=names))

    def progress(self, stages: Sequence[api.StageProgress]) -> None:
        """Report the job's progress by stages, in their order; the master may order jobs by it. Replaces the last one.

        New and ended stages are reported at once, counts of the same stages a few times a second. A report during an
        outage is dropped.
        """
        if not self.over:
            self._progress.report(stages)

    def flush_progress(self) -> None:
        """Send the latest report of progress now, if it still waits."""
        if not self.over:
            self._progress.flush()

    async def cancel_tasks(self, tasks: Iterable[str]) -> None:
        """Cancel tasks. All but running commands have ended when this returns; await :meth:`ended` for those.

        If the agent is away, or the call is cancelled meanwhile, the tasks are cancelled once the agent is back.

        Raises:
            RpcError: the agent refused; only tasks that it has not been asked to place are cancelled.
        """
        names = list(tasks)
        wanted = self._tasks.want_no_more(names)
        try:
            await self._settle(m.CANCEL_TASKS, lambda: api.TaskRefs(job=self.id, tasks=names))
        except RpcError:
            self._tasks.want_again(wanted)
            raise
        for name, _ in self._tasks.cancel(names):
            self._wake(name)

    def leave(self, merged_into: str) -> None:
        """Tell the agent that this connection is about to close and has finished with the job.

        ``merged_into`` is the job that continues its work, if any.
        """
        if not self.over:
            self.flush_progress()
            self._link.notify(m.LEAVE_JOB, LeaveJob(job=self.id, merged_into=merged_into))

    async def end(self) -> None:
        """End the job; its queued, granted and placed work is given back."""
        if self.over:
            return
        self.flush_progress()
        self.close(None)
        await self._settle(m.END_JOB, lambda: api.EndJob(job=self.id))

    # ------------------------------------------------------------ the client's side

    def _send_progress(self, stages: list[api.StageProgress]) -> None:
        told = stages if self._link.welcome.skipped_tasks else without_skipped(stages)
        self._link.notify(m.PROGRESS, api.Progress(job=self.id, stages=told))

    def flush_soon(self) -> None:
        """Send pending messages at the end of the loop's iteration."""
        self._wants_flush(self, False)

    def flush(self) -> None:
        """Send this job's pending messages now, instead of at the end of the loop's iteration."""
        peer = self._link.peer()
        if peer is not None:
            peer.send_together(self.send)

    def send(self, peer: RpcPeer) -> None:
        """Write pending messages to a connection."""
        out = self._monotasks.take()
        for start in range(0, len(out.submit), MAX_BATCH):
            batch = out.submit[start : start + MAX_BATCH]
            try:
                # a refusal comes as the notification `rejected`
                peer.notify(m.SUBMIT.name, m.SUBMIT.params(job=self.id, monotasks=batch))
            except (RpcError, ValueError, OverflowError) as error:  # too large for a frame, or not encodable
                self._refused([spec.id for spec in batch], error)
        if out.complete:
            peer.notify(m.COMPLETE.name, m.COMPLETE.params(job=self.id, monotasks=out.complete))
        if out.cancel:
            peer.notify(m.CANCEL.name, m.CANCEL.params(job=self.id, ids=out.cancel))

    def unlink(self) -> None:
        """Handle the loss of the connection."""
        self._monotasks.unlink()

    async def relink(self, peer: RpcPeer) -> None:
        """Join the job at a restarted agent, or register it anew if it is unknown there; announce all live monotasks.

        Raises:
            ConnectionResetError: the connection was lost again.
        """
        try:
            try:
                answer = await ask_over(peer, m.REGISTER_JOB, self.registration())
            except RpcError as error:
                answer = await ask_over(peer, m.REGISTER_JOB, self.registration_after(error))
        except (RpcError, JobCancelled) as error:
            self.close(error)
            return
        if self.failure is not None:  # cancelled: the notification came with the answer
            return
        self.registered(answer)
        self.send(peer)
        if (unwanted := self.cancellations_to_repeat()) is not None:
            peer.notify(m.CANCEL_TASKS.name, unwanted)
        self._repeat_requests(peer)

    def registered(self, answer: api.JobRegistered) -> list[tuple[str, Ended]]:
        """See :meth:`JobSession.registered`."""
        over = super().registered(answer)
        for name, _ in over:
            self._wake(name)
        self._monotasks.link()
        if answer.admitted:
            self._admitted.set()
        return over

    def grant(self, ids: list[MonotaskId], lease_s: float, keep: bool = False) -> None:
        """Handle grants."""
        for one in self._monotasks.grant(ids, self._loop.time(), lease_s, keep):
            if not one.decided():
                self.cancel(one)

    def notified(self, peer: RpcPeer | None, params: api.Params) -> None:
        """Handle the agent's notifications about this job."""
        match params:
            case api.Grants(ids=ids, lease_s=lease_s, keep=keep):
                self.grant(ids, lease_s, keep)
            case api.Recall(kind=kind, idle=idle):
                self._monotasks.recall(kind, idle)
                self.flush_soon()
                if self.on_recall is not None:
                    self.on_recall(kind)
            case api.Rejected(ids=ids, error=error):
                self._refused(ids, RpcError.of(error))
            case api.TaskPlaced(task=task) | api.TaskEnded(task=task):
                if self._record(params):
                    self._wake(task)
            case SlotTakenBack():
                self.on_slot_taken_back(params)
            case api.TaskStuck() as stuck:
                self.on_stuck(stuck)
            case api.JobWaiting() as waiting:
                self.on_waiting(waiting)
            case api.JobAdmitted():
                self._record(params)
                self._admitted.set()
                self._repeat_requests(peer)
            case api.CancelledBy(by=by):
                self.close(JobCancelled(self.name, by))

    # ------------------------------------------------------------ inside

    def _check(self) -> None:
        if self.failure is not None:
            raise self.failure
        if self.over:
            raise RuntimeError(f"job {self.name!r} is over")

    def _repeat_requests(self, peer: RpcPeer | None) -> None:
        if peer is not None:
            for asked in self.requests_to_repeat():
                peer.start_request(m.PLACE.name, asked).add_done_callback(partial(self._asked_again, asked))

    def _report_leases(self) -> None:
        self._report = None
        self.flush_soon()

    def _refused(self, ids: list[MonotaskId], error: Exception) -> None:
        for one in self._monotasks.refuse(ids):
            one.decided(error)

    def _asked_again(self, asked: api.Place, answer: asyncio.Future[Any]) -> None:
        if not answer.cancelled() and isinstance(error := answer.exception(), RpcError):
            for name, _ in self._tasks.refused_again(asked, error):
                self._wake(name)

    async def _settle(self, method: Method[P, api.Done], params: Callable[[], P]) -> None:
        """Report the end of something; if a restarted agent does not know it, that is the desired state."""
        try:
            await self._link.call_once(method, params)
        except ConnectionResetError:
            with contextlib.suppress(RpcError):
                await self._link.call(method, params)

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

    def close(self, error: Exception | None) -> None:
        """Close the job; what waits fails with ``error``, or is cancelled without one."""
        if not self._finish(error):
            return
        self._progress.close()
        if self._report is not None:
            self._report.cancel()
        if not self._has_own_session:
            self._monotasks.unlink()
        else:
            for one in self._monotasks.clear():
                if error is None:
                    one.granted.cancel()
                else:
                    one.decided(error)
        if error is None:
            self._tasks.clear(Ended(by=EndedBy.CANCELLED, reason="the job was ended"))
        for task in list(self._watched):
            self._wake(task)
        self._admitted.set()
        self.on_over(error)

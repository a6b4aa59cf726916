"""A job of commands over a :class:`~penstock.client.session.Session`, by blocking calls.

What the agent says of the job becomes the events of its :class:`~penstock.opgraph.JobManager`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import msgspec

from penstock.client.errors import JobCancelled
from penstock.client.placements import PlacementLedger
from penstock.client.session import Session
from penstock.model.container import Ended, EndedBy
from penstock.model.work import Opportunistic, TaskRequest
from penstock.opgraph import Event, Started, TaskEnded, TaskPlaced
from penstock.wire import agent_api as api
from penstock.wire.connection import read_params
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.jobs_api import CancelledBy

_NOTIFICATIONS: dict[str, type[api.Params]] = {
    name: api.NOTIFICATIONS[name] for name in ("job_waiting", "job_admitted", "task_placed", "task_ended", "task_stuck")
}
_NOTIFICATIONS["job_cancelled"] = CancelledBy

News = Event | api.JobWaiting | api.TaskStuck


class TaskJob:
    """A job that is registered, or joined, as ``asked``. It is the owner of its session.

    Raises:
        RpcError: refused.
        AgentUnavailable: the agent went away for good.
    """

    def __init__(self, session: Session, asked: api.RegisterJob, on_link: Callable[[bool], None]) -> None:
        self.id = ""
        self.admitted = False
        self._session = session
        self._asked = asked
        self._on_link = on_link
        self._tasks = PlacementLedger()
        self._news: deque[News] = deque()
        self._early: list[api.Params] = []  # what was said of the job before its id was known
        self._owed = False  # whether a restarted agent is still to be asked for what the one before owed
        self._over = False
        self._cancelled: JobCancelled | None = None
        session.owner = self
        answer = session.call("register_job", lambda: asked, api.JobRegistered)
        self.id = answer.job
        if answer.admitted:
            self._admit()
        for said in self._early:
            self._told(said)

    def next(self, timeout_s: float | None) -> News | None:
        """Return the next event of the job; None when the time is over, or something else came.

        Raises:
            JobCancelled: the job was cancelled by hand.
            AgentUnavailable: the agent went away for good.
            RpcError: a restarted agent refuses the job.
        """
        if not self._news and self._cancelled is None:
            self._session.wait(timeout_s)
        if self._owed and self.admitted:
            with contextlib.suppress(ConnectionResetError):  # lost again: the next wait finds that, and joins again
                self._ask_again()
        if self._news:
            return self._news.popleft()
        if self._cancelled is not None:
            raise self._cancelled
        return None

    def place(self, stage: str, requests: Sequence[TaskRequest], opportunistic: Opportunistic) -> None:
        """Ask for nodes for the ready tasks of a stage. Tasks that the agent refuses have ended by that.

        Raises:
            JobCancelled: the job was cancelled by hand.
            AgentUnavailable: the agent went away for good.
        """
        if self._cancelled is not None:
            raise self._cancelled
        names = [request.task for request in requests]
        self._tasks.ask(stage, requests, opportunistic=opportunistic)
        try:
            self._session.call("place", partial(self._placing, stage, requests, opportunistic), api.Done)
        except RpcError as error:
            self._tasks.withdraw(names)
            self._news += [TaskEnded(name, Ended(by=EndedBy.REFUSED, reason=str(error))) for name in names]
        else:
            self._tasks.confirm(names)

    def progress(self, stages: Sequence[api.StageProgress]) -> None:
        """Tell the master how far the job is. While the agent is away, nothing is sent, then or later."""
        if not self._over:
            self._session.notify("progress", api.Progress(job=self.id, stages=list(stages)))

    def cancel_tasks(self, tasks: Sequence[str]) -> None:
        """Cancel tasks; :meth:`next` returns their ends.

        Raises:
            RpcError: refused.
            AgentUnavailable: the agent went away for good.
        """
        self._settle("cancel_tasks", lambda: api.TaskRefs(job=self.id, tasks=list(tasks)))
        for name in self._tasks.cancel(tasks):
            ended = self._tasks.end_of(name)
            assert ended is not None
            self._news.append(TaskEnded(name, ended))

    def end(self) -> None:
        """End the job: the agent gives back what it still had placed."""
        if not self._over:
            self._over = True
            self._settle("end_job", lambda: api.JobRef(job=self.id))

    # ------------------------------------------------------------ Owner of the session

    def heard(self, method: str, params: Any) -> None:
        """Called by the session."""
        if (kind := _NOTIFICATIONS.get(method)) is not None:
            said = read_params(params, kind)
            if self.id:
                self._told(said)
            else:
                self._early.append(said)

    def relink(self) -> None:
        """Called by the session: join the job again; register it anew where the agent does not know it any more."""
        if not self.id or self._over:
            return
        answer = self._registered_again()
        self.id = answer.job
        self._owed = True
        self.admitted = False
        if answer.admitted:
            self._admit()
            self._ask_again()

    def linked(self, linked: bool) -> None:
        """Called by the session."""
        self._on_link(linked)

    # ------------------------------------------------------------ inside

    def _told(self, said: api.Params) -> None:
        if getattr(said, "job", "") != self.id:
            return
        match said:
            case api.TaskPlaced(task=task, node=node) if self._tasks.told(said):
                self._news.append(TaskPlaced(task, node))
            case api.TaskEnded(task=task, ended=ended) if self._tasks.told(said):
                self._news.append(TaskEnded(task, ended))
            case api.JobWaiting() | api.TaskStuck():
                self._news.append(said)
            case api.JobRef():
                self._admit()
            case CancelledBy(by=by):
                self._over = True
                self._cancelled = JobCancelled(self._asked.name, by)

    def _admit(self) -> None:
        if not self.admitted:
            self.admitted = True
            self._news.append(Started())

    def _registered_again(self) -> api.JobRegistered:
        try:
            return self._register(self.id)
        except RpcError as error:
            if error.code is ErrorCode.REFUSED:  # it was cancelled meanwhile
                raise
        return self._register("")

    def _register(self, job: str) -> api.JobRegistered:
        again = msgspec.structs.replace(self._asked, job=job)
        return self._session.call_once("register_job", lambda: again, api.JobRegistered)

    def _ask_again(self) -> None:
        """Ask a restarted agent for what the one before still owed.

        Raises:
            ConnectionResetError: lost again.
        """
        self._owed = False
        for stage, opportunistic, requests in self._tasks.to_ask_again():
            asked = partial(self._placing, stage, requests, opportunistic)
            try:
                self._session.call_once("place", asked, api.Done)
            except RpcError as error:
                ended = Ended(by=EndedBy.REFUSED, reason=f"the restarted agent refused it: {error}")
                self._news += [TaskEnded(one.task, ended) for one in requests if self._tasks.end(one.task, ended)]

    def _placing(self, stage: str, requests: Sequence[TaskRequest], opportunistic: Opportunistic) -> api.Place:
        return api.Place(job=self.id, stage=stage, tasks=list(requests), opportunistic=opportunistic)

    def _settle(self, method: str, params: Callable[[], api.Params]) -> None:
        """Tell the agent that something is over. What a restarted agent does not know any more is over, too."""
        try:
            self._session.call_once(method, params, api.Done)
        except ConnectionResetError:
            with contextlib.suppress(RpcError):
                self._session.call(method, params, api.Done)

"""A job of commands over a :class:`~penstock.client.session.Session`, with blocking calls.

The agent's notifications about the job become the events of its :class:`~penstock.opgraph.JobManager`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from penstock.client.errors import JobCancelled
from penstock.client.job_session import JobSession
from penstock.client.session import Session
from penstock.model.container import Ended, EndedBy
from penstock.model.work import Opportunistic, StageProgress, TaskRequest, without_skipped
from penstock.opgraph import Event, Started, TaskEnded, TaskPlaced
from penstock.wire import job_api as api
from penstock.wire import job_methods as m
from penstock.wire.connection import read_params
from penstock.wire.connection_api import Done, Notice, Params
from penstock.wire.errors import RpcError
from penstock.wire.method import Method, P

_NOTIFICATIONS: dict[str, type[Notice]] = {
    each.METHOD: each
    for each in (api.JobWaiting, api.JobAdmitted, api.CancelledBy, api.TaskPlaced, api.TaskEnded, api.TaskStuck)
}

#: :meth:`Session.call` or :meth:`Session.call_once`.
Call = Callable[[Method[api.RegisterJob, api.JobRegistered], Callable[[], api.RegisterJob]], api.JobRegistered]
News = Event | api.JobWaiting | api.TaskStuck


class TaskJob(JobSession):
    """A registered or joined job, the owner of its session; ``asked`` is the registration.

    Raises:
        RpcError: the agent refused the job.
        AgentUnavailable: the agent was away for too long.
    """

    def __init__(self, session: Session, asked: api.RegisterJob, on_link: Callable[[bool], None]) -> None:
        super().__init__(asked)
        self._session = session
        self._on_link = on_link
        self._news: deque[News] = deque()
        self._registers = False  # an answer is outstanding
        self._early: list[Params] = []  # notifications that arrived before that answer
        session.owner = self
        self._register(session.call)

    def next(self, timeout_s: float | None) -> News | None:
        """Return the job's next event; None after the timeout or on another message.

        Raises:
            JobCancelled: a user cancelled the job.
            AgentUnavailable: the agent was away for too long.
            RpcError: a restarted agent refused the job.
        """
        if not self._news and self.failure is None:
            self._session.wait(timeout_s)
        with contextlib.suppress(ConnectionResetError):  # lost again: the next wait notices that and rejoins
            self._repeat_requests()
        if self._news:
            return self._news.popleft()
        if self.failure is not None:
            raise self.failure
        return None

    def place(self, stage: str, requests: Sequence[TaskRequest], opportunistic: Opportunistic) -> None:
        """Ask for nodes for the ready tasks of a stage. A refusal by the agent ends the tasks.

        Raises:
            JobCancelled: a user cancelled the job.
            AgentUnavailable: the agent was away for too long.
        """
        if self.failure is not None:
            raise self.failure
        names, request = self._request(stage, requests, opportunistic)
        try:
            self._session.call(m.PLACE, request)
        except RpcError as error:
            self._tasks.withdraw(names)
            self._news += [TaskEnded(name, Ended(by=EndedBy.REFUSED, reason=str(error))) for name in names]
        else:
            self._tasks.confirm(names)

    def progress(self, stages: Sequence[StageProgress]) -> None:
        """Report the job's progress to the master. A report during an outage is dropped."""
        if not self.over:
            told = list(stages) if self._session.welcome.skipped_tasks else without_skipped(stages)
            self._session.notify(m.PROGRESS, api.Progress(job=self.id, stages=told))

    def cancel_tasks(self, tasks: Sequence[str]) -> None:
        """Cancel tasks; :meth:`next` returns their ends.

        Raises:
            RpcError: the agent refused; no task is cancelled.
            AgentUnavailable: the agent was away for too long. The tasks are cancelled if it comes back.
        """
        wanted = self._tasks.want_no_more(tasks)
        try:
            self._settle(m.CANCEL_TASKS, lambda: api.TaskRefs(job=self.id, tasks=list(tasks)))
        except RpcError:
            self._tasks.want_again(wanted)
            raise
        self._news += [TaskEnded(name, ended) for name, ended in self._tasks.cancel(tasks)]

    def end(self, failed: str = "") -> None:
        """End the job; the agent gives back its placed work. ``failed``: why the job did not succeed."""
        if self._finish(None):
            self._settle(m.END_JOB, lambda: api.EndJob(job=self.id, failed=failed[:1000]))

    # ------------------------------------------------------------ Owner of the session

    def notified(self, method: str, params: Any) -> None:
        """Called by the session: handle a notification."""
        if (kind := _NOTIFICATIONS.get(method)) is not None:
            params = read_params(params, kind)
            if self._registers:
                self._early.append(params)
            else:
                self._handle(params)

    def relink(self) -> None:
        """Called by the session: join the job at a restarted agent; register it anew if it is unknown there."""
        if self.id and not self.over:
            try:
                self._register(self._session.call_once)
            except JobCancelled as error:
                self._finish(error)
                return
            if self.failure is not None:  # cancelled: the notification came with the answer
                return
            if (unwanted := self.cancellations_to_repeat()) is not None:
                self._session.notify(m.CANCEL_TASKS, unwanted)
            self._repeat_requests()

    def linked(self, linked: bool) -> None:
        """Called by the session: the agent is away, or back."""
        self._on_link(linked)

    # ------------------------------------------------------------ inside

    def _register(self, call: Call) -> None:
        """Register or join the job, then handle the notifications that arrived with the answer."""
        self._registers = True
        try:
            try:
                answer = call(m.REGISTER_JOB, self.registration)
            except RpcError as error:
                again = self.registration_after(error)
                answer = call(m.REGISTER_JOB, lambda: again)
        finally:
            self._registers = False
        self._news += [TaskEnded(name, ended) for name, ended in self.registered(answer)]
        if answer.admitted:
            self._news.append(Started())
        early, self._early = self._early, []
        for params in early:
            self._handle(params)

    def _handle(self, params: Params) -> None:
        if getattr(params, "job", "") != self.id:
            return
        match params:
            case api.JobWaiting() | api.TaskStuck():
                self._news.append(params)
            case api.CancelledBy(by=by):
                self._finish(JobCancelled(self.name, by))
            case api.TaskPlaced(task=task, node=node) if self._record(params):
                self._news.append(TaskPlaced(task, node))
            case api.TaskEnded(task=task, ended=ended) if self._record(params):
                self._news.append(TaskEnded(task, ended))
            case api.JobAdmitted() if self._record(params):
                self._news.append(Started())

    def _repeat_requests(self) -> None:
        """Request the outstanding tasks from a restarted agent that has admitted the job.

        Raises:
            ConnectionResetError: the connection was lost again.
        """
        for asked in self.requests_to_repeat():
            self._place_again(asked)

    def _place_again(self, asked: api.Place) -> None:
        try:
            self._session.call_once(m.PLACE, lambda: asked)
        except RpcError as error:
            self._news += [TaskEnded(name, ended) for name, ended in self._tasks.refused_again(asked, error)]

    def _settle(self, method: Method[P, Done], params: Callable[[], P]) -> None:
        """Report the end of something; if a restarted agent does not know it, that is the desired state."""
        try:
            self._session.call_once(method, params)
        except ConnectionResetError:
            with contextlib.suppress(RpcError):
                self._session.call(method, params)

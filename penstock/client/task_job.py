"""A job of commands over a :class:`~penstock.client.session.Session`, with blocking calls.

The agent's notifications about the job become the events of its :class:`~penstock.opgraph.JobManager`.
"""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from penstock.client.errors import JobCancelled
from penstock.client.placements import PlacementLedger
from penstock.client.session import Session
from penstock.model.container import Ended, EndedBy
from penstock.model.work import Opportunistic, TaskRequest
from penstock.opgraph import Event, Started, TaskEnded, TaskPlaced
from penstock.wire import agent_api as api
from penstock.wire import agent_methods as m
from penstock.wire.connection import read_params
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.jobs_api import CancelledBy

_NOTIFICATIONS: dict[str, type[api.Params]] = {
    each.name: each.params
    for each in (m.JOB_WAITING, m.JOB_ADMITTED, m.JOB_CANCELLED, m.TASK_PLACED, m.TASK_ENDED, m.TASK_STUCK)
}

News = Event | api.JobWaiting | api.TaskStuck


class TaskJob:
    """A registered or joined job, the owner of its session; ``asked`` is the registration.

    Raises:
        RpcError: the agent refused the job.
        AgentUnavailable: the agent was away for too long.
    """

    def __init__(self, session: Session, asked: api.RegisterJob, on_link: Callable[[bool], None]) -> None:
        self.id = ""
        self.admitted = False
        self._session = session
        self._asked = asked
        self._on_link = on_link
        self._tasks = PlacementLedger()
        self._news: deque[News] = deque()
        self._early: list[api.Params] = []  # notifications that arrived before the job's id
        self._owed = False  # whether outstanding tasks must still be requested from a restarted agent
        self._over = False
        self._cancelled: JobCancelled | None = None
        session.owner = self
        self._is_named(session.call("register_job", lambda: asked, api.JobRegistered))

    def next(self, timeout_s: float | None) -> News | None:
        """Return the job's next event; None after the timeout or on another message.

        Raises:
            JobCancelled: a user cancelled the job.
            AgentUnavailable: the agent was away for too long.
            RpcError: a restarted agent refused the job.
        """
        if not self._news and self._cancelled is None:
            self._session.wait(timeout_s)
        if self._owed and self.admitted:
            with contextlib.suppress(ConnectionResetError):  # lost again: the next wait notices that and rejoins
                self._ask_again()
        if self._news:
            return self._news.popleft()
        if self._cancelled is not None:
            raise self._cancelled
        return None

    def place(self, stage: str, requests: Sequence[TaskRequest], opportunistic: Opportunistic) -> None:
        """Ask for nodes for the ready tasks of a stage. A refusal by the agent ends the tasks.

        Raises:
            JobCancelled: a user cancelled the job.
            AgentUnavailable: the agent was away for too long.
        """
        if self._cancelled is not None:
            raise self._cancelled
        asked, names = list(requests), [request.task for request in requests]
        self._tasks.ask(stage, requests, opportunistic=opportunistic)
        try:
            self._session.call(
                "place",
                lambda: api.Place(job=self.id, stage=stage, tasks=asked, opportunistic=opportunistic),
                api.Done,
            )
        except RpcError as error:
            self._tasks.withdraw(names)
            self._news += [TaskEnded(name, Ended(by=EndedBy.REFUSED, reason=str(error))) for name in names]
        else:
            self._tasks.confirm(names)

    def progress(self, stages: Sequence[api.StageProgress]) -> None:
        """Report the job's progress to the master. A report during an outage is dropped."""
        if not self._over:
            self._session.notify("progress", api.Progress(job=self.id, stages=list(stages)))

    def cancel_tasks(self, tasks: Sequence[str]) -> None:
        """Cancel tasks; :meth:`next` returns their ends.

        Raises:
            RpcError: the agent refused.
            AgentUnavailable: the agent was away for too long.
        """
        self._settle("cancel_tasks", lambda: api.TaskRefs(job=self.id, tasks=list(tasks)))
        for name in self._tasks.cancel(tasks):
            ended = self._tasks.end_of(name)
            assert ended is not None
            self._news.append(TaskEnded(name, ended))

    def end(self) -> None:
        """End the job; the agent gives back its placed work."""
        if not self._over:
            self._over = True
            self._settle("end_job", lambda: api.JobRef(job=self.id))

    # ------------------------------------------------------------ Owner of the session

    def heard(self, method: str, params: Any) -> None:
        """Called by the session: handle a notification."""
        if (kind := _NOTIFICATIONS.get(method)) is not None:
            params = read_params(params, kind)
            if self.id:
                self._handle(params)
            else:
                self._early.append(params)

    def relink(self) -> None:
        """Called by the session: join the job at a restarted agent; register it anew if it is unknown there."""
        if not self.id or self._over:
            return
        self._owed, self.admitted = True, False
        before, self.id = self.id, ""
        try:
            self._is_named(self._registered_again(before))
        finally:
            self.id = self.id or before
        if self.admitted:
            self._ask_again()

    def linked(self, linked: bool) -> None:
        """Called by the session: the agent is away, or back."""
        self._on_link(linked)

    # ------------------------------------------------------------ inside

    def _is_named(self, answer: api.JobRegistered) -> None:
        """Take the job's id from the answer, then handle the notifications that arrived with it."""
        self.id = answer.job
        if answer.admitted:
            self._admit()
        early, self._early = self._early, []
        for params in early:
            self._handle(params)

    def _handle(self, params: api.Params) -> None:
        if getattr(params, "job", "") != self.id:
            return
        match params:
            case api.TaskPlaced(task=task, node=node) if self._tasks.told(params):
                self._news.append(TaskPlaced(task, node))
            case api.TaskEnded(task=task, ended=ended) if self._tasks.told(params):
                self._news.append(TaskEnded(task, ended))
            case api.JobWaiting() | api.TaskStuck():
                self._news.append(params)
            case api.JobRef():
                self._admit()
            case CancelledBy(by=by):
                self._over = True
                self._cancelled = JobCancelled(self._asked.name, by)

    def _admit(self) -> None:
        if not self.admitted:
            self.admitted = True
            self._news.append(Started())

    def _registered_again(self, job: str) -> api.JobRegistered:
        try:
            return self._register(job)
        except RpcError as error:
            if error.code is ErrorCode.REFUSED:  # it was cancelled in the meantime
                raise
        return self._register("")

    def _register(self, job: str) -> api.JobRegistered:
        again = msgspec.structs.replace(self._asked, job=job)
        return self._session.call_once("register_job", lambda: again, api.JobRegistered)

    def _ask_again(self) -> None:
        """Request the outstanding tasks from a restarted agent.

        Raises:
            ConnectionResetError: the connection was lost again.
        """
        self._owed = False
        for asked in self._tasks.to_ask_again(self.id):
            self._place_again(asked)

    def _place_again(self, asked: api.Place) -> None:
        try:
            self._session.call_once("place", lambda: asked, api.Done)
        except RpcError as error:
            self._news += [TaskEnded(name, ended) for name, ended in self._tasks.refused_again(asked, error)]

    def _settle(self, method: str, params: Callable[[], api.Params]) -> None:
        """Report the end of something; if a restarted agent does not know it, that is the desired state."""
        try:
            self._session.call_once(method, params, api.Done)
        except ConnectionResetError:
            with contextlib.suppress(RpcError):
                self._session.call(method, params, api.Done)

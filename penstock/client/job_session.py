"""PURE. The session of one job at the agent: its registration, also at a restarted agent, its admission, and its tasks.

The faces are :class:`penstock.client.job.Job` for asyncio and :class:`penstock.client.task_job.TaskJob` for commands
without an event loop. They send what the session returns, and pass the agent's answers and notifications to it.
:mod:`penstock.client.monotask_session` has the job's monotasks.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import msgspec

from penstock.client.errors import JobCancelled
from penstock.model.container import Ended, EndedBy
from penstock.model.work import Opportunistic, TaskRequest
from penstock.wire.connection_api import Params
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.job_api import JobAdmitted, JobRegistered, Place, RegisterJob, TaskEnded, TaskPlaced, TaskRefs


class _Task(msgspec.Struct):
    request: TaskRequest
    stage: str
    opportunistic: Opportunistic
    sent: bool = False  # the request was sent; whether it arrived may be unknown
    confirmed: bool = False  # the agent accepted the request
    cancelled: bool = False  # it is not requested again
    node: str | None = None
    ended: Ended | None = None


class NothingWanted(Exception):  # noqa: N818 - describes a state
    """All tasks of a request were cancelled before it was sent."""


class PlacementLedger:
    """The tasks that the agent was asked to place: the state that must survive its restart.

    Each is placed, and ends, at most once.
    """

    def __init__(self) -> None:
        self._tasks: dict[str, _Task] = {}

    def ask(self, stage: str, requests: Iterable[TaskRequest], *, opportunistic: Opportunistic) -> None:
        """Record tasks that are about to be sent.

        Raises:
            ValueError: a task of this name was requested before (the agent would answer with that task's end).
        """
        requests = list(requests)
        seen: set[str] = set()
        for name in (request.task for request in requests):
            if name in self._tasks or name in seen:
                raise ValueError(f"task {name!r} was asked for already; names are unique within a job")
            seen.add(name)
        for request in requests:
            self._tasks[request.task] = _Task(request, stage, opportunistic)

    def confirm(self, names: Iterable[str]) -> None:
        """Record that the agent accepted the tasks; they are requested again after a reconnection."""
        for name in names:
            self._tasks[name].confirmed = True

    def wanted(self, requests: Iterable[TaskRequest]) -> list[TaskRequest]:
        """Return those of recorded requests whose tasks are not cancelled, to be sent now. Others that were never sent
        end, as the agent is not asked for them: even if it refuses the cancellation.

        Raises:
            NothingWanted: all are cancelled.
        """
        wanted: list[TaskRequest] = []
        cancelled: list[TaskRequest] = []
        for request in requests:
            (cancelled if self._tasks[request.task].cancelled else wanted).append(request)
        self.cancel([each.task for each in cancelled if not self._tasks[each.task].sent])
        if cancelled and not wanted:
            raise NothingWanted
        for request in wanted:
            self._tasks[request.task].sent = True
        return wanted

    def withdraw(self, names: Iterable[str]) -> None:
        """Remove tasks that the agent did not accept."""
        for name in names:
            self._tasks.pop(name, None)

    def place(self, name: str, node: str) -> bool:
        """Record a placement; return whether it was new."""
        task = self._tasks.get(name)
        if task is None or task.ended is not None or task.node is not None:
            return False
        task.node = node
        return True

    def end(self, name: str, ended: Ended) -> bool:
        """Record an end; return whether it was new."""
        task = self._tasks.get(name)
        if task is None or task.ended is not None:
            return False
        task.ended = ended
        return True

    def done(self, names: Iterable[str]) -> list[str]:
        """End tasks that the framework executed; return those that had not ended before."""
        ended = Ended(by=EndedBy.EXIT, exit_status=0, reason="done by the framework")
        return [name for name in names if self.end(name, ended)]

    def want_no_more(self, names: Iterable[str]) -> list[str]:
        """Record tasks whose cancellation is about to be sent; return those of them that were wanted before."""
        wanted = [name for name in names if (task := self._tasks.get(name)) is not None and not task.cancelled]
        for name in wanted:
            self._tasks[name].cancelled = True
        return wanted

    def want_again(self, names: Iterable[str]) -> None:
        """Record tasks whose cancellation the agent refused."""
        for name in names:
            if (task := self._tasks.get(name)) is not None:
                task.cancelled = False

    def cancel(self, names: Iterable[str]) -> list[tuple[str, Ended]]:
        """End cancelled tasks; return those that end at once: all but placed commands, whose end the agent reports."""
        ended = Ended(by=EndedBy.CANCELLED, reason="cancelled by the framework")
        return [(name, ended) for name in names if not self._runs_as_command(name) and self.end(name, ended)]

    def clear(self, ended: Ended) -> list[str]:
        """End all remaining tasks, as the job or the connection is over; return them."""
        return [name for name in self._tasks if self.end(name, ended)]

    def to_ask_again(self, job: str) -> list[Place]:
        """Return the requests for the tasks whose placement or end is outstanding after a reconnection.

        Placed framework tasks are not among them: this process itself knows when they end.
        """
        groups: dict[tuple[str, Opportunistic], list[TaskRequest]] = {}
        for task in self._tasks.values():
            owed = task.ended is None and (task.node is None or task.request.command is not None)
            if owed and task.confirmed and not task.cancelled:
                groups.setdefault((task.stage, task.opportunistic), []).append(task.request)
        return [
            Place(job=job, stage=stage, tasks=requests, opportunistic=opportunistic)
            for (stage, opportunistic), requests in groups.items()
        ]

    def end_cancelled(self) -> list[tuple[str, Ended]]:
        """End the cancelled tasks; return those that had not ended before."""
        ended = Ended(by=EndedBy.CANCELLED, reason="cancelled by the framework; its job was lost with the agent")
        return [(name, ended) for name in self.to_cancel_again() if self.end(name, ended)]

    def to_cancel_again(self) -> list[str]:
        """Return the cancelled tasks whose end is outstanding after a reconnection."""
        return [name for name, task in self._tasks.items() if task.cancelled and task.ended is None]

    def refused_again(self, asked: Place, error: RpcError) -> list[tuple[str, Ended]]:
        """End the tasks that a restarted agent refuses; return those that had not ended before."""
        ended = Ended(by=EndedBy.REFUSED, reason=f"the restarted agent refused it: {error}")
        return [(request.task, ended) for request in asked.tasks if self.end(request.task, ended)]

    def node_of(self, name: str) -> str | None:
        """Return the node of a task.

        Raises:
            KeyError: the task was never requested.
        """
        return self._tasks[name].node

    def end_of(self, name: str) -> Ended | None:
        """Return how a task ended.

        Raises:
            KeyError: the task was never requested.
        """
        return self._tasks[name].ended

    def _runs_as_command(self, name: str) -> bool:
        task = self._tasks.get(name)
        return task is not None and task.request.command is not None and task.node is not None


class JobSession:
    """The base class of both faces of a job; ``asked`` is the registration.

    ``id`` is empty before the first registration. ``over``: nothing more is sent for the job or received about it;
    ``failure`` is the cause, None if the job was ended by this process.
    """

    def __init__(self, asked: RegisterJob) -> None:
        self.id = ""
        self.name = asked.name
        self.is_admitted = False
        self.over = False
        self.failure: Exception | None = None
        self._asked = asked
        self._tasks = PlacementLedger()
        self._repeats_requests = False  # as this agent does not know the requested tasks
        self._waits_for_admission = True  # with requests; False: some came before the job's admission, which is to come

    # ------------------------------------------------------------ registration

    def registration(self) -> RegisterJob:
        """Return the request that registers the job, or that joins it once it is registered."""
        return msgspec.structs.replace(self._asked, job=self.id) if self.id else self._asked

    def registration_after(self, error: RpcError) -> RegisterJob:
        """Return the request that follows on a refused one: a restarted agent may not know the job.

        Raises:
            JobCancelled: the job was cancelled meanwhile.
            RpcError: ``error``, if it is final: the job was refused.
        """
        if self.id and error.body.cancelled_by:
            raise JobCancelled(self.name, error.body.cancelled_by)
        if not self.id or error.code is ErrorCode.REFUSED:
            raise error
        return msgspec.structs.replace(self._asked, job="")

    def registered(self, answer: JobRegistered) -> list[tuple[str, Ended]]:
        """Record the agent's answer to a registration. In a new job, end the tasks that were cancelled in the last one,
        which is over; return them.
        """
        is_new = answer.job != self.id
        self._repeats_requests = bool(self.id)
        self.id = answer.job
        self.is_admitted = answer.admitted
        self._waits_for_admission |= answer.admitted
        return self._tasks.end_cancelled() if is_new else []

    def requests_to_repeat(self) -> list[Place]:
        """Return the requests for outstanding tasks, once at a restarted agent: after the admission, unless some of
        them came before it, and the job has not been admitted since.
        """
        if not self._repeats_requests or (self._waits_for_admission and not self.is_admitted):
            return []
        self._repeats_requests = False
        return self._tasks.to_ask_again(self.id)

    def cancellations_to_repeat(self) -> TaskRefs | None:
        """Return the cancellations whose tasks have not ended, after a registration."""
        names = self._tasks.to_cancel_again()
        return TaskRefs(job=self.id, tasks=names) if names else None

    # ------------------------------------------------------------ inside, for the faces

    def _request(
        self, stage: str, tasks: Sequence[TaskRequest], opportunistic: Opportunistic
    ) -> tuple[list[str], Callable[[], Place]]:
        """Record tasks; return their names, and the request for each attempt to send it. An attempt raises the job's
        failure if the job failed meanwhile.

        Raises:
            ValueError: a task of this name was requested before.
        """
        asked = list(tasks)
        self._tasks.ask(stage, asked, opportunistic=opportunistic)
        self._waits_for_admission &= self.is_admitted

        def request() -> Place:
            if self.failure is not None:
                raise self.failure
            return Place(job=self.id, stage=stage, tasks=self._tasks.wanted(asked), opportunistic=opportunistic)

        return [request.task for request in asked], request

    def _record(self, params: Params) -> bool:
        """Record a notification about the job; return whether it tells the face something new."""
        match params:
            case TaskPlaced(task=task, node=node):
                return self._tasks.place(task, node)
            case TaskEnded(task=task, ended=ended):
                return self._tasks.end(task, ended)
            case JobAdmitted():
                already = self.is_admitted
                self.is_admitted = self._waits_for_admission = True
                return not already
        return True

    def _finish(self, error: Exception | None) -> bool:
        """Record the end of the job; return False if it had ended already."""
        if self.over:
            return False
        self.over, self.failure = True, error
        return True

"""PURE. The session of one job at the agent: its registration, also at a restarted agent, its admission, and its tasks.

The faces are :class:`penstock.client.job.Job` for asyncio and :class:`penstock.client.task_job.TaskJob` for commands
without an event loop. They send what the session returns, and pass the agent's answers and notifications to it.
:mod:`penstock.client.monotask_session` has the job's monotasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from penstock.client.placements import PlacementLedger
from penstock.model.work import Opportunistic, TaskRequest
from penstock.wire.agent_api import JobRef, JobRegistered, Params, Place, RegisterJob, TaskEnded, TaskPlaced
from penstock.wire.errors import ErrorCode, RpcError


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
        self._repeats_requests = False  # at the job's admission, as this agent does not know the requested tasks

    # ------------------------------------------------------------ registration

    def registration(self) -> RegisterJob:
        """Return the request that registers the job, or that joins it once it is registered."""
        return msgspec.structs.replace(self._asked, job=self.id) if self.id else self._asked

    def registration_after(self, error: RpcError) -> RegisterJob:
        """Return the request that follows on a refused one: a restarted agent may not know the job.

        Raises:
            RpcError: ``error``, if it is final: the job was refused at first, or was cancelled meanwhile.
        """
        if not self.id or error.code is ErrorCode.REFUSED:
            raise error
        return msgspec.structs.replace(self._asked, job="")

    def registered(self, answer: JobRegistered) -> None:
        """Record the agent's answer to a registration."""
        self._repeats_requests = bool(self.id) or not answer.admitted
        self.id = answer.job
        self.is_admitted = answer.admitted

    def requests_to_repeat(self) -> list[Place]:
        """Return the requests for outstanding tasks, once after the admission at a restarted agent."""
        if not (self.is_admitted and self._repeats_requests):
            return []
        self._repeats_requests = False
        return self._tasks.to_ask_again(self.id)

    # ------------------------------------------------------------ inside, for the faces

    def _request(
        self, stage: str, tasks: Sequence[TaskRequest], opportunistic: Opportunistic
    ) -> tuple[list[str], Callable[[], Place]]:
        """Record tasks; return their names, and the request for each attempt to send it.

        Raises:
            ValueError: a task of this name was requested before.
        """
        asked = list(tasks)
        self._tasks.ask(stage, asked, opportunistic=opportunistic)
        return [request.task for request in asked], lambda: Place(
            job=self.id, stage=stage, tasks=asked, opportunistic=opportunistic
        )

    def _record(self, params: Params) -> bool:
        """Record a notification about the job; return whether it tells the face something new."""
        match params:
            case TaskPlaced() | TaskEnded():
                return self._tasks.told(params)
            case JobRef():
                already, self.is_admitted = self.is_admitted, True
                return not already
        return True

    def _finish(self, error: Exception | None) -> bool:
        """Record the end of the job; return False if it had ended already."""
        if self.over:
            return False
        self.over, self.failure = True, error
        return True

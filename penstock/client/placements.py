"""PURE. The tasks that a client requested from its agent: the client's state that must survive an agent's restart.

:mod:`penstock.client.monotask_session` has the monotasks.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from penstock.model.container import Ended, EndedBy
from penstock.model.work import Opportunistic, TaskRequest
from penstock.wire.agent_api import Place, TaskEnded, TaskPlaced
from penstock.wire.errors import RpcError


class _Task(msgspec.Struct):
    request: TaskRequest
    stage: str
    opportunistic: Opportunistic
    confirmed: bool = False  # the agent accepted the request
    node: str | None = None
    ended: Ended | None = None


class PlacementLedger:
    """The tasks of one job that the agent was asked to place. Each is placed, and ends, at most once."""

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

    def withdraw(self, names: Iterable[str]) -> None:
        """Remove tasks that the agent did not accept."""
        for name in names:
            self._tasks.pop(name, None)

    def told(self, news: TaskPlaced | TaskEnded) -> bool:
        """Record a task's placement or end; return whether that was new."""
        return self.place(news.task, news.node) if isinstance(news, TaskPlaced) else self.end(news.task, news.ended)

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

    def cancel(self, names: Iterable[str]) -> list[str]:
        """Cancel tasks; return those that end at once: all but placed commands, whose end the agent reports."""
        ended = Ended(by=EndedBy.CANCELLED, reason="cancelled by the framework")
        return [name for name in names if not self._runs_as_command(name) and self.end(name, ended)]

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
            if owed and task.confirmed:
                groups.setdefault((task.stage, task.opportunistic), []).append(task.request)
        return [
            Place(job=job, stage=stage, tasks=requests, opportunistic=opportunistic)
            for (stage, opportunistic), requests in groups.items()
        ]

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

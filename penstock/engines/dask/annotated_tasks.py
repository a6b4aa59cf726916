"""The job of a monotask: the cluster's own, or another job that placed the task.

A task may name a job of the agent in its annotation (``penstock: {"job": …, "task": …}``). Tasks of datasets do, as
their job has the memory, the priority and the placement that the master gave it. All grants for such a task, including
its transfers, are then requested in that job's name. The worker joins the job at the first of its tasks, and leaves it
some time after the last.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from penstock.client.gate import Gate
from penstock.engines.dask import hooks

if TYPE_CHECKING:
    from distributed.worker import Worker

#: A job is left after this time without tasks here (seconds).
LINGER_S = 10.0


@dataclass(frozen=True, slots=True)
class GrantOwner:
    """The gate, job and task in whose name grants are requested."""

    gate: Gate
    job: str
    task: str


#: The owner of the current context's work; None: the cluster's job.
GRANT_OWNER: ContextVar[GrantOwner | None] = ContextVar("penstock_grant_owner", default=None)


@dataclass(slots=True, eq=False)
class _Joined:
    """A joined job that placed tasks here."""

    gate: Gate
    joining: asyncio.Future[bool]
    users: int = 0
    leaving: asyncio.TimerHandle | None = field(default=None, repr=False)


class AnnotatedTasks:
    """Handles tasks of other jobs, for one worker, in its event loop. Install it outside the gating, which waits."""

    def __init__(self, worker: Worker, join: Callable[[str], Gate], patience_s: float) -> None:
        """``join`` returns a gate that joins a job by its id; its agent has ``patience_s`` to answer."""
        self._worker = worker
        self._join = join
        self._patience_s = patience_s
        self._joined: dict[str, _Joined] = {}
        self._restore: list[Callable[[], None]] = []

    def install(self) -> None:
        """Wrap the worker's instructions."""
        for name, wrapper in (("execute", self._execute), ("gather_dep", self._gather_dep)):
            restore = hooks.attempt("what tasks do for a job of their own", partial(self._wrap, name, wrapper))
            if restore is not None:
                self._restore.append(restore)

    def remove(self) -> None:
        """Unwrap them; tasks in progress keep their job."""
        for restore in reversed(self._restore):
            restore()
        self._restore.clear()

    def close(self) -> None:
        """Leave every job, from any thread, after the last task."""
        for one in self._joined.values():
            one.gate.close()
        self._joined.clear()

    def _wrap(self, name: str, wrapper: hooks.Wrapper) -> Callable[[], None]:
        hooks.need_tasks("dependents")
        return hooks.replace_method(self._worker, name, wrapper)

    # ------------------------------------------------------------ around the worker's instructions

    def _execute(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def in_its_job(job: str, name: str, key: Any, stimulus_id: str) -> Any:
            async with self._in_its_job(job, name):
                return await original(key, stimulus_id=stimulus_id)

        def execute(key: Any, *, stimulus_id: str) -> Awaitable[Any]:
            task = self._worker.state.tasks.get(key)
            if task is None or not task.annotations:  # most tasks, which should have no overhead
                return original(key, stimulus_id=stimulus_id)
            job, name = annotated_job([task])
            return in_its_job(job, name, key, stimulus_id) if job else original(key, stimulus_id=stimulus_id)

        return execute

    def _gather_dep(self, original: Callable[..., Awaitable[Any]]) -> Callable[..., Awaitable[Any]]:
        async def gather_dep(worker: str, to_gather: Any, total_nbytes: int, *, stimulus_id: str) -> Any:
            tasks = self._worker.state.tasks
            job, name = annotated_job(waiting for key in to_gather if key in tasks for waiting in tasks[key].dependents)
            if not job:
                return await original(worker, to_gather, total_nbytes, stimulus_id=stimulus_id)
            async with self._in_its_job(job, name):
                return await original(worker, to_gather, total_nbytes, stimulus_id=stimulus_id)

        return gather_dep

    @asynccontextmanager
    async def _in_its_job(self, job: str, task: str) -> AsyncIterator[None]:
        one = self._joined.get(job) or self._begin(job)
        if one.leaving is not None:
            one.leaving.cancel()
            one.leaving = None
        one.users += 1
        try:
            await asyncio.shield(one.joining)
            GRANT_OWNER.set(GrantOwner(one.gate, job, task))
            yield
        finally:
            one.users -= 1
            if not one.users:
                one.leaving = asyncio.get_running_loop().call_later(LINGER_S, self._leave, job, one)

    def _begin(self, job: str) -> _Joined:
        gate = self._join(job)
        joining = asyncio.ensure_future(asyncio.to_thread(gate.wait_connected, self._patience_s))
        one = self._joined[job] = _Joined(gate, joining)

        def asked(answer: asyncio.Future[bool]) -> None:
            if answer.cancelled() or not answer.result():
                gate.close()  # this agent is away or does not know the job: its tasks count as the cluster's

        joining.add_done_callback(asked)
        return one

    def _leave(self, job: str, one: _Joined) -> None:
        if not one.users and self._joined.get(job) is one:
            del self._joined[job]
            one.gate.close()


def annotated_job(tasks: Iterable[Any]) -> tuple[str, str]:
    """Return the job and task named by the first annotated task, or "", ""."""
    for task in tasks:
        said = (task.annotations or {}).get("penstock")
        if isinstance(said, dict) and isinstance(job := said.get("job"), str) and job:
            return job, str(said.get("task") or "")
    return "", ""

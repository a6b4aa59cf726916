"""The output of a job on this host for ``penstock logs JOB``: that of its tasks, and the messages of its manager.

As with ``penstock submit``, messages go to standard error, and so does the standard error of failed tasks.
"""

from __future__ import annotations

import asyncio
import contextlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, BinaryIO

import msgspec

from penstock.cli.copied_output import CopiedOutput, reader_is_gone
from penstock.cli.detach import manager_name
from penstock.cli.errors import CommandError, note
from penstock.cli.plain_text import enumeration, printable
from penstock.model.container import Ended, EndedBy
from penstock.wire.errors import ErrorCode, RpcError
from penstock.wire.jobs_api import MOST_NODES

if TYPE_CHECKING:
    from penstock.client import AgentClient
    from penstock.wire.jobs_api import Jobs, JobView

#: The intervals at which the output of a running job is read, and at which its containers are listed (seconds): on a
#: node with many containers the list is long.
_LOOK_S, _LIST_S = 0.25, 1.0
#: The longest wait for a master that is away, or does not know the job yet after a restart.
_PATIENCE_S = 60.0
#: The longest wait for the ends of tasks whose job's manager has ended: the agent is stopping them.
_STOP_S = 5.0


class _Headed:
    """An output of several tasks, with a line ``--- TASK`` wherever another task's output begins."""

    def __init__(self, to: BinaryIO) -> None:
        self._to = to
        self._heading = ""
        self._in_line = False

    def write(self, heading: str, data: bytes) -> None:
        """Write a part of the output below ``heading``; "": without one."""
        if heading != self._heading:
            above = "\n" if self._in_line else ""
            self._to.write(f"{above}--- {heading}\n".encode() if heading else above.encode())
            self._heading = heading
        self._to.write(data)
        self._to.flush()
        self._in_line = not data.endswith(b"\n")


class JobOutput:
    """The output of a job's containers on this host. ``stream`` of the tasks is copied to standard output."""

    def __init__(
        self, agent: AgentClient, job: str, view: JobView | None, stream: str, last_lines: int | None = None
    ) -> None:
        """``view``: the job as the master knows it, if it does. ``last_lines``: of what has been written before, only
        so many lines of each container are copied."""
        self._agent = agent
        self._job = job
        self._stream = stream
        self._last_lines = last_lines
        self._out, self._err = _Headed(sys.stdout.buffer), _Headed(sys.stderr.buffer)
        self._manager: CopiedOutput | None = None
        self._tasks: dict[str, CopiedOutput] = {}  # by container: those that are not complete
        self._containers: dict[str, str] = {}  # all of them, and the names of their tasks
        self._view = view
        self._viewed_at = time.monotonic()
        self._stops_at: float | None = None
        self._ends: list[asyncio.Future[Ended]] = []

    async def copy(self, *, follow: bool) -> None:
        """Copy the output so far; with ``follow``, continue until the job is over.

        Raises:
            BrokenPipeError: no process reads the output any more.
            CommandError: the master did not tell for a long time whether the job is over.
            RpcError: the job is another user's.
        """
        over, list_at = False, 0.0
        try:
            while True:
                if time.monotonic() >= list_at or self._manager_ended:
                    await self._attach()
                    over = await self._is_over()
                    if over:
                        await self._attach()  # to those that have come and ended meanwhile
                    list_at = time.monotonic() + _LIST_S
                await self._copy_new()
                self._last_lines = None  # all that is found from now on is new
                if over or not follow:
                    break
                if reader_is_gone():
                    raise BrokenPipeError
                await asyncio.sleep(_LOOK_S)
            await self._name_other_nodes()
        finally:
            for end in self._ends:
                end.cancel()
            await asyncio.gather(*self._ends, return_exceptions=True)

    async def _is_over(self) -> bool:
        """Return whether the job is over and its containers here have ended.

        Raises:
            CommandError: as :meth:`copy`.
        """
        view = view_of(await ask_master(self._agent, self._job), self._job)
        if view is not None:
            self._view, self._viewed_at = view, time.monotonic()
        ended_here = all(end.done() for end in self._ends)
        if self._manager is not None:
            return self._manager_ended and (ended_here or time.monotonic() >= self._stopped_by())
        if not ended_here:
            return False
        if self._view is None or self._view.state == "ended":  # None: there is no master, or it never knew the job
            return True
        if time.monotonic() - self._viewed_at > _PATIENCE_S:
            why = "the master is away, or was restarted meanwhile and does not know how it ended"
            raise CommandError(f"job {self._job!r}: {why}")
        return False

    def _stopped_by(self) -> float:
        """Return the time up to which the tasks of an ended manager are waited for; it is set at the first call."""
        if self._stops_at is None:
            self._stops_at = time.monotonic() + _STOP_S
        return self._stops_at

    @property
    def _manager_ended(self) -> bool:
        return self._manager is not None and self._manager.ended.done()

    async def _attach(self) -> None:
        """Attach to the job's containers that are not known yet, the first one first."""
        containers = (await self._agent.status()).get("containers", [])
        own = [one for one in containers if one.get("job") == self._job and one["container"] not in self._containers]
        for one in sorted(own, key=lambda one: one.get("started_at") or 0.0):
            container = str(one["container"])
            self._containers[container] = str(one.get("task") or container)
            task = await self._opened(container, self._stream, self._below(self._out, container))
            if task is not None:
                self._tasks[container] = task
        manager = manager_of(containers, self._job, self._view, self._agent.welcome.user)
        if manager is not None and self._manager is None:
            messages = self._err
            self._manager = await self._opened(
                str(manager["container"]), "stderr", lambda data: messages.write("", data)
            )

    async def _opened(self, container: str, stream: str, write: Callable[[bytes], object]) -> CopiedOutput | None:
        """Attach to a container; return None if the agent has dropped it for a later one.

        Raises:
            RpcError: it is another user's.
        """
        try:
            running = await self._agent.attach(container)
        except RpcError as error:
            if error.code is ErrorCode.BAD_REQUEST:
                return None
            raise
        self._ends.append(asyncio.ensure_future(running.wait()))
        return CopiedOutput(running, self._ends[-1], stream, write, self._last_lines)

    def _below(self, to: _Headed, container: str) -> Callable[[bytes], object]:
        return lambda data: to.write(self._heading(container), data)

    def _heading(self, container: str) -> str:
        view = self._view
        tasks = 0 if view is None else view.tasks_waiting + view.tasks_ready + view.tasks_running + view.tasks_done
        several = max(tasks, len(set(self._containers.values()))) > 1
        return printable(self._containers[container]) if several else ""

    async def _copy_new(self) -> None:
        """Copy what was written since the last call; the manager's messages last, as they report the ends of tasks."""
        failed = []
        for container, task in list(self._tasks.items()):
            await _copy(task)
            if task.complete:
                del self._tasks[container]
                if self._stream == "stdout" and _failed(task.ended.result()):
                    write = self._below(self._err, container)
                    failed.append(CopiedOutput(task.running, task.ended, "stderr", write, self._last_lines))
        for task in failed:
            await _copy(task)
        if self._manager is not None and not self._manager.complete:
            await _copy(self._manager)

    async def _name_other_nodes(self) -> None:
        view, here = self._view, self._agent.welcome.node
        if view is not None and view.origin != here:
            note("logs", f"job {self._job!r} was submitted on {view.origin}, where its messages are")
        known = await self._nodes()
        nodes = known.union(nodes_of(view))
        if others := sorted(nodes - {here}):
            where = enumeration(others, cut=not known and len(nodes) >= MOST_NODES)
            ran, has = ("ran", "has") if known or (view is not None and view.ran_on) else ("run", "may have")
            there = f"`penstock logs {self._job}` there {has} more"
            note("logs", f"other tasks of job {self._job!r} {ran} on {where}: {there}")

    async def _nodes(self) -> set[str]:
        """Return the nodes of all tasks by the results of a detached job, once it has any.

        An older master does not know them, nor does one that was started after tasks had ended.
        """
        if self._manager is None or not self._manager_ended:
            return set()
        with contextlib.suppress(RpcError, msgspec.DecodeError):
            results = msgspec.json.decode(await self._manager.running.output("stdout"), type=_Results)
            return {task.node for task in results.tasks if task.node}
        return set()


class _TaskResult(msgspec.Struct):
    node: str | None = None


class _Results(msgspec.Struct):
    """The part of a job's results (:func:`penstock.cli.report.print_json`) that names nodes."""

    tasks: list[_TaskResult] = []


async def _copy(output: CopiedOutput) -> None:
    """Copy what is new; an agent that has dropped the container for a later one has no more of it."""
    try:
        await output.copy()
    except RpcError:
        output.complete = output.ended.done()


def _failed(ended: Ended) -> bool:
    return not ended.ok and ended.by is not EndedBy.CANCELLED


async def ask_master(agent: AgentClient, job: str) -> Jobs | None:
    """Return the master's answer about a job; None: there is no master, or it is away."""
    try:
        return await agent.jobs.find([job])
    except RpcError:
        return None


def view_of(answer: Jobs | None, job: str) -> JobView | None:
    """Return the job's view in the master's answer, if it has one."""
    return next((view for view in answer.jobs if view.job == job), None) if answer is not None else None


def nodes_of(view: JobView | None) -> list[str]:
    """Return the nodes that took commands of a job; where the master knows none, those with tasks or slots of it
    now, which may have no output of it.
    """
    return [] if view is None else view.ran_on or view.nodes


def manager_of(containers: list[dict[str, Any]], job: str, view: JobView | None, caller: str) -> dict[str, Any] | None:
    """Return the container of a detached job's manager, if this host's agent has it.

    Any user may choose the name of a manager's container: it must belong to the job's owner, known from the master's
    ``view`` or from the containers of the job's tasks. Without both, only the caller's own container is taken.
    """
    users = {str(one.get("user")) for one in containers if one.get("job") == job}
    owner = view.user if view is not None else users.pop() if len(users) == 1 else caller
    managers = [one for one in containers if one.get("name") == manager_name(job) and one.get("user") == owner]
    return managers[-1] if managers else None


async def print_results(agent: AgentClient, manager: Mapping[str, Any], job: str, *, follow: bool) -> None:
    """Print the results of a detached job, as ``penstock submit --json`` does at its end; ``follow``: wait for it.

    Raises:
        CommandError: it has none, or none yet.
    """
    running = await agent.attach(str(manager["container"]))
    if follow:
        await running.wait()
    results = await running.output("stdout")
    if not results:
        if follow or manager.get("ended"):
            raise CommandError(f"job {job!r} ended without results; `penstock logs {job}` says why")
        raise CommandError(f"job {job!r} has no results yet; --follow waits for its end")
    sys.stdout.buffer.write(results)

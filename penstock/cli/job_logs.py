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
from penstock.cli.plain_text import printable
from penstock.model.container import Ended, EndedBy
from penstock.wire.errors import RpcError

if TYPE_CHECKING:
    from penstock.client import AgentClient
    from penstock.wire.jobs_api import JobView

#: The intervals at which the output of a running job is read, and at which its containers are listed (seconds): on a
#: node with many containers the list is long.
_LOOK_S, _LIST_S = 0.25, 1.0


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

    def __init__(self, agent: AgentClient, job: str, stream: str, last_lines: int | None = None) -> None:
        """``last_lines``: of what has been written before, only so many lines of each container are copied."""
        self._agent = agent
        self._job = job
        self._stream = stream
        self._last_lines = last_lines
        self._out, self._err = _Headed(sys.stdout.buffer), _Headed(sys.stderr.buffer)
        self._manager: CopiedOutput | None = None
        self._tasks: dict[str, CopiedOutput] = {}  # by container: those that are not complete
        self._containers: dict[str, str] = {}  # all of them, and the names of their tasks
        self._view: JobView | None = None
        self._ends: list[asyncio.Future[Ended]] = []

    async def copy(self, *, follow: bool) -> None:
        """Copy the output so far; with ``follow``, continue until the job is over.

        Raises:
            BrokenPipeError: no process reads the output any more.
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
        try:
            self._view = next(iter((await self._agent.jobs.find([self._job])).jobs), None)
            over = self._view is None or self._view.state == "ended"
        except RpcError:  # there is no master, or it is away
            over = True
        return self._manager_ended if self._manager else over and all(end.done() for end in self._ends)

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
            with contextlib.suppress(RpcError):  # the agent has dropped it for a later one
                self._tasks[container] = await self._opened(container, self._stream, self._below(self._out, container))
        manager = manager_of(containers, self._job, self._agent.welcome.user)
        if manager is not None and self._manager is None:
            messages = self._err
            self._manager = await self._opened(
                str(manager["container"]), "stderr", lambda data: messages.write("", data)
            )

    async def _opened(self, container: str, stream: str, write: Callable[[bytes], object]) -> CopiedOutput:
        running = await self._agent.attach(container)
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
        others = {*(await self._nodes()), *(view.nodes if view is not None else [])} - {here}
        if others:
            where = ", ".join(sorted(others))
            note("logs", f"other tasks of job {self._job!r} ran on {where}: `penstock logs {self._job}` there has more")

    async def _nodes(self) -> set[str]:
        """Return the nodes of all tasks by the results of a detached job, once it has any."""
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


def manager_of(containers: list[dict[str, Any]], job: str, user: str) -> dict[str, Any] | None:
    """Return the container of a detached job's manager, if this host's agent has it."""
    managers = [one for one in containers if one.get("name") == manager_name(job)]
    managers.sort(key=lambda one: one.get("user") == user)  # any user may choose this name
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

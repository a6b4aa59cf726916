"""``penstock submit JOB.toml``: a graph of commands, placed by the master, run by the agents."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from penstock.cli import arguments, jobfile
from penstock.cli.jobfile import JobFile
from penstock.cli.report import Report, print_json, print_table
from penstock.cli.session import converse
from penstock.client import AgentClient, AgentUnavailable, Job, NotPlaced
from penstock.model.container import Ended, EndedBy
from penstock.model.work import OpportunisticJob
from penstock.opgraph import (
    CancelRequested,
    CancelTasks,
    Event,
    JobManager,
    JobOver,
    PlaceStage,
    Started,
    TaskEnded,
    TaskPlaced,
    TaskSettled,
    TaskState,
)
from penstock.wire.errors import RpcError

#: So much of a failed task's output is shown: its last lines.
_TAIL_LINES = 10
#: How often the master is told how far the job is.
_PROGRESS_S = 0.5


def main(argv: list[str]) -> int:
    """The command; returns its exit status."""
    parser = arguments.Parser("submit", "Run a job: a graph of commands from a TOML file.", jobfile.__doc__)
    parser.add_argument("job", type=Path, metavar="JOB.toml")
    parser.add_argument("--json", action="store_true", help="print the results as JSON")
    parser.add_argument(
        "--opportunistic",
        type=which,
        default=None,
        metavar="WHICH",
        help="what may run on slack, whatever the file says: none, all, only (all of it, and in no regular room), or "
        "stages, separated by commas",
    )
    options = parser.parse_args(argv)
    file = JobFile(options.job)
    if options.opportunistic is not None:
        file.allow(options.opportunistic)
    return converse(_Submission(file, as_json=options.json).run())


def which(text: str) -> OpportunisticJob:
    """What ``--opportunistic`` says."""
    words: dict[str, OpportunisticJob] = {"none": False, "all": True, "only": "only"}
    return words[text] if text in words else [name.strip() for name in text.split(",") if name.strip()]


class _Submission:
    """Feeds the job manager and carries out what it says."""

    def __init__(self, file: JobFile, *, as_json: bool) -> None:
        self._file = file
        self._as_json = as_json
        self._manager = JobManager(file.graph, fail_fast=file.fail_fast)
        self._report = Report(file.name, self._manager)
        self._events: asyncio.Queue[Event | AgentUnavailable] = asyncio.Queue()
        self._watching: set[asyncio.Task[None]] = set()
        self._stopped_by: signal.Signals | None = None
        self._job: Job

    async def run(self) -> int:
        """The exit status: 0 if every task succeeded, 128 + n if signal n stopped the job, else 1."""
        file = self._file
        self._catch_signals()
        async with await AgentClient.connect(client="penstock submit") as agent:
            memory_bytes = file.memory_bytes(agent.welcome.capacity.memory_bytes)
            self._job = await agent.register_job(
                file.name, memory_bytes, file.priority, opportunistic=file.opportunistic
            )
            with self._report:
                watched = [self._watch(self._admission()), self._watch(self._progress())]
                try:
                    await self._until_over()
                finally:
                    for one in watched:
                        one.cancel()
            self._job.progress(self._manager.progress())
            outputs = await _failed_outputs(agent, self._job, self._manager)
            await self._job.end()
        if self._as_json:
            print_json(self._job.id, file.name, self._manager, outputs)
        else:
            print_table(self._manager, outputs)
        if self._stopped_by is not None:
            return 128 + self._stopped_by
        return 0 if all(state is TaskState.DONE for state in self._manager.states.values()) else 1

    async def _until_over(self) -> None:
        while True:
            event = await self._events.get()
            if isinstance(event, AgentUnavailable):
                raise event
            for instruction in self._manager.handle(event):
                match instruction:
                    case PlaceStage():
                        await self._place(instruction)
                    case CancelTasks(tasks):
                        await self._job.cancel_tasks(tasks)
                    case TaskSettled():
                        self._report.settled(instruction)
                    case JobOver():
                        return

    async def _place(self, wanted: PlaceStage) -> None:
        requests = [self._file.requests[name] for name in wanted.tasks]
        try:
            await self._job.place(wanted.stage, requests, wanted.opportunistic)
        except RpcError as error:
            for name in wanted.tasks:
                self._events.put_nowait(TaskEnded(name, Ended(by=EndedBy.REFUSED, reason=str(error))))
            return
        for name in wanted.tasks:
            self._watch(self._follow(name))

    async def _admission(self) -> None:
        try:
            async with asyncio.timeout(1):
                await self._job.admitted()
        except TimeoutError:
            self._report.say("waiting until the cluster has memory for the job")
            await self._job.admitted()
        self._events.put_nowait(Started())

    async def _progress(self) -> None:
        """What orders jobs by what is left of them is to know of the stages that are not ready, too."""
        while True:
            self._job.progress(self._manager.progress())
            await asyncio.sleep(_PROGRESS_S)

    async def _follow(self, task: str) -> None:
        try:
            self._events.put_nowait(TaskPlaced(task, await self._job.placed(task)))
            ended = await self._job.ended(task)
        except NotPlaced as error:
            ended = error.ended
        self._events.put_nowait(TaskEnded(task, ended))

    def _watch(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        async def watched() -> None:
            try:
                await work
            except AgentUnavailable as error:
                self._events.put_nowait(error)

        task = asyncio.create_task(watched())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return task

    def _catch_signals(self) -> None:
        main = asyncio.current_task()
        assert main is not None

        def stop(number: signal.Signals) -> None:
            if self._stopped_by is not None or not hasattr(self, "_job"):
                main.cancel()  # at the second one, whatever is still running; the agent ends it with our connection
                return
            self._stopped_by = number
            self._report.say("cancelling; once more to stop waiting for it")
            self._events.put_nowait(CancelRequested("cancelled by the user"))

        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop, number)


async def _failed_outputs(agent: AgentClient, job: Job, manager: JobManager) -> dict[str, str]:
    """The last lines of what each failed task wrote, as far as this host's agent still has it."""
    failed = [name for name, state in manager.states.items() if state is TaskState.FAILED and name in manager.nodes]
    if not failed:
        return {}
    status = await agent.status()
    containers = {
        one.get("task"): one.get("container") for one in status.get("containers", []) if one.get("job") == job.id
    }
    outputs = {}
    for name in failed:
        if name in containers:
            outputs[name] = await _tail(agent, str(containers[name]))
        elif manager.nodes[name] != agent.welcome.node:
            outputs[name] = f"(its output is on {manager.nodes[name]})"
    return outputs


async def _tail(agent: AgentClient, container: str) -> str:
    try:
        attached = await agent.attach(container)
        written = await attached.output("stdout") + await attached.output("stderr")
    except RpcError as error:
        return f"(its output cannot be read: {error})"
    lines = written.decode("utf-8", "replace").splitlines()
    return "\n".join(lines[-_TAIL_LINES:]) if lines else "(it wrote nothing)"

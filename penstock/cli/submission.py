"""A job on its way: registered, placed, watched, told of, whether a file or options described it."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Coroutine
from typing import Any, Protocol

from penstock.cli.errors import CommandError
from penstock.cli.report import Report, print_json, print_table
from penstock.client import AgentClient, AgentUnavailable, Job, NotPlaced
from penstock.model.container import Ended, EndedBy
from penstock.model.work import OpportunisticJob, TaskRequest
from penstock.opgraph import (
    CancelRequested,
    CancelTasks,
    Event,
    JobManager,
    JobOver,
    PlaceStage,
    Started,
    TaskEnded,
    TaskGraph,
    TaskPlaced,
    TaskSettled,
    TaskState,
)
from penstock.wire.agent_api import TaskStuck
from penstock.wire.errors import RpcError

#: So much of a failed task's output is shown: its last lines.
_TAIL_LINES = 10
#: How often the master is told how far the job is.
_PROGRESS_S = 0.5


class Work(Protocol):
    """What is to be run: ``graph`` says what comes when, ``requests`` what each task asks."""

    name: str
    priority: float
    fail_fast: bool
    opportunistic: OpportunisticJob
    graph: TaskGraph
    requests: dict[str, TaskRequest]

    def memory_bytes(self, host_bytes: int) -> int:
        """M(j) of Ursa §4.2.1, for a host of this size."""


class Submission:
    """Feeds the job manager and carries out what it says."""

    def __init__(self, work: Work, *, as_json: bool, reservation: str = "") -> None:
        """``reservation``: the one that it is a production job of."""
        self._work = work
        self._reservation = reservation
        self._as_json = as_json
        self._manager = JobManager(work.graph, fail_fast=work.fail_fast)
        self._report = Report(work.name, self._manager)
        self._events: asyncio.Queue[Event | AgentUnavailable] = asyncio.Queue()
        self._watching: set[asyncio.Task[None]] = set()
        self._stopped_by: signal.Signals | None = None
        self._job: Job

    async def run(self) -> int:
        """The exit status: 0 if every task succeeded, 128 + n if signal n stopped the job, else 1."""
        work = self._work
        self._catch_signals()
        async with await AgentClient.connect(client="penstock submit") as agent:
            _needs_master(work, agent)
            memory_bytes = work.memory_bytes(agent.welcome.capacity.memory_bytes)
            self._job = await agent.register_job(
                work.name,
                memory_bytes,
                work.priority,
                opportunistic=work.opportunistic,
                reservation=self._reservation,
            )
            self._job.on_stuck = self._stuck
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
            print_json(self._job.id, work.name, self._manager, outputs)
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
        requests = [self._work.requests[name] for name in wanted.tasks]
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

    def _stuck(self, stuck: TaskStuck) -> None:
        self._report.say(
            f"{stuck.task} is late, and {self._manager.nodes.get(stuck.task, 'its node')} has nothing left to give; "
            f"most room is in {stuck.helper} on {stuck.node}"
        )

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


def _needs_master(work: Work, agent: AgentClient) -> None:
    """Raises: CommandError: it has executors, and nobody would place them."""
    if not agent.welcome.master and any(request.executor is not None for request in work.requests.values()):
        raise CommandError(
            f"executors are placed by the master, and the agent of {agent.welcome.node} has none; "
            "name it with `master` in its configuration, or start both with `penstock up`"
        )


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

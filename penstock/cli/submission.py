"""A job on its way: registered, placed, watched, told of, whether a file or options described it."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import Callable, Coroutine
from typing import Any, Protocol

from penstock.cli.errors import CommandError
from penstock.cli.report import Report, print_json, print_table
from penstock.client import AgentClient, AgentUnavailable, Job, JobCancelled, NotPlaced
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
from penstock.wire.agent_api import JobWaiting, TaskStuck
from penstock.wire.errors import RpcError

#: So much of a failed task's output is shown: its last lines.
_TAIL_LINES = 10
#: How often the master is told how far the job is.
_PROGRESS_S = 0.5
#: How long an agent that went away is waited for, seconds: by a detached job manager, and at a prompt, where Ctrl-C
#: ends the waiting. The job goes on meanwhile, and an upgrade of a busy host takes more than half a minute.
_PATIENCE_S, _PATIENCE_AT_A_PROMPT_S = 3600.0, 300.0


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

    def __init__(
        self, work: Work, *, as_json: bool, reservation: str = "", quiet: bool = False, manages: str = ""
    ) -> None:
        """``reservation``: the one that it is a production job of; ``manages``: the id of the job where it was
        registered already, by who detached from it."""
        self._work = work
        self._reservation = reservation
        self._as_json = as_json
        self._manages = manages
        self._manager = JobManager(work.graph, fail_fast=work.fail_fast)
        self._report = Report(work.name, self._manager, quiet=quiet)
        self._events: asyncio.Queue[Event | JobWaiting | Exception] = asyncio.Queue()
        self._watching: set[asyncio.Task[None]] = set()
        self._stopped_by: signal.Signals | None = None
        self._job: Job

    async def run(self) -> int:
        """The exit status: 0 if every task succeeded, 128 + n if signal n stopped the job, else 1."""
        work = self._work
        self._catch_signals()
        patience_s = _PATIENCE_S if self._manages else _PATIENCE_AT_A_PROMPT_S
        async with await AgentClient.connect(client="penstock submit", reconnect_s=patience_s) as agent:
            self._job = await register(agent, work, self._reservation, self._manages, self._events.put_nowait)
            self._job.on_stuck = self._stuck
            agent.on_link = self._linked
            self._report.begins(self._job.id)
            with self._report:
                watched = [self._watch(self._admission()), self._watch(self._progress())]
                try:
                    await self._until_over()
                except JobCancelled as cancelled:
                    self._cancelled(cancelled)
                except CommandError:
                    self._job.progress(self._manager.progress())  # who hears of no tasks takes the job for done
                    await self._job.end()
                    raise
                finally:
                    for one in watched:
                        one.cancel()
            if self._stopped_by is None:  # what was never asked for is not done: nobody is to hear that all is
                self._job.progress(self._manager.progress())
            outputs = await _failed_outputs(agent, self._job, self._manager)
            if self._as_json:
                print_json(self._job.id, work.name, self._manager, outputs)
            else:
                print_table(self._manager, outputs)
            sys.stdout.flush()  # who waits for the job's end finds its results
            await self._job.end()
        if self._stopped_by is not None:
            return 128 + self._stopped_by
        return 0 if all(state is TaskState.DONE for state in self._manager.states.values()) else 1

    def _linked(self, linked: bool) -> None:
        patience = f"{_PATIENCE_S if self._manages else _PATIENCE_AT_A_PROMPT_S:g} s"
        away = f"the agent went away: the job goes on, the next agent is waited for ({patience} at most)"
        self._report.say("the agent is back" if linked else away)

    async def _until_over(self) -> None:
        while True:
            event = await self._events.get()
            if isinstance(event, Exception):
                raise event
            if isinstance(event, JobWaiting):
                self._waits(event)
                continue
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

    def _cancelled(self, cancelled: JobCancelled) -> None:
        """Somebody did; what was asked for ended by that."""
        reason = f"cancelled by {cancelled.by}"
        self._report.say(reason)
        ended = Ended(by=EndedBy.CANCELLED, reason=reason)
        for instruction in self._manager.handle(CancelRequested(reason)):
            for task in instruction.tasks if isinstance(instruction, CancelTasks) else ():
                self._manager.handle(TaskEnded(task, ended))

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
            self._report.show()
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
            except (AgentUnavailable, JobCancelled) as error:
                self._events.put_nowait(error)

        task = asyncio.create_task(watched())
        self._watching.add(task)
        task.add_done_callback(self._watching.discard)
        return task

    def _waits(self, waiting: JobWaiting) -> None:
        """Say what the job waits for, or give up where no waiting helps."""
        if waiting.never:
            raise CommandError(waiting.why)
        self._report.say(f"waits: {waiting.why}")

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


async def register(
    agent: AgentClient,
    work: Work,
    reservation: str,
    job: str = "",
    on_waiting: Callable[[JobWaiting], object] | None = None,
) -> Job:
    """Register a job of commands, or join it; ``on_waiting`` hears why it is not admitted yet.

    Raises:
        CommandError: it has executors, and nobody would place them.
        RpcError: refused.
    """
    _needs_master(work, agent)
    return await agent.register_job(
        work.name,
        work.memory_bytes(agent.welcome.capacity.memory_bytes),
        work.priority,
        job=job,
        opportunistic=work.opportunistic,
        reservation=reservation,
        on_waiting=on_waiting,
    )


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

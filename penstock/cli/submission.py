"""A job's submission, from a file or from options: registration, placement, progress, results."""

from __future__ import annotations

import sys
import time
from collections import deque
from typing import TYPE_CHECKING

from penstock import paths
from penstock.cli.errors import CommandError
from penstock.cli.report import Report, print_json, print_table
from penstock.cli.work import Work
from penstock.client.errors import JobCancelled
from penstock.client.session import Session
from penstock.client.signals import Signals
from penstock.client.task_job import TaskJob
from penstock.model.container import Ended, EndedBy
from penstock.model.units import counted
from penstock.model.work import StageProgress
from penstock.opgraph import (
    AdmissionAwaited,
    CancelRequested,
    CancelTasks,
    Event,
    JobManager,
    JobOver,
    PlaceStage,
    Started,
    TaskEnded,
    TaskSettled,
    TaskState,
)
from penstock.wire.connection_api import Welcome
from penstock.wire.errors import RpcError
from penstock.wire.job_api import JobWaiting, RegisterJob, TaskStuck

if TYPE_CHECKING:
    import signal

    from penstock.client.blocking_requests import BlockingRequests
else:
    import _signal as signal  # as in penstock.client.signals

#: The number of last lines shown of a failed task's output.
_TAIL_LINES = 10
#: The shortest interval between reports of progress to the master, and between updates of the bars (seconds).
_PROGRESS_S = 0.5
#: The user is told that the job waits for admission after this time (seconds).
_WAITS_AFTER_S = 1.0
#: The longest waits for an agent that went away (seconds): of a detached job manager, and at a prompt, where Ctrl-C
#: ends the wait. The job continues meanwhile, and an upgrade of a busy host takes more than half a minute.
_PATIENCE_S, _PATIENCE_AT_A_PROMPT_S = 3600.0, 300.0


class Submission:
    """Passes events to the job manager and executes its instructions."""

    def __init__(
        self, work: Work, *, as_json: bool, reservation: str = "", quiet: bool = False, manages: str = ""
    ) -> None:
        """``reservation``: the job is a production job of it; ``manages``: the id of a job that a detached submission
        has registered already."""
        self._work = work
        self._reservation = reservation
        self._as_json = as_json
        self._manages = manages
        self._patience_s = _PATIENCE_S if manages else _PATIENCE_AT_A_PROMPT_S
        self._manager = JobManager(work.graph, fail_fast=work.fail_fast)
        self._report = Report(work.name, self._manager, quiet=quiet)
        self._requested: deque[Event] = deque()  # the user's requests
        self._waits_since: float | None = None  # start of the wait for admission, until the user is told of it
        self._progress: list[StageProgress] = []  # the last report to the master
        self._progress_at = 0.0  # the earliest time of the next report
        self._progressed = True
        self._job: TaskJob | None = None
        self._signals = Signals((signal.SIGINT, signal.SIGTERM), self._stop, self._gives_up)
        self._stopped_by: int | None = None

    def run(self) -> int:
        """Run the job; return the exit status: 0 if every task succeeded, 128 + n if signal n stopped the job, else 1.

        Raises:
            KeyboardInterrupt: a signal arrived before the job was registered, or a second one.
            CommandError: the job can never be admitted, or it has executors and there is no master to place them.
            RpcError: the agent refused the job.
            AgentUnavailable: there is no agent, or it was away for too long.
        """
        with (
            self._signals,
            Session.connect(
                paths.agent_socket(), "penstock submit", patience_s=self._patience_s, signals=self._signals
            ) as session,
        ):
            asked = registration(self._work, session.welcome, self._reservation, self._manages)
            job = self._job = TaskJob(session, asked, self._linked)
            if job.failure is None:  # otherwise it was cancelled before this process joined it
                self._report.begins(job.id)
            with self._report:
                try:
                    if not job.is_admitted:
                        host_bytes = session.welcome.capacity.memory_bytes
                        self._handle(job, AdmissionAwaited(host_bytes, self._work.opportunistic))
                    self._until_over(job)
                except JobCancelled as cancelled:
                    self._cancelled(cancelled)
                except CommandError as error:
                    job.end(str(error))
                    raise
            if self._stopped_by is None:  # tasks that were never requested are not done, and must not be reported so
                job.progress(self._manager.progress())
            self._print(job.id, _failed_outputs(session, job.id, self._manager))
            job.end(_refusals(self._manager))
        if self._stopped_by is not None:
            return 128 + self._stopped_by
        return 0 if all(state is TaskState.DONE for state in self._manager.states.values()) else 1

    def _print(self, job: str, outputs: dict[str, str]) -> None:
        if self._as_json:
            print_json(job, self._work.name, self._manager, outputs)
        else:
            print_table(self._manager, outputs)
        sys.stdout.flush()  # a process that waits for the job's end finds its results

    def _linked(self, linked: bool) -> None:
        away = f"the agent went away: the job goes on, the next agent is waited for ({self._patience_s:g} s at most)"
        self._report.say("the agent is back" if linked else away)
        self._progress, self._progressed = [], True  # the next agent has no report yet

    def _until_over(self, job: TaskJob) -> None:
        self._waits_since = None if job.is_admitted else time.monotonic()
        while not self._manager.over:
            self._stop()  # with many events, it is long until the next wait for a signal
            self._tell_progress(job)
            news = self._requested.popleft() if self._requested else job.next(self._timeout_s())
            if isinstance(news, JobWaiting):
                self._waits(news)
            elif isinstance(news, TaskStuck):
                self._stuck(news)
            elif news is not None:
                self._handle(job, news)

    def _handle(self, job: TaskJob, event: Event) -> None:
        self._progressed = True
        if isinstance(event, Started):
            self._waits_since = None
        for instruction in self._manager.handle(event):
            match instruction:
                case PlaceStage(stage, tasks, opportunistic):
                    job.place(stage, [self._work.requests[name] for name in tasks], opportunistic)
                case CancelTasks(tasks):
                    job.cancel_tasks(tasks)
                case TaskSettled():
                    self._report.settled(instruction)
                case JobOver():
                    return

    def _timeout_s(self) -> float | None:
        """Return the longest next wait in seconds; None: no limit."""
        now, due = time.monotonic(), []
        if self._waits_since is not None:
            due.append(self._waits_since + _WAITS_AFTER_S)
        if self._progressed:
            due.append(self._progress_at)
        return max(0.0, min(due) - now) if due else None

    def _tell_progress(self, job: TaskJob) -> None:
        """Report progress, including stages that are not ready: orders by remaining work need it."""
        now = time.monotonic()
        if self._waits_since is not None and now >= self._waits_since + _WAITS_AFTER_S:
            self._report.say("waiting until the cluster has memory for the job")
            self._waits_since = None
        if not self._progressed or now < self._progress_at:
            return
        self._progressed = False
        self._report.show()
        progress = self._manager.progress()
        if progress != self._progress:
            self._progress = progress
            job.progress(progress)
        self._progress_at = time.monotonic() + _PROGRESS_S  # of a large job, the report itself takes longer

    def _cancelled(self, cancelled: JobCancelled) -> None:
        """Handle a cancellation by a user: the requested tasks have ended by it."""
        reason = f"cancelled by {cancelled.by}"
        self._report.say(reason)
        ended = Ended(by=EndedBy.CANCELLED, reason=reason)
        for instruction in self._manager.handle(CancelRequested(reason)):
            for task in instruction.tasks if isinstance(instruction, CancelTasks) else ():
                self._manager.handle(TaskEnded(task, ended))

    def _waits(self, waiting: JobWaiting) -> None:
        """Report the reason for waiting; give up if the job can never be admitted."""
        if waiting.never:
            raise CommandError(waiting.why)
        self._waits_since = None  # the reason says more than the line without one
        self._report.say(f"waits: {waiting.why}")

    def _stuck(self, stuck: TaskStuck) -> None:
        self._report.say(
            f"{stuck.task} is late, and {self._manager.nodes.get(stuck.task, 'its node')} has no free resources; "
            f"{stuck.helper} on {stuck.node} has the most"
        )

    def _gives_up(self, number: int) -> bool:
        """Return whether a signal ends the command at once: before there is a job, and the second time. The agent then
        ends the running tasks, as our connection is closed."""
        return self._job is None or len(self._signals.received) > 1

    def _stop(self) -> None:
        """Cancel the job if a first signal has arrived."""
        if self._stopped_by is None and self._signals.received:
            self._stopped_by = self._signals.received[0]
            self._report.say("cancelling; once more to stop waiting for it")
            self._requested.append(CancelRequested("cancelled by the user"))


def registration(work: Work, agent: Welcome, reservation: str, job: str = "") -> RegisterJob:
    """Return the parameters that register a job of commands, or join it.

    Raises:
        CommandError: the job has executors, and there is no master to place them.
    """
    if not agent.master and any(request.executor is not None for request in work.requests.values()):
        raise CommandError(
            f"executors are placed by the master, and the agent of {agent.node} has none; "
            "name it with `master` in its configuration, or start both with `penstock up`"
        )
    return RegisterJob(
        name=work.name,
        memory_bytes=work.memory_bytes(agent.capacity.memory_bytes),
        priority=work.priority,
        job=job,
        opportunistic=work.opportunistic,
        reservation=reservation,
    )


def _refusals(manager: JobManager) -> str:
    """Return how many tasks were refused, and why the first one was; "": none. The master does not know these."""
    refused = [name for name, ended in manager.ends.items() if ended.by is EndedBy.REFUSED]
    if not refused:
        return ""
    return f"{counted(len(refused), 'task')} refused; first {refused[0]}: {manager.ends[refused[0]].reason}"


def _failed_outputs(session: Session, job: str, manager: JobManager) -> dict[str, str]:
    """Return the last lines of each failed task's output, if this host's agent still stores it."""
    failed = [name for name, state in manager.states.items() if state is TaskState.FAILED and name in manager.nodes]
    if not failed:
        return {}
    from penstock.client.blocking_requests import BlockingRequests, answered  # most jobs start without these

    agent = BlockingRequests(session)
    status = answered(agent.status())
    containers = {
        one.get("task"): one.get("container") for one in status.get("containers", []) if one.get("job") == job
    }
    outputs = {}
    for name in failed:
        if name in containers:
            outputs[name] = answered(_tail(agent, str(containers[name])))
        elif manager.nodes[name] != session.welcome.node:
            outputs[name] = f"(its output is on {manager.nodes[name]})"
    return outputs


async def _tail(agent: BlockingRequests, container: str) -> str:
    from penstock.client.requests import whole_output

    try:
        streams = [await whole_output(agent, container, stream) for stream in ("stdout", "stderr")]
    except RpcError as error:
        return f"(its output cannot be read: {error})"
    lines = [line for written in streams for line in written.decode("utf-8", "replace").splitlines()]
    return "\n".join(lines[-_TAIL_LINES:]) if lines else "(it wrote nothing)"

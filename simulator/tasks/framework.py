"""Simulate a job's processes: a job manager at its origin, and a job process on every node that gets its tasks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from agent.core import events as e
from penstock.model import KINDS, ContainerSpec, KindAmounts, Limits, MonotaskSpec, Sizing, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import (
    Complete,
    Completion,
    EndJob,
    Grants,
    JobAdmitted,
    JobRegistered,
    Notice,
    Place,
    Progress,
    RegisterJob,
    StageProgress,
    Submit,
    TaskEnded,
    TaskPlaced,
    TaskRefs,
)
from simulator.tasks.clock import Clock
from simulator.tasks.course import Course
from simulator.tasks.machine import Machine
from simulator.tasks.reservations import Reservations
from simulator.tasks.usage import Usage
from simulator.tasks.workload import SimulatedCommand, SimulatedJob, SimulatedStage, SimulatedTask

#: The argv of every simulated command; no process is started.
_ARGV = ("simulated",)


@dataclass(frozen=True, slots=True)
class Site:
    """The part of a simulated cluster that frameworks use."""

    clock: Clock
    machines: Mapping[str, Machine]
    usage: Usage
    reservations: Reservations | None
    #: Has a node's agent decide an event; returns its reply.
    ask: Callable[[str, e.Event], object]
    #: Called once per job, at its end.
    ended: Callable[[], object]
    #: The interval between two reports of progress in seconds; 0: none.
    progress_s: float


class Framework(Course):
    """A framework with the usual messages to agents: hello, register, place, submit, complete, end."""

    def __init__(self, site: Site, job: SimulatedJob, number: int) -> None:
        super().__init__(job)
        self._site = site
        self._number = number
        self.id = ""
        self.reservation = ""
        self.admitted_at_s: float | None = None
        self.placed_on: dict[str, str] = {}
        self._joined: dict[str, None] = {}
        self._running: dict[tuple[str, int], tuple[SimulatedTask, int]] = {}  # monotask → its task and place in it
        self._progress_due = False

    @property
    def origin(self) -> str:
        """Return the node with whose agent the job is registered."""
        names = list(self._site.machines)
        return names[self.job.origin % len(names)]

    def start(self) -> None:
        """Register at the origin. A production job reserves first. Placement is requested on admission."""
        reservations = self._site.reservations
        if self.job.rdl and reservations is not None:
            self.reservation = reservations.reserve(self.job.name, self.job.rdl, self.job.user)
            if not self.reservation:
                self.rejected, self.ended_at_s = True, self._site.clock.now_s
                self._site.ended()
                return
        self._open(self.origin)
        request = RegisterJob(name=self.job.name, memory_bytes=self.job.memory_bytes, reservation=self.reservation)
        event = e.JobRegistered(self._number, request, self._site.clock.now_s)
        registered = self._site.ask(self.origin, event)
        assert isinstance(registered, JobRegistered)
        self.id = registered.job
        self._report_progress()

    def command(self, task: str) -> SimulatedCommand:
        """Return the simulated command of a task's container."""
        command = self.tasks[task].command
        assert command is not None
        return command

    def _open(self, node: str) -> None:
        self._joined[node] = None
        self._site.ask(node, e.SessionOpened(self._number, self.job.user, self.job.name))

    def notified(self, node: str, params: Notice) -> None:
        """Handle a notification from a node's agent."""
        match params:
            case Grants():
                for monotask in params.ids:
                    assert isinstance(monotask, int)
                    self._work(node, monotask)
            case TaskPlaced():
                self._placed(params.task, params.node)
            case TaskEnded():
                self._command_ended(params)
            case JobAdmitted():
                self.admitted_at_s = self._site.clock.now_s
                self._ask_for_places()

    # ------------------------------------------------------------ tasks

    def _ask_for_places(self) -> None:
        for stage in self.newly_ready(self._site.clock.now_s):
            requests = [self._request(task) for task in stage.tasks]
            event = e.Requested(
                m.PLACE,
                self._number,
                Place(job=self.id, stage=stage.name, tasks=requests, opportunistic=stage.opportunistic),
            )
            self._site.ask(self.origin, event)

    def _request(self, task: SimulatedTask) -> TaskRequest:
        command = task.command
        if command is None:
            return TaskRequest(task=task.name, usage=task.usage(), memory_bytes=task.memory_bytes, nodes=task.nodes)
        shared = command.executor is not None and command.executor.sizing is Sizing.SHARED
        spec = ContainerSpec(
            argv=_ARGV,
            name=f"{self._number}/{task.name}",
            limits=Limits(cpu_cores=None if shared else command.cpu_cores or None),  # as of `penstock submit`
            cpu_cores=command.cpu_cores,
            memory_bytes=command.memory_bytes,
        )
        return TaskRequest(
            task=task.name,
            usage=task.usage(),
            memory_bytes=command.memory_bytes,
            nodes=task.nodes,
            command=spec,
            command_kind=command.kind,
            executor=command.executor,
        )

    def _placed(self, name: str, node: str) -> None:
        if self.started_at_s is None:
            self.started_at_s = self._site.clock.now_s
        self.placed_on[name] = node
        task = self.tasks[name]
        if task.command is not None:
            return
        self._site.usage.change_memory(self._site.clock.now_s, task.memory_bytes)
        if node not in self._joined:
            self._open(node)
            join = RegisterJob(name=self.job.name, job=self.id)
            self._site.ask(node, e.JobRegistered(self._number, join, self._site.clock.now_s))
        self._submit(node, task, 0)

    def _submit(self, node: str, task: SimulatedTask, step: int) -> None:
        number = self._site.clock.fresh_number()
        self._running[node, number] = task, step
        monotask = task.monotasks[step]
        spec = MonotaskSpec(
            id=number,
            kind=monotask.kind,
            input_bytes=monotask.input_bytes,
            stage=self.stage_of[task.name],
            task=task.name,
        )
        self._site.ask(node, e.Requested(m.SUBMIT, self._number, Submit(job=self.id, monotasks=[spec])))

    def _work(self, node: str, number: int) -> None:
        task, step = self._running[node, number]
        self._site.machines[node].execute(task.monotasks[step], lambda: self._complete(node, number))

    def _complete(self, node: str, number: int) -> None:
        task, step = self._running.pop((node, number))
        self._site.ask(
            node, e.Requested(m.COMPLETE, self._number, Complete(job=self.id, monotasks=[Completion(id=number)]))
        )
        if step + 1 < len(task.monotasks):
            self._submit(node, task, step + 1)
            return
        self._site.usage.change_memory(self._site.clock.now_s, -task.memory_bytes)
        self._site.ask(self.origin, e.Requested(m.TASKS_DONE, self._number, TaskRefs(job=self.id, tasks=[task.name])))
        self._done(task.name)

    def _command_ended(self, over: TaskEnded) -> None:
        if not over.ended.ok:
            raise ValueError(f"{over.task} of {self.job.name} ended as {over.ended.by}: {over.ended.reason}")
        self._done(over.task)

    def _done(self, task: str) -> None:
        stage_over = self.done(task, self._site.clock.now_s)
        if self.ended_at_s is not None:
            self._end()
            return
        if stage_over:
            self._ask_for_places()
        self._report_soon()

    def _end(self) -> None:
        self._site.ask(self.origin, e.Requested(m.END_JOB, self._number, EndJob(job=self.id)))
        for node in self._joined:
            self._site.ask(node, e.SessionClosed(self._number))
        if self.reservation and self._site.reservations is not None:
            self._site.reservations.ended(self.reservation)
        self._site.ended()

    # ------------------------------------------------------------ progress

    def _report_soon(self) -> None:
        if self._site.progress_s and not self._progress_due:
            self._progress_due = True
            self._site.clock.after(self._site.progress_s, self._report_progress)

    def _report_progress(self) -> None:
        """Report progress, for orderings by service or by remaining work (Ursa §4.2.2, LAS_MQ §3)."""
        self._progress_due = False
        if not self._site.progress_s or self.ended_at_s is not None:
            return
        stages = [self._progress_of(stage) for stage in self.job.stages]
        self._site.ask(self.origin, e.Requested(m.PROGRESS, self._number, Progress(job=self.id, stages=stages)))

    def _progress_of(self, stage: SimulatedStage) -> StageProgress:
        left = self.left[stage.name]
        whole = len(stage.tasks)
        work = [self.tasks[name].usage() for name in left]
        usage = KindAmounts(*(sum(each.of(kind) for each in work) for kind in KINDS))
        return StageProgress(
            stage=stage.name, tasks=whole, done=whole - len(left), after=list(stage.after), usage=usage
        )

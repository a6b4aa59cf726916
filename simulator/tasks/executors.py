"""Simulate YARN with Spark, the baseline of Ursa (§5.1.1): executors that are held for as long as they have tasks.

At each heartbeat YARN allocates containers, the earliest job first (FIFO), on the node with the most free cores. A job
asks for at most as many as its tasks can fill: one at first, then twice as many more at every heartbeat while tasks
wait (Spark's dynamic allocation). A task holds one core of an executor from its first byte to its last; while the task
reads, the core idles. A node's tasks share its disks, its link and, oversubscribed, its cores evenly. An executor that
is idle for ``idle_timeout_s`` is given back. Spark's own needs (application masters, drivers, its memory) are not
counted.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from penstock.model import ResourceKind
from penstock.model.units import counted
from simulator.tasks.clock import Clock
from simulator.tasks.course import Course
from simulator.tasks.machine import Link
from simulator.tasks.node_spec import NodeSpec, capacity_of
from simulator.tasks.usage import Usage
from simulator.tasks.workload import SimulatedJob, SimulatedTask


@dataclass(frozen=True, slots=True)
class ExecutorSettings:
    """The settings of Ursa §5.1.1: containers of 4 cores and 8 GB, an idle timeout of 2 s, a heartbeat of 1 s.

    With an ``oversubscription`` of 2, YARN is configured with twice the real number of cores (§5.1.2, Table 5).
    """

    cores: int = 4
    memory_bytes: float = 8e9
    idle_timeout_s: float = 2.0
    heartbeat_s: float = 1.0
    start_s: float = 0.0
    oversubscription: float = 1.0


class _Host:
    """A node: its free cores and memory, and its hardware."""

    def __init__(self, clock: Clock, spec: NodeSpec, usage: Usage, oversubscription: float) -> None:
        cores, disks, core_bytes_per_s = spec.capacity.cores, spec.capacity.disk_slots, spec.cpu_bytes_per_s
        self.cores = cores * oversubscription
        self.memory_bytes = float(spec.capacity.memory_bytes)
        self.links = {
            ResourceKind.CPU: Link(clock, cores * core_bytes_per_s, usage.used["cpu"], cores, core_bytes_per_s),
            ResourceKind.NETWORK: Link(clock, spec.link_bytes_per_s, usage.used["network"], spec.link_bytes_per_s),
            ResourceKind.DISK: Link(clock, spec.disk_bytes_per_s * disks, usage.used["disk"], disks),
        }


@dataclass(slots=True, eq=False)
class _Executor:
    host: _Host
    free: int
    idle_since: int = 0  # rises with every task: an idle timeout from before does not count


@dataclass(eq=False)
class _Application:
    """A job, its executors, and its waiting tasks."""

    course: Course
    waiting: deque[SimulatedTask] = field(default_factory=deque)
    executors: list[_Executor] = field(default_factory=list)
    running: int = 0
    coming: int = 0  # executors that are starting
    burst: int = 1


class ExecutorCluster:
    """A cluster that :meth:`run` runs a workload on, once."""

    def __init__(self, nodes: Sequence[NodeSpec], settings: ExecutorSettings, timeline_s: float = 0.0) -> None:
        self.clock = Clock()
        self.usage = Usage(capacity_of(nodes), timeline_s)
        self.started = 0  # executors
        self._settings = settings
        self._hosts = [_Host(self.clock, spec, self.usage, settings.oversubscription) for spec in nodes]
        self._applications: list[_Application] = []
        self._left = 0

    @property
    def courses(self) -> list[Course]:
        """Return the courses of the submitted jobs."""
        return [application.course for application in self._applications]

    def run(self, jobs: Sequence[SimulatedJob], *, limit_s: float = 1e6) -> None:
        """Run until every job has ended; the results are in ``courses``, ``usage`` and ``started``.

        Raises:
            ValueError: a job did not end within ``limit_s`` of simulated time, or a task is a command.
        """
        if any(task.command for job in jobs for stage in job.stages for task in stage.tasks):
            raise ValueError("[executors] run monotasks, not commands")
        self._left = len(jobs)
        for job in jobs:
            self.clock.after(job.submitted_at_s, self._submit, _Application(Course(job)))
        self.clock.after(self._settings.heartbeat_s, self._heartbeat)
        if not self.clock.run(lambda: not self._left, limit_s):
            left = counted(self._left, "job")
            raise ValueError(f"after {limit_s:g} s of simulated time {left} had not ended")

    def _submit(self, application: _Application) -> None:
        self._applications.append(application)
        self._enter_stages(application)

    def _enter_stages(self, application: _Application) -> None:
        for stage in application.course.newly_ready(self.clock.now_s):
            application.waiting.extend(stage.tasks)
        for executor in application.executors:
            self._fill(application, executor)

    # ------------------------------------------------------------ YARN

    def _heartbeat(self) -> None:
        for application in self._applications:
            if application.course.ended_at_s is None:
                self._hand_out(application)
        self.clock.after(self._settings.heartbeat_s, self._heartbeat)

    def _hand_out(self, application: _Application) -> None:
        held = len(application.executors) + application.coming
        wanted = -(-(len(application.waiting) + application.running) // self._settings.cores)
        if not application.waiting or wanted <= held:
            application.burst = 1
            return
        given = 0
        while given < min(application.burst, wanted - held) and self._allocate(application):
            given += 1
        if given == application.burst:
            application.burst *= 2

    def _allocate(self, application: _Application) -> bool:
        settings = self._settings
        host = max(self._hosts, key=lambda one: one.cores)
        if host.cores < settings.cores or host.memory_bytes < settings.memory_bytes:
            return False
        self._account(host, 1)
        self.started += 1
        application.coming += 1
        self.clock.after(settings.start_s, self._ready, application, _Executor(host, settings.cores))
        return True

    def _account(self, host: _Host, sign: int) -> None:
        settings, now_s = self._settings, self.clock.now_s
        host.cores -= sign * settings.cores
        host.memory_bytes -= sign * settings.memory_bytes
        self.usage.allocated["cpu"].change(now_s, sign * settings.cores)
        self.usage.allocated["memory"].change(now_s, sign * settings.memory_bytes)

    # ------------------------------------------------------------ Spark

    def _ready(self, application: _Application, executor: _Executor) -> None:
        application.coming -= 1
        if application.course.ended_at_s is not None:
            self._account(executor.host, -1)
            return
        application.executors.append(executor)
        self._fill(application, executor)

    def _fill(self, application: _Application, executor: _Executor) -> None:
        while executor.free and application.waiting:
            task = application.waiting.popleft()
            if application.course.started_at_s is None:
                application.course.started_at_s = self.clock.now_s
            executor.free -= 1
            executor.idle_since += 1
            application.running += 1
            self.usage.used["memory"].change(self.clock.now_s, task.memory_bytes)
            self._step(application, executor, task, 0)
        if executor.free == self._settings.cores:
            self.clock.after(self._settings.idle_timeout_s, self._give_back, application, executor, executor.idle_since)

    def _step(self, application: _Application, executor: _Executor, task: SimulatedTask, step: int) -> None:
        if step == len(task.monotasks):
            self._done(application, executor, task)
            return
        monotask = task.monotasks[step]
        link = executor.host.links[monotask.kind]
        link.start(monotask.input_bytes, lambda: self._step(application, executor, task, step + 1))

    def _done(self, application: _Application, executor: _Executor, task: SimulatedTask) -> None:
        executor.free += 1
        application.running -= 1
        self.usage.used["memory"].change(self.clock.now_s, -task.memory_bytes)
        stage_over = application.course.done(task.name, self.clock.now_s)
        if application.course.ended_at_s is not None:
            self._end(application)
        elif stage_over:
            self._enter_stages(application)
        else:
            self._fill(application, executor)

    def _give_back(self, application: _Application, executor: _Executor, idle_since: int) -> None:
        if executor in application.executors and executor.idle_since == idle_since:
            application.executors.remove(executor)
            self._account(executor.host, -1)

    def _end(self, application: _Application) -> None:
        self._left -= 1
        for executor in application.executors:
            self._account(executor.host, -1)
        application.executors.clear()

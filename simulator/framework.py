"""A job's processes, simulated: a job manager at its origin, and a job process on every node that its tasks go to."""

from __future__ import annotations

from typing import TYPE_CHECKING

from agent.core import events as e
from penstock.model import MonotaskSpec, TaskRequest
from penstock.wire.agent_api import Completion, Grants, JobRegistered, Params, RegisterJob, TaskEnded, TaskPlaced
from simulator.workload import SimulatedJob, SimulatedMonotask, SimulatedTask

if TYPE_CHECKING:
    from simulator.cluster import SimulatedCluster


class Framework:
    """Speaks to agents as any framework does: hello, register, place, submit, complete, end."""

    def __init__(self, cluster: SimulatedCluster, job: SimulatedJob, number: int) -> None:
        self._cluster = cluster
        self.job = job
        self._number = number
        self.id = ""
        self.ended_at_s: float | None = None
        self.placed_on: dict[str, str] = {}
        self._tasks = {task.name: task for stage in job.stages for task in stage.tasks}
        self._stage_of = {task.name: stage.name for stage in job.stages for task in stage.tasks}
        self._left = {stage.name: {task.name for task in stage.tasks} for stage in job.stages}
        self._asked: set[str] = set()
        self._joined: set[str] = set()
        self._running: dict[tuple[str, int], SimulatedTask] = {}

    def start(self) -> None:
        """Register at the origin; placement is asked for once the job is admitted."""
        origin = self._cluster.names[self.job.origin]
        self._open(origin)
        request = RegisterJob(name=self.job.name, memory_bytes=self.job.memory_bytes)
        event = e.JobRegistered(self._number, request, self._cluster.now_s)
        registered = self._cluster.ask(origin, event)
        assert isinstance(registered, JobRegistered)
        self.id = registered.job
        self._joined.add(origin)

    def _open(self, node: str) -> None:
        self._cluster.ask(node, e.SessionOpened(self._number, "user", 1000, self.job.name))

    def notified(self, node: str, method: str, params: Params) -> None:
        """A notification from a node's agent."""
        match params:
            case Grants():
                for monotask in params.ids:
                    assert isinstance(monotask, int)
                    self._work(node, monotask)
            case TaskPlaced():
                self._placed(params.task, params.node)
            case TaskEnded():
                raise RuntimeError(
                    f"{params.task} of {self.job.name} ended by {params.ended.by}: {params.ended.reason}"
                )
            case _:
                if method == "job_admitted":
                    self._ask_for_places()

    def _ask_for_places(self) -> None:
        for stage in self.job.stages:
            if stage.name in self._asked or any(self._left[name] for name in stage.after):
                continue
            self._asked.add(stage.name)
            requests = [
                TaskRequest(task=task.name, usage=task.usage(), memory_bytes=task.memory_bytes) for task in stage.tasks
            ]
            event = e.PlacementRequested(self._number, self.id, stage.name, requests, False)
            self._cluster.ask(self._cluster.names[self.job.origin], event)

    def _placed(self, task: str, node: str) -> None:
        self.placed_on[task] = node
        if node not in self._joined:
            self._joined.add(node)
            self._open(node)
            join = RegisterJob(name=self.job.name, job=self.id)
            self._cluster.ask(node, e.JobRegistered(self._number, join, self._cluster.now_s))
        self._submit(node, self._tasks[task], 0)

    def _submit(self, node: str, task: SimulatedTask, step: int) -> None:
        number = self._cluster.fresh_number()
        self._running[node, number] = task
        self._cluster.steps[node, number] = step
        monotask = task.monotasks[step]
        spec = MonotaskSpec(
            id=number,
            kind=monotask.kind,
            input_bytes=monotask.input_bytes,
            stage=self._stage_of[task.name],
            task=task.name,
        )
        self._cluster.ask(node, e.Submitted(self._number, self.id, [spec]))

    def _work(self, node: str, number: int) -> None:
        task = self._running[node, number]
        monotask: SimulatedMonotask = task.monotasks[self._cluster.steps[node, number]]
        duration_s = monotask.input_bytes / self._cluster.slot_rate(node, monotask.kind)
        self._cluster.after(duration_s, lambda: self._complete(node, number))

    def _complete(self, node: str, number: int) -> None:
        task = self._running.pop((node, number))
        step = self._cluster.steps.pop((node, number)) + 1
        self._cluster.ask(node, e.Completed(self._number, self.id, [Completion(id=number)]))
        if step < len(task.monotasks):
            self._submit(node, task, step)
            return
        self._left[self._stage_of[task.name]].discard(task.name)
        origin = self._cluster.names[self.job.origin]
        self._cluster.ask(origin, e.TasksReportedDone(self._number, self.id, [task.name]))
        if any(self._left.values()):
            self._ask_for_places()
        else:
            self.ended_at_s = self._cluster.now_s
            self._cluster.ask(origin, e.JobEndRequested(self._number, self.id))

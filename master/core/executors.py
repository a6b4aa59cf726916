"""Executors in the cluster: their forecasts, their measured use, and the ended stages of their jobs.

Neither Algorithm 1 nor opportunistic placement handles them: an executor is promised its predicted use (Elasecutor
§III), and :mod:`master.core.executor_round` places it. An executor that may use only slack is placed like any other
command there.
"""

from __future__ import annotations

from collections.abc import Callable

from master.core import events as e
from master.core.dues import Dues
from master.core.forecasts import Forecasts, key_of
from master.core.free_capacity import Demand
from master.core.instructions import StoreRun
from master.core.job import Job, Key, Task
from master.core.membership import Membership
from master.core.node import Node
from master.core.outbox import Outbox
from master.core.usage import UsageReports
from master.placement import executor_policy
from master.placement.availability import lasting
from penstock.model import Ended
from penstock.wire import master_api as api
from penstock.wire.agent_api import StageProgress

#: Why an executor waits; derived only on demand where that takes a look at every node.
Reason = str | Callable[[], str]
#: Largest number of ended stages stored for a job.
_MOST_STAGES = 4096


class Executors:
    """The state of waiting and running executors."""

    def __init__(self, policy: str, draw: Callable[[], float], dues: Dues, members: Membership, outbox: Outbox) -> None:
        """``draw`` returns numbers in [0, 1) for random policies."""
        self.policy = executor_policy(policy, draw)
        self.forecasts = Forecasts()
        self.usage = UsageReports()
        self.waiting: dict[Key, Task] = {}
        self.waits: dict[str, Callable[[], str]] = {}  # by job, why its executors wait, as of the latest round
        # by job, the resources that nodes lack for its executors; set when all nodes are examined
        self.lacks: dict[str, Reason] = {}
        self.news = False  # since all nodes were examined, the waiting executors, forecasts or nodes have changed
        self._dues = dues
        self._members = members
        self._outbox = outbox

    def ready(self, task: Task) -> None:
        """Add an executor that waits for a node."""
        self.waiting[task.job, task.name] = task
        self.news = True

    def unready(self, task: Task) -> None:
        """Remove a task that no longer waits for a node, if it is an executor."""
        if self.waiting.pop((task.job, task.name), None) is not None and not self.waiting:
            self.waits, self.lacks = {}, {}

    def over(self, job: str) -> None:
        """Remove the state of a job that is over."""
        self.waits.pop(job, None)
        self.lacks.pop(job, None)
        self.usage.drop_unfinished(job)

    def foreseen(self, job: Job, task: Task) -> bool:
        """Return whether a task is an executor with a forecast, or one to come, and so does not reserve its bounds."""
        if not task.elastic:
            return False
        forecast = self.forecasts.of(key_of(job, task))
        return forecast is None or not lasting(forecast.profile)

    def ask(self, job: Job, task: Task) -> None:
        """Request a forecast for an executor, unless it is known or already requested."""
        asked = self.forecasts.ask(key_of(job, task))
        if asked is not None:
            self._outbox.instruct(asked)

    def forecasts_changed(self, event: e.Forecasted | e.ForecastsOutdated) -> None:
        """Store a forecast, or drop the stale forecasts of an application; waiting executors then request new ones."""
        forecasts = self.forecasts
        if isinstance(event, e.Forecasted):
            forecasts.take(event)
            self.news = True
        else:
            forecasts.drop(event.application)
        if self.waiting:
            self._dues.changed = True

    def waiting_of(self, job: Job) -> list[Task]:
        """Return the waiting executors of a job that have a forecast."""
        waiting = [task for task in self.waiting.values() if task.job == job.job] if self.waiting else []
        return [task for task in waiting if self.has_forecast(job, task)]

    def has_forecast(self, job: Job, task: Task) -> bool:
        """Return whether the forecast of an executor is known."""
        return self.forecasts.of(key_of(job, task)) is not None

    def largest(self, job: Job, task: Task) -> tuple[float, int]:
        """Return the most cores and bytes of memory that an executor with a forecast will hold."""
        forecast = self.forecasts.of(key_of(job, task))
        assert forecast is not None
        return Demand.of(job, task, forecast.profile).largest

    # ---------------------------------------------------------------- measured use

    def reported(self, node: Node, uses: list[api.ExecutorUse]) -> None:
        """Store reported parts of the use of a node's executors."""
        usage = self.usage
        for use in uses:
            key = (use.job, use.task)
            stored, why = usage.reported(node.name, use, held=key in node.held)
            if stored is not None or why:
                self._keep(key, stored, why)
            if usage.gets_stuck(node.name, use):
                self._stuck(node, use)

    def ended(self, job: Job, task: Task, end: Ended) -> None:
        """Complete the measured use of an executor that ended."""
        self._keep((task.job, task.name), *self.usage.ended(job, task, end))

    def _keep(self, key: Key, stored: StoreRun | None, why: str) -> None:
        if stored is not None:
            self._outbox.instruct(stored)
        elif why:
            self._outbox.explain("run not kept", job=key[0], task=key[1], why=why)

    # ---------------------------------------------------------------- stages

    def stages(self, job: Job, told: list[StageProgress]) -> None:
        """Record a framework's progress report. A stage ends once, when all its tasks are done, regardless of later
        reports.
        """
        done = [stage.stage for stage in told if stage.done >= stage.tasks > 0 and stage.stage not in job.stages_ended]
        if not done or len(job.stages_ended) + len(done) > _MOST_STAGES:
            return
        job.stages_ended.update(dict.fromkeys(done))
        nodes = dict.fromkeys(task.node for task in job.tasks.values() if task.elastic and task.node)
        for node in nodes:
            self.tell_stages(job, node)

    def tell_stages(self, job: Job, node: str) -> None:
        """Tell a node how many stages have ended, if any."""
        if job.stages_ended:
            count = len(job.stages_ended)
            self._outbox.propose(
                node, api.TellStages(job=job.job, ended=count, why=f"{next(reversed(job.stages_ended))} ended")
            )

    def registered(self, node: Node) -> None:
        """Tell a node that is back of the stages that ended while it was away."""
        self.news = True
        for name in dict.fromkeys(held.job for held in node.held.values() if held.executor and not held.leaving):
            job = self._members.jobs.get(name)
            if job is not None:
                self.tell_stages(job, node.name)

    # ---------------------------------------------------------------- task rescheduling (Elasecutor §III.D)

    def _stuck(self, node: Node, use: api.ExecutorUse) -> None:
        """Suggest a helper for a stuck executor, whose node is full: its run's executor with the most available."""
        if (found := self._members.at_home(node, (use.job, use.task))) is None:
            return
        job, task = found
        helpers = [each for each in self._same_run(job, task) if each.node != node.name]
        rooms = {name: _room(self._members.nodes[name]) for name in {each.node for each in helpers}}
        best = max(helpers, key=lambda each: rooms[each.node], default=None)
        facts = {"job": job.job, "task": task.name, "node": node.name, "behind": use.behind}
        if best is None:
            self._outbox.explain("executor stuck", **facts, helper="none: its run has no executor on another node")
            return
        why = (
            f"{use.behind:g} times its predicted time; {best.node} has {rooms[best.node]:.3f} of 4 resources available"
        )
        told = api.TellStuck(job=job.job, task=task.name, helper=best.name, node=best.node, why=why)
        self._outbox.propose(job.origin, told)
        self._outbox.explain("executor stuck", **facts, helper=best.name, on=best.node)

    def _same_run(self, job: Job, task: Task) -> list[Task]:
        """Return the other placed executors of the same run: the user's executors that name the run, or else those of
        the job.
        """
        run = task.request.executor.run if task.request is not None and task.request.executor is not None else ""
        jobs = [each for each in self._members.jobs.values() if each.user == job.user] if run else [job]
        return [
            each
            for one in jobs
            for each in one.tasks.values()
            if each.elastic and each.node and each is not task and each.request is not None
            if not run or (each.request.executor is not None and each.request.executor.run == run)
            if self._members.nodes[each.node].takes_work
        ]


def _room(node: Node) -> float:
    """Return the sum of the available fractions of resources (as in :class:`~master.placement.MostAvailable`)."""
    if node.availability is None:
        capacity = node.capacity
        return node.cores_free() / capacity.cores + node.memory_free_bytes() / capacity.memory_bytes
    there = node.availability
    return sum(free / of for free, of in zip(there.slots[0], there.capacity, strict=True) if of)

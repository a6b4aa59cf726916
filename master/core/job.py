"""The master's record of a job and its tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from master.core import life_cycles
from master.core.slack_demands import SlackDemands
from master.core.work import Work
from master.opportunistic import Pause
from master.placement import Need
from penstock.model import KindAmounts, TaskRequest
from penstock.model.job_state import JobStanding, standing
from penstock.model.life_cycle import next_state
from penstock.model.work import Name, Opportunistic
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.jobs_api import TaskFailure
from penstock.wire.master_api import JobState, TellEnded

#: (job, task)
Key = tuple[str, str]
#: The kinds (columns) of which a task wants spare rate, the promised cores, and the nodes it names (none: any).
Asks = tuple[tuple[int, ...], float, tuple[str, ...]]


def input_bytes(usage: KindAmounts) -> float:
    """Return I(t), the bytes a task reads. Its CPU monotask reads what its other monotasks fetched (Ursa §4.1.3)."""
    return usage.cpu or usage.disk + usage.network


@dataclass(slots=True)
class Task:
    """An accepted task; ``node`` is empty while it is ready. It leaves its job when it ends.

    ``opportunistic`` is the placement it allows, ``on_slack`` its actual placement.
    """

    job: str
    name: Name
    stage: str
    opportunistic: Opportunistic
    request: TaskRequest | None  # None: known only from its node, after a restart of the master
    state: life_cycles.TaskState = "ready"
    node: str = ""
    on_slack: bool = False
    was_on: str = ""  # its node before it became ready again, which may still report its end
    told: bool = False  # the origin knows its node
    why: str = ""  # the reason for its placement
    unwanted: bool = False  # cancelled; it ends as soon as its node has released it
    losses: int = 0
    refusals: dict[str, int] = field(default_factory=dict)  # node → its heartbeat count when it refused this task
    unfit_since: float | None = None  # since then, no node of the cluster could ever hold it
    fits_in: int = -1  # the shape of the cluster in which some node could hold it
    in_vain: bool = False  # its user's limit admitted it, but no node had room
    need: Need | None = None  # computed on demand, without the nodes it may go to
    pauses: dict[str, Pause] = field(default_factory=dict)  # node → its pause since a preemption there

    @property
    def input_bytes(self) -> float:
        """Return I(t), the bytes that it reads; 0 where its origin's request is not known."""
        return input_bytes(self.request.usage) if self.request is not None else 0.0

    @property
    def elastic(self) -> bool:
        """Return whether it is an executor placed by its profile."""
        return self.request is not None and self.request.executor is not None and self.opportunistic != "only"

    def place(self, node: str, why: str, *, on_slack: bool) -> None:
        """Record that it is proposed to a node."""
        self.state = next_state(life_cycles.TASK, self.state, "placed")
        self.node, self.why, self.on_slack = node, why, on_slack
        self.told, self.unfit_since = False, None

    def found(self, node: str, *, on_slack: bool, told: bool = False) -> None:
        """Record that a report shows it on a node; ``told``: the origin knows that."""
        self.state = next_state(life_cycles.TASK, self.state, "found")
        self.told = told or (self.told and node == self.node)
        self.node, self.on_slack = node, on_slack

    def requeue(self) -> None:
        """Record that it waits for a node again."""
        self.state = next_state(life_cycles.TASK, self.state, "requeued")
        self.was_on, self.node, self.on_slack, self.told = self.node, "", False, False

    def origin_knows(self, node: str) -> None:
        """Record the node on which its origin knows it; "": none, or the message could not be sent."""
        self.told = node == self.node != ""

    def know(self, request: TaskRequest, opportunistic: Opportunistic) -> None:
        """Store the origin's request, which a node's report lacks. A ready task follows its request already."""
        if self.node:
            self.opportunistic = opportunistic
        self.request, self.need = request, None

    def end(self) -> None:
        """Record its end."""
        self.state = next_state(life_cycles.TASK, self.state, "ended")


@dataclass(frozen=True, slots=True, eq=False)
class WaitingStage:
    """Ready tasks of a stage that want regular room, summarized so that a full cluster is noticed quickly.

    ``least_bytes`` is the least memory that one of them wants, by its other demands. ``commands``: some are commands
    that take a CPU slot.
    """

    first: Task
    count: int
    least_bytes: dict[Asks, float]
    commands: bool


#: The tenant of a job where tenants have no shares.
NO_TENANT = ("", 1.0)


@dataclass(slots=True)
class Job:
    """A job.

    ``hosts`` are the nodes that have a queue for it: node → its priority there, None where that is to be sent.
    """

    job: str
    origin: str
    sequence: int
    name: str = ""
    user: str = ""
    executors_of: str = ""  # the application declared by its executors
    memory_bytes: int = 0
    submitted_at: float = 0.0
    came_at: float = -math.inf  # when it was described here, monotonic
    state: life_cycles.JobState = "expected"
    described: bool = False  # by its origin; otherwise only nodes that hold its tasks have reported it
    admitted: bool = False  # its memory is reserved, and its tasks may be placed
    admitted_at: float | None = None  # monotonic; None: not admitted, or by a former master
    complete: bool = True  # all tasks that its origin still awaits are known
    tasks: dict[str, Task] = field(default_factory=dict)
    ready: dict[tuple[str, Opportunistic], dict[str, Task]] = field(default_factory=dict)  # (stage, allowed placement)
    waiting: dict[str, WaitingStage] | None = None  # by stage, in their order; None: to be computed
    summed_up: dict[str, WaitingStage | None] = field(default_factory=dict)  # summaries of unchanged stages
    slack_demands: SlackDemands = field(default_factory=SlackDemands)  # of the ready tasks that may run on slack
    fits_in: int = -1  # the shape of the cluster in which some node could hold each of its ready tasks
    ready_count: int = 0
    ready_input_bytes: float = 0.0  # I, summed over the ready tasks
    work: Work = field(default_factory=Work)
    hosts: dict[str, float | None] = field(default_factory=dict)
    hosts_to_tell: bool = False
    ran_on: set[str] = field(default_factory=set)  # nodes that took a command of it, so that they may have output
    tenant: tuple[str, float] = NO_TENANT  # its tenant and that one's weight, as its hosts are told
    reserved_told: dict[str, float] = field(default_factory=dict)  # host → the reserved cores that it was told of
    priority: float = 0.0  # in the agents' queues, larger first
    moved_at: float = -math.inf  # when the priority changed, monotonic
    moved_with_s: float = 0.0  # the service received by then
    ranked: bool = False  # it was in an order sent to agents
    cancelled_unseen: set[str] = field(default_factory=set)  # by the origin, before the tasks' node has reported them
    unconfirmed_ends: dict[str, TellEnded] = field(default_factory=dict)  # ends that the origin has not confirmed yet
    some_opportunistic: bool = False  # it has, or had, tasks that may run on slack
    some_executors: bool = False  # it has, or had, tasks that are executors
    stages_ended: dict[str, None] = field(default_factory=dict)  # in the order in which their ends were seen
    since_birth: bool = False  # known since its submission, so all its tasks were placed by this master
    reservation: str = ""  # the reservation it belongs to
    # the reason why a task waits, or a function that derives it from the latest round
    _waits: str | Callable[[], str] = ""
    waits_told: str = ""
    in_line_since: float | None = None  # monotonic; None: it is not the cluster that delays its admission
    cancelled_by: str = ""  # the requester; the origin has not confirmed the cancellation yet
    failed_tasks: int = 0
    cancelled_tasks: int = 0
    failures: list[TaskFailure] = field(default_factory=list)  # the first failures

    def describe(self, message: JobState, now: float) -> None:
        """Store its origin's description."""
        self.name, self.user = message.name, message.user
        self.memory_bytes, self.reservation = message.memory_bytes, message.reservation
        self.submitted_at = message.submitted_at
        if not self.described:
            # A job admitted by a former master keeps the priority that all agents know from that master. Others are
            # first ordered by submission, which is final under `ejf` and `fifo`.
            self.priority = message.priority if message.admitted else -message.submitted_at
            self.came_at, self.described = now, True
        self.work.report(message.stages)
        self._step("described as admitted" if message.admitted else "described")

    def admit(self, now: float) -> None:
        """Record its admission."""
        self._step("admitted")
        self.admitted_at, self._waits = now, ""

    def cancel(self, by: str) -> None:
        """Record its cancellation; the first requester is kept."""
        self._step("cancelled")
        self.cancelled_by = self.cancelled_by or by
        self.admitted_at, self._waits = None, ""

    def end(self) -> None:
        """Record its end."""
        self._step("over")

    def ended_away(self, at_end: JobAtEnd) -> None:
        """Add the origin's record of the job, which ended while the origin had no link to the master."""
        if at_end.stages:  # a restarted agent has none until its framework reports again
            self.work.report(at_end.stages)
        self.work.undone = at_end.undone
        if not at_end.undone:
            for task in self.tasks.values():
                if task.request is not None:
                    self.work.task_ended(task.stage, task.request.usage)
            self.tasks.clear()
        self.work.ended_tasks = max(self.work.ended_tasks, at_end.tasks_ended)
        self.failed_tasks = max(self.failed_tasks, at_end.tasks_failed)
        self.cancelled_tasks = max(self.cancelled_tasks, at_end.tasks_cancelled)
        self.failures = self.failures or list(at_end.failures)
        self.cancelled_by = self.cancelled_by or at_end.cancelled_by

    def _step(self, event: life_cycles.JobEvent) -> None:
        self.state = next_state(life_cycles.JOB, self.state, event)
        self.admitted = self.state == "admitted"

    def add(self, task: Task) -> None:
        """Add a task."""
        self.tasks[task.name] = task
        self.some_opportunistic |= bool(task.opportunistic)

    @property
    def waits(self) -> str:
        """Return why a task of the job waits, for the status; derived only on demand."""
        if not isinstance(self._waits, str):
            self._waits = self._waits()
        return self._waits

    def wait(self, why: str | Callable[[], str]) -> None:
        """Record why a task of the job waits; "": none waits, or the reason is not known yet."""
        self._waits = why

    @property
    def expected_reports_s(self) -> dict[str, float]:
        """Return the nodes that may report more of the job's service, each with the service in its latest report."""
        nodes = {self.origin, *self.hosts, *self.work.seen} - self.work.told_last
        return {name: use.service_s if (use := self.work.seen.get(name)) is not None else 0.0 for name in nodes}

    @property
    def application(self) -> str:
        """Return the application: the one declared by its executors, else the job's name."""
        return self.executors_of or self.name

    @property
    def standing(self) -> JobStanding:
        """Return the state of the job."""
        if not self.described:
            return JobStanding.EXPECTED
        active = len(self.tasks) > self.ready_count or self.work.slots > 0
        return standing(
            admitted=self.admitted, active=active, done=self.work.done > 0, cancelled=self.state == "cancelled"
        )

    @property
    def slack_only(self) -> bool:
        """Return whether all its tasks use only slack, for which no admission is needed."""
        return bool(self.tasks) and all(task.opportunistic == "only" for task in self.tasks.values())

    def make_ready(self, task: Task) -> None:
        """Let a task wait for a node."""
        self.ready.setdefault((task.stage, task.opportunistic), {})[task.name] = task
        if task.opportunistic and task.request is not None:
            self.slack_demands.add((task.stage, task.opportunistic), task.request)
        self.stage_changed(task.stage)
        self.fits_in = -1
        self.ready_count += 1
        self.ready_input_bytes += task.input_bytes

    def unready(self, task: Task) -> bool:
        """Stop a task from waiting for a node; return whether it waited."""
        stage = self.ready.get((task.stage, task.opportunistic))
        if stage is None or stage.pop(task.name, None) is None:
            return False
        self.stage_changed(task.stage)
        self.ready_count -= 1
        self.ready_input_bytes -= task.input_bytes
        if not stage:
            del self.ready[task.stage, task.opportunistic]
            self.slack_demands.remove((task.stage, task.opportunistic))
        return True

    def demands_changed(self) -> None:
        """Drop all that was derived from the tasks' demands, because new settings change it."""
        self.waiting = None
        self.summed_up.clear()
        for task in self.tasks.values():
            task.need = None

    def stage_changed(self, stage: str) -> None:
        """Drop the summary of a stage's ready tasks."""
        self.waiting = None
        self.summed_up.pop(stage, None)

    def ready_for_regular(self) -> dict[str, list[Task]]:
        """Return the ready tasks by stage, without executors and slack-only tasks."""
        stages: dict[str, list[Task]] = {}
        for (stage, allows), tasks in self.ready.items():
            if allows != "only":
                some = [t for t in tasks.values() if not t.elastic] if self.some_executors else tasks.values()
                stages.setdefault(stage, []).extend(some)
        return {stage: some for stage, some in stages.items() if some} if self.some_executors else stages

    def placed(self) -> tuple[int, int]:
        """Return the numbers of placed tasks, regular and opportunistic."""
        placed = len(self.tasks) - self.ready_count
        if not self.some_opportunistic:
            return placed, 0
        opportunistic = sum(1 for task in self.tasks.values() if task.on_slack and task.node)
        return placed - opportunistic, opportunistic

    def served_by(self, node: str, priority: float | None) -> None:
        """Record that a node has a queue for the job, with this priority (None: unknown)."""
        # What a former master told of the tenant is unknown, and so is what a node was to be told while it was away.
        knows_tenant = self.since_birth and self.tenant == NO_TENANT and self.hosts.get(node, 0.0) is not None
        self.hosts[node] = priority if knows_tenant else None
        if self.reservation:
            self.reserved_told[node] = math.nan  # unknown, as a former master may have told it: it is told in any case
        self.hosts_to_tell |= self.hosts[node] != self.priority

    def belongs_to(self, tenant: tuple[str, float]) -> None:
        """Record its tenant and that one's weight; all its hosts are to be told of a change."""
        if tenant != self.tenant:
            self.tenant, self.hosts, self.hosts_to_tell = tenant, dict.fromkeys(self.hosts), True

    def priority_sent(self, node: str, number: int, reserved_cores: float | None = None) -> None:
        """Record that a node was sent the priority and the reserved cores in this request (None: it has no
        reservation); 0: it is away and is told later.
        """
        if number:
            self.hosts[node] = self.priority
            if reserved_cores is None:
                self.reserved_told.pop(node, None)
            else:
                self.reserved_told[node] = reserved_cores
        self.hosts_to_tell |= not number

"""The master's records of nodes, jobs and tasks."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

from master.core.work import Work
from master.opportunistic import Pause, SlackLimit
from master.placement import Need
from penstock.model import Capacity, KindAmounts, Profile, ResourceKind, TaskRequest
from penstock.model.job_state import JobStanding, standing
from penstock.model.work import Name, Opportunistic
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.jobs_api import TaskFailure
from penstock.wire.master_api import AnyDecision, Assign, Availability, Load, TellEnded
from penstock.wire.ranks_api import NodeRanks

#: (job, task)
Key = tuple[str, str]
#: The kinds (columns) of which a task wants spare rate, the promised cores, and the nodes it names (none: any).
Asks = tuple[tuple[int, ...], float, tuple[str, ...]]


@dataclass(slots=True)
class Held:
    """A task's holdings on a node, from the proposal until the node is known to have released them.

    The numbers are those of the ``decide`` requests of the node's present connection; 0 means "before it".
    """

    job: str
    task: str
    usage: KindAmounts
    memory_bytes: int
    opportunistic: bool
    command: bool
    kind: ResourceKind = ResourceKind.CPU
    cores: float = 0.0
    assigned_in: int = 0
    accepted: bool = True
    promoted_in: int | None = None
    promotion_refused_at: int = -1  # the heartbeat count of the node when it refused
    queued: bool = False  # sent to wait for slack on the node
    leaving_in: int | None = None  # the request that withdrew it: its actions no longer matter, its holdings do
    executor: bool = False  # regular, and its limits follow a profile: it neither waits for a slot nor holds one
    profile: Profile | None = None  # as far as it has been sent
    # promised amounts of the resources that the profile leaves out
    outside_profile: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)
    assigned_at: float = 0.0  # of an executor, monotonic
    user: str = ""  # the job's user

    @property
    def key(self) -> Key:
        """Return the task's key in the cluster."""
        return self.job, self.task

    @property
    def regular(self) -> bool:
        """Return whether its memory is promised; a proposed promotion counts at once."""
        return not self.opportunistic or self.promoted_in is not None

    @property
    def unknown_size(self) -> bool:
        """Return whether it is a command without an estimate of its work."""
        return self.command and self.usage.of(self.kind) <= 0

    def uses_core(self) -> bool:
        """Return whether it will take a CPU slot."""
        return self.usage.cpu > 0 or (self.unknown_size and self.kind is ResourceKind.CPU)

    @property
    def needs_slot(self) -> bool:
        """Return whether it takes slots as a regular task. Executors take none, nor do CPU commands with promised
        cores: their node withholds these cores from its slots.
        """
        return not self.executor and not (self.command and self.cores and self.kind is ResourceKind.CPU)

    @property
    def in_a_slot(self) -> bool:
        """Return whether it takes slots while it runs; opportunistic commands run without one."""
        return self.needs_slot and (self.regular or not self.command)

    def coming(self, decided: int) -> bool:
        """Return whether a Load as of decision ``decided`` does not include it, or not as regular yet."""
        return self.assigned_in > decided or (self.promoted_in or 0) > decided

    def holds(self) -> tuple[float, float, float, float]:
        """Return the cores, disk slots, network slots and bytes of memory that it holds while placed."""
        cores = self.cores or float(self.uses_core())
        disk = float(self.usage.disk > 0 or (self.unknown_size and self.kind is ResourceKind.DISK))
        network = float(self.usage.network > 0 or (self.unknown_size and self.kind is ResourceKind.NETWORK))
        return cores, disk, network, float(self.memory_bytes)

    def seen_promised(self, decided: int) -> bool:
        """Return whether a Load as of decision ``decided`` counts its memory as promised.

        Answers arrive before the Load: refused or released tasks are no longer held when the Load is read.
        """
        if self.assigned_in > decided:
            return False
        return not self.opportunistic or (self.promoted_in is not None and self.promoted_in <= decided)


@dataclass(slots=True)
class Task:
    """An accepted task: ready while ``node`` is empty, placed otherwise; it leaves its job when it ends.

    ``opportunistic`` is the placement it allows, ``on_slack`` its actual placement.
    """

    job: str
    name: Name
    stage: str
    opportunistic: Opportunistic
    request: TaskRequest | None  # None: known only from its node, after a restart of the master
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
    def elastic(self) -> bool:
        """Return whether it is an executor placed by its profile."""
        return self.request is not None and self.request.executor is not None and self.opportunistic != "only"


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


@dataclass(slots=True)
class Job:
    """A job. ``described`` is false while it is known only from nodes that hold its tasks.

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
    admitted: bool = False
    admitted_at: float | None = None  # monotonic; None: not admitted, or by a former master
    described: bool = False
    complete: bool = True  # all tasks that its origin still awaits are known
    tasks: dict[str, Task] = field(default_factory=dict)
    ready: dict[tuple[str, Opportunistic], dict[str, Task]] = field(default_factory=dict)  # (stage, allowed placement)
    waiting: dict[str, WaitingStage] | None = None  # by stage, in their order; None: to be computed
    summed_up: dict[str, WaitingStage | None] = field(default_factory=dict)  # summaries of unchanged stages
    fits_in: int = -1  # the shape of the cluster in which some node could hold each of its ready tasks
    ready_count: int = 0
    ready_input_bytes: float = 0.0  # I, summed over the ready tasks
    work: Work = field(default_factory=Work)
    hosts: dict[str, float | None] = field(default_factory=dict)
    hosts_to_tell: bool = False
    priority: float = 0.0  # in the agents' queues, larger first
    moved_at: float = -math.inf  # when the priority changed, monotonic
    moved_with_s: float = 0.0  # the service received by then
    ranked: bool = False  # it was in an order sent to agents
    untold: dict[str, TellEnded] = field(default_factory=dict)  # ends that the origin has not confirmed yet
    some_opportunistic: bool = False  # it has, or had, tasks that may run on slack
    some_executors: bool = False  # it has, or had, tasks that are executors
    stages_ended: dict[str, None] = field(default_factory=dict)  # in the order in which their ends were seen
    since_birth: bool = False  # known since its submission, so all its tasks were placed by this master
    reservation: str = ""  # the reservation it belongs to
    # the reason why a task waits, or a function that derives it from the latest round
    waits_why: str | Callable[[], str] = ""
    waits_told: str = ""
    waits_since: float | None = None  # start of the wait for admission, monotonic
    cancelled_by: str = ""  # the requester; the origin has not confirmed the cancellation yet
    failed_tasks: int = 0
    cancelled_tasks: int = 0
    failures: list[TaskFailure] = field(default_factory=list)  # the first failures

    @property
    def waits(self) -> str:
        """Return why a task of the job waits, for the status; derived only on demand."""
        if not isinstance(self.waits_why, str):
            self.waits_why = self.waits_why()
        return self.waits_why

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
            admitted=self.admitted, active=active, done=self.work.done > 0, cancelled=bool(self.cancelled_by)
        )

    @property
    def slack_only(self) -> bool:
        """Return whether all its tasks use only slack, for which no admission is needed."""
        return bool(self.tasks) and all(task.opportunistic == "only" for task in self.tasks.values())

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
        self.hosts[node] = priority
        self.hosts_to_tell |= priority != self.priority

    def told(self, node: str, number: int) -> None:
        """Record that a node was sent the priority in this request; 0: it is away and is told later."""
        if number:
            self.hosts[node] = self.priority
        self.hosts_to_tell |= not number


@dataclass(slots=True)
class Node:
    """A node. A node that never registered is only expected: an origin, or the holder of a task some origin awaits."""

    name: str
    away_since: float | None  # None: connected
    capacity: Capacity = field(default_factory=lambda: Capacity(cores=0.0, memory_bytes=0))
    version: str = ""
    t_alloc: float = 0.0
    load: Load = field(default_factory=lambda: Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts()))
    last_heard: float = 0.0
    heartbeats: int = 0
    number: int = 0  # of the latest decide request
    decided: int = 0  # of the latest request included in `load`
    # requests after `number` that have not been handed over yet
    outbox: list[list[AnyDecision]] = field(default_factory=list)
    outbox_weight: int = 0
    unanswered: dict[int, list[AnyDecision]] = field(default_factory=dict)
    held: dict[Key, Held] = field(default_factory=dict)
    #: Jobs it serves: reported at registration, or added since.
    serves: set[str] = field(default_factory=set)
    job_came_at: float = -math.inf  # the latest time at which a job came that it serves, monotonic
    external_memory_bytes: int = 0  # promised to regular containers outside any job
    availability: Availability | None = None  # the latest on this connection
    availability_at: float = 0.0  # when it was reported, monotonic
    ranks: NodeRanks | None = None  # the order of the jobs there, the latest on this connection
    executors_due: bool = False  # it has reported since it was last examined for executors
    draining: Draining | None = None  # set: no work is placed there
    draining_in: int = 0  # the request of its present connection that announced the drain
    slack_limit: SlackLimit | None = None  # since opportunistic work was preempted there
    own: list[Remaining] | None = None  # while draining: other work there, once reported

    @property
    def slots(self) -> tuple[float, float, float]:
        """Return the number of slots of each kind."""
        capacity = self.capacity
        return float(capacity.cpu_slots), float(capacity.disk_slots), float(capacity.network_slots)

    @property
    def connected(self) -> bool:
        """Return whether messages can be sent to the node."""
        return self.away_since is None

    @property
    def takes_work(self) -> bool:
        """Return whether tasks may be placed on the node."""
        return self.away_since is None and self.draining is None

    def take_load(self, load: Load, decided: int) -> None:
        """Store a report. Memory it promises beyond the known tasks counts as promised to other work."""
        self.load = load
        self.decided = decided
        if load.t_alloc is not None and math.isfinite(load.t_alloc) and load.t_alloc >= 0:
            self.t_alloc = load.t_alloc
        if load.availability is not None:
            self.availability, self.availability_at = load.availability, self.last_heard
        if load.ranks is not None:
            self.ranks = load.ranks
        self.executors_due = True
        ours = sum(held.memory_bytes for held in self.held.values() if held.seen_promised(decided))
        self.external_memory_bytes = max(0, load.promised_memory_bytes - ours)

    def memory_free_bytes(self) -> int:
        """Return the unpromised memory. Negative when the node promises more than it has."""
        ours = sum(held.memory_bytes for held in self.held.values() if held.regular)
        return self.capacity.memory_bytes - self.external_memory_bytes - ours

    def cores_free(self) -> float:
        """Return the cores that may still be promised to commands.

        The node counts a placed command from its start, so neither sum below includes all commands; the larger one is
        exact when only placed commands run there.
        """
        regular = [held for held in self.held.values() if held.regular and held.cores]
        coming = sum(held.cores for held in regular if held.coming(self.decided))
        ours = sum(held.cores for held in regular)
        return self.capacity.cores - max(self.load.promised_cores + coming, ours)


def weight_bytes(decision: AnyDecision) -> int:
    """Return the approximate bytes of a decision on the wire, so that no request exceeds the frame limit."""
    weight = 512 + len(decision.why)
    if isinstance(decision, Assign) and decision.request.command is not None:
        command = decision.request.command
        weight += sum(len(text) + 8 for text in (*command.argv, *command.env, *command.env.values()))
        weight += 16 * len(decision.request.nodes)
        weight += 4 * 9 * decision.profile.slots if decision.profile is not None else 0
    return weight

"""What the master keeps about nodes, jobs and tasks."""

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
#: The kinds (columns) of which a task wants some spare, cores to be promised, the nodes that it names (none: any).
Asks = tuple[tuple[int, ...], float, tuple[str, ...]]


@dataclass(slots=True)
class Held:
    """What a task occupies on a node, from the moment it is proposed until the node is known to be rid of it.

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
    leaving_in: int | None = None  # withdrawn: what it does no longer matters, what it holds does
    executor: bool = False  # regular, and its limits follow a profile: it neither waits for a slot nor holds one
    profile: Profile | None = None  # as far as we have sent it
    beside: tuple[float, float, float, float] = (0.0, 0.0, 0.0, 0.0)  # promised of what the profile does not name
    assigned_at: float = 0.0  # of an executor, monotonic
    user: str = ""  # whose job it is

    @property
    def key(self) -> Key:
        """Its name in the cluster."""
        return self.job, self.task

    @property
    def regular(self) -> bool:
        """Whether its memory is promised; a proposed promotion counts at once."""
        return not self.opportunistic or self.promoted_in is not None

    @property
    def unknown_size(self) -> bool:
        """A command that says nothing about its work."""
        return self.command and self.usage.of(self.kind) <= 0

    def uses_core(self) -> bool:
        """Whether it will take a CPU slot."""
        return self.usage.cpu > 0 or (self.unknown_size and self.kind is ResourceKind.CPU)

    @property
    def needs_slot(self) -> bool:
        """Whether it takes slots where it is regular. Executors do not, nor do commands of the CPU that are promised
        cores: their node withholds these from its slots."""
        return not self.executor and not (self.command and self.cores and self.kind is ResourceKind.CPU)

    @property
    def in_a_slot(self) -> bool:
        """Whether it takes slots as long as it runs; opportunistic commands run without one."""
        return self.needs_slot and (self.regular or not self.command)

    def coming(self, decided: int) -> bool:
        """Whether a Load that knows the decisions up to ``decided`` knows it not at all, or not as regular yet."""
        return self.assigned_in > decided or (self.promoted_in or 0) > decided

    def holds(self) -> tuple[float, float, float, float]:
        """Cores, disk slots, network slots and bytes of memory while it is placed."""
        cores = self.cores or float(self.uses_core())
        disk = float(self.usage.disk > 0 or (self.unknown_size and self.kind is ResourceKind.DISK))
        network = float(self.usage.network > 0 or (self.unknown_size and self.kind is ResourceKind.NETWORK))
        return cores, disk, network, float(self.memory_bytes)

    def seen_promised(self, decided: int) -> bool:
        """Whether a Load that knows the decisions up to ``decided`` counts its memory as promised.

        Answers come before such a Load: what was refused, or given up at once, is not held any more when it is read.
        """
        if self.assigned_in > decided:
            return False
        return not self.opportunistic or (self.promoted_in is not None and self.promoted_in <= decided)


@dataclass(slots=True)
class Task:
    """An accepted task: ready while ``node`` is empty, placed otherwise; it leaves its job when it ends.

    ``opportunistic`` is what it allows, ``on_slack`` how it is placed.
    """

    job: str
    name: Name
    stage: str
    opportunistic: Opportunistic
    request: TaskRequest | None  # None: only its node has told us of it, after a restart of ours
    node: str = ""
    on_slack: bool = False
    was_on: str = ""  # where it was before it became ready again: its end may still come from there
    told: bool = False  # the origin knows its node
    why: str = ""  # it was placed there
    unwanted: bool = False  # cancelled; it ends as soon as its node is rid of it
    losses: int = 0
    refusals: dict[str, int] = field(default_factory=dict)  # node → its heartbeat count when it refused this task
    unfit_since: float | None = None  # no node of the cluster could ever hold it since then
    fits_in: int = -1  # the shape of the cluster in which some node could hold it
    in_vain: bool = False  # its user's limit would have let it be placed, and no node had room
    need: Need | None = None  # but for which nodes it may go to, once somebody asked
    pauses: dict[str, Pause] = field(default_factory=dict)  # node → since it was preempted there

    @property
    def elastic(self) -> bool:
        """Whether it is an executor that is placed by its profile."""
        return self.request is not None and self.request.executor is not None and self.opportunistic != "only"


@dataclass(frozen=True, slots=True, eq=False)
class WaitingStage:
    """The ready tasks of a stage that want regular room, as far as it takes to see that no node has any.

    ``least_bytes`` is the least memory that one of them wants, by what else it asks for. ``commands``: there are
    commands that take a CPU slot.
    """

    first: Task
    count: int
    least_bytes: dict[Asks, float]
    commands: bool


@dataclass(slots=True)
class Job:
    """A job. ``described`` is false while only nodes that hold tasks of it have told us of it.

    ``hosts`` are the nodes that have a queue for it: node → the priority that it is known by there, None where that is
    to be told.
    """

    job: str
    origin: str
    sequence: int
    name: str = ""
    user: str = ""
    executors_of: str = ""  # the application that its executors were declared to be of
    memory_bytes: int = 0
    submitted_at: float = 0.0
    admitted: bool = False
    admitted_at: float | None = None  # monotonic; None: not, or by a former master
    described: bool = False
    complete: bool = True  # all tasks that its origin still waits for are known here
    tasks: dict[str, Task] = field(default_factory=dict)
    ready: dict[tuple[str, Opportunistic], dict[str, Task]] = field(default_factory=dict)  # (stage, what it allows)
    waiting: dict[str, WaitingStage] | None = None  # by stage, in their order; None: to be summed up
    summed_up: dict[str, WaitingStage | None] = field(default_factory=dict)  # stages that have not changed since
    fits_in: int = -1  # the shape of the cluster in which some node could hold each of its ready tasks
    ready_count: int = 0
    ready_input_bytes: float = 0.0  # I of the ready tasks together
    work: Work = field(default_factory=Work)
    hosts: dict[str, float | None] = field(default_factory=dict)
    hosts_to_tell: bool = False
    priority: float = 0.0  # in the agents' queues, larger first
    moved_at: float = -math.inf  # when the priority changed, monotonic
    moved_with_s: float = 0.0  # the service that it had received by then
    ranked: bool = False  # it was in an order that agents were told
    untold: dict[str, TellEnded] = field(default_factory=dict)  # ends that the origin has not confirmed yet
    some_opportunistic: bool = False  # it has, or had, tasks that may run on slack
    some_executors: bool = False  # it has, or had, tasks that are executors
    stages_ended: dict[str, None] = field(default_factory=dict)  # in the order in which they were seen to have
    since_birth: bool = False  # it is known here since it was submitted, so all its tasks were placed from here
    reservation: str = ""  # that it is one of
    waits_why: str | Callable[[], str] = ""  # why something of it waits, or what finds that out of the latest round
    waits_told: str = ""
    waits_since: float | None = None  # for admission, monotonic
    cancelled_by: str = ""  # who; its origin has not said yet that it has ended it
    failed_tasks: int = 0
    cancelled_tasks: int = 0
    failures: list[TaskFailure] = field(default_factory=list)  # the first of them

    @property
    def waits(self) -> str:
        """Return why something of it waits, for the status; found out only when somebody asks."""
        if not isinstance(self.waits_why, str):
            self.waits_why = self.waits_why()
        return self.waits_why

    @property
    def application(self) -> str:
        """What it is a run of: what its executors declare, else its name."""
        return self.executors_of or self.name

    @property
    def standing(self) -> JobStanding:
        """Where it stands."""
        if not self.described:
            return JobStanding.EXPECTED
        active = len(self.tasks) > self.ready_count or self.work.slots > 0
        return standing(
            admitted=self.admitted, active=active, done=self.work.done > 0, cancelled=bool(self.cancelled_by)
        )

    @property
    def slack_only(self) -> bool:
        """Whether all its tasks take nothing but slack, for which no admission is needed."""
        return bool(self.tasks) and all(task.opportunistic == "only" for task in self.tasks.values())

    def stage_changed(self, stage: str) -> None:
        """Forget what was summed up of the ready tasks of a stage."""
        self.waiting = None
        self.summed_up.pop(stage, None)

    def ready_for_regular(self) -> dict[str, list[Task]]:
        """Its ready tasks by stage, but for executors, and for those that want slack and nothing else."""
        stages: dict[str, list[Task]] = {}
        for (stage, allows), tasks in self.ready.items():
            if allows != "only":
                some = [t for t in tasks.values() if not t.elastic] if self.some_executors else tasks.values()
                stages.setdefault(stage, []).extend(some)
        return {stage: some for stage, some in stages.items() if some} if self.some_executors else stages

    def placed(self) -> tuple[int, int]:
        """How many of its tasks are placed: regular and opportunistic."""
        placed = len(self.tasks) - self.ready_count
        if not self.some_opportunistic:
            return placed, 0
        opportunistic = sum(1 for task in self.tasks.values() if task.on_slack and task.node)
        return placed - opportunistic, opportunistic

    def served_by(self, node: str, priority: float | None) -> None:
        """A node has a queue for it, where it is known by this priority (None: nobody can say)."""
        self.hosts[node] = priority
        self.hosts_to_tell |= priority != self.priority

    def told(self, node: str, number: int) -> None:
        """A node was told its priority in this request; 0: it is away and has to be told later."""
        if number:
            self.hosts[node] = self.priority
        self.hosts_to_tell |= not number


@dataclass(slots=True)
class Node:
    """A node. One that never registered is only expected: some origin awaits a task on it, or it is an origin."""

    name: str
    away_since: float | None  # None: connected
    capacity: Capacity = field(default_factory=lambda: Capacity(cores=0.0, memory_bytes=0))
    version: str = ""
    t_alloc: float = 0.0
    load: Load = field(default_factory=lambda: Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts()))
    last_heard: float = 0.0
    heartbeats: int = 0
    number: int = 0  # of the last decide request
    decided: int = 0  # of the last one that `load` knows of
    outbox: list[list[AnyDecision]] = field(default_factory=list)  # the requests after `number`, not handed over yet
    outbox_weight: int = 0
    unanswered: dict[int, list[AnyDecision]] = field(default_factory=dict)
    held: dict[Key, Held] = field(default_factory=dict)
    #: Jobs that it said it serves when it registered, or that came there since.
    serves: set[str] = field(default_factory=set)
    external_memory_bytes: int = 0  # promised to regular containers that are nobody's task
    availability: Availability | None = None  # what it said last on this connection
    availability_at: float = 0.0  # when, monotonic
    ranks: NodeRanks | None = None  # the order of the jobs there, as it told last on this connection
    executors_due: bool = False  # it has reported since it was last looked at for executors
    draining: Draining | None = None  # no work goes there
    draining_in: int = 0  # the request that told it so on its present connection
    slack_limit: SlackLimit | None = None  # since opportunistic work was preempted there
    own: list[Remaining] | None = None  # while draining: what else runs there, once it has said so

    @property
    def slots(self) -> tuple[float, float, float]:
        """How many monotasks of each kind may run at once."""
        capacity = self.capacity
        return float(capacity.cpu_slots), float(capacity.disk_slots), float(capacity.network_slots)

    @property
    def connected(self) -> bool:
        """Whether it can be told something."""
        return self.away_since is None

    @property
    def takes_work(self) -> bool:
        """Whether anything may be placed on it."""
        return self.away_since is None and self.draining is None

    def take_load(self, load: Load, decided: int) -> None:
        """A new report: what it promises beyond the tasks that we know of is promised to others."""
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
        """Not promised to anybody. May be negative when the node promises more than it has."""
        ours = sum(held.memory_bytes for held in self.held.values() if held.regular)
        return self.capacity.memory_bytes - self.external_memory_bytes - ours

    def cores_free(self) -> float:
        """Cores that may still be promised to commands.

        The node counts a placed command from when it starts, so neither sum below has all of them; the larger one is
        exact when nothing but placed commands runs there.
        """
        regular = [held for held in self.held.values() if held.regular and held.cores]
        coming = sum(held.cores for held in regular if held.coming(self.decided))
        ours = sum(held.cores for held in regular)
        return self.capacity.cores - max(self.load.promised_cores + coming, ours)


def weight_bytes(decision: AnyDecision) -> int:
    """About how many bytes a decision takes on the wire, so that no request exceeds the frame limit."""
    weight = 512 + len(decision.why)
    if isinstance(decision, Assign) and decision.request.command is not None:
        command = decision.request.command
        weight += sum(len(text) + 8 for text in (*command.argv, *command.env, *command.env.values()))
        weight += 16 * len(decision.request.nodes)
        weight += 4 * 9 * decision.profile.slots if decision.profile is not None else 0
    return weight

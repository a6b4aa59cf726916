"""What the node keeps about jobs, tasks and containers. All of it can be journaled and taken back after a restart."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from agent.core.confinement import Confinement, Promise, confine
from agent.core.plans import Course
from agent.core.surrogate import Recorded
from penstock.model import (
    ContainerSpec,
    Ended,
    EndedBy,
    Executor,
    KindAmounts,
    Limits,
    Profile,
    ResourceKind,
    TaskRequest,
)
from penstock.model.work import Opportunistic, OpportunisticJob
from penstock.wire.agent_api import StageProgress
from penstock.wire.master_api import JobState


class JobRecord(msgspec.Struct, kw_only=True):
    """A job whose origin is this node (``here``), or that only has tasks or queues here."""

    job: str
    name: str
    user: str
    memory_bytes: int = 0
    priority: float = 0.0
    submitted_at: float = 0.0
    admitted: bool = False
    here: bool = True
    opportunistic: OpportunisticJob = None
    reservation: str = ""
    place: int = 0  # among the jobs of this node: rises as they become known

    def allows(self, stage: str, asked: Opportunistic) -> Opportunistic:
        """What a stage may be: jobs opt out of slack, or allow it for named stages (UBIS §IV.D)."""
        job = self.opportunistic
        if isinstance(job, list):
            job = stage in job
        if job is None or (job is True and asked):
            return asked
        return job


class HeldTask(msgspec.Struct, kw_only=True):
    """A task that the master placed on this node: it holds its memory until it is done.

    ``remaining`` is the estimated work whose monotasks are not in the queues yet.
    """

    job: str
    stage: str
    task: str
    user: str
    origin: str
    request: TaskRequest
    remaining: KindAmounts
    opportunistic: bool = False
    container: str = ""  # of a command: the id that it runs under, once its slot was granted
    profile: Profile | None = None  # of a regular executor: what is held for it instead of its promise
    ended: Ended | None = None  # of a command: the master has yet to hear of it

    @property
    def cores(self) -> float:
        """That a command asks for."""
        return self.request.command.cpu_cores if self.request.command is not None else 0.0

    @property
    def slot(self) -> ResourceKind | None:
        """The kind of slot that its command waits for and holds where it is regular; None: it needs none.

        An executor needs none, nor does a command of the CPU that was promised cores: they are withheld from slots.
        """
        request = self.request
        if request.executor is not None or (request.command_kind is ResourceKind.CPU and self.cores):
            return None
        return request.command_kind

    @property
    def takes_core(self) -> bool:
        """Whether a core is spoken for: it will compute, and nothing of it has come to the queues yet."""
        return self.remaining.cpu > 0 and self.remaining == self.request.usage


class ContainerState(enum.StrEnum):
    """Where a container is."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"  # frozen: its CPU, disk or network is wanted; goes on when there is room
    WARNED = "warned"  # it has had its notice and is about to be preempted
    STOPPING = "stopping"
    ENDED = "ended"


class ContainerRecord(msgspec.Struct, kw_only=True):
    """A command in a cgroup of its own.

    ``kind`` is the slot that a placed command holds; an opportunistic one, an executor, and one of the CPU that was
    promised cores, hold none.
    """

    container: str
    user: str
    spec: ContainerSpec
    opportunistic: bool
    job: str = ""
    task: str = ""
    kind: ResourceKind | None = None
    order: int = 0  # rises with every start and end on this node: the newest opportunistic one is preempted first
    state: ContainerState = ContainerState.STARTING
    pid: int = 0
    started_at: float = 0.0  # Unix time
    limits: Limits = Limits()  # as they are now: of the specification, resized, or following the profile
    profile: Profile | None = None
    profile_at: float = 0.0  # Unix time at which its first slot began; of an executor 0 until it was started
    executor: Executor | None = None
    course: Course | None = None  # of an executor that follows a profile: how far it is
    promise: Promise | None = None  # … and what is protected of it now
    rank: int = 0  # of its job (agent.core.ranks), 0: the first, or it has none
    rank_weight: int = 0  # … and the cpu.weight that follows; 0: none yet
    nice: int = 0  # … and the nice value, where no cpu controller weighs it
    nice_before: int = 0  # of an adopted one: that it had; one that was lowered gets no better one
    recorded: Recorded | None = None  # of an executor: what it used, as far as that has been journaled
    adopted: bool = False
    adopts: int = 0  # … the process that was named
    borrowed: bool = False  # … for the rank of ``job`` alone: given back when that is over
    unrecorded: bool = False  # an earlier agent's record was lost: the request is not known
    orphaned: bool = False  # its launcher died: its processes run on, and nobody sees their exit status
    not_enforced: dict[str, str] = {}
    stopping_by: EndedBy | None = None
    stopping_reason: str = ""
    ended: Ended | None = None

    @property
    def promised_cores(self) -> float:
        """Cores that it is promised now; an executor's follow its profile. An opportunistic one asked for them only."""
        return self.promise.cpu_cores if self.promise is not None else self.spec.cpu_cores


def confinement_of(record: ContainerRecord) -> Confinement:
    """What the kernel is to be told of a container as it is recorded now."""
    return confine(
        record.spec, record.limits, opportunistic=record.opportunistic, promise=record.promise,
        rank_weight=record.rank_weight, rank=record.rank, borrowed=record.borrowed,
    )  # fmt: skip


@dataclass(slots=True)
class Session:
    """A connection and what hangs on it."""

    session: int
    user: str
    uid: int
    client: str
    operator: bool = False
    container: str = ""  # that the client runs in
    jobs: set[str] = field(default_factory=set)
    attached: set[str] = field(default_factory=set)
    launched: set[str] = field(default_factory=set)
    #: Jobs that the connection leaves in order when it closes → the job in which the work goes on, or "".
    left: dict[str, str] = field(default_factory=dict)
    #: Containers of what the connection has lent, or found lent already → the job that it did so for.
    lent: dict[str, str] = field(default_factory=dict)

    @property
    def disconnected(self) -> str:
        """Why what hung on it ends."""
        return f"its client {self.client or 'without a name'} disconnected"


class TaskEnd(msgspec.Struct, kw_only=True):
    """How a task of this origin ended, in the journal for a framework that was away when the master told it."""

    job: str
    task: str
    node: str
    ended: Ended


@dataclass(slots=True)
class TaskHere:
    """A task that a framework of this node asked a place for, as its origin knows it."""

    stage: str
    request: TaskRequest
    opportunistic: Opportunistic
    node: str = ""
    ended: Ended | None = None


@dataclass(slots=True)
class Job:
    """A job on this node: its record, its connections, and the tasks that it wants placed."""

    record: JobRecord
    sessions: set[int] = field(default_factory=set)
    tasks: dict[str, TaskHere] = field(default_factory=dict)
    waits: str = ""  # why the master has not admitted it yet
    stages: list[StageProgress] = field(default_factory=list)  # as its framework said last
    orphan_since: float | None = None  # no connection since then (after a restart of the agent)
    recovered: bool = False  # from before a restart: only its framework knows all that it wants
    kept_ends: set[str] = field(default_factory=set)  # tasks whose ends are in the journal until the job is over


@dataclass(frozen=True, slots=True)
class Preempted:
    """What was done to an opportunistic container whose resources were wanted, with the numbers that led to it."""

    at: float
    container: str
    resource: str
    action: str
    reason: str


def job_state(record: JobRecord, stages: list[StageProgress] | None = None) -> JobState:
    """A job as the master hears of it."""
    return JobState(
        job=record.job,
        name=record.name,
        user=record.user,
        memory_bytes=record.memory_bytes,
        priority=record.priority,
        submitted_at=record.submitted_at,
        admitted=record.admitted,
        stages=stages or [],
        reservation=record.reservation,
    )

"""The node's records of jobs, tasks and containers. All can be journaled and restored after a restart."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field

import msgspec

from agent.core import life_cycles
from agent.core.confinement import Promise, confine, goes_beyond
from agent.core.instructions import Confine, Instruction, Notify
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
from penstock.model.life_cycle import next_state
from penstock.model.work import Opportunistic, OpportunisticJob, has_news, opportunism
from penstock.wire.agent_api import JobWaiting, Notice, StageProgress
from penstock.wire.master_api import JobState, SetPriority


class JobRecord(msgspec.Struct, kw_only=True):
    """A job whose origin is this node (``here``), or one that only has tasks or queues here."""

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
    reserved_cores: float | None = None  # what its reservation promises it here now (SetPriority); None: no reservation
    tenant: str = ""  # that the job's user belongs to (SetPriority); "": tenants have no shares
    tenant_weight: float = 1.0
    place: int = 0  # arrival number among the jobs of this node

    def set_priority(self, by: SetPriority) -> bool:
        """Record its place in the order; return whether something changed that the next agent is to know."""
        before = self.reserved_cores, self.tenant, self.tenant_weight
        self.priority, self.reserved_cores = by.priority, by.reserved_cores
        self.tenant, self.tenant_weight = by.tenant, by.tenant_weight
        return (self.reserved_cores, self.tenant, self.tenant_weight) != before

    def allows(self, stage: str, asked: Opportunistic) -> Opportunistic:
        """Return whether a stage of the job may be opportunistic."""
        return opportunism(self.opportunistic, stage, asked)


class CancelledJob(msgspec.Struct, kw_only=True, frozen=True):
    """A job of ``user`` that the user ``by`` cancelled."""

    job: str
    user: str
    by: str


class HeldTask(msgspec.Struct, kw_only=True):
    """A task that the master placed on this node: it holds its memory until it is done.

    ``remaining`` is the estimated work whose monotasks are not in the queues yet. :class:`agent.core.tasks.HeldTasks`
    changes it.
    """

    job: str
    stage: str
    task: str
    user: str
    origin: str
    request: TaskRequest
    remaining: KindAmounts
    opportunistic: bool = False
    container: str = ""  # of a command: its container's id, once it has its slot
    profile: Profile | None = None  # of a regular executor: held for it instead of its promise
    state: life_cycles.HeldState = "held"
    ended: Ended | None = None  # of a command: set until the master has acknowledged it

    @property
    def cores(self) -> float:
        """The cores that a command asks for."""
        return self.request.command.cpu_cores if self.request.command is not None else 0.0

    @property
    def slot(self) -> ResourceKind | None:
        """The kind of slot that its command needs while regular; None: it needs none.

        An executor needs none, nor does a CPU command with promised cores, which are withheld from slots.
        """
        request, command = self.request, self.request.command
        if command is None or request.executor is not None:
            return None
        return None if request.command_kind is ResourceKind.CPU and command.cpu_cores else request.command_kind

    @property
    def takes_core(self) -> bool:
        """Whether it claims a core: it will compute, and none of its monotasks has been queued yet."""
        return self.remaining.cpu > 0 and self.remaining == self.request.usage


class ContainerState(enum.StrEnum):
    """The state of a container."""

    STARTING = "starting"
    RUNNING = "running"
    PAUSED = "paused"  # frozen because its CPU, disk or network is needed; resumes when there is room
    WARNED = "warned"  # it has been given notice and is about to be preempted
    STOPPING = "stopping"
    ENDED = "ended"


class ContainerRecord(msgspec.Struct, kw_only=True):
    """A command in a cgroup of its own. :class:`agent.core.containers.Containers` changes its state; the fields that a
    method below sets change by that method only.
    """

    container: str
    user: str
    spec: ContainerSpec
    opportunistic: bool
    job: str = ""  # that it was placed or lent for; "": none
    task: str = ""
    #: The slot that a placed command holds. Opportunistic commands, executors and CPU commands with promised cores hold
    #: none.
    kind: ResourceKind | None = None
    order: int = 0  # rises with every start and end on this node; the newest opportunistic container is preempted first
    state: ContainerState = ContainerState.STARTING
    pid: int = 0
    started_at: float = 0.0  # Unix time
    limits: Limits = Limits()  # the present ones: from the specification, resized, or by the profile
    profile: Profile | None = None  # that its limits follow
    profile_at: float = 0.0  # Unix time at which its first slot began
    executor: Executor | None = None
    course: Course | None = None  # an executor's progress on its profile
    promise: Promise | None = None  # an executor's present protected resources
    groups: tuple[str, ...] = ()  # that its cgroup was to be in (agent.core.groups)
    rank: int = 0  # of its job (agent.core.ranks); 0: the first, or none
    rank_weight: int = 0  # the ``cpu.weight`` of that rank, beside that of promised cores; 0: none yet
    nice: int = 0  # the nice value of that rank, without a cpu controller
    nice_before: int = 0  # the former nice value of an adopted process; a lowered one is not raised
    # whether its job's reservation promises nothing yet: then its cores are not protected, either
    early: bool = False
    recorded: Recorded | None = None  # an executor's use, as journaled
    adopted: bool = False
    adopts: int = 0  # the adopted process that was named; 0: none
    borrowed: bool = False  # adopted only for the rank of ``job``: given back when that is over
    hosts_job: bool = False  # a process in it has registered or joined a job
    counts_for: str = ""  # the job of such a process that its CPU time counts for; "": none, or of an earlier version
    cpu_before_s: float = 0.0  # CPU time that it used for jobs that are over, in seconds
    cpu_of_jobs_s: dict[str, float] = {}  # that of earlier turns of jobs that are not over, by job, in seconds
    unrecorded: bool = False  # an earlier agent's record was lost: the request is unknown
    orphaned: bool = False  # its launcher died: its processes run on, and their exit status is lost
    not_enforced: dict[str, str] = {}
    stopping_by: EndedBy | None = None
    stopping_reason: str = ""
    ended: Ended | None = None

    @property
    def promised_cores(self) -> float:
        """The cores now promised; an executor's follow its profile. An opportunistic container only asked for them."""
        if self.early:
            return 0.0
        return self.promise.cpu_cores if self.promise is not None else self.spec.cpu_cores

    @property
    def ranked(self) -> bool:
        """Whether its job's rank orders its use of processors: all of it, or what exceeds its promised cores."""
        cores = self.promised_cores
        return not self.opportunistic and (not cores or goes_beyond(cores, self.limits))

    def confine(self) -> Confine:
        """Apply the kernel settings for its present state."""
        settings = confine(
            self.spec, self.limits, opportunistic=self.opportunistic, promise=self.promise,
            rank_weight=self.rank_weight, rank=self.rank, borrowed=self.borrowed, early=self.early,
        )  # fmt: skip
        return Confine(self.container, settings)

    def resize(self, limits: Limits, promise: Promise | None = None) -> list[Instruction]:
        """Change its limits and an executor's promise; a container that is starting gets them once it runs."""
        promise = promise or self.promise
        if limits == self.limits and promise == self.promise:
            return []
        self.limits, self.promise = limits, promise
        return [] if self.state in (ContainerState.STARTING, ContainerState.STOPPING) else [self.confine()]

    def follow(self, profile: Profile | None, at: float) -> None:
        """Follow a profile whose first slot began ``at`` (Unix time); None: none from now on."""
        self.profile, self.profile_at = profile, at

    def hold(self, slot: ResourceKind | None) -> None:
        """Record the slot that its command holds; None: none."""
        self.kind = slot

    def set_rank(self, rank: int, weight: int, nice: int) -> None:
        """Record its place in the order of jobs."""
        self.rank, self.rank_weight, self.nice = rank, weight, nice

    def join(self, groups: tuple[str, ...]) -> None:
        """Record the groups in which its cgroup is to be created, the outermost first."""
        self.groups = groups

    def go_on(self, course: Course) -> None:
        """Record an executor's progress on its profile."""
        self.course = course

    def keep_use(self, recorded: Recorded) -> None:
        """Record an executor's use, to be journaled."""
        self.recorded = recorded

    def adopt(self, pid: int, nice_before: int = 0) -> None:
        """Record that it takes in a process, with its descendants if these are lent, that was started elsewhere."""
        self.adopted, self.adopts, self.nice_before = True, pid, nice_before

    def lend(self, job: str) -> None:
        """Record that its processes, which were started elsewhere, are lent for a job."""
        self.job, self.adopted, self.borrowed = job, True, True

    def host_job(self, job: str) -> None:
        """Record that a process in it takes part in a job, which its CPU time counts for; "": that job is over."""
        self.hosts_job, self.counts_for = True, job

    @property
    def cpu_told_apart_s(self) -> float:
        """The CPU time that the present turn of its job does not count, in seconds."""
        return self.cpu_before_s + sum(self.cpu_of_jobs_s.values())

    def end_turn(self, job: str, cpu_s: float) -> None:
        """Record CPU time that it used for a job before another one, beside it, took its turn."""
        self.cpu_of_jobs_s[job] = self.cpu_of_jobs_s.get(job, 0.0) + cpu_s

    def leave_out(self, cpu_s: float, job: str = "") -> None:
        """Record CPU time that it used for a job that is over, and that of the job's earlier turns."""
        self.cpu_before_s += cpu_s + self.cpu_of_jobs_s.pop(job, 0.0)

    def keep(self) -> None:
        """Record that lent processes cannot be given back: it is an adopted container without a job."""
        self.job, self.borrowed = "", False


def command_record(held: HeldTask, slot: ResourceKind | None) -> ContainerRecord:
    """Create the container record of a placed command, which holds a slot."""
    command = held.request.command
    assert command is not None
    promised = max(command.memory_bytes, held.request.memory_bytes)
    return ContainerRecord(
        container=held.container,
        user=held.user,
        spec=msgspec.structs.replace(command, memory_bytes=promised, opportunistic=held.opportunistic),
        opportunistic=held.opportunistic,
        job=held.job,
        task=held.task,
        kind=slot,
        limits=command.limits,
        executor=held.request.executor,
    )


def journal_key(job: str, task: str) -> str:
    """Return the task's key. The journal hashes keys for file names, since task names come from clients."""
    return f"{job}/{task}"


class TaskEnd(msgspec.Struct, kw_only=True):
    """How a task of this origin ended, journaled for a framework that may not have read it."""

    job: str
    task: str
    node: str
    ended: Ended
    own: bool = False  # its framework executes it itself, and therefore asks no later agent for it


class Waits(msgspec.Struct, frozen=True):
    """Job → index of KINDS → Unix time since which the job has waited for its turn."""

    since: dict[str, dict[int, float]] = {}


@dataclass(slots=True)
class TaskHere:
    """A task that a framework of this node asked a place for, on its origin."""

    stage: str
    request: TaskRequest
    opportunistic: Opportunistic
    state: life_cycles.TaskState = "asked for"
    node: str = ""
    cancelled: bool = False  # its framework cancelled it on its node; the master has yet to report its end
    ended: Ended | None = None

    @classmethod
    def of_earlier_agent(cls, task: str) -> TaskHere:
        """Return a task of an earlier agent: only its framework knows what it asked for."""
        return cls("", TaskRequest(task=task, usage=KindAmounts()), False)

    def place(self, node: str) -> None:
        """Record its node. Raises: TransitionError."""
        self.state, self.node = next_state(life_cycles.TASK, self.state, "placed"), node

    def end(self, ended: Ended, node: str = "") -> None:
        """Record how it ended, on ``node`` unless its node is known. Raises: TransitionError."""
        self.state, self.ended = next_state(life_cycles.TASK, self.state, "ended"), ended
        self.node = self.node or node


@dataclass(slots=True)
class Job:
    """A job on this node: its record, its connections, and the tasks to be placed."""

    record: JobRecord
    state: life_cycles.JobState = field(init=False)
    sessions: set[int] = field(default_factory=set)
    tasks: dict[str, TaskHere] = field(default_factory=dict)
    waits: str = ""  # why the master has not admitted it yet
    waits_for_ever: bool = False  # the cluster has no nodes large enough for it
    stages: list[StageProgress] = field(default_factory=list)  # from its framework's last report
    orphan_since: float | None = None  # without connections since then (after a restart of the agent)
    # Restored after a restart, as long as it lives: not all its tasks are known until its framework asks again for its
    # commands and for tasks without a node; an earlier version journaled no placed tasks that the framework executes
    # itself.
    recovered: bool = False
    kept_ends: set[str] = field(default_factory=set)  # tasks whose ends are journaled until the job is over
    own_ends: set[str] = field(default_factory=set)  # those of them that its framework executes itself

    def __post_init__(self) -> None:
        self.state = "admitted" if self.record.admitted else "waiting"

    def notify(self, params: Notice) -> list[Instruction]:
        """Send a notification to all its connections."""
        return [Notify(session, params) for session in sorted(self.sessions)]

    def wait(self, why: str, *, never: bool) -> None:
        """Record why the master does not admit it yet."""
        self.waits, self.waits_for_ever = why, never

    def waiting(self) -> JobWaiting:
        """Return the notification why it waits."""
        return JobWaiting(job=self.record.job, why=self.waits, never=self.waits_for_ever)

    def admit(self) -> bool:
        """Record that the master has admitted it; return whether that is new. Raises: TransitionError."""
        before, self.state = self.state, next_state(life_cycles.JOB, self.state, "admitted")
        self.record.admitted, self.waits = True, ""
        return before != self.state

    def join(self, session: int) -> None:
        """Record that a connection takes part in it."""
        self.sessions.add(session)
        self.orphan_since = None

    def leave(self, session: int) -> None:
        """Record that a connection takes part in it no more."""
        self.sessions.discard(session)

    def take_back(self, now: float) -> None:
        """Record that it is an earlier agent's, without connections from ``now`` on."""
        self.recovered, self.orphan_since = True, now

    def report(self, stages: list[StageProgress]) -> bool:
        """Store its framework's report on its stages; return whether it has news beside counts of the same stages."""
        before, self.stages = self.stages, stages
        return has_news(before, stages)

    def end(self) -> None:
        """Record its end. Raises: TransitionError."""
        self.state = next_state(life_cycles.JOB, self.state, "over")


def job_state(record: JobRecord, stages: list[StageProgress] | None = None) -> JobState:
    """Return a job's state for the master."""
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

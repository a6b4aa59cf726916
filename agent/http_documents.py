"""What the agent's HTTP answers in JSON, for its OpenAPI document. PURE: types, nothing else.

:mod:`agent.status` makes the documents; a test holds real ones against these, and neither may have a key more or less.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from agent.core.records import ContainerState
from agent.core.snapshot import ContainerUse, HostUse
from penstock.documents import Certificate, Degraded, Said, SetByHand
from penstock.model import Capacity, Ended, Limits, ResourceKind
from penstock.model.job_state import JobStanding
from penstock.model.work import StageProgress
from penstock.wire.cluster_api import Remaining


class Head(Said, frozen=True, kw_only=True):
    """Whose turn is next, and how long that job has waited for one, in seconds."""

    job: str
    task: str
    waits_s: float


class Waits(Said, frozen=True, kw_only=True):
    """How long granted monotasks had waited: ``counts`` has one more than ``bounds_s``, for the rest."""

    bounds_s: list[float]
    counts: list[int]
    sum_s: float


class Queue(Said, frozen=True, kw_only=True):
    """The queue of one kind (Ursa §4.2.3): monotasks that hold a slot (``running``), share one (``sharing``), go past
    the queue (``bypassing``), run on without the slot that was taken back (``overdue``) or wait (``queued``);
    ``rate_bytes_per_s`` is X/T; ``slot_seconds`` of those that ended; ``taken_back`` counts slots. Of the ``slots``
    so many are ``withheld``, as their cores are promised."""

    slots: int
    withheld: int
    running: int
    sharing: int
    bypassing: int
    queued: int
    pending_bytes: int
    rate_bytes_per_s: float
    slot_seconds: float
    granted: int
    overdue: int
    taken_back: int
    waits: Waits
    head: Head | None


class Resource(Said, frozen=True, kw_only=True):
    """In ``unit`` (cores, bytes, or share of the time or of the link). ``promised`` null: not known, or nothing can be.
    ``slack`` is T_alloc × capacity − used (UBIS §IV.A)."""

    unit: Literal["cores", "bytes", "share"]
    capacity: float
    promised: float | None
    used: float
    slack: float


class Cores(Said, frozen=True, kw_only=True):
    """Cores: promised to regular work, asked for by opportunistic work, used by containers."""

    capacity: float
    promised: float
    opportunistic: float
    used: float


class Memory(Said, frozen=True, kw_only=True):
    """The same of memory."""

    capacity_bytes: int
    promised_bytes: int
    opportunistic_bytes: int
    used_bytes: int


class JobRank(Said, frozen=True, kw_only=True):
    """Where a job stands among those that were promised no processor: 1 is the first ``of`` so many, and ``why`` it
    stands there. ``cpu_s`` is what it has used on this node, ``queue`` follows from that, ``weight`` is what its
    containers weigh together (``cpu.weight``)."""

    rank: int
    of: int
    cpu_s: float
    queue: int
    weight: int
    why: str


class Job(Said, frozen=True, kw_only=True):
    """A job on this node; its monotasks are counted on this node alone. ``state``: here. ``waits``: why it is
    not admitted yet. ``cpu_s`` is what its containers have used here, ``rank`` null where none of them has one."""

    job: str
    name: str
    user: str
    admitted: bool
    state: JobStanding
    waits: str
    priority: float
    connections: int
    stages: list[StageProgress]
    cpu_s: float
    rank: JobRank | None
    queued: int
    running: int
    done: int
    failed: int


class Following(Said, frozen=True, kw_only=True):
    """Where in its profile a container is, and what it wants there."""

    slot: int
    slots: int
    slot_s: float
    wants: dict[str, float]


class ExecutorState(Said, frozen=True, kw_only=True):
    """Of an executor: how late its stage is, as a multiple of its prediction (``behind``; 0: it is not), whether it is
    ``stuck``, and how often it was given more (Elasecutor §III.D)."""

    application: str
    run: str
    slot: int | None
    slots: int | None
    behind: float
    stuck: bool
    reprovisioned: int


class Rank(JobRank, frozen=True, kw_only=True):
    """Where a container's job stands. ``job`` is the job's id, or the container's where it belongs to none; ``weight``
    is the container's ``cpu.weight``; ``nice`` holds without a cpu controller."""

    job: str
    nice: int


class Container(Said, frozen=True, kw_only=True):
    """A container. ``orphaned``: its launcher died, and its exit status will not be known. ``not_enforced``: limit →
    why it is not. ``sample`` is empty until there is one."""

    container: str
    name: str
    user: str
    job: str
    task: str
    container_class: Literal["regular", "opportunistic"] = msgspec.field(name="class")
    state: ContainerState
    pid: int
    started_at: float
    rank: Rank | None
    limits: Limits
    follows: bool
    profile: Following | None
    executor: ExecutorState | None
    adopted: bool
    orphaned: bool
    not_enforced: dict[str, str]
    sample: ContainerUse
    ended: Ended | None
    note: str


class Preemption(Said, frozen=True, kw_only=True):
    """What was done to an opportunistic container at Unix time ``at``, and why."""

    at: float
    container: str
    resource: str
    action: str
    reason: str


class Acts(Said, frozen=True, kw_only=True):
    """How often that was done for the sake of that resource, since the start of the agent."""

    action: str
    resource: str
    count: int


class Reaction(Said, frozen=True, kw_only=True):
    """From the decision to preempt to the container's end: ``counts`` has one more than ``bounds_s``, for the rest."""

    bounds_s: list[float]
    counts: list[int]
    sum_s: float


class Enforcement(Said, frozen=True, kw_only=True):
    """Whether this host can enforce it; where not, why, and what would help."""

    ok: bool
    why: str
    remedy: str


class MasterLink(Said, frozen=True, kw_only=True):
    """Where the master is (empty: there is none), and whether it answers."""

    address: str
    linked: bool


class Journal(Said, frozen=True, kw_only=True):
    """Records written or removed since the start of the agent."""

    writes: int


class Drain(Said, frozen=True, kw_only=True):
    """The node takes no work: who wants that, since when, and what still runs (``count``; at most 50 are named)."""

    state: Literal["draining", "drained"]
    by: str
    since: float
    count: int
    remaining: list[Remaining]


class Status(Said, frozen=True, kw_only=True):
    """What the agent knows of its node. Times are Unix times; ``host`` is empty until there is a sample. ``events`` are
    what the agent did, the latest last: ``at``, ``what``, and facts of their own."""

    node: str
    version: str
    started_at: float
    uptime_s: float
    capacity: Capacity
    t_alloc: float
    kinds: dict[ResourceKind, Queue]
    cores: Cores
    memory: Memory
    resources: dict[Literal["cpu", "memory", "disk", "network"], Resource]
    host: HostUse
    jobs: list[Job]
    containers: list[Container]
    preemptions: list[Preemption]
    acts: list[Acts]
    reaction: Reaction
    events: list[dict[str, Any]]
    enforcement: dict[str, Enforcement]
    master: MasterLink
    journal: Journal
    degraded: list[Degraded]
    drain: Drain | None
    configuration: dict[str, SetByHand]
    certificates: list[Certificate]

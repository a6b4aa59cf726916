"""The agent's JSON documents over HTTP, for its OpenAPI document. PURE: only types.

:mod:`agent.status` creates the documents; a test compares real ones with these types: the keys must be equal.
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
    """The job whose turn is next, and how long it has waited, in seconds."""

    job: str
    task: str
    waits_s: float


class Waits(Said, frozen=True, kw_only=True):
    """How long granted monotasks had waited: ``counts`` has one element more than ``bounds_s``, for longer waits."""

    bounds_s: list[float]
    counts: list[int]
    sum_s: float


class Queue(Said, frozen=True, kw_only=True):
    """The queue of one kind (Ursa §4.2.3): monotasks that hold a slot (``running``), share one (``sharing``), bypass
    the queue (``bypassing``), run on after their slot was taken back (``overdue``) or wait (``queued``);
    ``rate_bytes_per_s`` is X/T; ``slot_seconds`` of those that ended; ``taken_back`` counts slots. ``withheld`` of the
    ``slots`` are not granted, because their cores are promised.
    """

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
    """In ``unit`` (cores, bytes, or fraction of the time or of the link). ``promised`` null: unknown, or impossible.
    ``slack`` is T_alloc × capacity − used (UBIS §IV.A).
    """

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
    """The same for memory."""

    capacity_bytes: int
    promised_bytes: int
    opportunistic_bytes: int
    used_bytes: int


class JobRank(Said, frozen=True, kw_only=True):
    """A job's rank among the ranked jobs of a node: ``rank`` 1 is the first ``of`` their number; ``why``
    explains it. ``cpu_s`` is its CPU time on this node, which determines ``queue``; ``weight`` is the sum of its
    containers' weights (``cpu.weight``). ``tenant``: the rank is among the jobs of this tenant; empty: among all.
    """

    rank: int
    of: int
    cpu_s: float
    queue: int
    weight: int
    why: str
    tenant: str


class Job(Said, frozen=True, kw_only=True):
    """A job on this node; only its monotasks on this node are counted. ``state``: on this node. ``waits``: why it is
    not admitted yet. ``cpu_s`` is the CPU time of its containers here, ``rank`` null if none of them has one.
    """

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
    """A container's place in its profile, and the profile's demand there."""

    slot: int
    slots: int
    slot_s: float
    wants: dict[str, float]


class ExecutorState(Said, frozen=True, kw_only=True):
    """An executor's state: how late its stage is, as a multiple of its prediction (``behind``; 0: it is not), whether
    it is ``stuck``, and how often it was reprovisioned (Elasecutor §III.D).
    """

    application: str
    run: str
    slot: int | None
    slots: int | None
    behind: float
    stuck: bool
    reprovisioned: int


class Rank(JobRank, frozen=True, kw_only=True):
    """The rank of a container's job. ``job`` is the job's id, or the container's without a job; ``weight`` is the
    container's ``cpu.weight``; ``nice`` applies without a cpu controller.
    """

    job: str
    nice: int


class Container(Said, frozen=True, kw_only=True):
    """A container. ``orphaned``: its launcher died, and its exit status will not be known. ``not_enforced``: limit →
    why it is not. ``sample`` is empty until the first sample.
    """

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
    """An action on an opportunistic container at Unix time ``at``, and its reason."""

    at: float
    container: str
    resource: str
    action: str
    reason: str


class Acts(Said, frozen=True, kw_only=True):
    """How often an action was taken for a resource, since the start of the agent."""

    action: str
    resource: str
    count: int


class Reaction(Said, frozen=True, kw_only=True):
    """From the decision to preempt to the container's end: ``counts`` has one element more than ``bounds_s``."""

    bounds_s: list[float]
    counts: list[int]
    sum_s: float


class Enforcement(Said, frozen=True, kw_only=True):
    """Whether this host can enforce a feature; if not, why, and the remedy."""

    ok: bool
    why: str
    remedy: str


class MasterLink(Said, frozen=True, kw_only=True):
    """The master's address (empty: there is none), and whether it answers."""

    address: str
    linked: bool


class Journal(Said, frozen=True, kw_only=True):
    """Records written or removed since the start of the agent."""

    writes: int


class Drain(Said, frozen=True, kw_only=True):
    """The node takes no work, ``by`` a user ``since`` a time. ``count`` is the running work; at most 50 are named."""

    state: Literal["draining", "drained"]
    by: str
    since: float
    count: int
    remaining: list[Remaining]


class Status(Said, frozen=True, kw_only=True):
    """The state of the node. Times are Unix times; ``host`` is empty until the first sample. ``events`` are the agent's
    actions, the latest last: ``at``, ``what``, and further facts.
    """

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

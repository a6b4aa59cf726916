"""The agent's JSON documents over HTTP. :mod:`agent.status` makes them; OpenAPI and docs/protocol.md follow from them.

What a part of the agent reports of itself is declared beside that part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from agent.check.facts import Fact
from agent.core.draining import DrainStatus
from agent.core.executors import ExecutorState
from agent.core.preemption_actions import Preempted
from agent.core.rank_order import ContainerRank, JobRank
from agent.core.records import ContainerState
from agent.core.snapshot import ContainerUse, HostUse
from agent.queues.counts import QueueCounts
from penstock.documents import Certificate, Degraded, Document, Histogram, Resources, SetByHand
from penstock.model import Capacity, Ended, Limits, ResourceKind
from penstock.model.job_state import JobStanding
from penstock.model.work import FullStageProgress


class Cores(Document, frozen=True, kw_only=True):
    """Cores: promised to regular containers (for executors with profiles, the largest total that they will hold), asked
    for by opportunistic ones, and used.
    """

    capacity: float
    promised: float
    opportunistic: float
    used: float


class Memory(Document, frozen=True, kw_only=True):
    """Memory: promised, asked for and used, as in :class:`Cores`."""

    capacity_bytes: int
    promised_bytes: int
    opportunistic_bytes: int
    used_bytes: int


class JobStatus(Document, frozen=True, kw_only=True):
    """A job on this host; ``queued``, ``running``, ``done`` and ``failed`` count its monotasks here.

    ``waits``: the reason why it is not admitted yet. ``stages``: from its framework's last ``progress``. ``cpu_s``: the
    CPU time of its containers here. ``rank`` null: none of them has one.
    """

    job: str
    name: str
    user: str
    admitted: bool
    priority: float
    state: JobStanding
    waits: str
    connections: int
    stages: Sequence[FullStageProgress]
    cpu_s: float
    rank: JobRank | None
    queued: int
    running: int
    done: int
    failed: int


class Following(Document, frozen=True, kw_only=True):
    """A container's slot in its profile (from 0, by the time since it began), and the profile's values in this slot:
    ``wants`` has ``cpu_cores``, ``memory_bytes``, ``disk_bytes_per_s`` and ``network_bytes_per_s``, as far as the
    profile names them.
    """

    slot: int
    slots: int
    slot_s: float
    wants: dict[str, float]


class Container(Document, frozen=True, kw_only=True):
    """A container. ``follows``: it has a profile. ``profile`` null: it follows none, or has ended.

    ``orphaned``: its launcher died, so its exit status will not be known. ``limits`` are the present ones,
    ``not_enforced`` maps those that are not enforced to the reasons. ``sample`` is empty until the first sample.
    ``note``, for operators: the limit that takes effect, or why the container ended.
    """

    container: str
    user: str
    job: str
    task: str
    pid: int
    started_at: float
    adopted: bool
    orphaned: bool
    not_enforced: Mapping[str, str]
    name: str
    container_class: Literal["regular", "opportunistic"] = msgspec.field(name="class")
    state: ContainerState
    rank: ContainerRank | None
    limits: Limits
    follows: bool
    profile: Following | None
    executor: ExecutorState | None
    sample: ContainerUse
    ended: Ended | None
    note: str


class Acts(Document, frozen=True, kw_only=True):
    """The number of actions on opportunistic containers for a resource, since the start of the agent."""

    action: str
    resource: str
    count: int


class LinkStatus(Document, frozen=True, kw_only=True):
    """The master's address (empty: there is none), and whether it answers."""

    address: str
    linked: bool


class Journal(Document, frozen=True, kw_only=True):
    """The number of records written or removed since the start of the agent."""

    writes: int


class Status(Document, frozen=True, kw_only=True):
    """The state of the host. Times are Unix times.

    ``t_alloc`` is UBIS's present T_alloc, as configured or as tuned (``t_alloc_tuned``). ``host`` is the last sample of
    the whole host, empty until there is one. ``containers`` has the ended ones last, the latest first; ``preemptions``
    the oldest first. ``reaction``: the times from the decision to preempt a container to its end. ``events`` are the
    agent's latest actions: ``at``, ``what``, and further facts. ``enforcement``: what can be limited, and whether this
    host can enforce it. ``drain`` null: the node accepts work. ``configuration`` has the keys that were set while the
    agent runs.
    """

    node: str
    version: str
    started_at: float
    uptime_s: float
    capacity: Capacity
    t_alloc: float
    kinds: dict[ResourceKind, QueueCounts]
    cores: Cores
    memory: Memory
    resources: Resources
    host: HostUse
    jobs: Sequence[JobStatus]
    containers: Sequence[Container]
    preemptions: Sequence[Preempted]
    acts: Sequence[Acts]
    reaction: Histogram
    events: Sequence[Mapping[str, Any]]
    enforcement: Mapping[str, Fact]
    master: LinkStatus
    drain: DrainStatus | None
    configuration: Mapping[str, SetByHand]
    certificates: Sequence[Certificate]
    journal: Journal
    degraded: Sequence[Degraded]


class NotSampled(ContainerUse, frozen=True, omit_defaults=True):
    """No sample of a container yet: empty in the document."""


class HostNotSampled(HostUse, frozen=True, omit_defaults=True):
    """No sample of the host yet: empty in the document."""

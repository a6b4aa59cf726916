"""The events of a node. Each is handled by :meth:`agent.core.node.Node.handle`.

The argument ``at`` is Unix time, where a record keeps it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import msgspec

from agent.core.records import CancelledJob, ContainerRecord, HeldTask, JobRecord, TaskEnd, Waits
from agent.core.settings import NodeSettings
from agent.core.snapshot import Snapshot
from penstock.model import ContainerSpec, Profile
from penstock.wire.agent_api import RegisterJob
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import AnyDecision, AwaitedTask
from penstock.wire.method import Method

P = TypeVar("P", bound=msgspec.Struct)


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A framework or command connected; ``user`` comes from the kernel."""

    session: int
    user: str
    client: str
    operator: bool = False
    container: str = ""  # the container that the client runs in


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A connection closed: its resources are given back. ``stopping``: the agent closed it because it stops; then its
    jobs continue, and only its attached containers end.
    """

    session: int
    stopping: bool = False


class Requested(msgspec.Struct, Generic[P], frozen=True):  # of the hot path: a quarter of a dataclass's cost
    """A call of a session, as it came; calls with further facts about the host have events of their own."""

    method: Method[P, Any]
    session: int
    params: P


@dataclass(frozen=True, slots=True)
class JobRegistered:
    """``register_job``."""

    session: int
    request: RegisterJob
    at: float


@dataclass(frozen=True, slots=True)
class JobIntroduced:
    """The master knows a job of another origin that a framework here is about to join, or whose task it placed here."""

    job: str
    name: str
    user: str
    priority: float


@dataclass(frozen=True, slots=True)
class AdoptRequested:
    """``adopt``: take a running process into a container. ``own``: the connection's own process is among those taken
    in; ``inside``: the container that the process is in already.
    """

    session: int
    spec: ContainerSpec
    pid: int
    tree: bool
    own: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class LendRequested:
    """``lend``: take in a running process and its descendants for the rank of a job. ``argv`` and ``nice`` are its
    command line and its nice value; ``own`` and ``inside`` as in AdoptRequested.
    """

    session: int
    job: str
    pid: int
    argv: tuple[str, ...]
    nice: int = 0
    own: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class FollowRequested:
    """``follow``: limits follow a profile from now on; None: no longer.

    ``since_s`` is how long ago the profile began, if it is resumed.
    """

    session: int
    container: str
    profile: Profile | None
    at: float
    strict: bool = False
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """The launcher started a container. ``not_enforced``: requested limit → why this host does not enforce it.

    ``orphaned``: the launcher died meanwhile.
    """

    container: str
    pid: int
    not_enforced: dict[str, str]
    at: float
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class ContainerNotStarted:
    """A container did not start: why, for its user, the exit status a shell would return (126, 127), if any, and the
    strict limit that is not enforced, if that is why.
    """

    container: str
    message: str
    exit_status: int | None = None
    limit: str = ""


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """A container's first process ended, and the rest was killed. ``exit_status`` None: it could not be observed."""

    container: str
    exit_status: int | None
    signal: int | None
    cpu_seconds: float
    memory_peak_bytes: int
    oom_kills: int
    ended_at: float


@dataclass(frozen=True, slots=True)
class GivenBack:
    """GiveBack was carried out, or failed (``why_not``): then the container stays."""

    container: str
    cpu_seconds: float
    memory_peak_bytes: int
    at: float
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """The launcher died: its containers have lost their parent. Starts under way report their own end."""


@dataclass(frozen=True, slots=True)
class Confined:
    """Confine was carried out. ``not_enforced`` as in ContainerStarted."""

    container: str
    not_enforced: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Reclaim is over."""

    container: str


@dataclass(frozen=True, slots=True)
class Woken:
    """The time of the last Wake has come."""

    at: float


@dataclass(frozen=True, slots=True)
class Decided:
    """The master's decisions, which the node may refuse. ``at`` is Unix time."""

    number: int
    decisions: list[AnyDecision]
    at: float


@dataclass(frozen=True, slots=True)
class EndAcknowledged:
    """The master has acknowledged the end of a command, which is kept until then."""

    job: str
    task: str


@dataclass(frozen=True, slots=True)
class EndUnread:
    """A framework was sent a task's end but does not read: messages to it are in the agent's memory only."""

    job: str
    task: str


@dataclass(frozen=True, slots=True)
class CpuTimesRead:
    """ReadCpuTimes was carried out; in ``snapshot`` nothing but ``cpu_seconds`` is newer than the last sample."""

    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class Sampled:
    """The monitor took a sample; every decision of this tick uses it."""

    snapshot: Snapshot
    at: float


@dataclass(frozen=True, slots=True)
class MemoryChecked:
    """A memory check between two samples: containers use much of it, or promised ones (``pressed``) stall on it.

    In ``snapshot``, only the containers' memory is fresh.
    """

    snapshot: Snapshot
    pressed: tuple[str, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """New settings, as far as a running node can change them (:meth:`NodeSettings.changed`)."""

    settings: NodeSettings
    at: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """First event after a restart of the agent: the journal's records, and the containers that still run.

    ``running`` maps container → pid. ``orphans`` are those of them whose launcher died. ``never_began`` are recorded
    containers that no launcher was asked to start. A recorded container that is in none of them, and whose exit the
    launcher will not report, is lost. A container that runs without a readable record continues; ``owners`` has its
    user. ``cpu_s`` is the CPU time of containers that an earlier agent has counted, in seconds: what its record says,
    or else what those which run have used, as far as their cgroups tell. ``service_s``, ``own`` and ``ended_s`` are
    what it has counted of jobs (:class:`agent.core.attained_service.LastCount`).
    """

    jobs: list[JobRecord]
    tasks: list[HeldTask]
    containers: list[ContainerRecord]
    running: dict[str, int]
    exits_to_come: frozenset[str]
    at: float
    draining: Draining | None = None
    waits: Waits | None = None
    never_began: frozenset[str] = frozenset()
    owners: dict[str, str] = field(default_factory=dict)
    orphans: frozenset[str] = frozenset()
    ends: list[TaskEnd] = field(default_factory=list)
    awaited: list[AwaitedTask] = field(default_factory=list)
    cancelled: list[CancelledJob] = field(default_factory=list)
    cpu_s: dict[str, float] = field(default_factory=dict)
    service_s: dict[str, float] = field(default_factory=dict)
    own: list[str] = field(default_factory=list)
    ended_s: dict[str, float] = field(default_factory=dict)


Event = (
    Requested[Any]
    | SessionOpened
    | SessionClosed
    | JobRegistered
    | JobIntroduced
    | AdoptRequested
    | LendRequested
    | FollowRequested
    | ContainerStarted
    | ContainerNotStarted
    | ContainerExited
    | GivenBack
    | LauncherLost
    | Confined
    | Reclaimed
    | Woken
    | Decided
    | EndAcknowledged
    | EndUnread
    | Sampled
    | MemoryChecked
    | CpuTimesRead
    | Reconfigured
    | Recovered
)

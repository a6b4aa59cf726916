"""What happens to a node. Each event is handled by :meth:`agent.core.node.Node.handle`.

Unix time comes as the argument ``at`` where a record keeps it. Those of the hot path are msgspec's structs, which are
made in a quarter of the time.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec

from agent.core.end_events import EndHeard, EndUnread
from agent.core.records import ContainerRecord, HeldTask, JobRecord, TaskEnd
from agent.core.settings import NodeSettings
from agent.core.snapshot import Snapshot
from agent.core.turns import Waits
from penstock.model import ContainerSpec, MonotaskSpec, Profile, TaskRequest
from penstock.model.container import LimitsChange
from penstock.model.work import MonotaskId, Opportunistic
from penstock.wire.agent_api import Completion, Progress, RegisterJob
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import AnyDecision


@dataclass(frozen=True, slots=True)
class SessionOpened:
    """A framework or command connected; the kernel vouches for ``uid`` and ``user``."""

    session: int
    user: str
    uid: int
    client: str
    operator: bool = False
    container: str = ""  # that the client runs in


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """A connection is gone: everything it held is given back. ``stopping``: we closed it, as the agent stops; then its
    jobs go on, and only its attached containers end."""

    session: int
    stopping: bool = False


@dataclass(frozen=True, slots=True)
class JobRegistered:
    """``register_job``."""

    session: int
    request: RegisterJob
    at: float


@dataclass(frozen=True, slots=True)
class JobIntroduced:
    """The master knows a job of another origin, which a framework here is about to join."""

    job: str
    name: str
    user: str
    priority: float


@dataclass(frozen=True, slots=True)
class JobEndRequested:
    """``end_job``."""

    session: int
    job: str


@dataclass(frozen=True, slots=True)
class JobLeft:
    """``leave_job``."""

    session: int
    job: str
    merged_into: str = ""


class Submitted(msgspec.Struct, frozen=True):
    """``submit``."""

    session: int
    job: str
    monotasks: list[MonotaskSpec]


class Completed(msgspec.Struct, frozen=True):
    """``complete``."""

    session: int
    job: str
    monotasks: list[Completion]


class Cancelled(msgspec.Struct, frozen=True):
    """``cancel``."""

    session: int
    job: str
    ids: list[MonotaskId]


@dataclass(frozen=True, slots=True)
class PlacementRequested:
    """``place``."""

    session: int
    job: str
    stage: str
    tasks: list[TaskRequest]
    opportunistic: Opportunistic


@dataclass(frozen=True, slots=True)
class TasksReportedDone:
    """``tasks_done``: the framework finished tasks that it executes itself."""

    session: int
    job: str
    tasks: list[str]


@dataclass(frozen=True, slots=True)
class ProgressReported:
    """``progress``."""

    session: int
    request: Progress


@dataclass(frozen=True, slots=True)
class TaskCancelRequested:
    """``cancel_tasks``."""

    session: int
    job: str
    tasks: list[str]


@dataclass(frozen=True, slots=True)
class LaunchRequested:
    """``launch``: start a command now."""

    session: int
    spec: ContainerSpec


@dataclass(frozen=True, slots=True)
class AdoptRequested:
    """``adopt``: take a running process into a container. ``own``: the process of the connection itself is among those
    taken in; ``inside``: the container that it is in already."""

    session: int
    spec: ContainerSpec
    pid: int
    tree: bool
    own: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class LendRequested:
    """``lend``: take a running process and its descendants in for the rank of a job. ``argv`` and ``nice`` are its
    command line and its nice value; ``own`` and ``inside`` as in AdoptRequested."""

    session: int
    job: str
    pid: int
    argv: tuple[str, ...]
    nice: int = 0
    own: bool = False
    inside: str = ""


@dataclass(frozen=True, slots=True)
class ResizeRequested:
    """``resize``: other limits for a running container."""

    session: int
    container: str
    limits: LimitsChange
    strict: bool = False


@dataclass(frozen=True, slots=True)
class FollowRequested:
    """``follow``: limits that follow a profile from now on; None: no longer.

    ``since_s`` is how long ago the profile began, for one that is taken up again.
    """

    session: int
    container: str
    profile: Profile | None
    at: float
    strict: bool = False
    since_s: float = 0.0


@dataclass(frozen=True, slots=True)
class AttachRequested:
    """``attach``: be told how a container ends."""

    session: int
    container: str


@dataclass(frozen=True, slots=True)
class KillRequested:
    """``kill``."""

    session: int
    container: str


@dataclass(frozen=True, slots=True)
class ContainerStarted:
    """The launcher started it. ``not_enforced``: requested limit → why this host does not enforce it.

    ``orphaned``: the launcher died meanwhile.
    """

    container: str
    pid: int
    not_enforced: dict[str, str]
    at: float
    orphaned: bool = False


@dataclass(frozen=True, slots=True)
class ContainerNotStarted:
    """It could not be started: why, for its user, and what a shell would end with (126, 127), if that is why."""

    container: str
    message: str
    exit_status: int | None = None


@dataclass(frozen=True, slots=True)
class ContainerExited:
    """Its first process ended (and what it left behind was killed). ``exit_status`` None: nobody could see it."""

    container: str
    exit_status: int | None
    signal: int | None
    cpu_seconds: float
    memory_peak_bytes: int
    oom_kills: int
    ended_at: float


@dataclass(frozen=True, slots=True)
class GivenBack:
    """What GiveBack said is done, or (``why_not``) cannot be done: then it stays a container."""

    container: str
    cpu_seconds: float
    memory_peak_bytes: int
    at: float
    why_not: str = ""


@dataclass(frozen=True, slots=True)
class LauncherLost:
    """The launcher died: no parent sees how the containers that it started end. Starts under way end by themselves."""

    at: float


@dataclass(frozen=True, slots=True)
class Confined:
    """The kernel was told what Confine said. ``not_enforced`` as in ContainerStarted."""

    container: str
    not_enforced: dict[str, str]


@dataclass(frozen=True, slots=True)
class Reclaimed:
    """Reclaim is over: so much was taken."""

    container: str
    freed_bytes: int


@dataclass(frozen=True, slots=True)
class Woken:
    """It is as late as Wake said."""

    at: float


@dataclass(frozen=True, slots=True)
class Decided:
    """The master's proposals."""

    number: int
    decisions: list[AnyDecision]


@dataclass(frozen=True, slots=True)
class Sampled:
    """The monitor took a sample; every decision of this tick reads it."""

    snapshot: Snapshot
    at: float


@dataclass(frozen=True, slots=True)
class MemoryLooked:
    """A look at memory between two samples: containers use much of it, or promised ones (``pressed``) stall for it.

    In ``snapshot`` only the containers' memory is fresh.
    """

    snapshot: Snapshot
    pressed: tuple[str, ...]
    at: float


@dataclass(frozen=True, slots=True)
class Reconfigured:
    """Other settings from now on, as far as a running node can change them (:meth:`NodeSettings.changed`)."""

    settings: NodeSettings
    at: float


@dataclass(frozen=True, slots=True)
class Recovered:
    """First event after a restart of the agent: what the journal knows and the launcher still runs.

    ``running`` maps container → pid. ``orphans`` names those of them whose launcher died. ``never_began`` names
    recorded containers that no launcher was asked to start. A recorded container that is in none of them, and whose
    exit the launcher will not report, is lost. One that runs without a readable record goes on: of ``owners``.
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


Event = (
    SessionOpened
    | SessionClosed
    | JobRegistered
    | JobIntroduced
    | JobEndRequested
    | JobLeft
    | Submitted
    | Completed
    | Cancelled
    | PlacementRequested
    | TasksReportedDone
    | TaskCancelRequested
    | ProgressReported
    | LaunchRequested
    | AdoptRequested
    | LendRequested
    | ResizeRequested
    | FollowRequested
    | AttachRequested
    | KillRequested
    | ContainerStarted
    | ContainerNotStarted
    | ContainerExited
    | GivenBack
    | LauncherLost
    | Confined
    | Reclaimed
    | Woken
    | Decided
    | EndHeard
    | EndUnread
    | Sampled
    | MemoryLooked
    | Reconfigured
    | Recovered
)

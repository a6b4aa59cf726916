"""Messages between frameworks or the command and an agent, over its Unix socket.

:mod:`penstock.wire.agent_methods` declares the methods whose parameters and results these are.
"""

from typing import Annotated, Any, ClassVar

import msgspec

from penstock.model.container import MOST_AT_ONCE, MOST_STAGES, ContainerSpec, Ended, Limits
from penstock.model.profile import Profile
from penstock.model.resources import Capacity, ResourceKind
from penstock.model.work import Bytes, MonotaskId, MonotaskSpec, Name, Opportunistic, OpportunisticJob, TaskRequest
from penstock.model.work import StageProgress as StageProgress  # noqa: PLC0414 - also part of this interface
from penstock.wire.errors import ErrorBody

#: The version of this protocol, stated in the first message of a connection.
PROTOCOL = 1
MOST_OFFSET = 2**63 - 1  # the largest file offset (off_t)


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parameters of a method. Unknown and missing fields are errors that name the field."""


class Notice(Params, frozen=True):
    """Parameters of a notification of the agent to a framework. The type names the notification."""

    METHOD: ClassVar[str]


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result. Unknown fields are ignored, so that a newer agent may add some."""


class Nothing(Params, frozen=True):
    """No parameters."""


class Done(Result, frozen=True):
    """Success without a result."""


# ---------------------------------------------------------------- connection


class Hello(Params, frozen=True):
    """First message of every connection: the client's protocol version and name."""

    protocol: int
    client: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Welcome(Result, frozen=True):
    """The agent's greeting. ``enforced``: the host's enforceable limits as in ``penstock check``: ``cpu``, ``kill``…"""

    protocol: int
    version: str
    node: str
    user: str
    capacity: Capacity
    network_bypass_bytes: int
    max_frame_bytes: int
    enforced: list[str]
    master: bool


# ---------------------------------------------------------------- jobs


class RegisterJob(Params, frozen=True):
    """Register a job, or (with ``job``) join a registered job of the same user.

    ``priority`` orders jobs on the host, larger first; equal priorities keep the order of registration. It holds until
    the master sets another. ``memory_bytes`` is M(j) of Ursa §4.2.1: the estimate for the whole job, for admission.
    ``opportunistic`` overrides each ``place``: false: no stage may run on slack (UBIS §IV.D: the job opts out), true:
    all, a list: the named stages, ``"only"``: all and only on slack, nil: each ``place`` decides. ``reservation`` runs
    the job as a production job of that reservation (Rayon §5.1).
    """

    name: Name
    memory_bytes: Bytes = 0
    priority: Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)] = 0.0
    job: str = ""
    opportunistic: OpportunisticJob = None
    reservation: Annotated[str, msgspec.Meta(max_length=128)] = ""


class JobRegistered(Result, frozen=True):
    """The answer to ``register_job``. Unless ``admitted``, wait for ``job_admitted`` before asking for placements.
    Tasks that are asked for earlier wait for it, too, but are refused at once if no node of the cluster can hold them.
    A client that joins a job which this agent, or an earlier one of this node, has cancelled gets ``job_cancelled``
    right before this answer: the connection has not joined the job.
    """

    job: str
    admitted: bool


class JobWaiting(Notice, frozen=True):
    """Agent → framework: why the master has not admitted the job yet; said again when the kind of reason changes.
    ``never``: no nodes of the cluster can hold it."""

    METHOD = "job_waiting"
    job: str
    why: str
    never: bool = False


class JobAdmitted(Notice, frozen=True):
    """Agent → framework: the master has reserved memory for the job: it may ask for placements."""

    METHOD = "job_admitted"
    job: str


class CancelledBy(Notice, frozen=True):
    """Agent → framework: a user cancelled the job (``by``). It is over; the agent accepts no more calls about it."""

    METHOD = "job_cancelled"
    job: str
    by: str


class EndJob(Params, frozen=True):
    """A job that its framework ends. ``failed``: why it did not succeed, if its framework gives it up or tasks were
    refused, which the master never sees; "": its tasks say how the job ended."""

    job: str
    failed: Annotated[str, msgspec.Meta(max_length=1000)] = ""


# ---------------------------------------------------------------- monotasks


class Submit(Params, frozen=True):
    """Queue ready monotasks of a job. Grants come as notifications, possibly before the response."""

    job: str
    monotasks: Annotated[list[MonotaskSpec], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Submitted(Result, frozen=True):
    """The number of accepted monotasks: all of them, as a request is accepted or refused as a whole."""

    accepted: int


class Rejected(Notice, frozen=True):
    """Agent → framework: a ``submit`` that was sent as a notification was refused as a whole.

    ``ids`` are its monotasks, also where the rest was not understood, except those with invalid ids.
    """

    METHOD = "rejected"
    job: str
    ids: list[MonotaskId]
    error: ErrorBody


class Leased(Params, frozen=True):
    """Further monotasks, never submitted, that ran one after the other in a slot while its lease lasted.

    Their number, the number of failed ones, total bytes and execution time of the others, and the last one's age.
    """

    monotasks: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    failed: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    input_bytes: Bytes = 0
    execution_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    began_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Completion(Params, frozen=True):
    """A granted monotask ended. Failed ones give the slot back and do not count for the processing rate.

    ``then`` is the monotask that started in its slot under the lease of its grant. ``execution_s`` is its duration, for
    a report that is sent later than its end; reports of one lease may be sent together, in order. ``leased`` describes
    the other monotasks that ran in the slot before it was given back or passed on, if the grant allowed to ``keep`` it.
    """

    id: MonotaskId
    failed: bool = False
    then: MonotaskId | None = None
    execution_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    leased: Leased | None = None


class Complete(Params, frozen=True):
    """Granted monotasks ended; the agent frees their slots when it reads this."""

    job: str
    monotasks: Annotated[list[Completion], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Cancel(Params, frozen=True):
    """Withdraw monotasks: queued ones leave the queue, granted ones give their slot back."""

    job: str
    ids: Annotated[list[MonotaskId], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Grants(Notice, frozen=True):
    """Agent → framework: these monotasks may run now, until ``complete`` or ``cancel``.

    For ``lease_s`` seconds each slot may be passed on to queued monotasks of the same job, kind and connection without
    asking: see ``then`` of a completion. With ``keep``, no other work waits, and the framework may keep the slots idle
    meanwhile, for monotasks that were not submitted: see ``leased`` of a completion. A framework may ignore leases.
    """

    METHOD = "grant"
    job: str
    ids: list[MonotaskId]
    lease_s: float = 0.0
    keep: bool = False


class Recall(Notice, frozen=True):
    """Agent → framework: the leases of a job end now, as work with precedence waits. Running monotasks may run on.

    With ``idle`` the waiting work has no precedence: only idle slots are given back, and none may be kept idle.
    """

    METHOD = "recall"
    job: str
    kind: ResourceKind
    idle: bool = False


# ---------------------------------------------------------------- placement (relayed to the master)


class Place(Params, frozen=True):
    """Request nodes for ready tasks of one stage. Each is answered once by ``task_placed``, then once by
    ``task_ended``.

    Send all tasks of a stage that are ready together in one request: stage awareness (Ursa §4.2.2) counts them as the
    stage. ``opportunistic``: tasks that find no regular resources may run on slack (UBIS), where they may be preempted;
    ``"only"``: they run on slack only. The job's registration takes precedence.
    """

    job: str
    stage: Name
    tasks: Annotated[list[TaskRequest], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]
    opportunistic: Opportunistic = False


class Progress(Params, frozen=True):
    """The progress of a job by stages, in their order; replaces the previous report. The master orders jobs by it.

    A framework sends it a few times a second at most. It is the master's only source about tasks that a framework
    schedules itself, and about stages that are not ready yet.
    """

    job: str
    stages: Annotated[list[StageProgress], msgspec.Meta(max_length=MOST_STAGES)]


class TaskRefs(Params, frozen=True):
    """Tasks of a job: executed by the framework itself (``tasks_done``) or unwanted (``cancel_tasks``)."""

    job: str
    tasks: Annotated[list[Name], msgspec.Meta(max_length=MOST_AT_ONCE)]


class TaskPlaced(Notice, frozen=True):
    """Agent → framework: the node of a task. For a command: the node where it waits for its slot."""

    METHOD = "task_placed"
    job: str
    task: str
    node: str


class TaskEnded(Notice, frozen=True):
    """Agent → framework: a command ended, or a task was lost with its node (``ended.by`` is ``lost``)."""

    METHOD = "task_ended"
    job: str
    task: str
    node: str
    ended: Ended


# ---------------------------------------------------------------- containers


class TaskStuck(Notice, frozen=True):
    """Agent → framework: an executor is late and its node has no free resources. Copies of its tasks, made by the
    framework's speculation, are best run in the executor ``helper`` on ``node`` (Elasecutor §III.D)."""

    METHOD = "task_stuck"
    job: str
    task: str
    helper: str
    node: str


class Launch(Params, frozen=True):
    """Start a command in a container of its own on this host."""

    container: ContainerSpec


class Launched(Result, frozen=True):
    """The new container. ``not_enforced`` maps each limit that this host cannot enforce to the reason and remedy."""

    container: str
    pid: int
    not_enforced: dict[str, str]


class ContainerRef(Params, frozen=True):
    """A container by its id."""

    container: str


class Attach(ContainerRef, frozen=True):
    """A container whose end is to be told. Not ``own``: the connection only watches it."""

    own: bool = True


class Adopt(Params, frozen=True):
    """Move a running process of the same user into a container; answered as ``launch``. ``pid`` 0 is the process that
    opened this connection. The answer for a process that is already in a container is that container. Memory charged
    before stays charged to the old cgroup, and a socket keeps its cgroup. Existing child processes stay outside unless
    ``tree`` includes the descendants. The exit status is unknown. Of the specification, ``argv`` is for display only;
    ``env``, ``cwd`` and ``stdio`` are ignored.
    """

    pid: Annotated[int, msgspec.Meta(ge=0, le=2**22)]
    container: ContainerSpec
    tree: bool = False


class Resize(Params, frozen=True):
    """Change limits of a running container to a value or to null (no limit); limits that are not named stay.

    Answered when the kernel has them. Memory shrinks only as far as no process is killed by it (docs/kernel.md).
    """

    container: str
    limits: dict[str, int | float | str | None]
    strict: bool = False


class Resized(Result, frozen=True):
    """The limits in force; ``not_enforced`` as in ``launch``."""

    limits: Limits
    not_enforced: dict[str, str]


class Follow(Params, frozen=True):
    """Make the limits of a container follow a profile from now on, slot by slot (Elasecutor §III); null stops that.
    A resource has at most 32,768 slots. With ``strict``, a profile with a limit that this host cannot enforce is
    refused, and nothing changes."""

    container: str
    profile: Profile | None
    strict: bool = False


class SignalContainer(Params, frozen=True):
    """Send a signal to the container's first process and its process group."""

    container: str
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]


class ReadOutput(Params, frozen=True):
    """Read a container's output from ``offset`` bytes on."""

    container: str
    stream: Annotated[str, msgspec.Meta(pattern="^(stdout|stderr)$")] = "stdout"
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_OFFSET)] = 0


class Output(Result, frozen=True):
    """``data`` from ``offset`` on (at most 256 KiB); ``offset`` exceeds the requested one where output was dropped."""

    data: bytes
    offset: int
    size: int


class ContainerEnded(Notice, frozen=True):
    """Agent → framework: a container that this connection launched (or attached to) ended."""

    METHOD = "container_ended"
    container: str
    ended: Ended


class Status(Result, frozen=True):
    """The same document as ``GET /status`` (docs/protocol.md lists its keys)."""

    status: dict[str, Any]

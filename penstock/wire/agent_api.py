"""What frameworks and the command say to an agent over its Unix socket, and what it says to them.

Method names are the keys of :data:`REQUESTS` (framework → agent; each may also be sent as a notification when no answer
is wanted) and :data:`NOTIFICATIONS` (agent → framework). docs/protocol.md has an example of each.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.model.container import MOST_AT_ONCE, ContainerSpec, Ended, Limits
from penstock.model.profile import Profile
from penstock.model.resources import Capacity, ResourceKind
from penstock.model.work import Bytes, MonotaskId, MonotaskSpec, Name, Opportunistic, OpportunisticJob, TaskRequest
from penstock.model.work import StageProgress as StageProgress  # noqa: PLC0414 - a part of this interface, too
from penstock.wire.errors import ErrorBody

#: The version of this protocol; the first message of a connection names it.
PROTOCOL = 1
MOST_OFFSET = 2**63 - 1  # of a file (off_t)


class Params(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, forbid_unknown_fields=True):
    """Parameters of a method: unknown and missing fields are errors that name them."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A result; a newer agent may add fields, so unknown ones are ignored."""


class Nothing(Params, frozen=True):
    """No parameters."""


class Done(Result, frozen=True):
    """Nothing to say but that it was done."""


# ---------------------------------------------------------------- connection


class Hello(Params, frozen=True):
    """First message of every connection."""

    protocol: int
    client: Annotated[str, msgspec.Meta(max_length=128)] = ""


class Welcome(Result, frozen=True):
    """Who answers. ``enforced`` names what this host can enforce, as ``penstock check`` lists it: ``cpu``, ``kill``…"""

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
    """Register a job, or (with ``job``) join one of the same user that is registered already.

    ``priority`` orders jobs on the host, larger first; equal priorities keep the order of registration. It holds until
    the master says otherwise. ``memory_bytes`` is M(j) of Ursa §4.2.1: the whole job's estimate, for admission.
    ``opportunistic`` says which of its stages may run on slack, whatever each ``place`` says: false none (UBIS §IV.D:
    the job opts out), true all, a list those that it names; with ``"only"`` nothing of it has regular room; nil: each
    ``place`` says it. ``reservation`` makes it a production job of that one (Rayon §5.1).
    """

    name: Name
    memory_bytes: Bytes = 0
    priority: Annotated[float, msgspec.Meta(ge=-1e18, le=1e18)] = 0.0
    job: str = ""
    opportunistic: OpportunisticJob = None
    reservation: Annotated[str, msgspec.Meta(max_length=128)] = ""


class JobRegistered(Result, frozen=True):
    """``admitted`` false: wait for the notification ``job_admitted`` before asking for placements."""

    job: str
    admitted: bool


class JobWaiting(Params, frozen=True):
    """Agent → framework: why the job is not admitted yet; ``never``: no nodes of the cluster can hold it."""

    job: str
    why: str
    never: bool = False


class JobRef(Params, frozen=True):
    """A job by its id."""

    job: str


# ---------------------------------------------------------------- monotasks


class Submit(Params, frozen=True):
    """Queue ready monotasks of a job. Grants come as notifications, possibly before the response."""

    job: str
    monotasks: Annotated[list[MonotaskSpec], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Submitted(Result, frozen=True):
    """How many were accepted: all of them, or the request was refused as a whole."""

    accepted: int


class Rejected(Params, frozen=True):
    """Agent → framework: a ``submit`` that was sent as a notification was refused as a whole.

    ``ids`` are its monotasks, also where it could not be understood; less those whose ids are none.
    """

    job: str
    ids: list[MonotaskId]
    error: ErrorBody


class Leased(Params, frozen=True):
    """Further monotasks, never submitted, that ran one after the other in a slot while its lease lasted.

    How many, how many failed, bytes and execution time of the others together, and how long ago the last one began.
    """

    monotasks: Annotated[int, msgspec.Meta(ge=1, le=2**31)]
    failed: Annotated[int, msgspec.Meta(ge=0, le=2**31)] = 0
    input_bytes: Bytes = 0
    execution_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    began_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class Completion(Params, frozen=True):
    """A granted monotask ended. ``failed`` ones give the slot back and do not count for the processing rate.

    ``then`` names the monotask that has begun in its slot under the lease of its grant. ``execution_s`` is how long it
    took, where that is said later than it ended; reports of one lease may be sent together, in order. ``leased`` says
    what else ran in the slot before it was given back or passed on, where the grant allowed to ``keep`` it.
    """

    id: MonotaskId
    failed: bool = False
    then: MonotaskId | None = None
    execution_s: Annotated[float, msgspec.Meta(ge=0)] | None = None
    leased: Leased | None = None


class Complete(Params, frozen=True):
    """Granted monotasks ended; their slots are free as soon as this is read."""

    job: str
    monotasks: Annotated[list[Completion], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Cancel(Params, frozen=True):
    """Monotasks that are no longer wanted: queued ones leave the queue, granted ones give their slot back."""

    job: str
    ids: Annotated[list[MonotaskId], msgspec.Meta(max_length=MOST_AT_ONCE)]


class Grants(Params, frozen=True):
    """Agent → framework: these monotasks may run now, until ``complete`` or ``cancel``.

    For ``lease_s`` from now each of their slots may be passed on to queued monotasks of the same job, kind and
    connection without asking: see ``then`` of a completion. With ``keep``, as nobody waits, the slots may meanwhile be
    idle in the framework's hands, for monotasks that it does not know yet: see ``leased`` of a completion. Whoever does
    not care for leases may ignore both.
    """

    job: str
    ids: list[MonotaskId]
    lease_s: float = 0.0
    keep: bool = False


class Recall(Params, frozen=True):
    """Agent → framework: the leases of a job end now, as somebody who goes first waits. What runs may run on.

    With ``idle`` somebody waits who need not go first: no slot is kept idle any more, and one that is is given back.
    """

    job: str
    kind: ResourceKind
    idle: bool = False


# ---------------------------------------------------------------- placement (relayed to the master)


class Place(Params, frozen=True):
    """Ready tasks of one stage want nodes. Each is answered once by ``task_placed``, then once by ``task_ended``.

    All tasks of a stage that are ready together should come in one request: stage awareness (Ursa §4.2.2) counts
    them as the stage. ``opportunistic``: what finds no regular room may run on slack (UBIS), where it may be preempted;
    with ``"only"`` it takes no regular room at all. What the job said when it registered comes first.
    """

    job: str
    stage: Name
    tasks: Annotated[list[TaskRequest], msgspec.Meta(min_length=1, max_length=MOST_AT_ONCE)]
    opportunistic: Opportunistic = False


class Progress(Params, frozen=True):
    """How far a job is, by stages in their order; replaces what was said before. What orders jobs by it is the master.

    A framework says so a few times a second at most. The master sees the tasks that it places end; of those that a
    framework schedules itself, and of stages that are not ready yet, it knows from here alone.
    """

    job: str
    stages: Annotated[list[StageProgress], msgspec.Meta(max_length=4096)]


class TaskRefs(Params, frozen=True):
    """Tasks of a job: done (``tasks_done``, by the framework that executed them) or unwanted (``cancel_tasks``)."""

    job: str
    tasks: Annotated[list[Name], msgspec.Meta(max_length=MOST_AT_ONCE)]


class TaskPlaced(Params, frozen=True):
    """Agent → framework: where a task runs. For commands: that it started to wait for its slot there."""

    job: str
    task: str
    node: str


class TaskEnded(Params, frozen=True):
    """Agent → framework: a command ended, or a task was lost with its node (``ended.by`` is ``lost``)."""

    job: str
    task: str
    node: str
    ended: Ended


# ---------------------------------------------------------------- containers


class TaskStuck(Params, frozen=True):
    """Agent → framework: an executor is late and its node has nothing left to give. Copies of its tasks, as the
    framework's speculation makes them, are best run in the executor ``helper`` on ``node`` (Elasecutor §III.D)."""

    job: str
    task: str
    helper: str
    node: str


class Launch(Params, frozen=True):
    """Start a command in a container of its own on this host, now."""

    container: ContainerSpec


class Launched(Result, frozen=True):
    """``not_enforced`` maps each requested limit that this host cannot enforce to the reason and remedy."""

    container: str
    pid: int
    not_enforced: dict[str, str]


class ContainerRef(Params, frozen=True):
    """A container by its id."""

    container: str


class Adopt(Params, frozen=True):
    """Take a running process of the same user into a container; answered as ``launch`` is. ``pid`` 0 is the process
    that opened this connection. Where that is in a container already, the answer is that one. Memory that was charged
    before stays charged where it was, and a socket keeps its cgroup; what it has forked already stays outside unless
    ``tree`` asks for its descendants, too. How it exits cannot be seen. Of the specification ``argv`` is only shown;
    ``env``, ``cwd`` and ``stdio`` mean nothing.
    """

    pid: Annotated[int, msgspec.Meta(ge=0, le=2**22)]
    container: ContainerSpec
    tree: bool = False


class Resize(Params, frozen=True):
    """Change limits of a running container: those named, to null (no limit) or a value; the others stay.

    Answered when the kernel has them. Memory shrinks only as far as nothing is killed by it (docs/kernel.md).
    """

    container: str
    limits: dict[str, int | float | str | None]
    strict: bool = False


class Resized(Result, frozen=True):
    """The limits as they stand; ``not_enforced`` as in ``launch``."""

    limits: Limits
    not_enforced: dict[str, str]


class Follow(Params, frozen=True):
    """Let the limits of a container follow a profile from now on, slot by slot (Elasecutor §III); null: no longer.
    With ``strict``, a profile of which this host cannot enforce a limit is refused, and nothing changes."""

    container: str
    profile: Profile | None
    strict: bool = False


class SignalContainer(Params, frozen=True):
    """Send a signal to the container's first process and its process group."""

    container: str
    signal: Annotated[int, msgspec.Meta(ge=1, le=64)]


class ReadOutput(Params, frozen=True):
    """Read what a container wrote, from ``offset`` bytes on."""

    container: str
    stream: Annotated[str, msgspec.Meta(pattern="^(stdout|stderr)$")] = "stdout"
    offset: Annotated[int, msgspec.Meta(ge=0, le=MOST_OFFSET)] = 0


class Output(Result, frozen=True):
    """``data`` from ``offset`` on (at most 256 KiB); ``offset`` is past the asked one where output was dropped."""

    data: bytes
    offset: int
    size: int


class ContainerEnded(Params, frozen=True):
    """Agent → framework: a container that this connection launched (or attached to) ended."""

    container: str
    ended: Ended


class Status(Result, frozen=True):
    """The same document as ``GET /status`` (docs/protocol.md lists its keys)."""

    status: dict[str, Any]


#: framework → agent: method → (parameters, result)
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "hello": (Hello, Welcome),
    "register_job": (RegisterJob, JobRegistered),
    "end_job": (JobRef, Done),
    "submit": (Submit, Submitted),
    "complete": (Complete, Done),
    "cancel": (Cancel, Done),
    "place": (Place, Done),
    "tasks_done": (TaskRefs, Done),
    "cancel_tasks": (TaskRefs, Done),
    "progress": (Progress, Done),
    "launch": (Launch, Launched),
    "adopt": (Adopt, Launched),
    "resize": (Resize, Resized),
    "follow": (Follow, Done),
    "attach": (ContainerRef, Done),
    "signal": (SignalContainer, Done),
    "kill": (ContainerRef, Done),
    "output": (ReadOutput, Output),
    "status": (Nothing, Status),
}

#: Read straight from the bytes: what comes for every monotask, in either direction.
TYPED: dict[str, type[Params]] = {"submit": Submit, "complete": Complete, "grant": Grants}

#: agent → framework
NOTIFICATIONS: dict[str, type[Params]] = {
    "grant": Grants,
    "recall": Recall,
    "rejected": Rejected,
    "job_waiting": JobWaiting,
    "job_admitted": JobRef,
    "task_placed": TaskPlaced,
    "task_ended": TaskEnded,
    "task_stuck": TaskStuck,
    "container_ended": ContainerEnded,
}

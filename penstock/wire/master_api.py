"""Messages between agents and the master, over TCP.

Only agents connect to the master; frameworks and the command connect to their host's agent, which relays their requests
with the verified user. The agent that registered a job (its *origin*) made its id, which is unique in the cluster.
A connection starts with ``register``; then the agent sends heartbeats and relays as notifications, in order, and the
master sends ``decide`` requests. A decision is a proposal: the agent answers with the refused ones and the reasons.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model import Capacity, Ended, KindAmounts, Profile, TaskRequest
from penstock.model.work import Bytes, Name, Opportunistic
from penstock.wire.agent_api import Done, Params, Progress, Result, StageProgress
from penstock.wire.cluster_api import CommandUse, Count, Draining, NameTenants, NodeRanks, Remaining
from penstock.wire.job_end_api import JobAtEnd
from penstock.wire.method import Caller, Method, methods_of

#: The version of this protocol.
PROTOCOL = 1


class JobState(Params, frozen=True):
    """A job as its origin knows it. ``submitted_at`` is Unix time at the origin, for EJF's elapsed time T;
    ``reservation`` is the reservation that it is a production job of (Rayon §5.1)."""

    job: str
    name: str
    user: str
    memory_bytes: Bytes
    priority: float
    submitted_at: float
    admitted: bool = False
    stages: list[StageProgress] = []
    reservation: str = ""


class ReadyTasks(Params, frozen=True):
    """Ready tasks of one stage that wait for placement."""

    job: str
    stage: Name
    tasks: list[TaskRequest]
    opportunistic: Opportunistic = False


class PlacedTask(Params, frozen=True):
    """A task that a node holds. ``remaining`` is the estimate of its remaining work, in bytes per kind. ``origin`` is
    the node that registered the job and is told of the task's end; ``user`` is the job's owner."""

    job: str
    stage: str
    task: str
    origin: str
    remaining: KindAmounts
    memory_bytes: Bytes
    opportunistic: bool = False
    command: bool = False
    user: str = ""


class AwaitedTask(Params, frozen=True):
    """A task of the sending origin that was placed on ``node`` and whose end the origin has not been told."""

    job: str
    stage: Name
    request: TaskRequest
    node: str
    opportunistic: Opportunistic = False


class JobUse(Params, frozen=True):
    """A job's use of a node. ``service_s`` (docs/order.md): container-seconds, or the CPU time of its containers if
    larger, from 0 after ``last`` and after an agent's crash; else it never falls. ``running``: the slots held now."""

    job: str
    service_s: Annotated[float, msgspec.Meta(ge=0)]
    running: Count = 0
    last: bool = False


#: The resources of one slot: cores/1000, KiB/s of disk, KiB/s sent, MiB of memory. Integers are short on the wire.
SlotAmounts = tuple[Count, Count, Count, Count]


class Availability(Params, frozen=True):
    """AR(j) of Elasecutor (§III.B.1): the resources of a node that are neither promised to other work nor predicted to
    be used by its executors, in slots of ``slot_s`` seconds from ``elapsed_s`` seconds ago on. The last slot's value
    continues for ever. ``capacity`` is the node's total; a rate of 0 there means unknown, and excludes no executor."""

    slot_s: Annotated[float, msgspec.Meta(gt=0)]
    capacity: SlotAmounts
    slots: Annotated[list[SlotAmounts], msgspec.Meta(min_length=1)]
    elapsed_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class ExecutorUse(Params, frozen=True):
    """The use of an executor (the monitor surrogate's report, Elasecutor §III.A): mean and peak of the complete slots
    from number ``first`` on; null: not measured (only if the master announced ``profile_gaps``).
    It starts at 0 again after a registration, and when a long run's slots double (``slot_s``). ``stages`` are the slots
    at whose end a stage ended. ``behind`` is a stage's time ÷ its prediction; ``stuck``: its node has no free resources
    (§III.D). With ``ended``, ``last_part`` is the covered fraction of the last slot (needs ``last_parts``)."""

    job: str
    task: str
    slot_s: Annotated[float, msgspec.Meta(gt=0)]
    first: Count = 0
    mean: list[SlotAmounts | None] = []
    peak: list[SlotAmounts | None] = []
    stages: list[Count] = []
    behind: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    stuck: bool = False
    ended: bool = False
    last_part: Annotated[float, msgspec.Meta(gt=0, le=1)] = 1.0


class Load(Params, frozen=True, forbid_unknown_fields=False):
    """The load of a node (Ursa §4.2.2, UBIS §IV.A). ``rates`` are processing rates in bytes/s, X/T over a sliding
    window, × slots; 0 while unknown. ``pending`` is the work assigned and not done, bytes per kind, of every monotask
    and placed task on the node. ``idle`` is the number of free slots per kind, less a core for each placed task that
    will compute and has no monotask in the queues yet, because its framework has only just learned its node.
    ``used_cores`` and ``used_memory_bytes`` are the measured use of all containers, or the cores of the slots that
    frameworks hold, if those are more; ``disk_busy`` and ``network_busy`` are the utilization of disks and link.
    ``promised_…`` is reserved for regular work. ``opportunistic_queue_free`` is the number of further opportunistic
    commands beyond the slack that the node would queue; waiting ones count as used. ``most_commands`` is the largest
    number of CPU commands running at once, where some may start beyond the slots because the kernel knows the order of
    jobs; 0: none may. ``jobs`` are those changed since the connection's last Load; the first one contains all.
    ``t_alloc`` is UBIS's current threshold, if the node tunes it. ``availability`` and ``ranks`` are sent when they
    differ from the last ones sent. Unknown fields are ignored: older agents send the memory requested on slack."""

    rates: KindAmounts
    pending: KindAmounts
    idle: KindAmounts
    used_cores: float = 0.0
    used_memory_bytes: Bytes = 0
    disk_busy: float = 0.0
    network_busy: float = 0.0
    promised_cores: float = 0.0
    promised_memory_bytes: Bytes = 0
    opportunistic_queue_free: Count = 0
    most_commands: Count = 0
    jobs: list[JobUse] = []
    t_alloc: float | None = None
    availability: Availability | None = None
    ranks: NodeRanks | None = None


class Register(Params, frozen=True):
    """First message of an agent: all that the master needs to rebuild its state after a restart of either.

    ``placed`` are the tasks that this node holds; ``ready`` and ``awaited`` are the tasks of jobs with this origin.
    ``complete`` marks these lists as complete, so that missing tasks were given up; a restarted agent cannot set it
    while it has earlier jobs: no framework announces its placed tasks again. ``draining``: the node takes no work."""

    protocol: int
    node: Name
    version: str
    capacity: Capacity
    load: Load
    t_alloc: float = 0.9
    jobs: list[JobState] = []
    ready: list[ReadyTasks] = []
    placed: list[PlacedTask] = []
    awaited: list[AwaitedTask] = []
    complete: bool = False
    draining: Draining | None = None


class Registered(Result, frozen=True):
    """The master's version, longest heartbeat interval, and the later fields that it reads (docs/protocol.md)."""

    protocol: int
    version: str
    heartbeat_s: float
    profile_gaps: bool = False
    job_lasts: bool = False
    job_failed: bool = False
    most_commands: bool = False
    last_parts: bool = False
    ranks: bool = False
    rank_tenants: bool = False
    commands: bool = False
    jobs_at_end: bool = False
    skipped_tasks: bool = False


class Heartbeat(Params, frozen=True):
    """``decided`` is the number of the last ``decide`` request that ``load`` includes. ``executors`` is their use, and
    ``commands`` those ended, since the last report. ``own`` is a drained node's work for jobs that the master lacks."""

    load: Load
    decided: int = 0
    executors: list[ExecutorUse] = []
    own: list[Remaining] = []
    commands: list[CommandUse] = []


class JoinJob(Params, frozen=True):
    """A process of ``user`` on the sending node asks to join a job of another origin ("": an operator's process)."""

    job: str
    user: str


class JobJoined(Result, frozen=True):
    """The process may join; the job's properties that the node's queue needs."""

    name: str
    user: str
    priority: float


class JobEnded(Params, frozen=True):
    """The job is over; ``why``: the reason if its framework did not end it, ``failed``: why it failed, if its framework
    says so. ``done``: its last connection left properly. ``merged_into``: the job that continues its work. ``use``: its
    service on this node; nil: none. ``at_end``: the job as its origin knows it, if an earlier report may be lost."""

    job: str
    why: str = ""
    failed: str = ""
    done: bool = False
    merged_into: str = ""
    use: JobUse | None = None
    at_end: JobAtEnd | None = None


class TasksDone(Params, frozen=True):
    """Tasks that ended on the sending node, or framework tasks that the framework reports as done."""

    job: str
    tasks: list[str]


class CommandEnded(Params, frozen=True):
    """A command that the master placed on the sending node ended. Answered when the job's origin has been told; until
    then it is sent again right after each ``register``, as a master may stop between the two."""

    job: str
    task: str
    origin: str
    ended: Ended


class TasksCancelled(Params, frozen=True):
    """The origin no longer wants these tasks, placed or not."""

    job: str
    tasks: list[str]


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="do"):
    """A proposal of the master; ``why`` states the rule and the numbers that led to it."""

    why: str = ""


class OfTask(Decision, frozen=True):
    """A decision about a task."""

    job: str
    task: str


class AdmitJob(Decision, frozen=True, tag="admit"):
    """To the origin: the job's memory is reserved in the cluster (Ursa §4.2.2)."""

    job: str


class TellWaiting(Decision, frozen=True, tag="waiting"):
    """To the origin: the job is not admitted yet. ``why``: the reason; ``never``: the cluster is too small for it."""

    job: str
    never: bool = False


class SetPriority(Decision, frozen=True, tag="priority"):
    """To every agent that serves the job: its priority in the queues (larger first), and the cores of the node that its
    reservation promises it now. 0: none yet, nor are those promised that its tasks state; None: no reservation.
    Nodes are divided among the tenants of their jobs by ``tenant_weight``; ``tenant`` "": tenants have no shares."""

    job: str
    priority: float
    reserved_cores: float | None = None
    tenant: str = ""
    tenant_weight: Annotated[float, msgspec.Meta(gt=0)] = 1.0


class Assign(Decision, frozen=True, tag="assign"):
    """To the chosen node: hold ``request.memory_bytes`` for this task, and run it if it is a command. With a
    ``profile``, hold its amounts slot by slot from the start on; the executor's limits follow it."""

    job: str
    stage: str
    user: str
    origin: str
    priority: float
    request: TaskRequest
    opportunistic: bool = False
    profile: Profile | None = None


class TellPlaced(OfTask, frozen=True, tag="placed"):
    """To the origin: the node on which the task was placed."""

    node: str


class TellEnded(OfTask, frozen=True, tag="ended"):
    """To the origin: how the task ended (relayed from its node, or ``lost`` with the node)."""

    node: str
    ended: Ended


class Withdraw(OfTask, frozen=True, tag="withdraw"):
    """To the task's node: stop the task and release its resources. ``again``: the task is not cancelled, so a command
    ends as ``preempted``: a master that takes this node for the task's place, also a later one, places it again."""

    again: bool = False


class Promote(OfTask, frozen=True, tag="promote"):
    """To the task's node: the opportunistic task is regular from now on (UBIS §IV.D)."""


class TellStages(Decision, frozen=True, tag="stages"):
    """To every node that holds executors of the job: the number of its stages that have ended, of those started."""

    job: str
    ended: Count


class TellStuck(OfTask, frozen=True, tag="stuck"):
    """To the origin: an executor is late on a node without free resources; copies of its tasks are best run in the
    executor ``helper`` on ``node``, which has the most free resources (task rescheduling, Elasecutor §III.D)."""

    helper: str
    node: str


class Drain(Decision, frozen=True, tag="drain"):
    """Stop accepting work from now on and return the node's opportunistic and waiting commands; with nil, accept work
    again. The node stores this across its restarts."""

    draining: Draining | None


class CancelJob(Decision, frozen=True, tag="cancel"):
    """To every node that serves the job: end its work there, and tell its clients which user cancelled it (``by``)."""

    job: str
    by: str


AnyDecision = (
    AdmitJob | TellWaiting | SetPriority | Assign | TellPlaced | TellEnded | Withdraw | Promote | TellStages | TellStuck
    | Drain | CancelJob
)  # fmt: skip


class Decide(Params, frozen=True):
    """Decisions, numbered per connection from 1, without gaps."""

    number: int
    decisions: list[AnyDecision]


class Refusal(Result, frozen=True):
    """The refused decision's ``index`` in ``decisions``. A refused ``assign`` returns its task to the job's queue."""

    index: int
    reason: str


class Decided(Result, frozen=True):
    """The refused decisions. ``places_known``: the agent has told this origin's jobs which tasks it has accepted."""

    refused: list[Refusal] = []
    places_known: bool = False


REGISTER = Method("register", Register, Registered, Caller.AGENT)
HEARTBEAT = Method("heartbeat", Heartbeat, Done, Caller.AGENT)
JOB_SUBMITTED = Method("job_submitted", JobState, Done, Caller.AGENT)
JOIN_JOB = Method("join_job", JoinJob, JobJoined, Caller.AGENT)
JOB_ENDED = Method("job_ended", JobEnded, Done, Caller.AGENT)
TASKS_READY = Method("tasks_ready", ReadyTasks, Done, Caller.AGENT)
TASKS_DONE = Method("tasks_done", TasksDone, Done, Caller.AGENT)
TASKS_CANCELLED = Method("tasks_cancelled", TasksCancelled, Done, Caller.AGENT)
PROGRESS = Method("progress", Progress, Done, Caller.AGENT)
COMMAND_ENDED = Method("command_ended", CommandEnded, Done, Caller.AGENT)
DECIDE = Method("decide", Decide, Decided, Caller.MASTER)
NAME_TENANTS = Method("name_tenants", NameTenants, Done, Caller.MASTER)

#: agent → master, without the relays (:data:`penstock.wire.relayed_methods.RELAYS`)
REQUESTS = methods_of(globals(), Caller.AGENT)

"""What agents say to the master over TCP, and what it says to them.

Only agents connect to the master. Frameworks and the command speak to their host's agent, which relays with the user
that its kernel vouches for. A ``job`` id is unique in the cluster: the agent that registered it (its *origin*) made it.

A connection starts with ``register``; then the agent sends heartbeats and relays as notifications, in order, and the
master sends ``decide`` requests. A decision is a proposal: the agent answers with those that it refused, and why.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from penstock.model import Capacity, Ended, KindAmounts, Profile, TaskRequest
from penstock.model.work import Bytes, Name, Opportunistic
from penstock.wire.agent_api import Done, Params, Progress, Result, StageProgress
from penstock.wire.cluster_api import Draining, Remaining
from penstock.wire.ranks_api import Count, NodeRanks

#: The version of this protocol.
PROTOCOL = 1


class JobState(Params, frozen=True):
    """A job as its origin knows it. ``submitted_at`` is Unix time at the origin, for EJF's elapsed time T;
    ``reservation`` is the one that it is a production job of (Rayon §5.1)."""

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
    """A task that a node holds. ``remaining`` is its estimated work not yet done, in bytes per kind.

    ``origin`` is the node whose agent registered the job and is told how the task ended; ``user`` whose job it is.
    """

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
    """A task of the sending origin that was placed on ``node`` and has not ended, as far as the origin was told."""

    job: str
    stage: Name
    request: TaskRequest
    node: str
    opportunistic: Opportunistic = False


class JobUse(Params, frozen=True):
    """What a job has of a node. ``service_s`` never falls: slot-time in container-seconds (LAS_MQ §3.2), or CPU time of
    its containers where that is more. ``running`` is the slots that it holds now. After ``last`` it begins at 0."""

    job: str
    service_s: Annotated[float, msgspec.Meta(ge=0)]
    running: Count = 0
    last: bool = False


#: Of one slot: cores/1000, KiB/s of disk, KiB/s sent, MiB of memory. Integers are short on the wire.
SlotAmounts = tuple[Count, Count, Count, Count]


class Availability(Params, frozen=True):
    """AR(j) of Elasecutor (§III.B.1): what of a node is neither promised to others nor predicted to be used by the
    executors that run there, slot by slot of ``slot_s`` seconds from ``elapsed_s`` seconds ago on. Behind the last slot
    it stays as it is there.

    ``capacity`` is what there is in all; a rate of 0 there is unknown, and then nobody is kept out for its sake.
    """

    slot_s: Annotated[float, msgspec.Meta(gt=0)]
    capacity: SlotAmounts
    slots: Annotated[list[SlotAmounts], msgspec.Meta(min_length=1)]
    elapsed_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0


class ExecutorUse(Params, frozen=True):
    """What an executor used, slot by slot (the monitor surrogate's report, Elasecutor §III.A): mean and peak of the
    complete slots from number ``first`` on; null: not measured (only if the master has said ``profile_gaps``).

    It begins at 0 again after a registration, and when a long run's slots double (``slot_s``). ``stages`` are the slots
    at whose end a stage ended. ``behind`` is a stage's time ÷ its prediction; ``stuck``: its node has nothing left to
    give it (§III.D). With ``ended`` all is told: ``last_part`` of the last slot had passed (if ``last_parts`` is said).
    """

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


class Load(Params, frozen=True):
    """What a node is doing (Ursa §4.2.2, UBIS §IV.A). ``rates`` are processing rates in bytes/s, X/T over a sliding
    window, × slots; 0 while unknown. ``pending`` is the work assigned and not done, bytes per kind, of every monotask
    and placed task on the node. ``idle`` is the number of free slots per kind, less a core for each placed task that
    will compute and of which nothing has come to the queues yet, because its framework has only now heard where it is.
    ``used_cores`` and ``used_memory_bytes`` are what all containers really use, or the cores that frameworks hold slots
    of if those are more; ``disk_busy`` and ``network_busy`` the share of the disks and of the link that is in use.
    ``promised_…`` is what is set aside for regular work, ``opportunistic_…`` what opportunistic work asked.
    ``opportunistic_queue_free`` is how many opportunistic commands beyond what the slack holds the node would let wait
    for some; those that wait count as used. ``most_commands`` is how many commands of the CPU may run at once where
    some start beyond the slots, as the kernel knows the order of jobs; 0: none does. ``jobs`` are those of which
    something changed since the connection's last Load; the first names all. ``t_alloc`` is UBIS's threshold as it is
    now, where the node tunes it. ``availability`` and ``ranks`` come where they differ from what was told last.
    """

    rates: KindAmounts
    pending: KindAmounts
    idle: KindAmounts
    used_cores: float = 0.0
    used_memory_bytes: Bytes = 0
    disk_busy: float = 0.0
    network_busy: float = 0.0
    promised_cores: float = 0.0
    promised_memory_bytes: Bytes = 0
    opportunistic_memory_bytes: Bytes = 0
    opportunistic_queue_free: Count = 0
    most_commands: Count = 0
    jobs: list[JobUse] = []
    t_alloc: float | None = None
    availability: Availability | None = None
    ranks: NodeRanks | None = None


class Register(Params, frozen=True):
    """First message of an agent: everything the master needs to rebuild its state after a restart (of either).

    ``placed`` is what this node holds; ``ready`` and ``awaited`` are the tasks of the jobs whose origin it is, and
    ``complete`` says that they are all of them, so that what is missing was given up. A restarted agent cannot say so
    until its frameworks have told it again what they want. ``draining``: it was told to take no work.
    """

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
    """Its version, how often it wants heartbeats at least, and whether it reads gaps and last parts in profiles, `last`
    of a ``JobUse`` and ``use`` of ``job_ended`` (``job_lasts``), and ``most_commands`` and ``ranks`` of a ``Load``."""

    protocol: int
    version: str
    heartbeat_s: float
    profile_gaps: bool = False
    job_lasts: bool = False
    most_commands: bool = False
    last_parts: bool = False
    ranks: bool = False


class Heartbeat(Params, frozen=True):
    """``decided`` is the number of the last ``decide`` request that ``load`` counts. ``executors`` is what those here
    used since they were last told of. ``own`` is what else runs on a drained node, not placed by the master."""

    load: Load
    decided: int = 0
    executors: list[ExecutorUse] = []
    own: list[Remaining] = []


class JoinJob(Params, frozen=True):
    """A process of ``user`` on the sending node wants to join a job of another origin ("": of an operator)."""

    job: str
    user: str


class JobJoined(Result, frozen=True):
    """It may: what the node has to know to have a queue for the job."""

    name: str
    user: str
    priority: float


class JobEnded(Params, frozen=True):
    """The job is over; ``why``, where its framework did not end it. ``done``: its last connection left it in order.
    ``merged_into``: its work goes on in that job. ``use``: what it received here; nil: its last is never told."""

    job: str
    why: str = ""
    done: bool = False
    merged_into: str = ""
    use: JobUse | None = None


class TasksDone(Params, frozen=True):
    """Tasks that ended on the sending node, or (framework tasks) that the framework says are done."""

    job: str
    tasks: list[str]


class CommandEnded(Params, frozen=True):
    """A command that the master placed on the sending node ended. A request, answered when the job's origin has heard
    of it: until then it is told again right behind each ``register``, as a master may end between the two."""

    job: str
    task: str
    origin: str
    ended: Ended


class TasksCancelled(Params, frozen=True):
    """The origin no longer wants these tasks, placed or not."""

    job: str
    tasks: list[str]


class Decision(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="do"):
    """One thing that the master proposes; ``why`` says which rule and which numbers led to it."""

    why: str = ""


class AdmitJob(Decision, frozen=True, tag="admit"):
    """To the origin: the job has its memory reserved in the cluster (Ursa §4.2.2)."""

    job: str


class TellWaiting(Decision, frozen=True, tag="waiting"):
    """To the origin: the job is not admitted yet. ``why``: what it waits for; ``never``: the cluster cannot hold it."""

    job: str
    never: bool = False


class SetPriority(Decision, frozen=True, tag="priority"):
    """To every agent that serves the job: its place in the queues (larger first)."""

    job: str
    priority: float


class Assign(Decision, frozen=True, tag="assign"):
    """To the chosen node: hold ``request.memory_bytes`` for this task, and run it if it is a command. With a
    ``profile`` that is what is held, slot by slot from the start on, and what the executor's limits follow."""

    job: str
    stage: str
    user: str
    origin: str
    priority: float
    request: TaskRequest
    opportunistic: bool = False
    profile: Profile | None = None


class TellPlaced(Decision, frozen=True, tag="placed"):
    """To the origin: where the task went."""

    job: str
    task: str
    node: str


class TellEnded(Decision, frozen=True, tag="ended"):
    """To the origin: how the task ended (relayed from its node, or ``lost`` with the node)."""

    job: str
    task: str
    node: str
    ended: Ended


class Withdraw(Decision, frozen=True, tag="withdraw"):
    """To the task's node: stop it (its job was cancelled) and give back what it held."""

    job: str
    task: str


class Promote(Decision, frozen=True, tag="promote"):
    """To the task's node: the opportunistic task is regular from now on (UBIS §IV.D)."""

    job: str
    task: str


class TellStages(Decision, frozen=True, tag="stages"):
    """To every node that holds executors of the job: how many of its stages have ended, of all that it began."""

    job: str
    ended: Count


class TellStuck(Decision, frozen=True, tag="stuck"):
    """To the origin: an executor is late and its node has nothing left to give; copies of its tasks are best run in the
    executor ``helper`` on ``node``, which has the most available resources (task rescheduling, Elasecutor §III.D)."""

    job: str
    task: str
    helper: str
    node: str


class Drain(Decision, frozen=True, tag="drain"):
    """The node takes no work from now on, and gives back what opportunistic commands it has and what waits there; with
    nil it takes work again. It keeps that over its restarts."""

    draining: Draining | None


class CancelJob(Decision, frozen=True, tag="cancel"):
    """To every node that serves the job: end what is there of it, and tell its clients who cancelled it."""

    job: str
    by: str


AnyDecision = (
    AdmitJob | TellWaiting | SetPriority | Assign | TellPlaced | TellEnded | Withdraw | Promote | TellStages | TellStuck
    | Drain | CancelJob
)  # fmt: skip


class Decide(Params, frozen=True):
    """Numbered per connection, from 1, without gaps."""

    number: int
    decisions: list[AnyDecision]


class Refusal(Result, frozen=True):
    """``index`` into ``decisions``. A refused ``assign`` returns its task to the job's queue."""

    index: int
    reason: str


class Decided(Result, frozen=True):
    """The refused ones; the others are carried out."""

    refused: list[Refusal] = []


#: agent → master
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "register": (Register, Registered),
    "heartbeat": (Heartbeat, Done),
    "job_submitted": (JobState, Done),
    "join_job": (JoinJob, JobJoined),
    "job_ended": (JobEnded, Done),
    "tasks_ready": (ReadyTasks, Done),
    "tasks_done": (TasksDone, Done),
    "tasks_cancelled": (TasksCancelled, Done),
    "progress": (Progress, Done),
    "command_ended": (CommandEnded, Done),
}

#: master → agent
MASTER_REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {"decide": (Decide, Decided)}

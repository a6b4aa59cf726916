"""Messages about jobs and the placement of their tasks.

They are apart from :mod:`penstock.wire.agent_api`, of which they are a part, because ``penstock submit`` starts sooner
without the others.
"""

from typing import Annotated

import msgspec

from penstock.model.container import MOST_AT_ONCE, MOST_STAGES, Ended
from penstock.model.work import Bytes, Name, Opportunistic, OpportunisticJob, StageProgress, TaskRequest
from penstock.wire.connection_api import Notice, Params, Result


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
    Tasks that are asked for earlier wait for it, too, unless they are opportunistic: these may run on slack at once.
    Those that no node of the cluster can hold are refused at once.
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
    schedules itself, and about stages that are not ready yet. An agent relays at once what is new about the stages: one
    that is new, gone or over, another number of tasks, another order, or that the remaining work is now known or
    unknown. Counts and remaining work of the same stages follow with its next message, at most 0.2 s later.
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


class TaskStuck(Notice, frozen=True):
    """Agent → framework: an executor is late and its node has no free resources. Copies of its tasks, made by the
    framework's speculation, are best run in the executor ``helper`` on ``node`` (Elasecutor §III.D)."""

    METHOD = "task_stuck"
    job: str
    task: str
    helper: str
    node: str

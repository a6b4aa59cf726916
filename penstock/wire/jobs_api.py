"""Jobs as the cluster's master knows them: what commands ask of their host's agent, and what it relays.

The agent relays each call as :class:`~penstock.wire.reservation_api.OnBehalf`: the user that its kernel vouches for,
and ``operator`` where that user may act on what belongs to others.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Done, Launched, Params, Result

#: Of one call.
MOST_JOBS = 1000
JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class StageView(Result, frozen=True):
    """A stage: its tasks, as far as is known, how many are over, and the stages that it waits for."""

    stage: str
    tasks: int
    done: int
    after: list[str] = []


class TaskFailure(Result, frozen=True):
    """A task that did not end well: ``by`` what, as in ``Ended``, and why."""

    task: str
    stage: str
    node: str
    by: str
    exit_status: int | None = None
    reason: str = ""


class NodeRank(Result, frozen=True):
    """Where a job stands on a node (docs/ranks.md): 1 is the first ``of`` so many, ``weight`` what its containers weigh
    together there (``cpu.weight``), ``service_container_s`` what it has received there, ``before`` the nearest ten
    before it: jobs, and containers that belong to none."""

    node: str
    rank: int
    of: int
    weight: int
    service_container_s: float = 0.0
    before: list[str] = []


class JobView(Result, frozen=True):
    """A job. ``state`` is ``waiting`` (for its admission), ``admitted``, ``running``, ``cancelling``, ``ending`` (it is
    over, and what of it runs is being stopped), or ``ended``; then ``outcome`` is ``succeeded``, ``failed``,
    ``cancelled``, ``disconnected`` (its framework went, and left work undone) or ``lost`` (with its host).

    ``why`` says what it waits for, or why it ended so. Times are Unix time. Tasks are those that the master places;
    ``tasks_waiting`` were announced and are not ready, ``slots`` are those that its monotasks hold. ``left`` is the
    work not done, in bytes per kind.

    ``rank`` is its place in the order of the jobs, 1 is the first ``of`` so many (0: it is over, or has just come), and
    ``reason`` why it has that place. ``queue`` (1 is the first), ``expected_left_s`` (the service within which half of
    the jobs like it end that received as much) and ``known_jobs`` (of its user and name) are nil where the policy has
    no such number. ``progress`` (stage by stage), ``failures`` (the first twenty) and ``ranks`` (on each node) come
    where the job was asked for by its id.
    """

    job: str
    name: str
    user: str
    origin: str
    state: str
    submitted_at: float
    ended_at: float | None = None
    outcome: str = ""
    why: str = ""
    stages: int = 0
    stages_done: int = 0
    tasks_waiting: int = 0
    tasks_ready: int = 0
    tasks_running: int = 0
    tasks_done: int = 0
    tasks_failed: int = 0
    slots: int = 0
    service_container_s: float = 0.0
    left: KindAmounts = KindAmounts()
    nodes: list[str] = []
    reservation: str = ""
    rank: int = 0
    of: int = 0
    reason: str = ""
    queue: int | None = None
    expected_left_s: float | None = None
    known_jobs: int | None = None
    ranks: list[NodeRank] = []
    progress: list[StageView] = []
    failures: list[TaskFailure] = []


class ListJobs(Params, frozen=True):
    """Which jobs there are, mine or (for operators, with ``everybody``) all; with ``jobs`` only these. ``ended``: also
    the latest of each user that are over."""

    jobs: Annotated[list[JobId], msgspec.Meta(max_length=MOST_JOBS)] = []
    everybody: bool = False
    ended: bool = True


class Jobs(Result, frozen=True):
    """In the order in which they came, those that ended first. ``unknown`` are ids of no job, or of one that ended too
    long ago; ``foreign`` those of somebody else's: id → user."""

    jobs: list[JobView]
    unknown: list[str] = []
    foreign: dict[str, str] = {}


class CancelJob(Params, frozen=True):
    """Stop a job of mine (operators: anybody's), with everything that runs of it. Its clients are told who did."""

    job: JobId


class Cancelling(Result, frozen=True):
    """It will not run on. ``away``: its host, where that is away and stops what it runs itself when it is back."""

    job: str
    away: str = ""


class OrderJobs(Params, frozen=True):
    """Put jobs of mine first of mine (operators: anybody's, first of all), in this order. It holds until they are over,
    or other jobs are named. Without jobs the order is the master's alone again."""

    jobs: Annotated[list[JobId], msgspec.Meta(max_length=MOST_JOBS)] = []


class JobsOrdered(Result, frozen=True):
    """``jobs`` are first from now on, in this order: ``of_all`` of everybody's, else of one's own."""

    jobs: list[str]
    of_all: bool


class ExplainJob(Params, frozen=True):
    """Why a job of mine (operators: anybody's) waits, and where its tasks were placed, and why."""

    job: JobId


class Explained(Result, frozen=True):
    """``GET /explain?job=…`` of the master, with ``placed`` and ``last_placed``; docs/jobs.md lists the keys."""

    explained: dict[str, Any]


class LeaveJob(Params, frozen=True):
    """This connection is about to close, and has nothing more to do for a job. When the last connection of the job
    closes after such a call, the job is done.

    ``merged_into`` names the job in which its work goes on: the master then keeps no record of this one.
    """

    job: JobId
    merged_into: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Lend(Params, frozen=True):
    """Have a running process and its descendants ranked with a job of mine: they are its container until it is over.

    ``pid`` 0 is the process that opened this connection. Answered as ``launch`` is; with the container that the process
    is in already, where it is in one. Then nothing changes, but that a container which was lent for a job that is over
    goes on for this one. The process goes on wherever the job or the connection ends, and so does what it leaves
    behind. Refused where limits bind the process: the cgroup that it is in has some of its own.
    """

    job: JobId
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 0


class CancelledBy(Params, frozen=True):
    """Agent → framework: somebody cancelled the job. It is over, and nothing that is said of it is understood."""

    job: str
    by: str


class SlotTakenBack(Params, frozen=True):
    """Agent → framework: a monotask's slot went to a job of another user that had waited too long for its turn.

    The monotask goes on, and is completed or cancelled as ever; it holds no slot any more. ``why`` gives the numbers;
    ``slot_held_max_s`` is the operator's.
    """

    job: str
    id: MonotaskId
    kind: ResourceKind
    why: str


#: framework → agent, and agent → master in ``OnBehalf``
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "jobs": (ListJobs, Jobs),
    "cancel_job": (CancelJob, Cancelling),
    "order_jobs": (OrderJobs, JobsOrdered),
    "explain_job": (ExplainJob, Explained),
}

#: framework → agent, which answers itself
OWN_REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {
    "leave_job": (LeaveJob, Done),
    "lend": (Lend, Launched),
}

#: agent → framework
NOTIFICATIONS: dict[str, type[Params]] = {"job_cancelled": CancelledBy, "slot_taken_back": SlotTakenBack}

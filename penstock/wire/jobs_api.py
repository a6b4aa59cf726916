"""Jobs as the master knows them (:mod:`penstock.wire.relayed_methods`), and a job's connections to its agent."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from penstock.model.container import Ended
from penstock.model.resources import KindAmounts, ResourceKind
from penstock.model.work import MonotaskId
from penstock.wire.agent_api import Notice, Params, Result

#: The most jobs in one call.
MOST_JOBS = 1000
#: The most failed tasks that are listed for a job.
MOST_FAILURES = 20
#: The most nodes in each list of a job's.
MOST_NODES = 100
JobId = Annotated[str, msgspec.Meta(min_length=1, max_length=256)]


class StageView(Result, frozen=True):
    """A stage: the known number of its tasks, the number of ended ones, ``skipped`` ones among them, and the stages
    that it waits for."""

    stage: str
    tasks: int
    done: int
    skipped: int = 0
    after: list[str] = []


class TaskFailure(Result, frozen=True):
    """A task that failed: ``by`` as in ``Ended``, and the reason."""

    task: str
    stage: str
    node: str
    by: str
    exit_status: int | None = None
    reason: str = ""

    @classmethod
    def of(cls, task: str, stage: str, node: str, ended: Ended) -> TaskFailure:
        """Return the failure of a task that ended so on this node; a long reason is cut off."""
        by, reason = ended.by.value, ended.reason[:1000]
        return cls(task=task, stage=stage, node=node, by=by, exit_status=ended.exit_status, reason=reason)

    @property
    def how(self) -> str:
        """How the task ended, for people."""
        return self.reason or (self.by if self.exit_status is None else f"exit status {self.exit_status}")


class NodeRank(Result, frozen=True):
    """A job's rank on a node (docs/ranks.md): 1 is the first of ``of`` jobs. ``weight`` is the total ``cpu.weight`` of
    its containers there, ``service_container_s`` its service there. ``before`` are the nearest ten ahead of it: jobs,
    and containers without a job."""

    node: str
    rank: int
    of: int
    weight: int
    service_container_s: float = 0.0
    before: list[str] = []


class JobView(Result, frozen=True):
    """A job. ``state`` is ``waiting`` (for its admission), ``admitted``, ``running``, ``cancelling``, ``ending`` (it is
    over, and its running work is being stopped, or its host has yet to report the outcome), or ``ended``; then
    ``outcome`` is ``succeeded``, ``failed``, ``cancelled``, ``disconnected`` (its framework disconnected and left work
    undone) or ``lost`` (with its host).

    ``why`` is the reason for waiting, or for the outcome. Times are Unix time. Tasks are those that the master places;
    ``tasks_waiting`` were announced and are not ready; of ``tasks_done``, ``tasks_skipped`` were never run, as a task
    before them failed. ``slots`` is the number held by its monotasks. ``left`` is the
    work not done, in bytes per kind. ``nodes`` are those with tasks or slots of it now, ``ran_on`` those that took a
    command of it so far and so may have output of it; at most a hundred of each.

    ``rank`` is its position in the order of jobs, 1 being the first of ``of`` (0: it is over, or new), and ``reason``
    explains it. Three numbers are nil if the policy does not have them: ``queue`` (1 is the first), ``expected_left_s``
    (the further service within which half of similar jobs with as much service end) and ``known_jobs`` (of its user and
    name). ``progress`` (by stage), ``failures`` (the first twenty), ``ranks`` (by node) and ``ran_on`` are present if
    the request named the job's id; ``ran_on`` is empty from an older master.
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
    tasks_skipped: int = 0
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
    ran_on: list[str] = []


class ListJobs(Params, frozen=True):
    """List the caller's jobs, or (operators, with ``everybody``) all; with ``jobs`` only these. ``ended`` includes the
    latest ended jobs of each user."""

    jobs: Annotated[list[JobId], msgspec.Meta(max_length=MOST_JOBS)] = []
    everybody: bool = False
    ended: bool = True


class Jobs(Result, frozen=True):
    """Jobs in the order of submission, ended ones first. ``unknown`` are ids without a job, or of jobs that ended too
    long ago; ``foreign`` are those of other users: id → user."""

    jobs: list[JobView]
    unknown: list[str] = []
    foreign: dict[str, str] = {}


class CancelJob(Params, frozen=True):
    """Stop a job of the caller (operators: any job) with all its running tasks. Its clients are told the caller."""

    job: JobId


class Cancellation(Result, frozen=True):
    """The job will not run on. ``away``: its host, if that is away; it stops its own work when it is back."""

    job: str
    away: str = ""


class OrderJobs(Params, frozen=True):
    """Put jobs first, in this order, among the caller's (operators: among all). This holds until they are over, or
    until the next call. An empty list restores the master's order."""

    jobs: Annotated[list[JobId], msgspec.Meta(max_length=MOST_JOBS)] = []


class JobsOrdered(Result, frozen=True):
    """``jobs`` are first from now on, in this order: among all if ``of_all``, otherwise among the caller's."""

    jobs: list[str]
    of_all: bool


class ExplainJob(Params, frozen=True):
    """Explain why a job of the caller (operators: any job) waits, and where and why its tasks were placed."""

    job: JobId


class Explained(Result, frozen=True):
    """The master's ``GET /explain?job=…``, with ``placed`` and ``last_placed``; docs/jobs.md lists the keys."""

    explained: dict[str, Any]


class LeaveJob(Params, frozen=True):
    """This connection is about to close and has finished with a job. When the job's last connection closes after this
    call, the job is done.

    ``merged_into`` names the job that continues its work: the master then keeps no record of this one.
    """

    job: JobId
    merged_into: Annotated[str, msgspec.Meta(max_length=256)] = ""


class Lend(Params, frozen=True):
    """Rank a running process and its descendants with a job of the caller, as its container until the job is over.

    ``pid`` 0 is the process that opened this connection. Answered as ``launch``. For a process that is already in a
    container, the answer is that container and nothing changes, except that a container lent to a job that is over
    continues for this one. The process and its children keep running when the job or the connection ends. Refused if
    the process's cgroup has limits of its own.
    """

    job: JobId
    pid: Annotated[int, msgspec.Meta(ge=0, le=2**22)] = 0


class SlotTakenBack(Notice, frozen=True):
    """Agent → framework: a monotask's slot went to a job of another user that had waited too long for its turn.

    The monotask runs on without a slot, and is completed or cancelled as usual. ``why`` gives the numbers; the operator
    sets ``slot_held_max_s``.
    """

    METHOD = "slot_taken_back"
    job: str
    id: MonotaskId
    kind: ResourceKind
    why: str

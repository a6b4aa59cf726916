"""The master's JSON documents over HTTP, and the requests to it. PURE: types only.

Its answers are made as these types; OpenAPI and docs/master-status.md follow from them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from master.core.draining import NodeState
from penstock.documents import Certificate, Degraded, Document, Resources, SetByHand
from penstock.model import Capacity, ResourceKind
from penstock.model.job_state import JobStanding
from penstock.model.work import FullStageProgress
from penstock.wire.cluster_api import Draining
from penstock.wire.jobs_api import JobView, NodeRank
from penstock.wire.master_api import Load
from penstock.wire.reservation_api import FreeRun, Label, Rdl, Reserved

#: The year 9999: later times are invalid.
UnixTime = Annotated[float, msgspec.Meta(ge=0, lt=253_402_300_800, description="Unix time in seconds")]
Columns = dict[Literal["cpu_cores", "disk_bytes_per_s", "network_bytes_per_s", "memory_bytes"], list[float]]


# ---------------------------------------------------------------- requests


class ExplainQuery(Document, frozen=True, kw_only=True):
    """The query of ``GET /explain``."""

    job: Annotated[str, msgspec.Meta(min_length=1, description="the id of a job; /status lists them")]


class ReservationsQuery(Document, frozen=True, kw_only=True):
    """The query of ``GET /reservations``: the promises ``at`` that time; default: now."""

    at: UnixTime | UnsetType = UNSET


class PlanQuery(Document, frozen=True, kw_only=True):
    """The query of ``GET /plan``: from ``since`` (default: now) to ``until`` (default: a day later), summed up
    ``by``.
    """

    since: UnixTime | UnsetType = UNSET
    until: UnixTime | UnsetType = UNSET
    by: Literal["user", "reservation"] = "user"


class Ask(Document, frozen=True, kw_only=True):
    """A request to reserve: an expression of RDL (docs/reservations.md) and the owner; ``name`` is a label."""

    rdl: Rdl
    user: Annotated[str, msgspec.Meta(min_length=1, description="the owner of the reservation")]
    name: Label = ""


class AskInstead(Document, frozen=True, kw_only=True):
    """A request that replaces a reservation."""

    rdl: Rdl


# ---------------------------------------------------------------- GET /status


class NodeStatus(Document, frozen=True, kw_only=True):
    """A node. ``draining`` null: it accepts work. ``away_s``: the time since its connection was lost. ``load`` is its
    latest report, ``rates`` are its processing rates in bytes/s. ``kept_cores`` and ``kept_memory_bytes`` are kept for
    tasks that wait, whether they are free yet or not: other regular work gets none of them. ``unanswered``: decisions
    that it has not answered.
    """

    state: NodeState
    draining: Draining | None
    away_s: float | None
    version: str
    capacity: Capacity
    t_alloc: float
    load: Load
    rates: dict[ResourceKind, float]
    memory_free_bytes: float
    external_memory_bytes: float
    cores_free: float
    kept_cores: float
    kept_memory_bytes: int
    tasks: int
    opportunistic_tasks: int
    unanswered: int


class JobStatus(Document, frozen=True, kw_only=True):
    """A job (docs/jobs.md). ``waits``: why it is not admitted, or its tasks wait. ``rank`` is its place in the order of
    the jobs (1 is the first; 0: not ranked yet), ``reason`` the reason for it; ``queue``, ``expected_left_s`` and
    ``known_jobs`` are null where the policy has no such number. ``priority`` is that in the agents' queues, ``slots``
    are those held now on all nodes. ``stages``: the number of ready tasks by stage; ``progress``: its framework's
    report on its stages.
    """

    name: str
    user: str
    origin: str
    state: JobStanding
    waits: str
    memory_bytes: int
    submitted_at: float
    reservation: str
    rank: int
    reason: str
    queue: int | None
    expected_left_s: float | None
    known_jobs: int | None
    priority: float
    service_container_s: float
    slots: int
    ready: int
    placed: int
    stages: dict[str, int]
    progress: Sequence[FullStageProgress]


class Tasks(Document, frozen=True, kw_only=True):
    """Tasks that are ready or placed now; ``ended``: kind of end → number, since the start of the master."""

    ready: int
    placed: int
    ended: dict[str, int]


class Memory(Document, frozen=True, kw_only=True):
    """The reservable memory of the connected nodes, and the memory reserved for admitted jobs."""

    reservable_bytes: float
    reserved_bytes: float


class PromisedNow(Document, frozen=True, kw_only=True):
    """The present promise of a reservation."""

    cores: float
    memory_bytes: float
    bundles: int


class Status(Document, frozen=True, kw_only=True):
    """The state of the cluster. ``started_at`` is Unix time.

    ``models``: each model of prediction (docs/prediction.md) → the reason why it is not available, empty: it is.
    ``resources`` sum up those of the connected nodes; for disks and links they are the mean of the nodes' shares.
    ``decisions``: counters since the start. ``promised``: reservation → its present promise.
    """

    version: str
    started_at: float
    listen: str
    http: str
    configuration: Mapping[str, SetByHand]
    certificates: Sequence[Certificate]
    degraded: Sequence[Degraded]
    reservations: Mapping[Literal["accepted", "rejected", "missed"], int]
    models: Mapping[str, str]
    resources: Resources
    nodes: dict[str, NodeStatus]
    jobs: dict[str, JobStatus]
    tasks: Tasks
    memory: Memory
    decisions: dict[str, int]
    ordering: str
    ept_s: float
    promised: dict[str, PromisedNow]


# ---------------------------------------------------------------- GET /explain


class StageExplained(Document, frozen=True, kw_only=True):
    """Ready tasks of a stage, and what the first of them ``waits`` for.

    ``lacks`` maps each resource that nodes lack for it to their number, ``slack_lacks`` each one that they lack on
    slack; absent: it does not run there, or is an executor.
    """

    stage: str
    opportunistic: bool | Literal["only"]
    ready: int
    waits: str
    lacks: dict[str, int] | UnsetType = UNSET
    slack_lacks: dict[str, int] | UnsetType = UNSET


class Explanation(Document, frozen=True, kw_only=True):
    """The ``place`` of a job ``of`` so many in the order, after (the nearest ten of) the jobs ``before_it``; ``why`` is
    the rule with its numbers. ``room_containers``: how many more ``containers`` it may have (null: any number).
    ``waits``: why it is not admitted, or why its tasks wait.

    ``sentence`` describes the job's place and the reason in words; ``reason`` is the policy's part of it. ``queue``,
    ``expected_left_s`` and ``known_jobs`` are null where the policy has no such number. ``ranks`` are those of its
    containers, node by node.
    """

    job: str
    name: str
    ordering: str
    placement: str
    sentence: str
    place: int
    of: int
    before_it: list[str]
    reason: str
    queue: int | None
    expected_left_s: float | None
    known_jobs: int | None
    ranks: list[NodeRank]
    why: str
    containers: int
    room_containers: float | None
    priority: float
    service_container_s: float
    admitted: bool
    waits: str
    nodes: int
    stages: list[StageExplained]


# ---------------------------------------------------------------- the answer of explain_job


class TaskPlaced(Document, frozen=True, kw_only=True):
    """A task that was placed on ``node``. ``why``: the rule and its numbers, empty if it was placed before a restart of
    the master. ``losses``: how often it was lost with a node; ``refused_by``: nodes.
    """

    task: str
    stage: str
    node: str
    opportunistic: bool
    why: str
    losses: int
    refused_by: list[str]


class JobExplained(Explanation, frozen=True, kw_only=True):
    """The explanation for the owner of a job. ``placed`` has the number of its tasks on each node, ``last_placed`` the
    latest hundred of them. ``cancelled_by``: the canceller, until the job's host has confirmed the cancellation.
    """

    cancelled_by: str
    placed: dict[str, int]
    last_placed: list[TaskPlaced]
    ended: None = None


class EndedJobExplained(Document, frozen=True, kw_only=True):
    """The explanation of a job that is over has only these keys. ``ended`` is as in ``penstock jobs JOB --json``."""

    job: str
    name: str
    ended: JobView


# ---------------------------------------------------------------- GET /reservations, /plan


class ReservationsThen(Document, frozen=True, kw_only=True):
    """``promised``: reservation → amounts and ``bundles`` at that time; ``free``: unreserved amounts from then on, run
    by run; ``reservations``: all reservations in their present state.
    """

    at: float
    promised: dict[str, dict[str, float]]
    free: list[FreeRun]
    reservations: list[Reserved]


class Plan(Document, frozen=True, kw_only=True):
    """Each amount holds from the time at its place in ``times`` to the next one, the last to ``until``. That is earlier
    than requested where more than 1,000 changes precede it. Times are whole steps.

    ``capacity`` is the cluster's planned capacity; ``promised`` is by user or by reservation, without owners that have
    no promise then.
    """

    step_s: float
    until: float
    times: list[float]
    capacity: Columns
    promised: dict[str, Columns]


# ---------------------------------------------------------------- GET /profiles

#: Resources × slots, in cores, bytes/s and bytes; an unmeasured slot of a run is null.
Series = list[list[float]]
MeasuredSeries = list[list[float | None]]


class RunSettings(Document, frozen=True, kw_only=True):
    """The parameters known before a run: the input's size and the bounds."""

    input_bytes: int
    cores: float
    memory_bytes: int


class ProfileEntry(Document, frozen=True, kw_only=True):
    """An application that ran as executors, with the number of its stored runs.

    ``settings``: of its runs, the last run's first. ``error``: model → its relative error (1 is 100 %) on settings that
    were held back from its training, null: untested; empty until one was trained. ``last_run_at`` is Unix time.
    """

    application: str
    user: str
    runs: int
    settings: list[RunSettings]
    error: dict[str, float | None]
    last_run_at: float


class RunUsed(Document, frozen=True, kw_only=True):
    """The use of one run: the mean of so many ``executors``. ``stages`` are the slots at whose end a stage ended,
    ``last_part`` the elapsed fraction of the last slot at the run's end.
    """

    run: str
    ended_at: float
    executors: int
    settings: RunSettings
    stages: list[int]
    last_part: float
    mean: MeasuredSeries
    peak: MeasuredSeries


class ForecastDocument(Document, frozen=True, kw_only=True):
    """The forecast of the next run with these settings, ``by`` a model; ``low`` and ``high`` bound the mean.

    ``error``: the model's relative error on runs that were held back (null: there were none); ``errors``: by resource.
    """

    settings: RunSettings
    by: str
    error: float | None
    errors: dict[str, float | None]
    stages: list[int]
    last_part: float
    mean: Series
    peak: Series
    low: Series
    high: Series


class PastForecast(Document, frozen=True, kw_only=True):
    """The forecast of a run by the runs with its settings before it; null: they were too few, so that a model forecast
    the run, or bounds were reserved.
    """

    run: str
    forecast: ForecastDocument | None


class ApplicationProfile(Document, frozen=True, kw_only=True):
    """An application's latest 20 runs in the order of their ends, and a forecast for each of the latest settings.

    ``mean``, ``peak``, ``low`` and ``high`` have a list over slots for each of ``resources``; a slot takes ``slot_s``
    seconds, and one that was not measured is null. ``history`` has the latest five runs.
    """

    application: str
    user: str
    slot_s: float
    resources: list[str]
    runs: list[RunUsed]
    forecasts: list[ForecastDocument]
    history: list[PastForecast]

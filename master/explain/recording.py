"""A recorded state as JSON: the nodes, the jobs and their ready tasks as a round sees them, and the settings."""

from __future__ import annotations

import math
from typing import Annotated

import msgspec
import numpy as np

from master.config import MasterConfig
from master.core import Cluster
from master.core.job import Job, Task
from master.core.order import HandOrders, job_views, totals
from master.core.snapshot import RoundSnapshot, reserved
from master.ordering import (
    ClusterView,
    Guarantee,
    HandOrder,
    JobSizes,
    JobView,
    KnownSizes,
    Ranking,
    StageView,
    guarantees_first,
    ordering_of,
)
from master.placement import AlgorithmOne, Need, PeakPlacement, Stage, TaskPlacement, Unreserved, Workers
from master.placement.workers import COLUMN, Floats
from penstock.config.settings import SettingsError
from penstock.model import ResourceKind
from penstock.model.decode_errors import explained, told
from penstock.model.resource_vector import SlotVector

FORMAT = 2
Positive = Annotated[float, msgspec.Meta(gt=0)]
Amount = Annotated[float, msgspec.Meta(ge=0)]
Kinds = tuple[Amount, Amount, Amount]
#: A :class:`SlotVector` in a file, where each amount is checked.
Holdings = tuple[Amount, Amount, Amount, Amount]


class SnapshotError(Exception):
    """One line for the operator: the file, the part of it, and the error."""


class _Struct(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A struct that rejects unknown keys with an error that names them."""


class RecordedNode(_Struct, frozen=True, kw_only=True):
    """A connected node. Triples are of cpu, disk, network; ``rates`` are bytes/s, ``pending`` bytes.

    ``reserved`` are the cores of placed tasks and their peaks of disk and network in bytes/s, as Tetris counts them.
    """

    name: str
    rates: tuple[Positive, Positive, Positive]
    pending: Kinds
    slots: tuple[Positive, Positive, Positive]
    idle_cores: float
    memory_free_bytes: float
    memory_bytes: Positive
    cores: Positive
    cores_free: float
    reserved: tuple[Amount, Amount, Amount] = (0.0, 0.0, 0.0)


class RecordedTask(_Struct, frozen=True, kw_only=True):
    """A ready task: bytes of work per kind, and of memory. ``nodes`` limits it to some nodes; None: all."""

    task: str
    work: Kinds
    memory_bytes: Amount = 0.0
    cores: Amount = 0.0
    unknown_size: ResourceKind | None = None
    nodes: list[str] | None = None


class RecordedProgress(_Struct, frozen=True, kw_only=True):
    """A stage's numbers of tasks, and the container-seconds it has received."""

    stage: str
    tasks: int
    done: int
    service_container_s: Amount = 0.0


class RecordedJob(_Struct, frozen=True, kw_only=True):
    """A job as the orderings see it (:class:`master.ordering.JobView`); ``needs`` and ``wants`` are null if unknown.

    ``reservation`` is the one that promises it something now or later. ``stages`` are its ready tasks by stage, without
    executors; only those of an admitted job are placed.
    """

    job: str
    name: str = ""
    user: str = ""
    application: str = ""
    tenant: str = ""
    weight: Positive = 1.0
    submitted_at: float = 0.0
    admitted: bool = True
    reservation: str = ""
    holds: Holdings = (0.0, 0.0, 0.0, 0.0)
    containers: int = 0
    service_container_s: Amount = 0.0
    remaining_s: Kinds = (0.0, 0.0, 0.0)
    needs: float | None = None
    wants: float | None = None
    progress: list[RecordedProgress] = []
    stages: dict[str, list[RecordedTask]] = {}


class RecordedPromise(_Struct, frozen=True, kw_only=True):
    """A reservation's present promise in so many ``bundles``, and what its jobs hold together."""

    promised: Holdings
    holds: Holdings = (0.0, 0.0, 0.0, 0.0)
    bundles: Annotated[int, msgspec.Meta(ge=1)] = 1


class Recording(_Struct, frozen=True, kw_only=True):
    """A recorded state. ``at`` is Unix time; ``capacity`` is the cluster's cores, disk slots, network slots and bytes
    of memory; ``sizes`` are the known sizes of similar jobs, ``promises`` the present ones by reservation, ``orders``
    those by hand by user (empty: an operator's order of all jobs).
    """

    penstock_snapshot: int = FORMAT
    at: float
    settings: MasterConfig = MasterConfig()
    capacity: tuple[Positive, Positive, Positive, Positive]
    nodes: list[RecordedNode]
    jobs: list[RecordedJob]
    sizes: list[KnownSizes] = []
    promises: dict[str, RecordedPromise] = {}
    orders: dict[str, HandOrder] = {}

    # ------------------------------------------------------------ inputs of a round's steps

    def ranking(self) -> Ranking:
        """Return the ranking of the jobs, as :meth:`master.core.order.Order.rank` makes it."""
        sizes = JobSizes()
        sizes.restore(self.sizes)
        ordering = ordering_of(self.settings.cluster_settings().ordering_settings(), sizes)
        views, orders = self._views(), HandOrders()
        ranking = ordering.rank(
            views, ClusterView(self.at, SlotVector._make(self.capacity), max(1.0, self.capacity[0]))
        )
        orders.restore(self.orders)
        members = {job.job: job.reservation for job in self.jobs if job.reservation}
        promises = {
            name: Guarantee(SlotVector._make(one.promised), list(one.holds), one.bundles)
            for name, one in self.promises.items()
        }
        return guarantees_first(orders.arrange(ranking, views), members, promises)

    def _views(self) -> list[JobView]:
        return [
            JobView(
                job=job.job,
                tenant=job.tenant,
                weight=job.weight,
                submitted_at=job.submitted_at,
                sequence=sequence,
                holds=SlotVector._make(job.holds),
                containers=job.containers,
                service=job.service_container_s,
                stages=tuple(StageView(s.stage, s.tasks, s.done, s.service_container_s) for s in job.progress),
                remaining=job.remaining_s,
                needs=math.inf if job.needs is None else job.needs,
                wants=math.inf if job.wants is None else job.wants,
                user=job.user,
                application=job.application,
            )
            for sequence, job in enumerate(self.jobs)
        ]

    def stages(self) -> list[Stage]:
        """Return the stages to be placed, earlier jobs first."""
        places = {node.name: place for place, node in enumerate(self.nodes)}
        network = self.settings.network_aware
        jobs = sorted((job for job in self.jobs if job.admitted), key=lambda job: job.submitted_at)
        return [
            Stage(job.job, stage, [_need(job.job, task, places, network=network) for task in tasks])
            for job in jobs
            for stage, tasks in job.stages.items()
            if tasks
        ]

    def placement(self) -> TaskPlacement:
        """Return the nodes in the form of the configured placement."""
        settings, column = self.settings.cluster_settings(), self._column
        if settings.placement == "ursa":
            workers = Workers(
                settings.ept_s,
                rates=column("rates", 3),
                pending=column("pending", 3),
                slots=column("slots", 3),
                idle_cores=column("idle_cores"),
                memory_free=column("memory_free_bytes"),
                memory_capacity=column("memory_bytes"),
                cores_free=column("cores_free"),
            )
            return AlgorithmOne(workers, chunk=settings.share_chunk_tasks, stage_aware=settings.stage_aware)
        unreserved = Unreserved.of(
            settings.peaks(),
            cores=column("cores"),
            cores_free=column("cores_free"),
            memory=column("memory_bytes"),
            memory_free=column("memory_free_bytes"),
            reserved=column("reserved", 3),
        )
        return PeakPlacement(settings.placement, unreserved, settings.peaks())

    def _column(self, name: str, width: int = 0) -> Floats:
        rows = [getattr(node, name) for node in self.nodes]
        return np.array(rows, dtype=np.float64).reshape((len(rows), width) if width else len(rows))


def _need(job: str, task: RecordedTask, places: dict[str, int], *, network: bool) -> Need:
    allowed = None
    if task.nodes is not None:
        allowed = np.zeros(len(places), dtype=np.bool_)
        allowed[[places[name] for name in task.nodes]] = True
    cpu, disk, sent = task.work
    slots = [float(amount > 0) for amount in task.work]
    if task.unknown_size is not None:
        slots[COLUMN[task.unknown_size]] = 1.0
    amounts = (cpu, disk, sent if network else 0.0, task.memory_bytes)
    held = SlotVector(task.cores or slots[0], slots[1], slots[2], task.memory_bytes)
    return Need(job, task.task, amounts, task.cores, task.unknown_size, allowed, held)


def record(cluster: Cluster, now: float) -> Recording:
    """Record the state that a round would see at ``now`` (monotonic time).

    A round reads all owners but those of slack and executors, so this takes the cluster.
    """
    picture = cluster.snapshots.take()
    table = cluster.table
    total, peaks = totals(table), cluster.settings.peaks()
    described = [job for job in cluster.jobs.values() if job.described]
    settings = {
        name: value
        for name in MasterConfig.__struct_fields__
        if (value := getattr(cluster.settings, name, None)) is not None
    } | {"ept_s": table.ept_s}  # the present value, where it is derived from tasks
    views = job_views(described, cluster.nodes, cluster.settings, cluster.history, total)
    members, promises = cluster.guarantees.of(cluster.clock.unix(now))
    return Recording(
        at=cluster.clock.unix(now),
        settings=MasterConfig(**settings),
        capacity=total.capacity,
        nodes=[
            RecordedNode(
                name=table.nodes[row].name,
                rates=tuple(table.rates[row].tolist()),
                pending=tuple(table.pending[row].tolist()),
                slots=tuple(table.slots[row].tolist()),
                idle_cores=float(table.idle[row, 0]),
                memory_free_bytes=float(table.memory_free[row]),
                memory_bytes=float(table.memory_capacity[row]),
                cores=float(table.cores[row]),
                cores_free=float(table.cores_free[row]),
                reserved=reserved(table.nodes[row], peaks),
            )
            for row in picture.rows.tolist()
        ],
        jobs=[_job(picture, job, view, members.get(job.job, "")) for job, view in zip(described, views, strict=True)],
        sizes=cluster.sizes.of((job.user, job.application) for job in described),
        promises={
            name: RecordedPromise(promised=one.promised, holds=SlotVector._make(one.held), bundles=one.bundles)
            for name, one in promises.items()
        },
        orders=dict(cluster.hand_orders.all()),
    )


def _job(picture: RoundSnapshot, job: Job, view: JobView, reservation: str) -> RecordedJob:
    return RecordedJob(
        job=job.job,
        name=job.name,
        user=view.user,
        application=view.application,
        tenant=view.tenant,
        weight=view.weight,
        submitted_at=job.submitted_at,
        admitted=job.admitted,
        reservation=reservation,
        holds=view.holds,
        containers=view.containers,
        service_container_s=view.service,
        remaining_s=(view.remaining[0], view.remaining[1], view.remaining[2]),
        needs=view.needs if math.isfinite(view.needs) else None,
        wants=view.wants if math.isfinite(view.wants) else None,
        progress=[
            RecordedProgress(stage=s.name, tasks=s.tasks, done=s.done, service_container_s=s.service)
            for s in view.stages
        ],
        stages={stage: [_task(picture, task) for task in tasks] for stage, tasks in job.ready_for_regular().items()},
    )


def _task(picture: RoundSnapshot, task: Task) -> RecordedTask:
    need = picture.need(task)
    request = task.request
    assert request is not None
    allowed = need.allowed
    return RecordedTask(
        task=task.name,
        work=(request.usage.cpu, request.usage.disk, request.usage.network),
        memory_bytes=need.amounts[3],
        cores=need.cores,
        unknown_size=need.unknown_size,
        nodes=None if allowed is None else [picture.node(int(place)).name for place in np.flatnonzero(allowed)],
    )


def read(text: bytes, where: str) -> Recording:
    """Return a recording from JSON.

    Raises: SnapshotError: the text is not a valid recording; the message begins with ``where`` (a file).
    """
    try:
        recording = msgspec.json.decode(text, type=Recording)
        recording.settings.check_rules()
    except msgspec.ValidationError as error:
        at, wrong = explained(error, Recording)
        raise SnapshotError(f"{where}: {at or 'the snapshot'}: {wrong}") from None
    except msgspec.DecodeError as error:
        raise SnapshotError(f"{where}: {told(error, Recording)}; GET /snapshot of a master makes one") from None
    except SettingsError as error:
        raise SnapshotError(f"{where}: settings: {'; '.join(error.faults)}") from None
    return _checked(recording, where)


def _checked(recording: Recording, where: str) -> Recording:
    if recording.penstock_snapshot != FORMAT:
        raise SnapshotError(f"{where}: penstock_snapshot: {recording.penstock_snapshot} is not {FORMAT}")
    names = [node.name for node in recording.nodes]
    jobs = [job.job for job in recording.jobs]
    for field, all_of_them in (("nodes", names), ("jobs", jobs)):
        twice = next((name for name in all_of_them if all_of_them.count(name) > 1), None)
        if twice is not None:
            raise SnapshotError(f"{where}: {field}: {twice!r} is listed twice")
    known = set(names)
    for job in recording.jobs:
        for stage, tasks in job.stages.items():
            for task in tasks:
                unknown = next((name for name in task.nodes or () if name not in known), None)
                if unknown is not None:
                    raise SnapshotError(f"{where}: job {job.job}, stage {stage}, task {task.task}: no node {unknown!r}")
    return recording

"""The status document, for ``GET /status`` and the call ``cluster_status``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal

from msgspec import structs

from master.core import draining
from master.core.cluster import Cluster
from master.core.job import Job
from master.core.node import Node
from master.core.order import Place
from master.core.resource_totals import resources
from master.http_documents import JobStatus, Memory, NodeStatus, PromisedNow, Status, Tasks
from penstock import __version__
from penstock.documents import Certificate, Degraded, SetByHand
from penstock.model import KINDS


def status_document(
    cluster: Cluster,
    now: float,
    *,
    started_at: float = 0.0,
    listen: str = "",
    http: str = "",
    configuration: Mapping[str, SetByHand] = {},
    certificates: Sequence[Certificate] = (),
    degraded: Sequence[Degraded] = (),
    reservations: Mapping[Literal["accepted", "rejected", "missed"], int] = {},
    models: Mapping[str, str] = {},
) -> Status:
    """Return the document of ``GET /status``. It sums up every owner, so it takes the cluster."""
    ready = cluster.members.ready_tasks
    return Status(
        version=__version__,
        started_at=started_at,
        listen=listen,
        http=http,
        configuration=configuration,
        certificates=certificates,
        degraded=degraded,
        reservations=reservations,
        models=models,
        resources=resources(cluster.nodes.values()),
        nodes={node.name: _node(node, now) for node in cluster.nodes.values()},
        jobs={job.job: _job(job, cluster.order.place_of(job.job)) for job in cluster.jobs.values()},
        tasks=Tasks(
            ready=ready,
            placed=sum(len(job.tasks) for job in cluster.jobs.values()) - ready,
            ended=_ended(cluster.counts),
        ),
        memory=Memory(
            reservable_bytes=cluster.admission.reservable_bytes(), reserved_bytes=cluster.admission.reserved_bytes()
        ),
        decisions={name: cluster.counts[name] for name in COUNTERS},
        ordering=cluster.settings.ordering,
        ept_s=cluster.table.ept_s,
        promised={
            reservation: PromisedNow(cores=one.cores, memory_bytes=one.memory_bytes, bundles=one.bundles)
            for reservation, one in cluster.guarantees.plan.promised(cluster.clock.unix(now)).items()
        },
    )


#: Counters since the start, besides ends.
COUNTERS = (
    "rounds", "tasks", "admitted", "assigned", "refused", "promoted", "withdrawn", "placed_again", "nodes_lost",
    "decisions", "preempted_for_promises", "stopped_for_drains",
)  # fmt: skip


def _ended(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the numbers of tasks that ended since the start, by kind of end."""
    prefix = "ended_"
    return {name.removeprefix(prefix): n for name, n in sorted(counts.items()) if name.startswith(prefix)}


def _node(node: Node, now: float) -> NodeStatus:
    return NodeStatus(
        state=draining.state(node),
        draining=node.draining,
        away_s=None if node.away_since is None else round(now - node.away_since, 3),
        version=node.version,
        capacity=node.capacity,
        t_alloc=node.t_alloc,
        load=structs.replace(node.load, ranks=None),
        rates={kind: node.load.rates.of(kind) for kind in KINDS},
        memory_free_bytes=node.memory_free_bytes(),
        external_memory_bytes=node.external_memory_bytes,
        cores_free=node.cores_free(),
        kept_cores=node.kept_cores,
        kept_memory_bytes=node.kept_memory_bytes,
        tasks=len(node.held),
        opportunistic_tasks=sum(1 for held in node.held.values() if not held.regular),
        unanswered=len(node.requests.unanswered),
    )


def _job(job: Job, place: Place) -> JobStatus:
    ready = job.ready_count
    return JobStatus(
        name=job.name,
        user=job.user,
        origin=job.origin,
        state=job.standing,
        waits=job.waits,
        memory_bytes=job.memory_bytes,
        submitted_at=job.submitted_at,
        reservation=job.reservation,
        rank=place.rank,
        reason=place.reason.said,
        queue=place.reason.queue,
        expected_left_s=place.reason.left_s,
        known_jobs=place.reason.known_jobs,
        priority=job.priority,
        service_container_s=job.work.service_s,
        slots=job.work.slots,
        ready=ready,
        placed=len(job.tasks) - ready,
        stages={stage: len(tasks) for (stage, _), tasks in job.ready.items()},
        progress=[stage.row() for stage in job.work.told],
    )

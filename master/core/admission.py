"""Job admission (Ursa §4.2.2): a job's memory is reserved in the cluster before any of its tasks is placed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from master.core.records import Job
from penstock.model.units import format_bytes
from penstock.wire import master_api as api

if TYPE_CHECKING:
    from master.core.cluster import Cluster


def reservable_bytes(cluster: Cluster) -> int:
    """The memory of the connected nodes, less what is promised to containers that are nobody's task."""
    nodes = [node for node in cluster.nodes.values() if node.connected]
    return sum(max(0, node.capacity.memory_bytes - node.external_memory_bytes) for node in nodes)


def reserved_bytes(cluster: Cluster) -> int:
    """M(j) of the admitted jobs together."""
    return sum(job.memory_bytes for job in cluster.jobs.values() if job.admitted)


def never_fits(cluster: Cluster, job: Job) -> str:
    """Why a job cannot be admitted however long it waits; empty where it can."""
    total = reservable_bytes(cluster)
    if job.admitted or job.memory_bytes <= total:
        return ""
    return f"it wants {format_bytes(job.memory_bytes)} reserved, the whole cluster has {format_bytes(total)}"


def admit(cluster: Cluster) -> None:
    """Admit what fits, in the order of submission.

    The first that does not fit now is waited for: nothing that was submitted later may take the memory that it waits
    for. One that could not be admitted even in an empty cluster is passed over until nodes join; one that reserves
    nothing cannot keep anybody waiting. Opportunistic tasks need no admission.
    """
    cluster.room_changed = False
    waiting = [job for job in cluster.jobs.values() if job.described and not job.admitted]
    if not waiting:
        return
    waiting.sort(key=lambda job: (job.submitted_at, job.sequence))
    total, reserved = reservable_bytes(cluster), reserved_bytes(cluster)
    first: Job | None = None
    for job in waiting:
        wanted = job.memory_bytes
        if not wanted or (first is None and reserved + wanted <= total):
            reserved += wanted
            job.admitted, job.waits = True, ""
            cluster.counts["admitted"] += 1
            cluster.changed = True
            why = f"{format_bytes(reserved)} of {format_bytes(total)} reserved with it"
            cluster.propose(job.origin, api.AdmitJob(job=job.job, why=why))
        elif wanted > total:
            _waits(cluster, job, "too large", f"{never_fits(cluster, job)}; it waits for nodes to join")
        elif first is None:
            first = job
            room = f"{format_bytes(max(0, total - reserved))} of {format_bytes(total)} is not reserved"
            _waits(cluster, job, "memory", f"it wants {format_bytes(wanted)} reserved, {room}")
        else:
            _waits(cluster, job, "behind", f"job {first.job} ({first.name}) was submitted before it and waits, too")


def _waits(cluster: Cluster, job: Job, kind: str, why: str) -> None:
    """The origin is told when the kind of reason changes; the numbers are in the status."""
    job.waits = why
    if job.waits_told != kind and cluster.propose(job.origin, api.TellWaiting(job=job.job, why=why)):
        job.waits_told = kind

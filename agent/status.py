"""The status document, for ``GET /status``, ``penstock status`` and the RPC method ``status``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from agent.check.facts import Fact
from agent.core import Node
from agent.core.containers import shown_name
from agent.core.executors import Executors
from agent.core.preemption_actions import BOUNDS_S
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, Job
from agent.core.snapshot import ContainerUse
from agent.http_documents import (
    Acts,
    Container,
    Cores,
    Following,
    HostNotSampled,
    JobStatus,
    Journal,
    LinkStatus,
    Memory,
    NotSampled,
    Status,
)
from penstock import __version__
from penstock.documents import Certificate, Degraded, Histogram, SetByHand
from penstock.model import KINDS
from penstock.model.job_state import standing
from penstock.model.units import counted

_NOT_SAMPLED, _HOST_NOT_SAMPLED = NotSampled(), HostNotSampled()


def status_document(
    node: Node,
    *,
    started_at: float,
    enforcement: Mapping[str, Fact],
    master: LinkStatus,
    events: Iterable[Mapping[str, Any]],
    configuration: Mapping[str, SetByHand] = {},
    certificates: Sequence[Certificate] = (),
    journal_writes: int = 0,
    degraded: Sequence[Degraded] = (),
) -> Status:
    """Return the document of ``GET /status``. It sums up every owner, so it takes the node."""
    now, ledger, snapshot = time.monotonic(), node.ledger(), node.resources.snapshot
    uses = snapshot.containers if snapshot is not None else {}
    capacity, actions = node.settings.capacity, node.preemption
    return Status(
        node=node.settings.node,
        version=__version__,
        started_at=started_at,
        uptime_s=time.time() - started_at,
        capacity=capacity,
        t_alloc=node.slack.t_alloc,
        kinds={kind: node.queues.counts(kind, now) for kind in KINDS},
        cores=Cores(
            capacity=capacity.cores,
            promised=ledger.promised_cores,
            opportunistic=ledger.asked_cores,
            used=ledger.used_cores,
        ),
        memory=Memory(
            capacity_bytes=capacity.memory_bytes,
            promised_bytes=ledger.promised_memory_bytes,
            opportunistic_bytes=ledger.asked_memory_bytes,
            used_bytes=ledger.used_memory_bytes,
        ),
        resources=node.slack.by_resource(ledger),
        host=snapshot.host if snapshot is not None else _HOST_NOT_SAMPLED,
        jobs=[_job(job, node) for job in node.jobs.values()],
        containers=[  # the live ones, then the ended ones, the latest first
            _container(record, uses.get(record.container), node.ranks, node.executors, now)
            for record in (*node.containers.live.values(), *reversed(node.containers.ended.by_id.values()))
        ],
        preemptions=actions.preempted,
        acts=[
            Acts(action=action, resource=resource, count=count)
            for (action, resource), count in sorted(actions.acts.items())
            if count
        ],
        reaction=Histogram(bounds_s=BOUNDS_S, counts=actions.latency.counts, sum_s=actions.latency.sum_s),
        events=list(events),
        enforcement=enforcement,
        master=master,
        drain=node.drain.status(),
        configuration=configuration,
        certificates=certificates,
        journal=Journal(writes=journal_writes),
        degraded=degraded,
    )


def _job(job: Job, node: Node) -> JobStatus:
    record, counts = job.record, node.queues.job_counts(job.record.job)
    done = counts["done"] + counts["failed"] > 0
    active = counts["running"] > 0 or bool(node.held.of_job(record.job))
    return JobStatus(
        job=record.job,
        name=record.name,
        user=record.user,
        admitted=record.admitted,
        priority=record.priority,
        state=standing(admitted=record.admitted, active=active, done=done),
        waits=job.waits,
        connections=len(job.sessions),
        stages=[stage.row() for stage in job.stages],
        cpu_s=round(node.cpu_times.cpu_s.get(record.job, 0.0), 3),
        rank=node.ranks.described_job(record.job),
        **counts,
    )


def _container(
    record: ContainerRecord, use: ContainerUse | None, ranks: Ranks, executors: Executors, now: float
) -> Container:
    return Container(
        container=record.container,
        user=record.user,
        job=record.job,
        task=record.task,
        pid=record.pid,
        started_at=record.started_at,
        adopted=record.adopted,
        orphaned=record.orphaned,
        not_enforced=record.not_enforced,
        # a command's path may have as many characters as a message
        name=shown_name(record),
        container_class="opportunistic" if record.opportunistic else "regular",
        state=record.state,
        rank=ranks.described(record),
        limits=record.limits,
        follows=record.profile is not None,
        profile=_profile(record, executors.elapsed_s(record.container, now)),
        executor=executors.described(record, now),
        sample=use if use is not None else _NOT_SAMPLED,
        ended=record.ended,
        note=_note(record, use),
    )


def _profile(record: ContainerRecord, elapsed_s: float | None) -> Following | None:
    """Return a container's place in its profile and the demand there, for comparison with its sample.

    ``elapsed_s`` is the time since an executor's profile began.
    """
    profile = record.profile
    if profile is None or record.ended is not None or (elapsed_s is None and not record.profile_at):
        return None
    slot = max(0, profile.slot(time.time() - record.profile_at if elapsed_s is None else elapsed_s))
    return Following(slot=slot, slots=profile.slots, slot_s=profile.slot_s, wants=profile.demand(slot))


def _note(record: ContainerRecord, use: ContainerUse | None) -> str:
    """Return a note for operators: the limit that takes effect, or why it ended."""
    if record.ended is not None:
        return record.ended.reason
    notes = []
    if record.unrecorded:
        notes.append("its record was lost: it continues, and its CPU, memory and disk limits stay unchanged")
    if record.orphaned:
        notes.append("its launcher died: its exit status will not be known")
    if use is None:
        return "; ".join(notes)
    if use.oom_kills:
        notes.append(f"memory.max: {use.oom_kills} of its processes killed by the kernel")
    if use.memory_high_events:
        notes.append(f"memory.high: throttled and reclaimed {counted(use.memory_high_events, 'time')}")
    return "; ".join(notes)

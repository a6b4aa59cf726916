"""The status document, for ``GET /status``, ``penstock status`` and the RPC method ``status``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agent.core import Node
from agent.core.executors import Executors
from agent.core.ledger import Ledger
from agent.core.preemption_actions import BOUNDS_S, PreemptionActions
from agent.core.ranks import Ranks
from agent.core.records import ContainerRecord, Job
from agent.core.snapshot import ContainerUse
from agent.core.tasks import HeldTasks
from agent.queues import MonotaskQueues
from penstock import __version__
from penstock.model import KINDS, Capacity
from penstock.model.job_state import standing
from penstock.model.units import counted


def status_document(
    node: Node,
    *,
    started_at: float,
    enforcement: dict[str, Any],
    master: dict[str, Any],
    events: Iterable[dict[str, object]],
    configuration: Mapping[str, object] = {},
    certificates: Sequence[Mapping[str, object]] = (),
    journal_writes: int = 0,
    degraded: Sequence[Mapping[str, object]] = (),
) -> dict[str, Any]:
    """Return plain maps, lists, strings and numbers; quantities carry their unit in the key."""
    now = time.monotonic()
    ledger, capacity, snapshot = node.ledger(), node.settings.capacity, node.resources.snapshot
    uses = snapshot.containers if snapshot is not None else {}
    return {
        "node": node.settings.node,
        "version": __version__,
        "started_at": started_at,
        "uptime_s": time.time() - started_at,
        "capacity": msgspec.to_builtins(capacity),
        "t_alloc": node.slack.t_alloc,
        "kinds": {kind.value: node.queues.counts(kind, now) for kind in KINDS},
        **_sums(ledger, capacity),
        "resources": node.slack.by_resource(ledger),
        "host": msgspec.to_builtins(snapshot.host) if snapshot is not None else {},
        "jobs": [_job(job, node.queues, node.held, node.ranks) for job in node.jobs.values()],
        "containers": [  # the live ones, then the ended ones, the latest first
            _container(record, uses.get(record.container), node.ranks, node.executors, now)
            for record in (*node.containers.live.values(), *reversed(node.containers.ended.by_id.values()))
        ],
        **_preemption(node.preemption),
        "events": list(events),
        "enforcement": enforcement,
        "master": master,
        "drain": node.drain.status(),
        "configuration": configuration,
        "certificates": certificates,
        "journal": {"writes": journal_writes},
        "degraded": degraded,
    }


def _sums(ledger: Ledger, capacity: Capacity) -> dict[str, Any]:
    """Return the capacity, promised, requested and used amounts of cores and memory."""
    return {
        "cores": {
            "capacity": capacity.cores,
            "promised": ledger.promised_cores,
            "opportunistic": ledger.asked_cores,
            "used": ledger.used_cores,
        },
        "memory": {
            "capacity_bytes": capacity.memory_bytes,
            "promised_bytes": ledger.promised_memory_bytes,
            "opportunistic_bytes": ledger.asked_memory_bytes,
            "used_bytes": ledger.used_memory_bytes,
        },
    }


def _job(job: Job, queues: MonotaskQueues, held: HeldTasks, ranks: Ranks) -> dict[str, Any]:
    name, counts = job.record.job, queues.job_counts(job.record.job)
    done = counts["done"] + counts["failed"] > 0
    active = counts["running"] > 0 or bool(held.of_job(name))
    return {
        **_fields(job.record, "job", "name", "user", "admitted", "priority"),
        "state": standing(admitted=job.record.admitted, active=active, done=done).value,
        "waits": job.waits,
        "connections": len(job.sessions),
        "stages": [stage.row() for stage in job.stages],
        "cpu_s": round(ranks.cpu_s.get(name, 0.0), 3),
        "rank": ranks.described_job(name),
        **counts,
    }


def _fields(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _preemption(actions: PreemptionActions) -> dict[str, Any]:
    """Return the actions on opportunistic work, and how long they took."""
    latency = actions.latency
    return {
        "preemptions": [msgspec.to_builtins(preempted) for preempted in actions.preempted],
        "acts": [
            {"action": action, "resource": resource, "count": count}
            for (action, resource), count in sorted(actions.acts.items())
            if count
        ],
        "reaction": {"bounds_s": BOUNDS_S, "counts": latency.counts, "sum_s": latency.sum_s},
    }


def _container(
    record: ContainerRecord, use: ContainerUse | None, ranks: Ranks, executors: Executors, now: float
) -> dict[str, Any]:
    return {
        **_fields(
            record, "container", "user", "job", "task", "pid", "started_at", "adopted", "orphaned", "not_enforced"
        ),
        "name": record.spec.name or record.spec.argv[0],
        "class": "opportunistic" if record.opportunistic else "regular",
        "state": record.state.value,
        "rank": ranks.described(record),
        "limits": msgspec.to_builtins(record.limits),
        "follows": record.profile is not None,
        "profile": _profile(record, executors.elapsed_s(record.container, now)),
        "executor": executors.described(record, now),
        "sample": msgspec.to_builtins(use) if use is not None else {},
        "ended": msgspec.to_builtins(record.ended) if record.ended is not None else None,
        "note": _note(record, use),
    }


def _profile(record: ContainerRecord, elapsed_s: float | None) -> dict[str, Any] | None:
    """Return a container's place in its profile and the demand there, for comparison with its sample.

    ``elapsed_s`` is the time since an executor's profile began.
    """
    profile = record.profile
    if profile is None or record.ended is not None or (elapsed_s is None and not record.profile_at):
        return None
    slot = max(0, profile.slot(time.time() - record.profile_at if elapsed_s is None else elapsed_s))
    return {"slot": slot, "slots": profile.slots, "slot_s": profile.slot_s, "wants": profile.demand(slot)}


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

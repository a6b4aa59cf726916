"""The status document, for ``GET /status``, ``penstock status`` and the RPC method ``status``."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from agent.core import Node
from agent.core.preemption_actions import BOUNDS_S, PreemptionActions
from agent.core.records import ContainerRecord, Job
from agent.core.snapshot import ContainerUse
from agent.history import resources
from penstock import __version__
from penstock.model import KINDS
from penstock.model.job_state import JobStanding, standing
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
    return {
        "node": node.settings.node,
        "version": __version__,
        "started_at": started_at,
        "uptime_s": time.time() - started_at,
        **_rooms(node, now),
        "jobs": _jobs(node),
        "containers": _containers(node, now),
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


def _rooms(node: Node, now: float) -> dict[str, Any]:
    """Return each resource's capacity, and its promised, requested and used amounts."""
    ledger, snapshot = node.ledger(), node.resources.snapshot
    return {
        "capacity": msgspec.to_builtins(node.settings.capacity),
        "t_alloc": node.slack.t_alloc,
        "kinds": {kind.value: node.queues.counts(kind, now) for kind in KINDS},
        "cores": {
            "capacity": node.settings.capacity.cores,
            "promised": ledger.promised_cores,
            "opportunistic": ledger.asked_cores,
            "used": ledger.used_cores,
        },
        "memory": {
            "capacity_bytes": node.settings.capacity.memory_bytes,
            "promised_bytes": ledger.promised_memory_bytes,
            "opportunistic_bytes": ledger.asked_memory_bytes,
            "used_bytes": ledger.used_memory_bytes,
        },
        "resources": resources(node),
        "host": msgspec.to_builtins(snapshot.host) if snapshot is not None else {},
    }


def _jobs(node: Node) -> list[dict[str, Any]]:
    return [
        {
            **_fields(job.record, "job", "name", "user", "admitted", "priority"),
            "state": _standing(node, job).value,
            "waits": job.waits,
            "connections": len(job.sessions),
            "stages": [stage.row() for stage in job.stages],
            "cpu_s": round(node.ranks.cpu_s.get(job.record.job, 0.0), 3),
            "rank": node.ranks.described_job(job.record.job),
            **node.queues.job_counts(job.record.job),
        }
        for job in node.jobs.values()
    ]


def _fields(record: object, *names: str) -> dict[str, Any]:
    return {name: getattr(record, name) for name in names}


def _standing(node: Node, job: Job) -> JobStanding:
    counts, name = node.queues.job_counts(job.record.job), job.record.job
    done = counts["done"] + counts["failed"] > 0
    active = counts["running"] > 0 or bool(node.held.of_job(name))
    return standing(admitted=job.record.admitted, active=active, done=done)


def _containers(node: Node, now: float) -> list[dict[str, Any]]:
    """Return the live containers, then the ended ones, the latest first."""
    uses = node.resources.snapshot.containers if node.resources.snapshot is not None else {}
    records = [*node.containers.live.values(), *reversed(node.containers.ended.by_id.values())]
    return [_container(node, record, uses.get(record.container), now) for record in records]


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


def _container(node: Node, record: ContainerRecord, use: ContainerUse | None, now: float) -> dict[str, Any]:
    return {
        **_fields(
            record, "container", "user", "job", "task", "pid", "started_at", "adopted", "orphaned", "not_enforced"
        ),
        "name": record.spec.name or record.spec.argv[0],
        "class": "opportunistic" if record.opportunistic else "regular",
        "state": record.state.value,
        "rank": node.ranks.described(record),
        "limits": msgspec.to_builtins(record.limits),
        "follows": record.profile is not None,
        "profile": _profile(node, record, now),
        "executor": _executor(node, record, now),
        "sample": msgspec.to_builtins(use) if use is not None else {},
        "ended": msgspec.to_builtins(record.ended) if record.ended is not None else None,
        "note": _note(record, use),
    }


def _profile(node: Node, record: ContainerRecord, now: float) -> dict[str, Any] | None:
    """Return a container's place in its profile and the demand there, for comparison with its sample."""
    profile = record.profile
    planned = node.executors.planned.get(record.container)
    if profile is None or record.ended is not None or (planned is None and not record.profile_at):
        return None
    elapsed_s = now - planned.began if planned is not None else time.time() - record.profile_at
    slot = max(0, profile.slot(elapsed_s))
    return {"slot": slot, "slots": profile.slots, "slot_s": profile.slot_s, "wants": profile.demand(slot)}


def _executor(node: Node, record: ContainerRecord, now: float) -> dict[str, Any] | None:
    """Return an executor's application, its place in its profile, whether it is late, and the corrections so far."""
    if record.executor is None:
        return None
    behind, stuck = node.elasticity.lateness(record.container)
    planned = node.executors.planned.get(record.container)
    return {
        "application": record.executor.application,
        "run": record.executor.run or record.job,
        "slot": planned.profile.slot(now - planned.began) if planned is not None else None,
        "slots": planned.profile.slots if planned is not None else None,
        "behind": behind,
        "stuck": stuck,
        "reprovisioned": record.course.count if record.course is not None else 0,
    }


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

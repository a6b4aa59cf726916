"""Opportunistic commands run without a slot, on the slack that slot holders leave unused (UBIS, Algorithm 1).

They add to their job's service. No monotask waits for them, so their bytes count neither as pending nor for the rate.
"""

from __future__ import annotations

from agent.queues.monotask import BYPASS, COMMANDS, END, Monotask
from agent.queues.queues import MonotaskQueues
from penstock.model import MonotaskSpec, ResourceKind


def begin(queues: MonotaskQueues, job: str, spec: MonotaskSpec, now: float) -> None:
    """Start a command without a slot.

    Raises:
        RpcError: ``bad_request``: unknown job.
    """
    known, resource, live = queues.part(COMMANDS, job, spec.kind)
    live[spec.id] = monotask = Monotask(COMMANDS, job, spec.id, spec.kind, 0, spec.task, granted_at=now)
    monotask.state = BYPASS[monotask.state]
    resource.bypassing += 1
    known.begins(now)


def end(queues: MonotaskQueues, job: str, name: str, now: float, *, failed: bool) -> None:
    """End a command that ran without a slot. Its end frees no slot."""
    known, _, live = queues.part(COMMANDS, job, ResourceKind.CPU)
    monotask = live.pop(name, None)
    if monotask is not None:
        monotask.state = END[monotask.state]
        queues.part(COMMANDS, job, monotask.kind)[1].bypassing -= 1
        known.ends(now)
        known.failed += failed
        known.done += not failed


def give_slot(queues: MonotaskQueues, job: str, spec: MonotaskSpec, now: float) -> None:
    """Give a promoted command (UBIS §IV.D) a slot. From now on, its bytes count like those of any monotask.

    This is not counted as a grant: the command was already running and waited for no slot.
    """
    known, resource, live = queues.part(COMMANDS, job, spec.kind)
    monotask = live[spec.id]
    began = monotask.granted_at
    known.ends(now)
    resource.bypassing -= 1
    monotask.input_bytes = spec.input_bytes
    resource.pending_bytes += spec.input_bytes
    resource.hold(known, monotask, now)
    monotask.granted_at = began

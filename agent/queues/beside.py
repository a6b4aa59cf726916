"""Opportunistic commands run beside the slots: slack is what those who hold the slots do not use (UBIS, Algorithm 1).

Their job is served by it. They keep nobody waiting, so their bytes count neither as pending nor for the rate.
"""

from __future__ import annotations

from agent.queues.monotask import BYPASSING, ENDED, Monotask
from agent.queues.queues import MonotaskQueues
from penstock.model import MonotaskSpec, ResourceKind


def begin(queues: MonotaskQueues, session: int, job: str, spec: MonotaskSpec, now: float) -> None:
    """One begins.

    Raises:
        RpcError: ``bad_request``: unknown job.
    """
    known, resource, live = queues.part(session, job, spec.kind)
    live[spec.id] = Monotask(session, job, spec.id, spec.kind, 0, spec.task, state=BYPASSING, granted_at=now)
    resource.bypassing += 1
    known.begins(now)


def end(queues: MonotaskQueues, session: int, job: str, name: str, now: float, *, failed: bool) -> None:
    """One has ended; nothing is freed by it that anybody waits for."""
    known, _, live = queues.part(session, job, ResourceKind.CPU)
    monotask = live.pop(name, None)
    if monotask is not None:
        monotask.state = ENDED
        queues.part(session, job, monotask.kind)[1].bypassing -= 1
        known.ends(now)
        known.failed += failed
        known.done += not failed


def give_slot(queues: MonotaskQueues, session: int, job: str, spec: MonotaskSpec, now: float) -> None:
    """It was promoted (UBIS §IV.D): it holds a slot from now on, and its bytes count as any monotask's do.

    That is no grant: it has been running and waited for no slot.
    """
    known, resource, live = queues.part(session, job, spec.kind)
    monotask = live[spec.id]
    began = monotask.granted_at
    known.ends(now)
    resource.bypassing -= 1
    monotask.input_bytes = spec.input_bytes
    resource.pending_bytes += spec.input_bytes
    resource.hold(known, monotask, now)
    monotask.granted_at = began

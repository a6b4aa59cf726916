"""The cluster at a glance: what people ask of their host's agent, and what it relays to the master.

As with reservations the agent answers for who asks (:class:`penstock.wire.reservation_api.OnBehalf`).
"""

from __future__ import annotations

from penstock.wire.agent_api import Params, Result, Status


class ClusterStatus(Params, frozen=True):
    """The master's status document (``GET /status``, docs/scheduling.md) as far as a screen goes: at most 500 nodes and
    200 jobs, jobs of others for operators only; ``more`` says how many ``nodes``, ``jobs`` and ``jobs_of_others`` are
    left out. ``preemptions`` are the latest of what the master placed."""


#: framework → agent, and agent → master in ``OnBehalf``
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {"cluster_status": (ClusterStatus, Status)}

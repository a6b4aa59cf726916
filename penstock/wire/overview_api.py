"""A summary of the cluster: requests of commands to their host's agent, which relays them to the master.

As with reservations, the agent adds the verified user (:class:`penstock.wire.reservation_api.OnBehalf`).
"""

from __future__ import annotations

from penstock.wire.agent_api import Params, Result, Status


class ClusterStatus(Params, frozen=True):
    """The master's status document (``GET /status``, docs/scheduling.md) cut to a screen's size: at most 500 nodes and
    200 jobs, jobs of others for operators only; ``more`` has the numbers of ``nodes``, ``jobs`` and ``jobs_of_others``
    left out. ``preemptions`` are the latest ones among the master's placements."""


#: framework → agent, and agent → master in ``OnBehalf``
REQUESTS: dict[str, tuple[type[Params], type[Result]]] = {"cluster_status": (ClusterStatus, Status)}

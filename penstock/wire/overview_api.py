"""A summary of the cluster, from the master (:mod:`penstock.wire.relayed_methods`)."""

from __future__ import annotations

from penstock.wire.agent_api import Params


class ClusterStatus(Params, frozen=True):
    """The master's status document (``GET /status``, docs/scheduling.md) cut to a screen's size: at most 500 nodes and
    200 jobs, jobs of others for operators only; ``more`` has the numbers of ``nodes``, ``jobs`` and ``jobs_of_others``
    left out. ``preemptions`` are the latest ones among the master's placements."""

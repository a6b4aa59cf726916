"""The service that jobs attain on this node, in container-seconds: what the master orders them by (LAS_MQ §3.2)."""

from __future__ import annotations

from collections.abc import Mapping

from agent.queues import MonotaskQueues
from penstock.wire.master_api import JobUse

#: CPU time is told again when it has grown by so many seconds.
_WORTH_TELLING_S = 0.05


class Attained:
    """Σ slots × time of each job, x · t in the paper's Eq. (6), exactly: the queues count it as slots come and go.

    Where the job's containers have used more CPU time than that, it is their CPU time. Much of what a framework's
    processes compute lies outside monotasks, and a command in one slot may compute on several processors.
    """

    def __init__(self, queues: MonotaskQueues) -> None:
        self._queues = queues
        self._told_cpu_s: dict[str, float] = {}

    def report(self, now: float, cpu_s: Mapping[str, float]) -> list[JobUse]:
        """Of the jobs of which something may have changed since the last report; ``cpu_s`` is by job."""
        served = {job.id: job for job in self._queues.take_served(now)}
        for job in self._queues.jobs():
            used_s = cpu_s.get(job.id, 0.0)
            if used_s > max(job.service_s, self._told_cpu_s.get(job.id, 0.0) + _WORTH_TELLING_S):
                served[job.id] = job
        self._told_cpu_s = {name: told_s for name, told_s in self._told_cpu_s.items() if name in cpu_s}
        self._told_cpu_s |= {name: cpu_s[name] for name in served if name in cpu_s}
        return [
            JobUse(job=job.id, service_s=max(job.service_s, cpu_s.get(job.id, 0.0)), running=job.running)
            for job in served.values()
        ]

    def tell_all(self) -> None:
        """The next report names every job."""
        self._queues.count_all()

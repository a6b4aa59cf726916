"""LAS_MQ: orders jobs without advance knowledge of them (§3).

A job moves down from queue to queue with the service that it has received, or will have received when its stage ends.
The queues share the cluster by weight; within a queue jobs are served one after the other.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from master.ordering.multilevel import Multilevel
from master.ordering.policy import ClusterView, JobView, Key, Ordered, Ranking, Reason
from master.ordering.shares import Turns, received_since
from penstock.model.resource_vector import SlotVector
from penstock.model.units import counted, format_duration

#: The order within a queue: by arrival in the queue, or by the number of containers needed (§3.3).
Inside = Literal["fifo", "demand"]
#: "We only apply the stage awareness when the stage progress is no less than 10 %" (§3.2).
AWARE_FROM = 0.1
#: Container-seconds that a queue may catch up on after its jobs wanted less than its share, for a weight of 1.
LAG = 60.0


class LasMq:
    """The paper's design is the default, case 4 of its Fig. 3.

    ``stage_aware`` off: only received service moves a job (case 3). ``inside`` "fifo": jobs are ordered by arrival in
    the queue (case 2; case 1 with ``stage_aware`` off).
    """

    remembers = True

    def __init__(
        self, levels: Multilevel | None = None, *, stage_aware: bool = True, inside: Inside = "demand"
    ) -> None:
        self._levels = levels or Multilevel()
        self._stage_aware = stage_aware
        self._inside = inside
        self._looks = 0
        # job → its queue, and the number of the ranking that first saw it there
        self._came: dict[str, tuple[int, int]] = {}
        self._turns: Turns[int] = Turns(LAG)
        self._seen: dict[str, float] = {}

    def rank(self, jobs: Sequence[JobView], cluster: ClusterView) -> Ranking:
        """Rank by Algorithm 1, then by the allocation of Algorithm 2."""
        services = {job.job: service(job) if self._stage_aware else job.service for job in jobs}
        queues: dict[int, list[JobView]] = {}
        for job in jobs:
            queues.setdefault(self._levels.queue_of(services[job.job]), []).append(job)
        came = self._see(queues)
        for queue in queues.values():
            queue.sort(key=lambda job: (came[job.job] if self._inside == "fifo" else job.needs, *job.earliest))
        received = received_since(jobs, self._seen)
        self._seen = {job.job: job.service for job in jobs}
        served = {number: sum(received[job.job] for job in queue) for number, queue in queues.items()}
        self._turns.update(served, {number: self._levels.weights[number] for number in queues})
        turns = sorted(queues, key=lambda number: (self._turns.due[number], number))
        order = [job.job for number in turns for job in queues[number]]
        queues = {number: queues[number] for number in sorted(queues)}
        return _Queues(queues, services, order, self._levels, cluster, self._inside)

    def _see(self, queues: dict[int, list[JobView]]) -> dict[str, int]:
        """Return the number of the ranking in which each job came to its present queue."""
        self._looks += 1
        seen = {}
        for number, queue in queues.items():
            for job in queue:
                where, when = self._came.get(job.job, (-1, 0))
                seen[job.job] = (number, when if where == number else self._looks)
        self._came = seen
        return {job: when for job, (_, when) in seen.items()}


def service(job: JobView) -> float:
    """Return the job's container-seconds: received, or for its present stages, expected at their end (§3.2)."""
    ahead = sum(
        stage.service / stage.progress - stage.service for stage in job.stages if AWARE_FROM <= stage.progress < 1
    )
    return job.service + ahead


class _Queues(Ordered):
    def __init__(
        self,
        queues: dict[int, list[JobView]],
        services: dict[str, float],
        order: list[str],
        levels: Multilevel,
        cluster: ClusterView,
        inside: Inside,
    ) -> None:
        super().__init__(order, self._explained)
        self._inside = inside
        self._services = services
        self._queue = {job.job: number for number, queue in queues.items() for job in queue}
        self._turn = {number: turn for turn, number in enumerate(dict.fromkeys(self._queue[job] for job in order))}
        self._upper = {number: levels.upper(number) for number in queues}
        self._place = {job.job: place for queue in queues.values() for place, job in enumerate(queue)}
        self._views = {job.job: job for queue in queues.values() for job in queue}
        self._beyond = dict.fromkeys(self._queue, 0)
        self._room: dict[str, float] = {}
        for number, share in levels.shares(list(queues)).items():
            left = share * cluster.containers
            for job in queues[number]:
                given = min(left, max(job.wants, job.containers))
                self._room[job.job] = given - job.containers
                left -= given

    def key(self, job: str, score: float) -> Key:
        """Return a key that serves the queues' shares first, queue by queue and job by job, then distributes the rest
        evenly.

        Where a share ends in a fraction of a container, the queue whose turn it is gets a whole one, so that no queue
        starves on a cluster with fewer containers than queues.
        """
        room, place = self._room[job], -float(self._place[job])
        if room >= 1 - 1e-9:
            return (2.0, -float(self._queue[job]), place, score)
        turn = -float(self._turn[self._queue[job]])
        return (1.0, turn, place, score) if room > 1e-9 else (0.0, -float(self._beyond[job]), turn, place, score)

    def charge(self, job: str, taken: SlotVector) -> bool:
        """Count one container."""
        self._beyond[job] += self._room[job] <= 1e-9
        self._room[job] -= 1
        return False

    def room(self, job: str) -> float:
        """Return the containers that Algorithm 2 gives the job beyond those it holds."""
        return self._room[job]

    def why(self, job: str) -> str:
        """Return the job's queue, its place in the queue, and its service."""
        queue = self._queue[job]
        stands = (
            "first come" if self._inside == "fifo" else f"its tasks need {counted(self._views[job].needs, 'container')}"
        )
        return (
            f"las_mq: queue {queue + 1}, {counted(self._services[job], 'container-second', digits=4)} "
            f"(up to {self._upper[queue]:g}), {stands}, place {self._place[job] + 1} in the queue"
        )

    def _explained(self, job: str) -> Reason:
        """Return the job's queue and service, its place in the queue, and whether another queue is served first now."""
        queue, needs, view = self._queue[job], self._views[job].needs, self._views[job]
        received, counted_as, upper = view.service, self._services[job], self._upper[queue]
        said = f"{format_duration(received)} of service so far"
        if counted_as > received:
            said += f", {format_duration(counted_as)} when its stages under way end"
        said += f", queue {queue + 1}" + (f" (up to {format_duration(upper)})" if math.isfinite(upper) else "")
        if len(self._queue) > 1:
            said += f", place {self._place[job] + 1} in it"
        if self._inside == "demand":
            wants = (
                f"its tasks need {counted(needs, 'container')}" if math.isfinite(needs) else "its tasks are not known"
            )
            said += f", as {wants}"
        if self._turn[queue]:
            said += f"; it is the turn of queue {self._queue[self._order[0]] + 1}"
        return Reason(said, queue=queue + 1)

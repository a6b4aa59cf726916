"""Lower bounds of a scenario's makespan and mean response time, whatever the order and the placement.

The scenario's tasks are taken as they were drawn, each at full speed. Promised work may use a whole node, so the bounds
count all of each resource; T_alloc limits only where work on slack may start.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from simulator.tasks import Spec
from simulator.tasks.build import jobs_of
from simulator.tasks.workload import SimulatedJob, SimulatedTask

#: The times at which the work that may be done by then is counted. Every time gives a bound; more give a better one.
_TIMES = 400


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds in seconds. ``limit`` is the bound that determines ``makespan_s``, as text."""

    makespan_s: float
    limit: str
    mean_response_s: float


@dataclass(frozen=True, slots=True)
class _Use:
    """A task's use of a resource: at most ``rate`` from ``begin_s`` after the task's start, until it is ``amount``.

    Rates are fractions of the cluster, amounts are seconds of the whole cluster.
    """

    kind: str
    begin_s: float
    amount_s: float
    rate: float


@dataclass(frozen=True, slots=True)
class _Hardware:
    """The whole cluster's resources, the rates of one slot of each kind, and the time that a command takes to start."""

    whole: Mapping[str, float]
    slot: Mapping[str, float]
    start_s: float

    def uses(self, task: SimulatedTask) -> tuple[float, list[_Use]]:
        """Return a task's time at full speed, and its use of each resource."""
        parts = list(self._of_command(task) if task.command is not None else self._of_monotasks(task))
        time_s = max((end_s for end_s, *_ in parts), default=0.0)
        if task.command is None:
            parts.append((time_s, "memory", 0.0, task.memory_bytes * time_s, float(task.memory_bytes)))
        return time_s, [
            _Use(kind, begin_s, amount / self.whole[kind], rate / self.whole[kind])
            for _, kind, begin_s, amount, rate in parts
            if amount
        ]

    def _of_command(self, task: SimulatedTask) -> Iterator[tuple[float, str, float, float, float]]:
        assert task.command is not None
        now_s, before_bytes = self.start_s, 0.0
        for phase in task.command.phases:
            long_s, end_s = phase.seconds, now_s + phase.seconds
            mean_bytes, most_bytes = (before_bytes + phase.memory_bytes) / 2, max(before_bytes, phase.memory_bytes)
            yield end_s, "cpu", now_s, phase.cpu_cores * long_s, phase.cpu_cores
            yield end_s, "disk", now_s, phase.disk_bytes_per_s * long_s, phase.disk_bytes_per_s
            yield end_s, "memory", now_s, mean_bytes * long_s, most_bytes
            now_s, before_bytes = end_s, phase.memory_bytes

    def _of_monotasks(self, task: SimulatedTask) -> Iterator[tuple[float, str, float, float, float]]:
        now_s = 0.0
        for monotask in task.monotasks:
            kind = monotask.kind.value
            time_s = monotask.input_bytes / self.slot[kind]
            rate = 1.0 if kind == "cpu" else self.slot[kind]  # the CPU's whole is in cores
            yield now_s + time_s, kind, now_s, rate * time_s, rate
            now_s += time_s


def bounds_of(spec: Spec, seed: int) -> Bounds:
    """Return the bounds of a scenario whose nodes are equal.

    Makespan: at every time, the work that is left even if each task so far has begun as early as possible, with all of
    the resource in use from then on; and the job that ends last if each has the cluster to itself. Mean response: that
    of each job by itself, or that of shortest remaining work first on one machine as fast as the whole cluster.
    """
    hardware, jobs = _hardware(spec), jobs_of(spec, seed)
    uses: list[_Use] = []
    alone_s: list[float] = []
    works: list[dict[str, float]] = []
    for job in jobs:
        time_s, own = _alone(job, hardware)
        uses += own
        alone_s.append(time_s)
        works.append({kind: sum(use.amount_s for use in own if use.kind == kind) for kind in hardware.whole})
    first_s = min(job.submitted_at_s for job in jobs)
    ends_s = [job.submitted_at_s + time_s for job, time_s in zip(jobs, alone_s, strict=True)]
    last = jobs[int(np.argmax(ends_s))]
    found = {kind: _busy(uses, kind, first_s, max(ends_s)) for kind in hardware.whole}
    kind = max(found, key=found.__getitem__)
    end_s, limit = max(ends_s), f"{last.name} takes until then even if it has the cluster to itself"
    if found[kind] >= end_s:
        end_s, limit = (
            found[kind],
            f"the work takes as long with all of the {kind} in use whenever there is work for it",
        )
    shortest_s = max(
        _shortest_first([(job.submitted_at_s, work[kind]) for job, work in zip(jobs, works, strict=True)])
        for kind in hardware.whole
    )
    return Bounds(end_s - first_s, limit, max(sum(alone_s) / len(jobs), shortest_s))


def _hardware(spec: Spec) -> _Hardware:
    nodes = spec.nodes()
    node, count = nodes[0], len(nodes)
    assert all(each == node for each in nodes), "the bounds are for equal nodes"
    return _Hardware(
        whole={
            "cpu": count * node.capacity.cores,
            "disk": count * node.disk_bytes_per_s * node.capacity.disk_slots,
            "network": count * node.link_bytes_per_s,
            "memory": count * float(node.capacity.memory_bytes),
        },
        slot=spec.cluster.nodes[0].rates_bytes_per_s(),
        start_s=spec.cluster.start_s,
    )


def _alone(job: SimulatedJob, hardware: _Hardware) -> tuple[float, list[_Use]]:
    """Return the least time of a job that has the cluster to itself, and its use if each task begins at once."""
    ends_s: dict[str, float] = {}  # of stages, with no other limit than the longest task
    least_s: dict[str, float] = {}  # of stages, each also limited by the whole cluster
    uses: list[_Use] = []
    for stage in job.stages:
        begin_s = max((ends_s[name] for name in stage.after), default=0.0)
        own: dict[str, float] = dict.fromkeys(hardware.whole, 0.0)
        longest_s = 0.0
        for task in stage.tasks:
            time_s, parts = hardware.uses(task)
            longest_s = max(longest_s, time_s)
            for use in parts:
                own[use.kind] += use.amount_s
                at_s = job.submitted_at_s + begin_s + use.begin_s
                uses.append(_Use(use.kind, at_s, use.amount_s, use.rate))
        ends_s[stage.name] = begin_s + longest_s
        before_s = max((least_s[name] for name in stage.after), default=0.0)
        least_s[stage.name] = before_s + max(longest_s, *own.values())
    return max(least_s.values()), uses


def _busy(uses: Iterable[_Use], kind: str, first_s: float, last_s: float) -> float:
    """Return the earliest time by which the work on a resource can be done."""
    own = [use for use in uses if use.kind == kind]
    if not own:
        return first_s
    begin_s, amount_s, rate = np.array([(use.begin_s, use.amount_s, use.rate) for use in own]).T
    times_s: list[float] = np.linspace(first_s, last_s, _TIMES, endpoint=False).tolist()
    done_s = [float(np.minimum(amount_s, rate * np.maximum(0.0, at_s - begin_s)).sum()) for at_s in times_s]
    whole_s = float(amount_s.sum())
    return max(at_s + whole_s - done for at_s, done in zip(times_s, done_s, strict=True))


def _shortest_first(jobs: Sequence[tuple[float, float]]) -> float:
    """Return the mean response time of (arrival, work) on one machine that serves the least remaining work first.

    No other order has a smaller mean (Schrage 1968), and no division of the machine into nodes makes it faster.
    """
    waiting: list[tuple[float, float]] = []  # remaining work, arrival
    coming = sorted(jobs)
    now_s = total_s = 0.0
    for number, (arrival_s, work_s) in enumerate(coming):
        now_s = max(now_s, arrival_s)
        heappush(waiting, (work_s, arrival_s))
        next_s = coming[number + 1][0] if number + 1 < len(coming) else math.inf
        while waiting and now_s < next_s:
            left_s, since_s = heappop(waiting)
            if now_s + left_s > next_s:
                heappush(waiting, (left_s - (next_s - now_s), since_s))
                now_s = next_s
            else:
                now_s += left_s
                total_s += now_s - since_s
    return total_s / len(coming)

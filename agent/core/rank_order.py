"""The order of the ranked jobs on a node: by queues of their CPU time, and divided by tenants. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from msgspec import Struct

from agent.core.command_sizes import Expected
from agent.core.records import ContainerRecord
from penstock.documents import Document

#: A job sinks by one queue when it has used this many CPU seconds, twice as many, four times … (LAS_MQ §3.2).
FIRST_QUEUE_S = 0.5
#: Explanations of a job's rank, for people.
BY_TURN = "it has waited long, and is first for one sample"
BY_MASTER = "in the master's order"
BY_USE = "not a job of the master: among its jobs by CPU time"
BY_PRIORITY = "by priority, queue and arrival"


class JobRank(Document, frozen=True, kw_only=True):
    """A job's rank on this node (docs/ranks.md), ``of`` so many ranked jobs of its ``tenant`` (empty: of all); 1 is the
    first.

    ``cpu_s`` is its CPU time on this node; ``queue`` follows from that, or, for a command of no job of which earlier
    runs are known, from the CPU time that it needs yet; ``weight`` is the sum of its containers' weights
    (``cpu.weight``), and ``why`` explains the rank.
    """

    rank: int
    of: int
    cpu_s: float
    queue: int
    weight: int
    why: str
    tenant: str


class ContainerRank(JobRank, frozen=True, kw_only=True):
    """The rank of a container's job. ``job`` is the job's id, or the container's without a job; ``weight`` is the
    container's ``cpu.weight``; ``nice`` applies without a cpu controller.
    """

    job: str
    nice: int


class Standing(Struct, frozen=True):
    """A job's rank on this node, among the ``of`` jobs of its ``tenant`` ("": the master divides nothing by tenants).

    ``rank`` is 0 for the first; ``weight`` is that of all its ranked containers, ``promised_weight`` its part for their
    promised cores. ``parts`` is the sum of their parts in the rest. ``queue`` None: it follows from its CPU time.
    """

    job: str
    rank: int
    weight: int
    queue: int | None
    containers: int
    why: str
    of: int = 1
    tenant: str = ""
    promised_weight: int = 0
    parts: int = 0

    @property
    def shared_weight(self) -> int:
        """The weight that its containers divide."""
        return self.weight - self.promised_weight

    def document(self, cpu_s: float) -> JobRank:
        """Return the rank for the status, of a job with this much CPU time here so far."""
        queue = queue_of(cpu_s) if self.queue is None else self.queue
        return JobRank(
            rank=self.rank + 1, of=self.of, cpu_s=round(cpu_s, 3), queue=queue + 1,
            weight=self.weight, why=self.why, tenant=self.tenant,
        )  # fmt: skip


@dataclass(slots=True)
class Ranked:
    """A job, or a container without a job, with its ranked containers."""

    job: str
    user: str
    is_job: bool
    priority: float
    place: int
    cpu_s: float
    reserved_cores: float  # by its reservation, beyond what its containers are promised
    containers: list[ContainerRecord]
    expected: Expected | None = None  # of a command of no job: what it needs yet, by its earlier runs

    @property
    def queue(self) -> int:
        """Its queue: by the CPU time that it is expected to need yet, or, if that is unknown, that it has used."""
        return queue_of(self.cpu_s if self.expected is None else self.expected.left_s)

    @property
    def early(self) -> bool:
        """Whether its reservation's time has not come."""
        return any(record.early for record in self.containers)


@dataclass(slots=True)
class TenantHere:
    """A tenant with ranked jobs here, the first first; with the weight 0, jobs that take only what others leave."""

    name: str
    weight: float
    jobs: list[Ranked]


def queue_of(cpu_s: float) -> int:
    """Return the queue of a job that has used this many CPU seconds: 0 is the first."""
    return 0 if cpu_s < FIRST_QUEUE_S else 1 + int(math.log2(cpu_s / FIRST_QUEUE_S))


def merge(ranked: list[Ranked]) -> list[Ranked]:
    """Merge containers without a job into the master's order: behind as many jobs as have used no more CPU time, by
    queues.

    The master's priority orders only its own jobs. The size of other containers is unknown, so their use decides (LAS).
    Jobs keep the master's order among themselves, containers theirs. If the master's order is by CPU time alone, the
    result is in that order throughout.
    """
    jobs = [each for each in ranked if each.is_job]
    if len(jobs) == len(ranked):
        return ranked
    queues = sorted(each.queue for each in jobs)
    places = [(place, 1, each) for place, each in enumerate(jobs)]
    places += [(bisect_right(queues, each.queue), 0, each) for each in ranked if not each.is_job]
    return [each for _, _, each in sorted(places, key=lambda one: one[:2])]


def by_tenant(ranked: Sequence[Ranked], named: Mapping[str, tuple[str, float]]) -> dict[str, TenantHere]:
    """Divide jobs, in their order, by tenants. ``named``: user → tenant and its weight, as the master named them.

    A user without a job of the master here is a tenant of its own, with a weight of 1, as in the master. Where the
    master named no tenant, all jobs are of one, "". Where it did, jobs ahead of their reservation's time are of none:
    else the share of their tenant would be theirs where it has no other job.
    """
    tenants: dict[str, TenantHere] = {}
    for each in ranked:
        name, weight = named.get(each.user, (each.user, 1.0)) if named else ("", 1.0)
        if named and each.early:
            name, weight = "", 0.0
        tenants.setdefault(name, TenantHere(name, weight, [])).jobs.append(each)
    return tenants

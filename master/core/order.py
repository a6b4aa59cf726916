"""The order of the jobs: the configured ordering, with the plan's guarantees and the orders by hand applied.

An ordering sees frozen views of the jobs and of the cluster, which are made once a round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Protocol

from master.changes import Changes
from master.core.dues import Clock
from master.core.events import OrderRequested
from master.core.guarantees import Guarantees, held_by
from master.core.history import History
from master.core.job import Job
from master.core.membership import Membership
from master.core.node import Node
from master.core.settings import CurrentSettings, MasterSettings
from master.core.table import NodeTable
from master.ordering import (
    ClusterView,
    HandOrder,
    JobSizes,
    JobView,
    Ordering,
    Ranking,
    Reason,
    StageView,
    Tenants,
    guarantees_first,
    ordering_of,
    placed_by_hand,
)
from penstock.model.resource_vector import HOLDS_NOTHING, SlotVector

#: The key of an operator's order of all jobs, in place of a user. No user has this name.
OF_ALL = ""
#: From so many tasks on, the mean length of other jobs' tasks tells a job's size. The length of one command varies as
#: much as the size of a job, so the size of a job of fewer commands is not known by their number.
_SOME = 4
#: Holdings are summed up only for orderings that use them.


class HandOrders:
    """User → the order of that user's jobs; and the latest operator's order of all jobs."""

    def __init__(self) -> None:
        self._orders: dict[str, HandOrder] = {}
        self.unstored = Changes[str, HandOrder]()

    def requested(self, event: OrderRequested) -> None:
        """Replace the order by a new one; an order without jobs removes it."""
        self._store(OF_ALL if event.of_all else event.by, HandOrder(event.by, event.jobs))

    def over(self, job: str, user: str) -> None:
        """Remove a finished job of this user from the orders."""
        for owner in (user, OF_ALL):
            said = self._orders.get(owner)
            if said is not None and job in said.jobs:
                self._store(owner, replace(said, jobs=tuple(each for each in said.jobs if each != job)))

    def arrange(self, ranking: Ranking, jobs: list[JobView]) -> Ranking:
        """Return the ranking of these jobs with the orders by hand applied."""
        if not self._orders:
            return ranking
        own = {user: order for user, order in self._orders.items() if user != OF_ALL}
        return placed_by_hand(ranking, {job.job: job.user for job in jobs}, own, self._orders.get(OF_ALL))

    def all(self) -> Mapping[str, HandOrder]:
        """Return the orders: user → order, and :data:`OF_ALL` → an operator's."""
        return dict(self._orders)

    def restore(self, orders: Mapping[str, HandOrder]) -> None:
        """Add recorded orders, such as those stored by the previous master."""
        self._orders.update(orders)

    def _store(self, owner: str, order: HandOrder) -> None:
        if order.jobs:
            self._orders[owner] = self.unstored[owner] = order
        elif self._orders.pop(owner, None) is not None:
            self.unstored[owner] = None


@dataclass(frozen=True, slots=True)
class Place:
    """A job's position in the order of the jobs: ``rank`` 1 is the first of ``of`` jobs."""

    rank: int
    of: int
    reason: Reason


#: The position of a finished job, or of one that came after the latest ranking.
NOWHERE = Place(0, 0, Reason(""))


class Placing(Protocol):
    """The part of a :class:`~master.ordering.Ranking` that the agents and readers are told."""

    def order(self) -> list[str]:
        """Return all jobs, first to last."""
        ...

    def why(self, job: str) -> str:
        """Return the rule and the numbers behind the job's place."""
        ...

    def reason(self, job: str) -> Reason:
        """Return the reason for the job's place, for people."""
        ...


class _Alone:
    """The ranking of at most one job, which needs no numbers; they are computed when they are asked for."""

    def __init__(self, jobs: list[Job], rank: Callable[[list[Job]], Ranking]) -> None:
        self._jobs = jobs
        self._rank = rank

    def order(self) -> list[str]:
        return [job.job for job in self._jobs]

    def why(self, job: str) -> str:
        return self._ranking.why(job)

    def reason(self, job: str) -> Reason:
        return self._ranking.reason(job)

    @cached_property
    def _ranking(self) -> Ranking:
        return self._rank(self._jobs)


@dataclass(eq=False, repr=False)
class Order:
    """Ranks the jobs, for regular and for opportunistic work. A changed ordering starts without its earlier state."""

    _settings: CurrentSettings
    _members: Membership
    _table: NodeTable
    _history: History
    _sizes: JobSizes
    _hand_orders: HandOrders
    _guarantees: Guarantees
    _clock: Clock
    _latest: Placing | None = field(init=False, default=None)  # of :meth:`rank` or :meth:`rank_for_agents`
    _ranks: dict[str, int] | None = field(init=False, default=None)  # in that ranking; computed on demand

    def __post_init__(self) -> None:
        self._start()

    def reconfigured(self) -> None:
        """Replace the ordering where new settings change it."""
        if self._settings.current.ordering_settings() != self._chosen:
            self._start()

    def _start(self) -> None:
        self._chosen = self._settings.current.ordering_settings()
        self.ordering = ordering_of(self._chosen, self._sizes)
        self._slack_ordering = ordering_of(self._chosen, self._sizes)
        own = self.ordering
        # Whether each round ranks the jobs, as it would change later decisions if some did not. The turns of tenants
        # count service, and the order for the agents is ranked twice a heartbeat where jobs have received some.
        self.ranks_each_round = own.inside_remembers if isinstance(own, Tenants) else own.remembers

    def rank(self, now: float) -> Ranking:
        """Rank the jobs: guaranteed jobs first, then described jobs in the configured order, then early jobs.

        Orders by hand are applied within the configured order.
        """
        ranking = self._ranked(self.ordering, now, self._described())
        self._latest, self._ranks = ranking, None
        return ranking

    def rank_for_agents(self, now: float) -> Placing:
        """Rank the jobs as :meth:`rank` does. An only job is the first whatever its numbers, so these are computed
        only for a reader, unless they affect later rankings.
        """
        jobs = self._described()
        if len(jobs) > 1 or self.ordering.remembers:
            return self.rank(now)
        self._latest, self._ranks = _Alone(jobs, lambda jobs: self._ranked(self.ordering, self._clock.now, jobs)), None
        return self._latest

    def look(self, now: float) -> Ranking:
        """Rank the jobs as :meth:`rank` does, for a reader: no decision and no :meth:`place_of` is affected."""
        if not self.ordering.remembers:
            return self._ranked(self.ordering, now, self._described())
        ordering = deepcopy(self.ordering, {id(self._sizes): self._sizes})  # the sizes are only read
        return self._ranked(ordering, now, self._described())

    def _described(self) -> list[Job]:
        return [job for job in self._members.jobs.values() if job.described]

    def _ranked(self, ordering: Ordering, now: float, jobs: list[Job]) -> Ranking:
        views, cluster = self._views(now, jobs)
        ranking = self._hand_orders.arrange(ordering.rank(views, cluster), views)
        return guarantees_first(ranking, *self._guarantees.of(cluster.now))

    def ended(self, job: str, user: str, service_s: float) -> None:
        """Count the service of an ended job for its tenant, without that of an earlier call."""
        for ordering in (self.ordering, self._slack_ordering):
            if isinstance(ordering, Tenants):
                ordering.ended(job, self._settings.current.tenant_of(user), service_s)

    def place_of(self, job: str) -> Place:
        """Return a job's position in the latest ranking. Reading it affects no decision."""
        if self._latest is None:
            return NOWHERE
        if self._ranks is None:
            self._ranks = {name: rank for rank, name in enumerate(self._latest.order(), start=1)}
        rank = self._ranks.get(job)
        return Place(rank, len(self._ranks), self._latest.reason(job)) if rank is not None else NOWHERE

    def rank_opportunistic(self, now: float) -> Ranking:
        """Rank the jobs for opportunistic work, by the share of it that each job has."""
        views, cluster = self._views(now, self._described(), opportunistic=True)
        return self._hand_orders.arrange(self._slack_ordering.rank(views, cluster), views)

    def _views(
        self, now: float, jobs: list[Job], *, opportunistic: bool = False
    ) -> tuple[list[JobView], ClusterView]:  # fmt: skip
        total = totals(self._table)
        views = job_views(
            jobs, self._members.nodes, self._settings.current, self._history, total, opportunistic=opportunistic
        )
        return views, ClusterView(self._clock.unix(now), total.capacity, max(1.0, total.capacity.cores))


@dataclass(frozen=True, slots=True)
class Totals:
    """Sums over the nodes that take work; ``rates`` are bytes/s per kind."""

    capacity: SlotVector
    rates: tuple[float, float, float]


def totals(table: NodeTable) -> Totals:
    """Return the sums over the nodes that take work."""
    here = table.taking()
    slots, rates = table.slots[here].sum(axis=0).tolist(), table.rates[here].sum(axis=0).tolist()
    memory = float(table.memory_capacity[here].sum())
    return Totals(SlotVector._make((*slots, memory)), (rates[0], rates[1], rates[2]))


def job_views(
    jobs: Iterable[Job],
    nodes: Mapping[str, Node],
    settings: MasterSettings,
    history: History,
    total: Totals,
    *,
    opportunistic: bool = False,
) -> list[JobView]:
    """Return one view per job, with its regular or its ``opportunistic`` holdings, which are accounted separately."""
    rates = [max(rate, 1.0) for rate in total.rates]
    slots = max(1.0, total.capacity.cores)
    jobs = list(jobs)
    ended = [job.work.done for job in jobs]
    begun = service_s = 0.0  # of the jobs that have ended some tasks; those that run are taken to be half done
    for job, done in zip(jobs, ended, strict=True):
        if done:
            begun += done + job.work.slots / 2
            service_s += job.work.service_s - job.work.idle_service_s
    typical_s = service_s / begun if begun else 0.0
    by_holdings = settings.ordering == "drf" or settings.by_tenant
    views: list[JobView] = []
    for job, done in zip(jobs, ended, strict=True):
        tenant = settings.tenant_of(job.user)
        known = job.work.told or job.work.tallies
        left, can_run = (job.work.tasks_left, len(job.tasks) + job.work.own_ready) if known else (math.inf, math.inf)
        regular, on_slack = job.placed()
        containers = on_slack if opportunistic else max(regular, job.work.slots - on_slack)
        views.append(
            JobView(
                job=job.job,
                tenant=tenant,
                weight=settings.weights.get(tenant, 1.0),
                submitted_at=job.submitted_at,
                sequence=job.sequence,
                holds=held_by(nodes, job, opportunistic=opportunistic) if by_holdings else HOLDS_NOTHING,
                containers=containers,
                service=job.work.service_s,
                stages=_stages(job),
                remaining=_remaining(history, job, rates, slots, done, typical_s),
                needs=max(left, job.work.slots),
                wants=max(can_run, job.work.slots),
                user=job.user,
                application=job.application,
            )
        )
    return views


def _stages(job: Job) -> tuple[StageView, ...]:
    work = job.work
    told = {s.stage: StageView(s.stage, s.tasks, s.done, work.service.get(s.stage, 0.0)) for s in work.told}
    came = {
        name: StageView(name, t.tasks, t.done, work.service.get(name, 0.0))
        for name, t in work.tallies.items()
        if name not in told
    }
    return (*told.values(), *came.values())


def _remaining(
    history: History, job: Job, rates: list[float], slots: float, done: int, typical_s: float
) -> tuple[float, ...]:  # fmt: skip
    """Return R per kind, in seconds of the whole cluster: the rest expected from history, and at least the announced
    rest.

    Of tasks not sent to the master, a framework reports the bytes it knows (Dask only for the next stages), and most
    commands come without bytes. The mean length of a task may give a larger estimate, which is then divided among the
    kinds like the bytes' times; it counts as CPU where no bytes were reported. It is the mean of the job's own tasks
    once some have ended, without the service received while no stage was under way (a program of Dask first starts);
    before, where no bytes are known, ``typical_s``, the mean of other jobs' tasks in container-seconds, or what its own
    have taken so far if that is more; 0: unknown.
    """
    work = job.work
    left = [amount / rate for amount, rate in zip(work.left(), rates, strict=True)]
    told, to_come = work.to_come()
    tasks = to_come + work.unknown
    if tasks:
        begun = done + work.slots / 2
        mean_s = (work.service_s - work.idle_service_s) / begun if begun else 0.0
        coming = [amount / rate for amount, rate in zip(told, rates, strict=True)]
        by_bytes = sum(coming)
        if not done:
            mean_s = max(mean_s, typical_s) if typical_s and tasks >= _SOME and not by_bytes else 0.0
        half_done = min(work.unknown, work.slots) / 2
        by_time = (tasks - half_done) * mean_s / slots
        if not by_bytes:
            coming[0] = by_time
        elif by_time > by_bytes:
            coming = [own * by_time / by_bytes for own in coming]
        left = [own + more for own, more in zip(left, coming, strict=True)]
    before = history.of((job.user, job.name))
    if before is None:
        return tuple(left)
    if not any(before.work):
        return max(left[0], (before.service_s - work.service_s) / slots), left[1], left[2]
    lacking = [(needed - ended) / rate for needed, ended, rate in zip(before.work, work.ended, rates, strict=True)]
    return tuple(max(own, more) for own, more in zip(left, lacking, strict=True))

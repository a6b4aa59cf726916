"""A scheduling round: plan → order → admit → place → place opportunistic work.

Each step is a replaceable object: the plan (:mod:`master.core.plan`), the ordering (:mod:`master.ordering`), admission,
Algorithm 1 (:mod:`master.placement`), UBIS (:mod:`master.core.slack`). Between admission and placement, opportunistic
work is promoted, as in UBIS, Algorithm 1.
"""

from __future__ import annotations

from dataclasses import dataclass

from master.core.admission import Admission
from master.core.ahead import Ahead
from master.core.dues import Dues
from master.core.executor_round import ExecutorRound
from master.core.executors import Executors
from master.core.kept_room import KeptRoom
from master.core.membership import Membership
from master.core.order import Order
from master.core.outbox import Outbox
from master.core.plan import PlanFollower
from master.core.priorities import Priorities
from master.core.regular import RegularWork
from master.core.settings import CurrentSettings
from master.core.slack import SlackWork
from master.core.table import NodeTable
from master.core.user_quotas import UserQuotas
from master.core.waiting import WaitingStages


@dataclass(eq=False, repr=False)
class Rounds:
    """The steps of a round, and their order."""

    _settings: CurrentSettings
    _dues: Dues
    _table: NodeTable
    _members: Membership
    _outbox: Outbox
    _order: Order
    _priorities: Priorities
    _executors: Executors
    _user_quotas: UserQuotas
    _admission: Admission
    _waiting: WaitingStages
    _ahead: Ahead
    _regular: RegularWork
    _plan_follower: PlanFollower
    _kept: KeptRoom
    _slack: SlackWork
    _executor_round: ExecutorRound

    def run(self, now: float) -> None:
        """Run one round."""
        if now < self._dues.gathers_until:
            self._dues.changed = True
            return
        self._table.follow_lengths()
        self._table.settle()
        limits = self._user_quotas.in_round()
        if self._kept.rooms:
            self._plan_follower.fill(limits)
        ranking = self._order.rank(now) if self._order_matters() else None
        if ranking is not None:
            self._admission.admit(ranking.order(), now)
        waiting = self._members.with_ready_tasks()
        hopeful = self._waiting.possible(waiting) if waiting else set()
        looks_ahead = bool(waiting) and self._ahead.due(now)
        order_wanted = self._dues.order_owed or now >= self._dues.order_due
        if ranking is None and (hopeful or looks_ahead or (waiting and order_wanted)):
            ranking = self._order.rank(now)
        if order_wanted:  # one ranking serves both, and a task is placed with its job's new priority
            self._priorities.spread(self._order.rank_for_agents(now) if ranking is None else ranking, now)
            looks_ahead = bool(waiting) and self._ahead.due(now)
        self._admission.refuse_unfit(now)
        self._dues.changed = False
        if self._settings.current.promotion and self._dues.promotable:
            self._slack.promote(limits)
        if not self._members.ready_tasks:
            self._plan_follower.make_room(now, limits)
            return
        self._outbox.counts["rounds"] += 1
        waits = ranking is not None and bool(self._executors.waiting)
        executors = self._executor_round.begin(ranking, now, limits) if ranking is not None and waits else None
        if executors is not None and executors.jobs:  # they must not take what commands before them could start on
            looks_ahead = bool(waiting)
        placed = self._regular.place(hopeful, ranking, limits, executors, looks_ahead=looks_ahead)
        if executors is not None:
            self._executor_round.end(executors, limits, placed.over)
        self._plan_follower.make_room(now, limits)
        self._slack.place(now)
        self._regular.record_waits(placed)
        if self._executors.waiting:
            self._executor_round.say_what_waits()

    def _order_matters(self) -> bool:
        """Return whether to rank the jobs even if no node has room for waiting work.

        :class:`Order` tells which orderings need that for their memory.
        """
        settings = self._settings.current
        return (
            self._order.ranks_each_round
            or bool(self._executors.waiting)
            or bool(settings.user_max_cores or settings.user_max_memory_bytes)
            or any(job.described and not job.admitted for job in self._members.jobs.values())
        )

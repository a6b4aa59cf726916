"""A scheduling round: plan → order → admit → place → place opportunistic work.

Each step is a replaceable object: the plan (:mod:`master.core.plan`), the ordering (:mod:`master.ordering`), admission,
Algorithm 1 (:mod:`master.placement`), UBIS (:mod:`master.core.slack`). Between admission and placement, opportunistic
work is promoted, as in UBIS, Algorithm 1.
"""

from __future__ import annotations

from collections import Counter

from master.core.admission import Admission
from master.core.ahead import Ahead
from master.core.clock import Clock
from master.core.drains import Drains
from master.core.dues import Dues
from master.core.executor_round import ExecutorRound
from master.core.executors import Executors
from master.core.membership import Membership
from master.core.order import Order
from master.core.outbox import Outbox
from master.core.plan import Guarantees
from master.core.plan_follower import PlanFollower
from master.core.regular import RegularWork
from master.core.settings import MasterSettings
from master.core.slack import SlackWork
from master.core.snapshot import Snapshots
from master.core.table import NodeTable
from master.core.task_lifecycle import TaskLifecycle
from master.core.unfit import UnfitTasks
from master.core.user_quotas import UserQuotas
from master.core.waiting import WaitingStages


class Rounds:
    """The steps of a round, and their order."""

    def __init__(
        self,
        settings: MasterSettings,
        clock: Clock,
        dues: Dues,
        counts: Counter[str],
        drains: Drains,
        table: NodeTable,
        members: Membership,
        outbox: Outbox,
        guarantees: Guarantees,
        order: Order,
        snapshots: Snapshots,
        executors: Executors,
        user_quotas: UserQuotas,
        tasks: TaskLifecycle,
        admission: Admission,
    ) -> None:
        self._settings = settings
        self._dues = dues
        self._counts = counts
        self._table = table
        self._members = members
        self._order = order
        self._executors = executors
        self._user_quotas = user_quotas
        self._admission = admission
        self._waiting = WaitingStages(settings, table, snapshots)
        self._unfit = UnfitTasks(settings, table, members, snapshots, executors, tasks, admission)
        self._ahead = Ahead(clock, dues, table, members, snapshots, self._waiting, tasks)
        self._regular = RegularWork(drains, members, snapshots, self._waiting, user_quotas, tasks, self._ahead)
        self._plan_follower = PlanFollower(clock, counts, members, outbox, guarantees, executors, user_quotas, tasks)
        self._slack = SlackWork(dues, counts, drains, table, members, outbox, order, snapshots, user_quotas, tasks)
        self._executor_round = ExecutorRound(
            settings, drains, members, outbox, snapshots, executors, user_quotas, tasks
        )

    def reconfigure(self, settings: MasterSettings) -> None:
        """Apply new settings to every step."""
        self._settings = settings
        for step in (self._waiting, self._unfit, self._executor_round):
            step.reconfigure(settings)

    def run(self, now: float) -> None:
        """Run one round."""
        if now < self._dues.gathers_until:
            self._dues.place()
            return
        self._table.follow_lengths()
        self._table.settle()
        ranking = self._order.rank(now) if self._order_matters() else None
        if ranking is not None:
            self._admission.admit(ranking.order(), now)
        hopeful = self._waiting.possible(self._members.with_ready_tasks())
        looks_ahead = self._ahead.due(now)
        if ranking is None and (hopeful or looks_ahead):
            ranking = self._order.rank(now)
        self._unfit.refuse(now)
        self._dues.placed()
        limits = self._user_quotas.in_round()
        if self._settings.promotion and self._dues.promotable:
            self._slack.promote(limits)
        if not self._members.ready_tasks:
            self._plan_follower.make_room(now, limits)
            return
        self._counts["rounds"] += 1
        if ranking is not None and self._executors.waiting:
            self._executor_round.place(ranking, now, limits)
        placed = self._regular.place(hopeful, ranking, limits, looks_ahead=looks_ahead)
        self._plan_follower.make_room(now, limits)
        self._slack.place(now)
        self._regular.record_waits(placed)
        if self._executors.waiting:
            self._executor_round.say_what_waits()

    def _order_matters(self) -> bool:
        """Return whether to rank the jobs even if no node has room for waiting work.

        An ordering with memory is asked in every round, because skipping it would change its later decisions.
        """
        settings = self._settings
        return (
            self._order.ordering.remembers
            or bool(self._executors.waiting)
            or bool(settings.user_max_cores or settings.user_max_memory_bytes)
            or any(job.described and not job.admitted for job in self._members.jobs.values())
        )

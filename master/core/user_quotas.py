"""Limits on the cores and memory that one user's placed tasks may hold at once.

Only as many of a user's tasks are offered to placement as the user's limit has room for. If every task were offered
that fits on its own, placement would fill nodes with tasks that then exceed the limit. Reserved resources count as
held: limits take precedence over reservations.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from master.core.executors import Executors
from master.core.finished_jobs import FinishedJobs
from master.core.job import Job, Key, Task
from master.core.membership import Membership
from master.core.node import Held
from master.core.settings import CurrentSettings
from master.core.snapshot import RoundSnapshot, holds
from master.core.table import NodeTable
from penstock.model.units import format_bytes

#: Cores, bytes of memory: the resources of which a user's share can be limited.
QuotaAmounts = tuple[float, float]
#: A user, and what the first of that user's tasks that were held back would hold.
HeldBack = tuple[str, QuotaAmounts]

_KEYS = ("user_max_cores", "user_max_memory_bytes")
#: Fractions of cores add up with errors of this size.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class WaitingTask:
    """A task that waits for a regular place, and the amounts it would hold. ``nowhere``: no eligible node takes work,
    so the task must not delay others of its user."""

    job: Job
    task: Task
    amounts: QuotaAmounts
    nowhere: bool = False


@dataclass(eq=False, repr=False)
class UserQuotas:
    """The limits of the users, and the amounts that count towards them."""

    _settings: CurrentSettings
    _past: FinishedJobs
    _table: NodeTable
    _members: Membership
    _executors: Executors

    def in_round(self) -> RoundQuotas | None:
        """Return the limits for a round that begins; None where no limit is set."""
        settings = self._settings.current
        if not settings.user_max_cores and not settings.user_max_memory_bytes:
            return None
        most = (settings.user_max_cores or math.inf, settings.user_max_memory_bytes or math.inf)
        regular = [held for node in self._members.nodes.values() for held in node.held.values() if held.regular]
        held = ((self.user_of(one), one.holds()) for one in regular)
        return RoundQuotas(most, ((user, (cores, memory)) for user, (cores, _, _, memory) in held))

    def amounts_of(self, job: Job, task: Task) -> QuotaAmounts:
        """Return the amounts a placed task will hold; for an executor with a forecast, its largest demand."""
        assert task.request is not None
        if task.elastic:  # an executor gets at most the capacity of the largest eligible node
            most_cores, most_bytes = self._executors.largest(job, task)
            names, table = task.request.nodes, self._table
            rows = [table.rows[name] for name in names if name in table.rows] if names else slice(len(table.nodes))
            largest = table.cores[rows].max(initial=0.0), table.memory_capacity[rows].max(initial=0.0)
            return min(most_cores, float(largest[0])), min(most_bytes, float(largest[1]))
        cores, _, _, memory = holds(task.request)
        return cores, memory

    def asking(self, snapshot: RoundSnapshot, job: Job, task: Task) -> WaitingTask:
        """Return a task with the amounts that count towards its user's limit."""
        allowed = snapshot.allowed(task)
        return WaitingTask(job, task, self.amounts_of(job, task), allowed is not None and not allowed.any())

    def user_of(self, held: Held) -> str:
        """Return the user of a held task. The origin's statement takes precedence over that of the holding node."""
        job = self._members.jobs.get(held.job)
        if job is not None and job.user:
            return job.user
        if held.user:
            return held.user
        past = self._past.get(held.job)
        return past.view.user if past is not None else ""


class RoundQuotas:
    """The amounts held by each user in one round. A task being withdrawn counts until its node has released it, as do
    tasks adopted after a restart of the master. Lowering a limit stops no running task.
    """

    def __init__(self, most: QuotaAmounts, held: Iterable[tuple[str, QuotaAmounts]]) -> None:
        """``most``: the limit of each user. ``held``: the user and the amounts of each held task."""
        self._most = most
        self._held: dict[str, list[float]] = {}  # by user, with the tasks offered in this round
        # (user, resource) → what the first task in the user's line that waits for the resource would hold
        self._closed: dict[tuple[str, int], QuotaAmounts] = {}
        self._offered: list[WaitingTask] = []
        for user, amounts in held:
            if user:
                self._add(user, amounts)

    def take(self, user: str, amounts: QuotaAmounts) -> str:
        """Add these amounts to the user's; return why not where they exceed the limit."""
        why = self.why_not(user, amounts)
        if not why:
            self._add(user, amounts)
        return why

    def why_not(self, user: str, amounts: QuotaAmounts) -> str:
        """Return why the user may not hold that much more; empty where allowed."""
        lacking = self._lacking(user, amounts)
        return self._limit_text(user, lacking[0], amounts[lacking[0]]) if lacking else ""

    def offer(self, asking: Iterable[WaitingTask]) -> tuple[set[Key], dict[str, HeldBack]]:
        """Return the tasks to offer to placement, and by job what others are held back for; ``asking`` in the order of
        the jobs.

        The first task of a user that exceeds the limit blocks the resources it lacks for the tasks behind it, unless it
        wants more than the limit itself. A task offered in vain goes to the end of the line until all of the user's
        waiting tasks have been offered: a task that fits on no node must not delay the rest.
        """
        by_user: dict[str, list[WaitingTask]] = {}
        for one in asking:
            by_user.setdefault(one.job.user, []).append(one)
        offered: set[Key] = set()
        over: dict[str, HeldBack] = {}
        for user, line in by_user.items():
            fresh = [one for one in line if not one.task.in_vain]
            again = [one for one in line if one.task.in_vain] if fresh else []
            for one in (*fresh, *again) if fresh else line:
                one.task.in_vain &= bool(fresh)
                if not one.nowhere:
                    if lacking := self._next(user, one.amounts):
                        over.setdefault(one.job.job, (user, lacking))
                        continue
                    self._offered.append(one)
                offered.add((one.task.job, one.task.name))
        return offered, over

    def why_over(self, over: Mapping[str, HeldBack]) -> dict[str, str]:
        """Return by job why tasks were held back, from what is held after placement."""
        return {
            job: self.why_not(user, amounts) or f"it is the turn of other tasks of user {user}"
            for job, (user, amounts) in over.items()
        }

    def settle(self, *, tried: bool = True, later: Collection[Key] = ()) -> None:
        """After placement, give back the amounts of tasks not placed. ``tried``: placement actually tried them.
        ``later``: tasks that are still to be placed; what waits for their user's limit goes on to do so.
        """
        still = [one for one in self._offered if (one.task.job, one.task.name) in later]
        waits = {one.job.user for one in still}
        for one in self._offered:
            if not one.task.node and (one.task.job, one.task.name) not in later:
                self._add(one.job.user, (-one.amounts[0], -one.amounts[1]))
                one.task.in_vain |= tried
                for resource in range(len(self._most) if one.job.user not in waits else 0):
                    self._closed.pop((one.job.user, resource), None)  # nothing is held of what was offered in vain
        self._offered = still

    def _next(self, user: str, amounts: QuotaAmounts) -> QuotaAmounts | None:
        """As :meth:`take`, for the next task in the user's line; return what the first task that waits would hold."""
        wanted = [resource for resource, amount in enumerate(amounts) if amount]
        for resource in wanted:
            if (user, resource) in self._closed:
                return self._closed[user, resource]
        if not self.take(user, amounts):
            return None
        if all(amounts[resource] <= self._most[resource] for resource in wanted):
            self._closed |= {(user, resource): amounts for resource in self._lacking(user, amounts)}
        return amounts

    def _add(self, user: str, amounts: QuotaAmounts) -> None:
        held = self._held.setdefault(user, [0.0, 0.0])
        for resource, amount in enumerate(amounts):
            held[resource] += amount

    def _lacking(self, user: str, amounts: QuotaAmounts) -> list[int]:
        """Return the resources of which the user may not have that much more."""
        held = self._held.get(user, (0.0, 0.0))
        return [
            resource
            for resource, (amount, has, most) in enumerate(zip(amounts, held, self._most, strict=True))
            if amount and has + amount > most + _EPSILON
        ]

    def _limit_text(self, user: str, resource: int, wanted: float) -> str:
        has, most, key = self._held.get(user, (0.0, 0.0))[resource], self._most[resource], _KEYS[resource]
        if wanted > most:
            return f"it wants {_amount(resource, wanted)}, a user may hold {_amount(resource, most)} ({key})"
        more = f", it wants {_amount(resource, wanted)}" if has < most - _EPSILON else ""
        return f"user {user} holds {_amount(resource, has, unit=False)} of {_amount(resource, most)} ({key}){more}"


def _amount(resource: int, amount: float, *, unit: bool = True) -> str:
    if resource == 1:
        return f"{format_bytes(round(amount))}{' of memory' if unit else ''}"
    return f"{round(amount, 3):g}{' cores' if unit else ''}"

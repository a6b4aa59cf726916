"""What one user may hold of the cluster at once: cores and memory that are promised to what is placed of his.

Of a user's tasks as many are offered to placement as his allowance has room for: were each offered that fits alone,
placement would fill nodes with what may then not be had. What is promised by reservations counts, too: limits go first.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from master.core import executors
from master.core.snapshot import Picture, holds
from penstock.model.units import format_bytes

if TYPE_CHECKING:
    from master.core.cluster import Cluster
    from master.core.records import Held, Job, Task

#: Cores, bytes of memory.
Amounts = tuple[float, float]

_KEYS = ("user_max_cores", "user_max_memory_bytes")
#: Fractions of cores add up with errors of this size.
_EPSILON = 1e-6


@dataclass(frozen=True, slots=True)
class Asking:
    """A task that waits for a regular place, and what it would hold. ``nowhere``: no node that it may go to takes work,
    so what it would hold keeps nobody waiting."""

    job: Job
    task: Task
    amounts: Amounts
    nowhere: bool = False


def of(cluster: Cluster) -> Allowances | None:
    """Those of a round that begins; None where no limit is set."""
    settings = cluster.settings
    return Allowances(cluster) if settings.user_max_cores or settings.user_max_memory_bytes else None


def amounts_of(cluster: Cluster, job: Job, task: Task) -> Amounts:
    """What a task will hold where it is placed: of an executor, of which it is known what it will use, the most."""
    assert task.request is not None
    if task.elastic:  # of no one is more wanted than the largest node that it may go to has
        most_cores, most_bytes = executors.largest(cluster, job, task)
        names, table = task.request.nodes, cluster.table
        rows = [table.rows[name] for name in names if name in table.rows] if names else slice(len(table.nodes))
        largest = table.cores[rows].max(initial=0.0), table.memory_capacity[rows].max(initial=0.0)
        return min(most_cores, float(largest[0])), min(most_bytes, float(largest[1]))
    cores, _, _, memory = holds(task.request)
    return cores, memory


def asking(cluster: Cluster, picture: Picture, job: Job, task: Task) -> Asking:
    """A task as the limit of its user sees it."""
    allowed = picture.allowed(task)
    return Asking(job, task, amounts_of(cluster, job, task), allowed is not None and not allowed.any())


def user_of(cluster: Cluster, held: Held) -> str:
    """Whose it is. Its origin's word goes before that of the node that holds it."""
    job = cluster.jobs.get(held.job)
    if job is not None and job.user:
        return job.user
    if held.user:
        return held.user
    past = cluster.past.get(held.job)
    return past.view.user if past is not None else ""


class Allowances:
    """The books of one round. What is on its way out counts until its node is rid of it, and so does what a restarted
    master has adopted: nobody is stopped because a limit fell."""

    def __init__(self, cluster: Cluster) -> None:
        settings = cluster.settings
        self._most: Amounts = (settings.user_max_cores or math.inf, settings.user_max_memory_bytes or math.inf)
        self._held: dict[str, list[float]] = {}
        self._closed: dict[tuple[str, int], str] = {}  # (user, resource) → why the first in his line waits for it
        self._offered: list[Asking] = []
        for node in cluster.nodes.values():
            for held in node.held.values():
                if held.regular and (user := user_of(cluster, held)):
                    self._add(user, (held.cores or float(held.uses_core()), float(held.memory_bytes)))

    def held(self, user: str) -> Amounts:
        """What he holds, with what is offered now."""
        cores, memory = self._held.get(user, (0.0, 0.0))
        return cores, memory

    def take(self, user: str, amounts: Amounts) -> str:
        """Have the user hold so much more; or why not."""
        why = self.why_not(user, amounts)
        if not why:
            self._add(user, amounts)
        return why

    def why_not(self, user: str, amounts: Amounts) -> str:
        """Why he may not hold so much more; empty where he may."""
        lacking = self._lacking(user, amounts)
        return self._said(user, lacking[0], amounts[lacking[0]]) if lacking else ""

    def offer(self, asking: Iterable[Asking]) -> tuple[list[Asking], dict[str, str]]:
        """Which of them to offer to placement, and by job why others are not; ``asking`` in the order of the jobs.

        The first of a user that finds no room is waited for: what is behind it gets none of what it lacks, unless that
        is more than the user may ever have. What was offered in vain goes last until all that waits of his has been:
        one for which no node has room must not keep the rest waiting.
        """
        by_user: dict[str, list[Asking]] = {}
        for one in asking:
            by_user.setdefault(one.job.user, []).append(one)
        offered: list[Asking] = []
        over: dict[str, str] = {}
        for user, line in by_user.items():
            fresh = [one for one in line if not one.task.in_vain]
            again = [one for one in line if one.task.in_vain] if fresh else []
            for one in (*fresh, *again) if fresh else line:
                one.task.in_vain &= bool(fresh)
                if one.nowhere:
                    offered.append(one)
                elif why := self._next(user, one.amounts):
                    over.setdefault(one.job.job, why)
                else:
                    offered.append(one)
                    self._offered.append(one)
        return offered, over

    def settle(self, *, tried: bool = True) -> None:
        """After placement: what has found no place is given back. ``tried``: placement was asked for one."""
        for one in self._offered:
            if not one.task.node:
                self._add(one.job.user, (-one.amounts[0], -one.amounts[1]))
                one.task.in_vain |= tried
        self._offered = []

    def _next(self, user: str, amounts: Amounts) -> str:
        """As :meth:`take`, for the next in his line."""
        wanted = [resource for resource, amount in enumerate(amounts) if amount]
        for resource in wanted:
            if (user, resource) in self._closed:
                return self._closed[user, resource]
        lacking = self._lacking(user, amounts)
        if not lacking:
            self._add(user, amounts)
            return ""
        why = self._said(user, lacking[0], amounts[lacking[0]])
        if all(amounts[resource] <= self._most[resource] for resource in wanted):
            self._closed |= {(user, resource): why for resource in lacking}
        return why

    def _add(self, user: str, amounts: Amounts) -> None:
        held = self._held.setdefault(user, [0.0, 0.0])
        for resource, amount in enumerate(amounts):
            held[resource] += amount

    def _lacking(self, user: str, amounts: Amounts) -> list[int]:
        """The resources of which he may not have so much more."""
        held = self._held.get(user, (0.0, 0.0))
        return [
            resource
            for resource, (amount, has, most) in enumerate(zip(amounts, held, self._most, strict=True))
            if amount and has + amount > most + _EPSILON
        ]

    def _said(self, user: str, resource: int, wanted: float) -> str:
        has, most, key = self.held(user)[resource], self._most[resource], _KEYS[resource]
        if wanted > most:
            return f"it wants {_amount(resource, wanted)}, a user may hold {_amount(resource, most)} ({key})"
        more = f", it wants {_amount(resource, wanted)}" if has < most - _EPSILON else ""
        return f"user {user} holds {_amount(resource, has, unit=False)} of {_amount(resource, most)} ({key}){more}"


def _amount(resource: int, amount: float, *, unit: bool = True) -> str:
    if resource == 1:
        return f"{format_bytes(round(amount))}{' of memory' if unit else ''}"
    return f"{round(amount, 3):g}{' cores' if unit else ''}"

"""A drained node accepts no work from the master. Placed work that can run elsewhere is returned at once: opportunistic
commands are stopped as in preemption, and commands that wait for a slot or for slack are handed back. The rest runs to
its end. Work that this host's users and frameworks started through the agent continues and is reported to the master.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Literal

from agent.core import tasks
from agent.core.containers import Containers, shown_name
from agent.core.instructions import Explain, Instruction, Record
from agent.core.job_lifecycle import JobLifecycle
from agent.core.membership import Membership
from agent.core.records import journal_key
from agent.queues import MonotaskQueues
from penstock.documents import Document
from penstock.model import EndedBy
from penstock.wire.cluster_api import MOST_NAMED, Draining, Remaining

#: The journal's room, and its only key.
ROOM = "node"
_KEY = "draining"
REFUSAL = "this node is drained: it takes no work until `penstock undrain`"


class DrainStatus(Document, frozen=True, kw_only=True):
    """The node accepts no work (docs/drain.md), by decision of a user since a time (Unix time).

    ``count`` is the number of pieces of work that still run; at most 50 are named.
    """

    state: Literal["draining", "drained"]
    by: str
    since: float
    count: int
    remaining: list[Remaining]


@dataclass(eq=False, slots=True)
class Drain:
    """Whether the node is drained, and the work that remains on it."""

    _node: str
    _members: Membership
    _queues: MonotaskQueues
    _held: tasks.HeldTasks
    _containers: Containers
    _lifecycle: JobLifecycle
    draining: Draining | None = None  # set while the node accepts no work from the master

    def decided(self, draining: Draining | None, now: float) -> list[Instruction]:
        """Set or clear the drain. It is journaled first, so that the next agent takes no work either."""
        self.draining = draining
        instructions: list[Instruction] = [Record(ROOM, _KEY, draining)]
        if draining is None:
            return [*instructions, Explain("node takes work again", {})]
        return [*instructions, Explain("node is drained", {"by": draining.by}), *self.give_back(now)]

    def give_back(self, now: float) -> list[Instruction]:
        """Hand back the master's commands that have not started, and stop those that may be stopped at any time."""
        if self.draining is None:
            return []
        reason = f"{self._node} is drained by {self.draining.by}"
        instructions: list[Instruction] = []
        for held in [each for each in self._held if each.request.command is not None]:
            if held.opportunistic and held.container:
                instructions += self._containers.stop(held.container, EndedBy.PREEMPTED, reason)
            elif not held.container:
                instructions += self._lifecycle.hand_back(held, reason, now)
        return instructions

    def own_work(self) -> list[Remaining]:
        """Return other work while drained: containers of this host's users, slots held by frameworks."""
        return [] if self.draining is None else list(islice(self._own(), MOST_NAMED))

    def status(self) -> DrainStatus | None:
        """Return the drain for the status document: its author, start and remaining work; None if not drained."""
        if self.draining is None:
            return None
        left = [*self._placed(), *self.own_work()]
        return DrainStatus(
            state="draining" if left else "drained",
            by=self.draining.by,
            since=self.draining.since,
            count=len(left),
            remaining=left[:MOST_NAMED],
        )

    def _own(self) -> Iterator[Remaining]:
        for record in self._containers.live.values():
            if (record.job, record.task) not in self._held.by_key:
                yield Remaining("container", record.container, shown_name(record), record.user)
        commands = Counter(each.job for each in self._held if each.container)
        for name, job in self._members.jobs.items():
            held = self._queues.job_counts(name)["running"] - commands[name]
            if held > 0:
                yield Remaining("slots", name, f"{job.record.name} ({held})", job.record.user)

    def _placed(self) -> Iterator[Remaining]:
        for held in self._held:
            command, executor = held.request.command, held.request.executor
            kind = "task" if command is None else "command" if executor is None else "executor"
            yield Remaining(kind, journal_key(held.job, held.task), held.job, held.user)

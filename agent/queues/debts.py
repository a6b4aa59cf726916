"""Debts of users: slots that were taken back from them while their monotasks run on.

A user's overdue monotasks and held slots together may not exceed the number of slots. Without this limit, the next
grant would return the slot that was taken: a client that completes nothing, and has twice as many monotasks queued as
there are slots, would keep all of them.
"""

from __future__ import annotations

from agent.queues.monotask import COMMANDS, TOGETHER, Monotask


def parts(monotask: Monotask) -> int:
    """Return how many of the :data:`TOGETHER` parts of a slot a monotask holds."""
    return 1 if monotask.small else TOGETHER


class Debts:
    """The debts of each user with overdue monotasks. Commands are left out: the agent observes their ends itself."""

    __slots__ = ("_held", "_overdue", "_parts")

    def __init__(self, slots: int) -> None:
        self._parts = slots * TOGETHER
        self._overdue: dict[str, int] = {}
        self._held: dict[str, int] = {}  # only for users in _overdue

    def begin(self, user: str, monotask: Monotask, held_parts: int) -> None:
        """Record that a monotask runs on without its slot. ``held_parts``: parts its user holds, including it."""
        if user not in self._overdue:
            self._held[user] = held_parts
        self._overdue[user] = self._overdue.get(user, 0) + parts(monotask)

    def end(self, user: str, monotask: Monotask) -> None:
        """Record that an overdue monotask has ended."""
        self._overdue[user] -= parts(monotask)
        if not self._overdue[user]:
            del self._overdue[user], self._held[user]

    def held(self, user: str, monotask: Monotask, change: int) -> None:
        """Record that a monotask of the user has taken a slot (``change`` 1) or returned one (-1)."""
        if user in self._held and monotask.session != COMMANDS:
            self._held[user] += change * parts(monotask)

    def forbid(self, user: str, monotask: Monotask) -> bool:
        """Return whether a grant of this monotask would exceed its user's limit."""
        if user not in self._overdue or monotask.session == COMMANDS:
            return False
        return self._overdue[user] + self._held[user] + parts(monotask) > self._parts

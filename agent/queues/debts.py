"""What users owe a resource: slots that were taken back from them while their monotasks run on.

A user who owes has, with what he holds, at most as many as there are slots, and is granted nothing beyond. Without
that, the next grant would take back what was taken: a client that completes nothing, and has twice as many monotasks
queued as there are slots, would keep all of them.
"""

from __future__ import annotations

from agent.queues.monotask import COMMANDS, TOGETHER, Monotask


def parts(monotask: Monotask) -> int:
    """Of the :data:`TOGETHER` parts of a slot, those that a monotask holds."""
    return 1 if monotask.small else TOGETHER


class Debts:
    """By user; not asked as long as nothing is overdue. Commands are left out: the agent sees their ends."""

    __slots__ = ("_held", "_overdue", "_parts")

    def __init__(self, slots: int) -> None:
        self._parts = slots * TOGETHER
        self._overdue: dict[str, int] = {}
        self._held: dict[str, int] = {}  # of the same users

    def begin(self, user: str, monotask: Monotask, held_parts: int) -> None:
        """A monotask is to go on without its slot; with that, its user holds so many parts of slots."""
        if user not in self._overdue:
            self._held[user] = held_parts
        self._overdue[user] = self._overdue.get(user, 0) + parts(monotask)

    def end(self, user: str, monotask: Monotask) -> None:
        """It has ended."""
        self._overdue[user] -= parts(monotask)
        if not self._overdue[user]:
            del self._overdue[user], self._held[user]

    def held(self, user: str, monotask: Monotask, change: int) -> None:
        """One more of the user's monotasks holds a slot (1), or one less (-1)."""
        if user in self._held and monotask.session != COMMANDS:
            self._held[user] += change * parts(monotask)

    def forbid(self, user: str, monotask: Monotask) -> bool:
        """Return whether the monotask would be more than its user may have."""
        if user not in self._overdue or monotask.session == COMMANDS:
            return False
        return self._overdue[user] + self._held[user] + parts(monotask) > self._parts

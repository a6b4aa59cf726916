"""Back-off after preemptions: of a task from a node, and of a node from opportunistic work.

UBIS (§IV.C) returns a preempted container to its job at once. The memory that a preemption frees is slack, so the same
work would be placed on the same node, grow again and be preempted again.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pause:
    """The time in which a task is not placed on the slack of one node; it doubles with each preemption there.

    ``length_s`` is in seconds; ``until`` is its end, monotonic time in seconds.
    """

    length_s: float
    until: float

    def over(self, now: float) -> bool:
        """Return whether the task may be placed there again at ``now``."""
        return now >= self.until


def pause_after(before: Pause | None, now: float, first_s: float, most_s: float) -> Pause:
    """Return the pause that follows a preemption at ``now``.

    Args:
        before: the pause after the task's preemption before this one, on the same node.
        now: monotonic time in seconds.
        first_s: length of the first pause in seconds.
        most_s: length of the longest pause in seconds.
    """
    length_s = min(first_s if before is None else 2 * before.length_s, most_s)
    return Pause(length_s, now + length_s)


@dataclass(slots=True)
class SlackLimit:
    """The number of opportunistic tasks a node may hold at once after a preemption.

    A preemption shows that the node could not hold all its tasks: the limit is then the number that remained. Each task
    that ends there without a preemption raises it by one, like an acknowledgement raises a TCP window in slow start.
    The limit is lifted at ``until``, monotonic time in seconds.
    """

    most: int
    until: float

    @classmethod
    def after_preemption(cls, left: int, now: float, lasts_s: float) -> SlackLimit:
        """Return the limit of a node on which ``left`` opportunistic tasks remain; at least one task is tried again."""
        return cls(max(1, left), now + lasts_s)

    def holds(self, now: float) -> bool:
        """Return whether the limit is still in force at ``now``."""
        return now < self.until

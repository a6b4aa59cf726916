"""What becomes of the news that a task has ended, on its way to who asked for it: until that has it, it is kept."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndHeard:
    """The master has answered the end of a command."""

    job: str
    task: str


@dataclass(frozen=True, slots=True)
class EndUnread:
    """A framework was told how a task ended, and does not read: what is sent to it is in the agent's memory alone."""

    job: str
    task: str

"""Events about the delivery of a task's end: it is kept until the recipient has it."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class EndAcknowledged:
    """The master has acknowledged the end of a command."""

    job: str
    task: str


@dataclass(frozen=True, slots=True)
class EndUnread:
    """A framework was sent a task's end but does not read: messages to it are in the agent's memory only."""

    job: str
    task: str

"""What the shell is told to do."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.wire.master_api import AnyDecision


@dataclass(frozen=True, slots=True)
class SendDecisions:
    """Send a ``decide`` request; its answer comes back as the event ``Answered``."""

    node: str
    number: int
    decisions: list[AnyDecision]


@dataclass(frozen=True, slots=True)
class Hangup:
    """Close the node's connection: it has been silent for too long. ``NodeAway`` is not wanted for it."""

    node: str
    reason: str


@dataclass(frozen=True, slots=True)
class Explain:
    """Log what happened: who, why, which numbers."""

    what: str
    facts: dict[str, object]


Instruction = SendDecisions | Hangup | Explain

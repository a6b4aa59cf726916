"""PURE. Decides which monotasks of a gate wait, hold a slot or run ungated: events in, instructions out.

The clock is an argument. A gate fails open: while the agent is away, a monotask waits at most ``patience_s`` seconds,
counted from the start of the outage, and then runs ungated. A ticket (any hashable object that represents a monotask)
is *waiting*, then *held* (granted) or *ungated*, then ended. Ungated tickets are counted but not stored.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

#: A link that lasted less than this (seconds) did not end the previous outage: an agent that keeps crashing is away.
SETTLED_S = 1.0


class Submit(NamedTuple, Generic[T]):
    """Queue the monotask at the agent."""

    ticket: T


class Go(NamedTuple, Generic[T]):
    """End the monotask's wait."""

    ticket: T
    gated: bool


class Refuse(NamedTuple, Generic[T]):
    """Fail the monotask: it will never be granted."""

    ticket: T
    error: Exception


class Complete(NamedTuple, Generic[T]):
    """Give the monotask's slot back."""

    ticket: T
    failed: bool


class Withdraw(NamedTuple, Generic[T]):
    """Tell the agent that the monotask is no longer wanted, queued or granted."""

    ticket: T


class Warn(NamedTuple):
    """Warn once per outage that work goes on without grants."""


Instruction = Submit[T] | Go[T] | Refuse[T] | Complete[T] | Withdraw[T] | Warn


class Gating(Generic[T]):
    """See the module's docstring. It starts without a link: the first outage lasts until the first :meth:`back`."""

    def __init__(self, patience_s: float, now: float) -> None:
        self._patience_s = patience_s
        self._waiting: dict[T, bool] = {}  # → whether it was submitted to the agent
        self._held: set[T] = set()
        self._linked = False
        self._linked_at = now
        self._outage_began = now
        self._warned = False
        self._counts = dict.fromkeys(("granted", "ungated", "released", "cancelled", "refused", "outages"), 0)

    # ------------------------------------------------------------ state

    @property
    def linked(self) -> bool:
        """Whether the agent is connected and answers."""
        return self._linked

    @property
    def open(self) -> bool:
        """Whether patience is over and work runs ungated: until :meth:`back`, no request need wait or be submitted."""
        return not self._linked and self._warned

    @property
    def waiting(self) -> int:
        """The number of waiting tickets."""
        return len(self._waiting)

    @property
    def deadline(self) -> float | None:
        """The time at which :meth:`tick` has to be called, if any."""
        return None if self._linked or not self._waiting else self._outage_began + self._patience_s

    def counts(self) -> dict[str, int]:
        """Return the totals since the start, and the numbers ``waiting`` and ``held`` now."""
        return self._counts | {"waiting": len(self._waiting), "held": len(self._held)}

    # ------------------------------------------------------------ requests

    def ask(self, ticket: T, now: float) -> list[Instruction[T]]:
        """Handle a request for a slot."""
        self._waiting[ticket] = self._linked
        return [Submit(ticket)] if self._linked else self.tick(now)

    def release(self, ticket: T, *, failed: bool) -> list[Instruction[T]]:
        """End a ticket's work. A ticket without a grant is withdrawn; an ended one is ignored."""
        if ticket not in self._held:
            return self.cancel(ticket)
        self._held.remove(ticket)
        self._counts["released"] += 1
        return [Complete(ticket, failed)]

    def cancel(self, ticket: T) -> list[Instruction[T]]:
        """Withdraw a ticket, waiting or held; an ended one is ignored."""
        if ticket in self._held:
            self._held.remove(ticket)
            known = True
        elif ticket in self._waiting:
            known = self._waiting.pop(ticket)
        else:
            return []
        self._counts["cancelled"] += 1
        return [Withdraw(ticket)] if known else []

    # ------------------------------------------------------------ the agent's messages

    def granted(self, ticket: T) -> list[Instruction[T]]:
        """Handle a grant; ignore one that crossed a cancellation."""
        if ticket not in self._waiting:
            return []
        del self._waiting[ticket]
        self._held.add(ticket)
        self._counts["granted"] += 1
        return [Go(ticket, gated=True)]

    def refused(self, ticket: T, error: Exception) -> list[Instruction[T]]:
        """Handle the agent's refusal of a ticket."""
        if ticket not in self._waiting:
            return []
        del self._waiting[ticket]
        self._counts["refused"] += 1
        return [Refuse(ticket, error)]

    # ------------------------------------------------------------ the link

    def back(self, now: float) -> list[Instruction[T]]:
        """The agent is connected. Tickets submitted before the outage have already been announced again."""
        if self._linked:
            return []
        self._linked = True
        self._linked_at = now
        return list(self._ask_for_all())

    def lost(self, now: float) -> list[Instruction[T]]:
        """The link was lost, or silent since ``now``. A new outage starts unless the link had only just recovered."""
        if self._linked:
            self._linked = False
            if now - self._linked_at >= SETTLED_S:
                self._outage_began = now
                self._warned = False
        return []

    def forgotten(self, now: float) -> list[Instruction[T]]:
        """The agent has lost all tickets: submit waiting ones again; held ones run on and are counted no more."""
        self.lost(now)
        self._waiting = dict.fromkeys(self._waiting, False)
        self._held.clear()
        return []

    def tick(self, now: float) -> list[Instruction[T]]:
        """Release all waiting tickets ungated once patience is over."""
        out: list[Instruction[T]] = []
        if self._linked or now < self._outage_began + self._patience_s or not self._waiting:
            return out
        if not self._warned:
            self._warned = True
            self._counts["outages"] += 1
            out.append(Warn())
        waiting, self._waiting = self._waiting, {}
        for ticket, known in waiting.items():
            self._counts["ungated"] += 1
            if known:
                out.append(Withdraw(ticket))
            out.append(Go(ticket, gated=False))
        return out

    def close(self, error: Exception | None) -> list[Instruction[T]]:
        """End all waits: with ``error``, or ungated without one."""
        waiting, self._waiting = self._waiting, {}
        self._held.clear()
        return [Go(ticket, gated=False) if error is None else Refuse(ticket, error) for ticket in waiting]

    def _ask_for_all(self) -> Iterator[Instruction[T]]:
        for ticket, known in self._waiting.items():
            if not known:
                self._waiting[ticket] = True
                yield Submit(ticket)

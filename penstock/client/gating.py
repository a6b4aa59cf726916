"""PURE. Which monotasks of a gate wait, hold a slot, or go on without one: events in, instructions out.

The clock is an argument. A gate fails open: while the agent is away, whoever waits does so for at most ``patience_s``
seconds, counted from when the outage began, and then goes on ungated. The states of a ticket (any hashable thing that
stands for one monotask): *waiting*, then *held* (granted) or *ungated*, then ended. What is ungated is not kept here:
nobody counts it.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T", bound=Hashable)

#: A link that lasted less than this (seconds) did not end the outage before it: an agent that keeps crashing is away.
SETTLED_S = 1.0


class Submit(NamedTuple, Generic[T]):
    """Queue it at the agent."""

    ticket: T


class Go(NamedTuple, Generic[T]):
    """It need not wait any longer."""

    ticket: T
    gated: bool


class Refuse(NamedTuple, Generic[T]):
    """It will never be granted."""

    ticket: T
    error: Exception


class Complete(NamedTuple, Generic[T]):
    """Give its slot back."""

    ticket: T
    failed: bool


class Withdraw(NamedTuple, Generic[T]):
    """Tell the agent that it is no longer wanted, queued or granted."""

    ticket: T


class Warn(NamedTuple):
    """Say once that from now on work goes on without grants."""


Instruction = Submit[T] | Go[T] | Refuse[T] | Complete[T] | Withdraw[T] | Warn


class Gating(Generic[T]):
    """See the module's docstring. It begins without a link: the first outage lasts until the first :meth:`back`."""

    def __init__(self, patience_s: float, now: float) -> None:
        self._patience_s = patience_s
        self._waiting: dict[T, bool] = {}  # → whether the agent was asked
        self._held: set[T] = set()
        self._linked = False
        self._linked_at = now
        self._outage_began = now
        self._warned = False
        self._counts = dict.fromkeys(("granted", "ungated", "released", "cancelled", "refused", "outages"), 0)

    # ------------------------------------------------------------ what is so

    @property
    def linked(self) -> bool:
        """Whether the agent is there and answers."""
        return self._linked

    @property
    def open(self) -> bool:
        """Whether patience is over and somebody went on ungated: until :meth:`back`, nobody else need wait or ask."""
        return not self._linked and self._warned

    @property
    def waiting(self) -> int:
        """How many wait."""
        return len(self._waiting)

    @property
    def deadline(self) -> float | None:
        """When :meth:`tick` has something to do, if it will."""
        return None if self._linked or not self._waiting else self._outage_began + self._patience_s

    def counts(self) -> dict[str, int]:
        """Totals since the beginning, and how many are ``waiting`` and ``held`` now."""
        return self._counts | {"waiting": len(self._waiting), "held": len(self._held)}

    # ------------------------------------------------------------ what the work wants

    def ask(self, ticket: T, now: float) -> list[Instruction[T]]:
        """Somebody wants a slot."""
        self._waiting[ticket] = self._linked
        return [Submit(ticket)] if self._linked else self.tick(now)

    def release(self, ticket: T, *, failed: bool) -> list[Instruction[T]]:
        """The work is over; what never had a grant is withdrawn, what ended before is nothing."""
        if ticket not in self._held:
            return self.cancel(ticket)
        self._held.remove(ticket)
        self._counts["released"] += 1
        return [Complete(ticket, failed)]

    def cancel(self, ticket: T) -> list[Instruction[T]]:
        """No longer wanted, waiting or held; what ended before is nothing."""
        if ticket in self._held:
            self._held.remove(ticket)
            known = True
        elif ticket in self._waiting:
            known = self._waiting.pop(ticket)
        else:
            return []
        self._counts["cancelled"] += 1
        return [Withdraw(ticket)] if known else []

    # ------------------------------------------------------------ what the agent says

    def granted(self, ticket: T) -> list[Instruction[T]]:
        """The agent's grant; one that crossed a cancellation is none."""
        if ticket not in self._waiting:
            return []
        del self._waiting[ticket]
        self._held.add(ticket)
        self._counts["granted"] += 1
        return [Go(ticket, gated=True)]

    def refused(self, ticket: T, error: Exception) -> list[Instruction[T]]:
        """The agent does not take it."""
        if ticket not in self._waiting:
            return []
        del self._waiting[ticket]
        self._counts["refused"] += 1
        return [Refuse(ticket, error)]

    # ------------------------------------------------------------ the link

    def back(self, now: float) -> list[Instruction[T]]:
        """The agent is there. What it was asked before the outage was announced to it again already."""
        if self._linked:
            return []
        self._linked = True
        self._linked_at = now
        return list(self._ask_for_all())

    def lost(self, now: float) -> list[Instruction[T]]:
        """The link is gone, or the agent does not answer since ``now``: an outage begins, or was none the end of."""
        if self._linked:
            self._linked = False
            if now - self._linked_at >= SETTLED_S:
                self._outage_began = now
                self._warned = False
        return []

    def forgotten(self, now: float) -> list[Instruction[T]]:
        """The agent will not hear of what it was asked or has granted so far: that has to be asked for anew.

        What is held goes on; nobody counts it any more.
        """
        self.lost(now)
        self._waiting = dict.fromkeys(self._waiting, False)
        self._held.clear()
        return []

    def tick(self, now: float) -> list[Instruction[T]]:
        """Time has passed: when patience is over, those who wait go on ungated."""
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
        """Nothing more is granted: whoever waits hears why, or (None) goes on ungated."""
        waiting, self._waiting = self._waiting, {}
        self._held.clear()
        return [Go(ticket, gated=False) if error is None else Refuse(ticket, error) for ticket in waiting]

    def _ask_for_all(self) -> Iterator[Instruction[T]]:
        for ticket, known in self._waiting.items():
            if not known:
                self._waiting[ticket] = True
                yield Submit(ticket)

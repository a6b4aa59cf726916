"""Whatever happens in whatever order: a gate lets everybody through once, tells the agent the truth, and fails open."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.client.gating import SETTLED_S, Complete, Gating, Go, Instruction, Refuse, Submit, Warn, Withdraw

PATIENCE_S = 5.0
NUMBERS = st.integers(0, 50)


class GateMachine(RuleBasedStateMachine):
    """Beside the gate stand an agent, which believes what it is told, and the people who wait."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.gating: Gating[int] = Gating(PATIENCE_S, self.now)
        self.last = 0
        self.waiting: dict[int, float] = {}  # → since when
        self.gated: set[int] = set()
        self.ungated: set[int] = set()
        self.queued: set[int] = set()  # at the agent, or in the client that will announce it
        self.running: set[int] = set()
        self.away_since: float | None = self.now
        self.back_at = self.now
        self.warnings = 0

    def carry_out(self, instructions: list[Instruction[int]]) -> None:
        for each in instructions:
            match each:
                case Submit(ticket):
                    assert self.away_since is None
                    assert ticket in self.waiting
                    assert ticket not in self.queued
                    self.queued.add(ticket)
                case Go(ticket, True):
                    assert ticket in self.running
                    del self.waiting[ticket]
                    self.gated.add(ticket)
                case Go(ticket, _):
                    assert self.away_since is not None
                    assert self.now >= self.away_since + PATIENCE_S
                    assert self.warnings == 1
                    del self.waiting[ticket]
                    self.ungated.add(ticket)
                case Refuse(ticket, _):
                    del self.waiting[ticket]
                case Complete(ticket, _):
                    self.running.remove(ticket)
                case Withdraw(ticket):
                    assert ticket in self.queued | self.running
                    self.queued.discard(ticket)
                    self.running.discard(ticket)
                case Warn():
                    self.warnings += 1

    def pick(self, among: set[int] | dict[int, float], number: int) -> int:
        return sorted(among)[number % len(among)]

    @rule()
    def ask(self) -> None:
        self.last += 1
        self.waiting[self.last] = self.now
        self.carry_out(self.gating.ask(self.last, self.now))

    @precondition(lambda self: self.queued and self.away_since is None)
    @rule(number=NUMBERS)
    def grant(self, number: int) -> None:
        ticket = self.pick(self.queued, number)
        self.queued.remove(ticket)
        self.running.add(ticket)
        self.carry_out(self.gating.granted(ticket))
        assert ticket in self.gated

    @precondition(lambda self: self.queued and self.away_since is None)
    @rule(number=NUMBERS)
    def refuse(self, number: int) -> None:
        ticket = self.pick(self.queued, number)
        self.queued.remove(ticket)
        self.carry_out(self.gating.refused(ticket, ValueError()))
        assert ticket not in self.waiting

    @precondition(lambda self: self.last > 0)
    @rule(number=NUMBERS, failed=st.booleans())
    def release(self, number: int, failed: bool) -> None:
        """Also of what never was granted or has ended."""
        ticket = number % self.last + 1
        self.carry_out(self.gating.release(ticket, failed=failed))
        self.forget(ticket)

    @precondition(lambda self: self.last > 0)
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        ticket = number % self.last + 1
        self.carry_out(self.gating.cancel(ticket))
        self.forget(ticket)

    @rule()
    def lose(self) -> None:
        self.carry_out(self.gating.lost(self.now))
        self.away()

    @rule()
    def forgotten(self) -> None:
        self.carry_out(self.gating.forgotten(self.now))
        self.away()
        self.queued.clear()
        self.running.clear()
        self.gated.clear()

    @rule()
    def back(self) -> None:
        if self.away_since is not None:
            self.before, self.away_since, self.back_at = self.away_since, None, self.now
        self.carry_out(self.gating.back(self.now))

    @rule(seconds=st.sampled_from([0.0, SETTLED_S / 3, SETTLED_S, PATIENCE_S / 2, PATIENCE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.gating.deadline
        self.carry_out(self.gating.tick(self.now))
        if deadline is not None and deadline <= self.now:
            assert not self.waiting

    def away(self) -> None:
        if self.away_since is None:
            if self.now - self.back_at >= SETTLED_S:
                self.away_since, self.warnings = self.now, 0
            else:
                self.away_since = self.before

    def forget(self, ticket: int) -> None:
        self.waiting.pop(ticket, None)
        self.gated.discard(ticket)
        self.ungated.discard(ticket)
        assert ticket not in self.queued | self.running

    @invariant()
    def the_agent_counts_what_is_held(self) -> None:
        assert self.running == self.gated
        assert self.queued <= set(self.waiting)

    @invariant()
    def with_an_agent_everybody_who_waits_is_queued_there(self) -> None:
        if self.away_since is None:
            assert self.queued == set(self.waiting)
            assert not self.gating.open

    @invariant()
    def the_counts_are_true(self) -> None:
        counts = self.gating.counts()
        assert (counts["waiting"], counts["held"]) == (len(self.waiting), len(self.gated))
        assert self.warnings <= 1


GateMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=60, deadline=None)
TestGate = GateMachine.TestCase

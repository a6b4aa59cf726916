"""In every order of events, a gate ends each wait once, reports the truth to the agent, and fails open."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from penstock.client.monotask_session import SETTLED_S, MonotaskSession, SessionMonotask
from penstock.model.resources import ResourceKind

PATIENCE_S = 5.0
NUMBERS = st.integers(0, 50)


class GateMachine(RuleBasedStateMachine):
    """The session of a gate, and an agent that trusts its messages; messages arrive at once."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.session: MonotaskSession[SessionMonotask] = MonotaskSession(PATIENCE_S, self.now)
        self.all: list[SessionMonotask] = []
        self.waiting: set[SessionMonotask] = set()
        self.gated: set[SessionMonotask] = set()
        self.connected = False
        self.queued: dict[int, SessionMonotask] = {}  # at the agent
        self.running: set[int] = set()
        self.away_since: float | None = self.now
        self.before = self.back_at = self.now
        self.outages_before = 0

    def flush(self) -> None:
        out = self.session.take()
        assert self.connected or not (out.submit or out.complete or out.cancel)
        for spec in out.submit:
            assert spec.id not in self.queued and spec.id not in self.running
            if spec.running:
                self.running.add(spec.id)
            else:
                [self.queued[spec.id]] = [one for one in self.waiting if one.id == spec.id]
        for completion in out.complete:
            self.running.remove(completion.id)
        for one in out.cancel:
            assert one in self.queued or one in self.running
            self.queued.pop(one, None)
            self.running.discard(one)

    def give_up(self) -> None:
        for one in self.session.give_up(self.now):
            assert self.away_since is not None
            assert self.now >= self.away_since + PATIENCE_S
            assert self.session.outages == self.outages_before + 1
            self.waiting.remove(one)
        self.flush()

    def pick(self, among: Collection[int], number: int) -> int:
        return sorted(among)[number % len(among)]

    @rule()
    def ask(self) -> None:
        one = SessionMonotask(ResourceKind.CPU, 1)
        self.all.append(one)
        self.waiting.add(one)
        self.session.submit(one)
        self.give_up()

    @precondition(lambda self: self.queued and self.away_since is None)
    @rule(number=NUMBERS)
    def grant(self, number: int) -> None:
        one = self.queued.pop(self.pick(self.queued, number))
        self.running.add(one.id)
        assert self.session.grant([one.id], self.now) == [one]
        self.waiting.remove(one)
        self.gated.add(one)

    @precondition(lambda self: self.queued and self.away_since is None)
    @rule(number=NUMBERS)
    def refuse(self, number: int) -> None:
        one = self.queued.pop(self.pick(self.queued, number))
        assert self.session.refuse([one.id]) == [one]
        self.waiting.remove(one)

    @precondition(lambda self: self.all)
    @rule(number=NUMBERS, failed=st.booleans())
    def release(self, number: int, failed: bool) -> None:
        """Also of monotasks that never were granted or have ended."""
        one = self.all[number % len(self.all)]
        if one.is_granted:
            self.session.complete(one, self.now, failed)
        else:
            self.session.cancel(one)
        self.ended(one)

    @precondition(lambda self: self.all)
    @rule(number=NUMBERS)
    def cancel(self, number: int) -> None:
        one = self.all[number % len(self.all)]
        self.session.cancel(one)
        self.ended(one)

    @rule()
    def lose(self) -> None:
        self.session.unlink()
        self.disconnected()

    @precondition(lambda self: self.connected)
    @rule()
    def silent(self) -> None:
        self.session.lost(self.now)
        self.away()
        self.give_up()

    @rule()
    def forgotten(self) -> None:
        self.session.job_over()
        self.gated.clear()
        self.disconnected()

    @rule()
    def back(self) -> None:
        if self.away_since is not None:
            self.before, self.away_since, self.back_at = self.away_since, None, self.now
        self.connected = True
        self.session.link()
        self.session.back(self.now)
        self.flush()

    @rule(seconds=st.sampled_from([0.0, SETTLED_S / 3, SETTLED_S, PATIENCE_S / 2, PATIENCE_S]))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        deadline = self.session.deadline
        self.give_up()
        if deadline is not None and deadline <= self.now:
            assert not self.waiting

    def disconnected(self) -> None:
        self.connected = False
        self.queued.clear()
        self.running.clear()
        self.session.lost(self.now)
        self.away()

    def away(self) -> None:
        if self.away_since is None:
            if self.now - self.back_at >= SETTLED_S:
                self.away_since, self.outages_before = self.now, self.session.outages
            else:
                self.away_since = self.before

    def ended(self, one: SessionMonotask) -> None:
        self.waiting.discard(one)
        self.gated.discard(one)
        self.flush()
        assert one.id not in self.queued and one.id not in self.running

    @invariant()
    def the_agent_counts_held_slots(self) -> None:
        if self.connected:
            assert self.running == {one.id for one in self.gated}
            assert set(self.queued.values()) == self.waiting

    @invariant()
    def an_agent_that_answers_is_waited_for(self) -> None:
        assert self.session.answers == (self.away_since is None)
        if self.session.answers:
            assert not self.session.open

    @invariant()
    def the_counts_are_true(self) -> None:
        assert sum(self.session.waiting.values()) == len(self.waiting)
        assert self.session.granted == len(self.gated)
        assert self.session.outages <= self.outages_before + 1


GateMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=60)
TestGate = GateMachine.TestCase

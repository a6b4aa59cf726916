"""Slots kept idle under a lease: no work waits for one longer than the lease, and all work that ran in them is
counted.
"""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.queues import Monotask
from penstock.client.gate_slot import LARGEST_BYTES, IdleSlots, KeptSlot
from penstock.client.monotask_session import MonotaskSession, SessionMonotask
from penstock.model import ResourceKind
from tests.fakes.queues import make_queues

CPU = ResourceKind.CPU
LEASE_S = 1.0
KEPT_S = 3.0
SLOTS = 2
GATES = 3


class Held:
    """A slot in use: of a monotask that the agent knows (``by_agent``), or not."""

    def __init__(self, one: SessionMonotask, by_agent: bool, kept: KeptSlot | None) -> None:
        self.one, self.by_agent, self.kept = one, by_agent, kept


class OneGate:
    """One gate, whose messages the test holds."""

    def __init__(self, number: int) -> None:
        self.session_number = number + 1
        self.job = f"j{number}"
        self.session: MonotaskSession[SessionMonotask] = MonotaskSession()
        self.session.link()
        self.idle = IdleSlots(self.session.waiting)
        self.running: list[Held] = []
        self.inbox: list[tuple[str, list[int], bool]] = []


class KeptSlots(RuleBasedStateMachine):
    """Gates of three jobs at one agent, messages with delay; every gate keeps all slots that it may."""

    @initialize()
    def start(self) -> None:
        self.now = 100.0
        self.gates = [OneGate(number) for number in range(GATES)]
        jobs = {gate.job: float(number % 2) for number, gate in enumerate(self.gates)}
        self.queues = make_queues(SLOTS, jobs=jobs, lease_s=LEASE_S, lease_kept_s=KEPT_S)
        self.ended = self.failed = self.leased = 0
        self.waits_since: float | None = None

    # ------------------------------------------------------------ steps of gates

    @rule(which=st.integers(0, GATES - 1), large=st.sampled_from([False, False, False, True]))
    def want(self, which: int, large: bool) -> None:
        gate = self.gates[which]
        one = SessionMonotask(CPU, LARGEST_BYTES + 1 if large else 1)
        kept = gate.idle.take(one, self.now)
        if kept is not None:
            gate.running.append(Held(one, False, kept))
            return
        for kept in gate.idle.reclaim((CPU,)):
            self.give_back(gate, kept)
        gate.session.submit(one)
        self.flush(gate)

    @precondition(lambda self: any(gate.running for gate in self.gates))
    @rule(data=st.data(), failed=st.booleans())
    def finish(self, data: st.DataObject, failed: bool) -> None:
        gate = data.draw(st.sampled_from([gate for gate in self.gates if gate.running]))
        held = gate.running.pop(data.draw(st.integers(0, len(gate.running) - 1)))
        self.end(gate, held, failed)

    def end(self, gate: OneGate, held: Held, failed: bool) -> None:
        self.ended += 1
        self.failed += failed
        if held.kept is None:
            self.complete(gate, held.one, failed, None)
        elif not gate.idle.give(held.kept, held.one, self.now, failed):
            self.give_back(gate, held.kept)
        self.leased += not held.by_agent

    @rule(which=st.integers(0, GATES - 1))
    def read(self, which: int) -> None:
        gate = self.gates[which]
        inbox, gate.inbox = gate.inbox, []
        for what, ids, keep in inbox:
            if what == "recall":
                gate.session.recall(CPU, idle=keep)
                for kept in gate.idle.reclaim((CPU,)):
                    self.give_back(gate, kept)
                continue
            length_s = 0.0 if what != "lease" else KEPT_S if keep else LEASE_S
            for one in gate.session.grant(ids, self.now, length_s, keep):
                self.granted(gate, one)

    @rule(seconds=st.floats(0.0, 0.9))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for gate in self.gates:
            for kept in gate.idle.expired(self.now):
                self.give_back(gate, kept)

    def granted(self, gate: OneGate, one: SessionMonotask) -> None:
        gate.running.append(Held(one, True, KeptSlot(one) if one.keep else None))

    def give_back(self, gate: OneGate, kept: KeptSlot) -> None:
        self.complete(gate, kept.holder, kept.first[0], kept)
        gate.idle.returned(kept)

    def complete(self, gate: OneGate, one: SessionMonotask, failed: bool, kept: KeptSlot | None) -> None:
        first_s, leased = (None, None) if kept is None else (kept.first[1], kept.leased(self.now))
        then = gate.session.complete(one, self.now, failed, first_s, leased)
        if then is not None:
            self.granted(gate, then)
        self.flush(gate)

    # ------------------------------------------------------------ the wires

    def flush(self, gate: OneGate) -> None:
        out = gate.session.take()
        granted: list[Monotask] = []
        if out.submit:
            granted += self.queues.submit(gate.session_number, gate.job, out.submit, self.now)
        if out.complete:
            granted += self.queues.complete(gate.session_number, gate.job, out.complete, self.now)
        for monotask in granted:
            to = self.gates[monotask.session - 1]
            assert isinstance(monotask.id, int)
            to.inbox.append(("lease" if monotask.lease_until else "grant", [monotask.id], monotask.keep))
        for job, _, only in self.queues.take_recalled():
            self.gates[int(job[1:])].inbox.append(("recall", [], only is not None))
        queued = sum(self.queues.job_counts(gate.job)["queued"] for gate in self.gates)
        self.waits_since = None if not queued else self.now if self.waits_since is None else self.waits_since

    # ------------------------------------------------------------ invariants

    def kept(self) -> int:
        return sum(len(gate.idle.of[CPU]) for gate in self.gates)

    @invariant()
    def slots_are_never_more_than_there_are(self) -> None:
        if hasattr(self, "gates"):
            assert sum(len(gate.running) for gate in self.gates) + self.kept() <= SLOTS
            assert self.queues.counts(CPU, self.now).running <= SLOTS

    @invariant()
    def no_work_waits_for_an_idle_slot_longer_than_a_lease(self) -> None:
        if hasattr(self, "gates") and self.kept() and self.waits_since is not None:
            assert self.now - self.waits_since <= KEPT_S

    @invariant()
    def a_gate_that_got_a_recall_keeps_nothing(self) -> None:
        if hasattr(self, "gates") and self.waits_since is not None:
            for gate in self.gates:
                assert gate.inbox or not gate.idle.of[CPU], "a gate that has read all keeps a slot from waiting work"

    def teardown(self) -> None:
        """Let every gate read, finish and give back: each that ran is counted once, nothing leaks."""
        if not hasattr(self, "gates"):
            return
        while any(len(gate.session) for gate in self.gates):
            for number, gate in enumerate(self.gates):
                self.read(number)
                while gate.running:
                    self.end(gate, gate.running.pop(), False)
            self.time_passes(KEPT_S)
        counts = [self.queues.job_counts(gate.job) for gate in self.gates]
        assert sum(each["done"] + each["failed"] for each in counts) == self.ended
        assert sum(each["failed"] for each in counts) == self.failed
        assert sum(gate.idle.counts()["granted"] for gate in self.gates) == self.leased
        assert all(gate.idle.counts()["held"] == 0 for gate in self.gates)
        assert self.queues.idle().cpu == SLOTS
        assert self.queues.counts(CPU, self.now).pending_bytes == 0


TestKeptSlots = KeptSlots.TestCase
TestKeptSlots.settings = settings(max_examples=25, stateful_step_count=60, suppress_health_check=list(HealthCheck))

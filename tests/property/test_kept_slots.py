"""Slots kept idle under a lease: nobody waits for one longer than the lease, and all that ran in them is counted."""

from __future__ import annotations

from typing import Any, cast

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.queues import Monotask, MonotaskQueues
from penstock.client.gate_lease import LARGEST_BYTES, Lease, Leases
from penstock.client.gate_slot import Slot
from penstock.client.ledger import MonotaskLedger
from penstock.model import Capacity, ResourceKind

CPU = ResourceKind.CPU
LEASE_S = 1.0
KEPT_S = 3.0
SLOTS = 2
GATES = 3


class Held:
    """A slot in use: of a monotask that the agent knows, or not."""

    def __init__(self, slot: Slot, one: int | None, lease: Lease[Slot] | None) -> None:
        self.slot, self.one, self.lease = slot, one, lease


class OneGate:
    """What a gate does, with its messages in our hands."""

    def __init__(self, number: int) -> None:
        self.session = number + 1
        self.job = f"j{number}"
        self.ledger = MonotaskLedger()
        self.ledger.link()
        self.leases: Leases[Slot] = Leases()
        self.known: dict[int, Slot] = {}  # submitted, not granted
        self.ids: dict[Slot, int] = {}
        self.running: list[Held] = []
        self.inbox: list[tuple[str, list[int], bool]] = []
        self.idle: list[Lease[Slot]] = []

    def slot(self, input_bytes: int) -> Slot:
        return Slot(cast(Any, None), None, CPU, input_bytes)


class KeptSlots(RuleBasedStateMachine):
    """Gates of three jobs at one agent, messages with delay; every gate keeps what it may."""

    @initialize()
    def start(self) -> None:
        capacity = Capacity(cores=SLOTS, memory_bytes=1)
        self.queues = MonotaskQueues(
            capacity, network_bypass_bytes=0, rate_window_s=5, lease_s=LEASE_S, lease_kept_s=KEPT_S
        )
        self.now = 100.0
        self.gates = [OneGate(number) for number in range(GATES)]
        for number, gate in enumerate(self.gates):
            self.queues.add_job(gate.job, float(number % 2))
        self.ended = self.failed = self.leased = 0
        self.waits_since: float | None = None

    # ------------------------------------------------------------ what gates do

    @rule(which=st.integers(0, GATES - 1), large=st.sampled_from([False, False, False, True]))
    def want(self, which: int, large: bool) -> None:
        gate = self.gates[which]
        slot = gate.slot(LARGEST_BYTES + 1 if large else 1)
        lease = gate.leases.take(slot, self.now)
        if lease is not None:
            gate.running.append(Held(slot, None, lease))
            return
        for lease in gate.leases.idle(CPU):
            self.give_back(gate, lease)
        one = gate.ledger.submit(CPU, slot.input_bytes)
        gate.known[one], gate.ids[slot] = slot, one
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
        if held.lease is None:
            assert held.one is not None
            self.complete(gate, held.one, failed, None)
        elif not gate.leases.give(held.lease, held.slot, self.now, failed):
            self.give_back(gate, held.lease)
        self.leased += held.one is None

    @rule(which=st.integers(0, GATES - 1))
    def read(self, which: int) -> None:
        gate = self.gates[which]
        inbox, gate.inbox = gate.inbox, []
        for what, ids, keep in inbox:
            if what == "recall":
                gate.ledger.recall(CPU, idle=keep)
                for lease in gate.leases.recall((CPU,)):
                    self.give_back(gate, lease)
                continue
            length_s = 0.0 if what != "lease" else KEPT_S if keep else LEASE_S
            for one in gate.ledger.grant(ids, self.now, length_s, keep):
                assert isinstance(one, int)
                self.granted(gate, one)

    @rule(seconds=st.floats(0.0, 0.9))
    def time_passes(self, seconds: float) -> None:
        self.now += seconds
        for gate in self.gates:
            for lease in gate.leases.expired(self.now):
                self.give_back(gate, lease)

    def granted(self, gate: OneGate, one: int) -> None:
        slot = gate.known.pop(one)
        gate.leases.waits_no_more(slot)
        until = gate.ledger.kept_until(one)
        gate.running.append(Held(slot, one, gate.leases.lent(slot, until, self.now) if until else None))

    def give_back(self, gate: OneGate, lease: Lease[Slot]) -> None:
        self.complete(gate, gate.ids[lease.slot], lease.first_failed, lease)
        gate.leases.returned(lease)

    def complete(self, gate: OneGate, one: int, failed: bool, lease: Lease[Slot] | None) -> None:
        first_s, leased = (None, None) if lease is None else (lease.first_s, lease.leased(self.now))
        passed = gate.ledger.pass_on(one, self.now, failed, first_s, leased)
        if passed is None:
            assert gate.ledger.complete(one, failed, first_s, leased)
        else:
            assert isinstance(passed[0], int)
            self.granted(gate, passed[0])
        self.flush(gate)

    # ------------------------------------------------------------ the wires

    def flush(self, gate: OneGate) -> None:
        out = gate.ledger.take()
        granted: list[Monotask] = []
        if out.submit:
            granted += self.queues.submit(gate.session, gate.job, out.submit, self.now)
        if out.complete:
            granted += self.queues.complete(gate.session, gate.job, out.complete, self.now)
        for monotask in granted:
            to = self.gates[monotask.session - 1]
            assert isinstance(monotask.id, int)
            to.inbox.append(("lease" if monotask.lease_until else "grant", [monotask.id], monotask.keep))
        for job, _, only in self.queues.take_recalled():
            self.gates[int(job[1:])].inbox.append(("recall", [], only is not None))
        queued = sum(self.queues.job_counts(gate.job)["queued"] for gate in self.gates)
        self.waits_since = None if not queued else self.now if self.waits_since is None else self.waits_since

    # ------------------------------------------------------------ what always holds

    def kept(self) -> int:
        return sum(len(gate.leases._idle[CPU]) for gate in self.gates)

    @invariant()
    def slots_are_never_more_than_there_are(self) -> None:
        if hasattr(self, "gates"):
            assert sum(len(gate.running) for gate in self.gates) + self.kept() <= SLOTS
            assert self.queues.counts(CPU, self.now)["running"] <= SLOTS

    @invariant()
    def nobody_waits_for_an_idle_slot_longer_than_a_lease(self) -> None:
        if hasattr(self, "gates") and self.kept() and self.waits_since is not None:
            assert self.now - self.waits_since <= KEPT_S

    @invariant()
    def who_was_told_keeps_nothing(self) -> None:
        if hasattr(self, "gates") and self.waits_since is not None:
            for gate in self.gates:
                assert gate.inbox or not gate.leases._idle[CPU], "a gate that has read all keeps a slot from who waits"

    def teardown(self) -> None:
        """Everybody reads, finishes and gives back: each that ran is counted once, nothing leaks."""
        if not hasattr(self, "gates"):
            return
        while any(len(gate.ledger) for gate in self.gates):
            for number, gate in enumerate(self.gates):
                self.read(number)
                while gate.running:
                    self.end(gate, gate.running.pop(), False)
            self.time_passes(KEPT_S)
        counts = [self.queues.job_counts(gate.job) for gate in self.gates]
        assert sum(each["done"] + each["failed"] for each in counts) == self.ended
        assert sum(each["failed"] for each in counts) == self.failed
        assert sum(gate.leases.counts()["granted"] for gate in self.gates) == self.leased
        assert all(gate.leases.counts()["held"] == 0 for gate in self.gates)
        assert self.queues.idle().cpu == SLOTS
        assert self.queues.counts(CPU, self.now)["pending_bytes"] == 0


TestKeptSlots = KeptSlots.TestCase
TestKeptSlots.settings = settings(
    max_examples=100, stateful_step_count=60, deadline=None, suppress_health_check=list(HealthCheck)
)

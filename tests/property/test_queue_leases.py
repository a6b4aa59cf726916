"""Exceptions from the order last a bounded time: leases by their length, starvation by one grant at a time."""

from __future__ import annotations

import math

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from agent.queues import Monotask
from penstock.client.monotask_session import MonotaskSession, SessionMonotask
from penstock.model import KINDS, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import complete, make_queues, specs

CPU = ResourceKind.CPU
LEASE_S = 2.0
SLOTS = 2


class LeaseMachine(RuleBasedStateMachine):
    """Two jobs and more, a client's session for each, delayed messages; each client passes slots on whenever it may."""

    def __init__(self) -> None:
        super().__init__()
        self.queues = make_queues(SLOTS, lease_s=LEASE_S)
        self.now = 100.0
        self.sessions: dict[str, MonotaskSession[SessionMonotask]] = {}
        self.priority: dict[str, float] = {}
        self.to_client: dict[str, list[tuple[str, list[int]]]] = {}
        self.running: dict[str, dict[int, SessionMonotask]] = {}  # as the clients know it
        self.waits_since: dict[str, float] = {}  # at the agent
        self.ended = 0
        self.passed_on = 0

    @initialize()
    def two_jobs(self) -> None:
        self.add_job(0.0)
        self.add_job(1.0)

    @rule(priority=st.sampled_from([0.0, 1.0, 2.0]))
    def add_job(self, priority: float) -> None:
        job = f"j{len(self.sessions)}"
        self.sessions[job] = MonotaskSession()
        self.sessions[job].link()
        self.priority[job] = priority
        self.to_client[job] = []
        self.running[job] = {}
        self.queues.add_job(job, priority)

    @rule(data=st.data(), count=st.integers(1, 4))
    def submit(self, data: st.DataObject, count: int) -> None:
        job = data.draw(st.sampled_from(sorted(self.sessions)))
        for _ in range(count):
            self.sessions[job].submit(SessionMonotask(CPU, 1))
        self.flush(job)

    @rule(data=st.data())
    def client_reads(self, data: st.DataObject) -> None:
        job = data.draw(st.sampled_from(sorted(self.sessions)))
        for what, ids in self.to_client[job]:
            if what == "recall":
                self.sessions[job].recall(CPU)
                continue
            lease_s = LEASE_S if what == "lease" else 0.0
            self.running[job] |= {one.id: one for one in self.sessions[job].grant(ids, self.now, lease_s)}
        self.to_client[job].clear()

    @precondition(lambda self: any(self.running.values()))
    @rule(data=st.data(), seconds=st.floats(0.0, 0.7))
    def finish(self, data: st.DataObject, seconds: float) -> None:
        job = data.draw(st.sampled_from(sorted(job for job, running in self.running.items() if running)))
        one = data.draw(st.sampled_from(sorted(self.running[job])))
        self.now += seconds
        self.ended += 1
        passed = self.sessions[job].complete(self.running[job].pop(one), self.now)
        if passed is not None:
            self.passed_on += 1
            self.running[job][passed.id] = passed
            self.no_monotask_waits_longer_than_a_lease(job)
        if passed is None or data.draw(st.booleans()):
            self.flush(job)

    @rule(data=st.data(), priority=st.sampled_from([0.0, 1.0, 2.0]))
    def set_priority(self, data: st.DataObject, priority: float) -> None:
        job = data.draw(st.sampled_from(sorted(self.sessions)))
        if self.priority[job] != priority:
            self.priority[job] = priority
            if job in self.waits_since:
                self.waits_since[job] = self.now  # for its new rank
            for other in self.waits_since:
                if self.rank(other) < self.rank(job):
                    self.waits_since[other] = self.now
            self.queues.set_priority(job, priority, self.now)
            self.tell([])

    # ------------------------------------------------------------ the wires

    def flush(self, job: str) -> None:
        out = self.sessions[job].take()
        granted: list[Monotask] = []
        if out.submit:
            granted += self.queues.submit(1, job, out.submit, self.now)
        if out.complete:
            granted += self.queues.complete(1, job, out.complete, self.now)
        self.tell(granted)

    def tell(self, granted: list[Monotask]) -> None:
        for monotask in granted:
            assert isinstance(monotask.id, int)
            what = "lease" if monotask.lease_until else "grant"
            self.to_client[monotask.job].append((what, [monotask.id]))
        for job, kind, idle in self.queues.take_recalled():
            assert kind is CPU
            if idle is None:  # these clients keep nothing idle
                self.to_client[job].append(("recall", []))
        for job in self.sessions:
            if self.queues.job_counts(job)["queued"]:
                self.waits_since.setdefault(job, self.now)
            else:
                self.waits_since.pop(job, None)
        for monotask in granted:
            if monotask.job in self.waits_since:
                self.waits_since[monotask.job] = self.now

    def rank(self, job: str) -> tuple[float, int]:
        return (-self.priority[job], int(job[1:]))

    # ------------------------------------------------------------ invariants

    def no_monotask_waits_longer_than_a_lease(self, job: str) -> None:
        """The first in order has waited at most a lease's length when a slot is passed on, recalled or not."""
        for other, since in self.waits_since.items():
            if self.rank(other) < self.rank(job):
                assert self.now - since <= LEASE_S + 1e-9, (
                    f"{job} passed its slot on though {other} waits since {since}"
                )

    @invariant()
    def never_more_run_than_there_are_slots(self) -> None:
        assert sum(map(len, self.running.values())) <= SLOTS
        assert self.queues.counts(CPU, self.now).running <= SLOTS

    def teardown(self) -> None:
        """Let every client read, finish and report: nothing is lost, nothing leaks."""
        while any(len(session) for session in self.sessions.values()):
            for job, session in self.sessions.items():
                self.flush(job)
                for what, ids in self.to_client[job]:
                    if what != "recall":
                        self.running[job] |= {one.id: one for one in session.grant(ids)}
                self.to_client[job].clear()
                for one in self.running[job].values():
                    session.complete(one, math.inf)  # all leases are over
                self.running[job].clear()
                self.flush(job)
        assert all(self.queues.job_counts(job)["running"] == 0 for job in self.sessions)
        assert self.queues.idle().cpu == SLOTS


TestLeases = LeaseMachine.TestCase
TestLeases.settings = settings(max_examples=50, stateful_step_count=50, suppress_health_check=list(HealthCheck))


@given(
    st.lists(st.sampled_from([0.0, 1.0, 5.0]), min_size=2, max_size=5),
    st.integers(1, 3),
    st.floats(0.1, 3.0),
)
def test_no_job_waits_without_bound(priorities: list[float], slots: int, length_s: float) -> None:
    """Every job always has work. Each gets a slot at least every ``wait_max_s``, and a turn of all others' later."""
    wait_max_s = 10.0
    queues = make_queues(slots, job_wait_max_s=wait_max_s)
    number = 0
    last: dict[str, float] = {}
    running: list[tuple[float, str, int]] = []

    def took(granted: list[Monotask], now: float) -> None:
        for monotask in granted:
            assert isinstance(monotask.id, int)
            last[monotask.job] = now
            running.append((now + length_s, monotask.job, monotask.id))

    for index, priority in enumerate(priorities):
        job = f"j{index}"
        queues.add_job(job, priority)
        last[job] = 0.0
    for job in last:
        took(queues.submit(1, job, specs(*range(number, number + 200)), 0.0), 0.0)
        number += 200
    bound = wait_max_s + length_s * (len(priorities) + 1)
    while len(running) == slots and running[0][0] < 100:
        running.sort()
        now, job, one = running.pop(0)
        queues.tick(now)
        took(queues.complete(1, job, [Completion(id=one)], now), now)
        for name, at in last.items():
            if queues.job_counts(name)["queued"]:
                assert now - at <= bound, f"{name} has waited {now - at:.1f} s"


@given(st.lists(st.booleans(), min_size=1, max_size=80), st.integers(1, 3))
def test_small_disk_monotasks_share_slots_in_order(smalls: list[bool], disks: int) -> None:
    """No more run at once than slots, sixteen small ones counting as one; and small ones overtake others only by
    size.
    """
    queues = make_queues(disks=disks, jobs={"j": 0.0}, disk_small_bytes=100)
    asked = [
        MonotaskSpec(id=n, kind=ResourceKind.DISK, input_bytes=10 if small else 1000) for n, small in enumerate(smalls)
    ]
    running: list[object] = [m.id for m in queues.submit(1, "j", asked, 0.0)]
    done = 0
    while running:
        few = sum(smalls[one] for one in running if isinstance(one, int))
        assert len(running) - few + -(-few // 16) <= disks
        counts = queues.counts(ResourceKind.DISK, 0.0)
        if counts.queued and few < sum(smalls) - done:
            assert few % 16 == 0, "a small one waits though there is room beside the others"
        first = running.pop(0)
        assert isinstance(first, int)
        done += smalls[first]
        running += complete(queues, "j", first, 0.0)
    assert queues.idle() == make_queues(disks=disks).idle()
    assert all(queues.counts(kind, 0.0).queued == 0 for kind in KINDS)

"""The queue core under random events: never double-granted, limits held, order kept, nothing lost, nothing idle."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, invariant, precondition, rule

from agent.queues import Monotask
from agent.queues.monotask import State, size_rank
from penstock.model import KINDS, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import make_queues

SESSIONS = (1, 2, 3)
BYPASS_BYTES = 16


class QueueMachine(RuleBasedStateMachine):
    """The queues beside the plainest possible account of where each monotask should be."""

    jobs = Bundle("jobs")

    def __init__(self) -> None:
        super().__init__()
        self.queues = make_queues(2, network_bypass_bytes=BYPASS_BYTES)
        self.now = 0.0
        self.number = 0
        self.job_rank: dict[str, int] = {}
        self.priority: dict[str, float] = {}
        self.stages: dict[str, list[str]] = {}
        self.queued: dict[tuple[int, str, int], MonotaskSpec] = {}
        self.granted: dict[tuple[int, str, int], MonotaskSpec] = {}
        self.ended: set[tuple[int, str, int]] = set()
        self.submitted = 0

    # ------------------------------------------------------------ the book

    def expect_grants(self, grants: list[Monotask]) -> None:
        for monotask in grants:
            assert isinstance(monotask.id, int)
            key = (monotask.session, monotask.job, monotask.id)
            assert key in self.queued, f"{key} was granted though it does not wait"
            spec = self.queued[key]
            if not self.bypasses(spec):
                first = min((k for k in self.queued if self.waits_for(k, spec.kind)), key=self.rank)
                assert self.rank(first) == self.rank(key), f"{key} was granted before {first}"
            del self.queued[key]
            assert key not in self.granted
            self.granted[key] = spec

    def bypasses(self, spec: MonotaskSpec) -> bool:
        return spec.kind is ResourceKind.NETWORK and spec.input_bytes < BYPASS_BYTES and not spec.running

    def waits_for(self, key: tuple[int, str, int], kind: ResourceKind) -> bool:
        spec = self.queued[key]
        return spec.kind is kind and not self.bypasses(spec)

    def rank(self, key: tuple[int, str, int]) -> tuple[float, int, int, int, int]:
        spec = self.queued[key]
        stage = self.stages[key[1]].index(spec.stage)
        return (-self.priority[key[1]], self.job_rank[key[1]], stage, size_rank(spec.kind, spec.input_bytes), key[2])

    def end(self, key: tuple[int, str, int]) -> None:
        assert key not in self.ended, f"{key} ended twice"
        self.ended.add(key)
        self.queued.pop(key, None)
        self.granted.pop(key, None)

    # ------------------------------------------------------------ events

    @rule(target=jobs, priority=st.sampled_from([0.0, 1.0, 2.0]))
    def add_job(self, priority: float) -> str:
        self.number += 1
        job = f"j{self.number}"
        self.queues.add_job(job, priority)
        self.job_rank[job] = self.number
        self.priority[job] = priority
        self.stages[job] = []
        return job

    @rule(
        job=jobs,
        session=st.sampled_from(SESSIONS),
        batch=st.lists(
            st.tuples(
                st.sampled_from(KINDS), st.integers(0, 40), st.sampled_from(["map", "reduce"]), st.integers(0, 9)
            ),
            min_size=1,
            max_size=6,
        ),
    )
    def submit(self, job: str, session: int, batch: list[tuple[ResourceKind, int, str, int]]) -> None:
        if job not in self.job_rank:
            return
        specs = []
        for kind, size, stage, chance in batch:
            self.number += 1
            specs.append(MonotaskSpec(id=self.number, kind=kind, input_bytes=size, stage=stage, running=chance == 0))
        self.submitted += len(specs)
        for spec in specs:
            assert isinstance(spec.id, int)
            key = (session, job, spec.id)
            if spec.running:
                self.granted[key] = spec
                continue
            if not self.bypasses(spec) and spec.stage not in self.stages[job]:
                self.stages[job].append(spec.stage)
            self.queued[key] = spec
        self.expect_grants(self.queues.submit(session, job, specs, self.now))

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), seconds=st.floats(0, 2), failed=st.booleans())
    def complete(self, data: st.DataObject, seconds: float, failed: bool) -> None:
        self.now += seconds
        session, job, number = data.draw(st.sampled_from(sorted(self.granted)))
        self.end((session, job, number))
        self.expect_grants(self.queues.complete(session, job, [Completion(id=number, failed=failed)], self.now))

    @precondition(lambda self: self.queued or self.granted)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        session, job, number = data.draw(st.sampled_from(sorted([*self.queued, *self.granted])))
        self.end((session, job, number))
        self.expect_grants(self.queues.cancel(session, job, [number, 10**9], self.now))

    @rule(session=st.sampled_from(SESSIONS))
    def disconnect(self, session: int) -> None:
        for key in [k for k in (*self.queued, *self.granted) if k[0] == session]:
            self.end(key)
        self.expect_grants(self.queues.drop_session(session, sorted(self.job_rank), self.now))

    @rule(job=jobs, priority=st.sampled_from([0.0, 1.0, 2.0]))
    def set_priority(self, job: str, priority: float) -> None:
        if job in self.job_rank:
            self.priority[job] = priority
            self.queues.set_priority(job, priority, self.now)

    @rule(job=jobs)
    def remove_job(self, job: str) -> None:
        if job not in self.job_rank:
            return
        for key in [k for k in (*self.queued, *self.granted) if k[1] == job]:
            self.end(key)
        del self.job_rank[job]
        self.expect_grants(self.queues.remove_job(job, self.now))

    # ------------------------------------------------------------ invariants

    @invariant()
    def everything_is_accounted_for(self) -> None:
        assert len(self.queued) + len(self.granted) + len(self.ended) == self.submitted
        for kind in KINDS:
            counts = self.queues.counts(kind, self.now)
            waiting = [k for k in self.queued if self.waits_for(k, kind)]
            holding = [k for k, spec in self.granted.items() if spec.kind is kind]
            assert counts.queued == len(waiting)
            assert counts.running + counts.bypassing == len(holding)
            total = sum(s.input_bytes for s in (*self.queued.values(), *self.granted.values()) if s.kind is kind)
            assert counts.pending_bytes == total

    @invariant()
    def limits_hold_and_nothing_idles(self) -> None:
        for kind in KINDS:
            counts = self.queues.counts(kind, self.now)
            announced = sum(s.running for s in self.granted.values() if s.kind is kind)
            assert counts.running - announced <= counts.slots, "granted above the limit"
            if counts.queued:
                assert counts.running >= counts.slots, "a slot is idle though somebody waits for it"

    @invariant()
    def the_heaps_do_not_grow_without_bound(self) -> None:
        for resource in self.queues._resources.values():
            assert len(resource.jobs) <= 66 + 2 * len(self.job_rank)


TestMonotaskQueues = QueueMachine.TestCase
TestMonotaskQueues.settings = settings(max_examples=25, stateful_step_count=50, suppress_health_check=list(HealthCheck))


def test_the_machine_would_notice_a_double_grant() -> None:
    """The account itself can fail: a second grant of the same monotask is caught."""
    machine = QueueMachine()
    job = machine.add_job(0.0)
    monotask = Monotask(1, job, 1, ResourceKind.CPU, 1, "", small=False)
    monotask.state = State.GRANTED
    try:
        machine.expect_grants([monotask])
    except AssertionError:
        return
    raise RuntimeError("a grant of nothing that waits went unnoticed")

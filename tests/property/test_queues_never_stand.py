"""Queues of a node where the kernel orders the jobs, under all events: no monotask that may run waits.

Two questions, asked after every event: would another pass through the queues grant anything (then the event has lost a
grant), and are all counts those of the live monotasks. And one at the end: each waiting monotask is granted while
running ones end, until nothing is left and nothing is counted.
"""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.queues import COMMANDS, Monotask, overdue, slotless
from agent.queues.monotask import BYPASSING, GRANTED, OVERDUE, QUEUED
from agent.queues.withheld import withhold
from penstock.model import KINDS, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import make_queues

USERS = {"a": "eve", "b": "eve", "c": "max", "d": "zoe"}
GATES = (1, 2, 3)
SMALL_BYTES, BYPASS_BYTES = 100, 16
WAIT_S, HELD_S = 2.0, 5.0
JOBS = st.sampled_from(sorted(USERS))
SESSIONS = st.sampled_from([COMMANDS, *GATES])
SIZES = st.sampled_from([1, 50, 1000])


class NeverStand(RuleBasedStateMachine):
    """Jobs of three users, commands and three gates."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.number = 0

    @initialize(
        cores=st.integers(1, 3), disks=st.integers(1, 2), links=st.integers(1, 2), lease_s=st.sampled_from([0.0, 1.0])
    )
    def begin(self, cores: int, disks: int, links: int, lease_s: float) -> None:
        self.cores = cores
        self.queues = make_queues(
            cores, disks=disks, links=links, network_bypass_bytes=BYPASS_BYTES, disk_small_bytes=SMALL_BYTES,
            lease_s=lease_s, lease_kept_s=3 * lease_s, job_wait_max_s=WAIT_S, ranked=True,
        )  # fmt: skip
        for job in USERS:
            self.add(job)

    def add(self, job: str) -> None:
        self.queues.add_job(job, 0.0, USERS[job])

    def live(self) -> list[Monotask]:
        return [one for job in self.queues.jobs() for live in job.live.values() for one in live.values()]

    def fresh(self) -> int:
        self.number += 1
        return self.number

    # ------------------------------------------------------------ events

    @rule(
        job=JOBS, session=SESSIONS, running=st.sampled_from([False, False, False, True]), stage=st.sampled_from("xy"),
        batch=st.lists(st.tuples(st.sampled_from(KINDS), SIZES), min_size=1, max_size=4),
    )  # fmt: skip
    def submit(self, job: str, session: int, running: bool, stage: str, batch: list[tuple[ResourceKind, int]]) -> None:
        specs = [
            MonotaskSpec(id=self.fresh(), kind=kind, input_bytes=size, stage=stage, running=running)
            for kind, size in batch
        ]
        self.queues.submit(session, job, specs, self.now)
        if running and session == COMMANDS:
            self.first_command()

    def first_command(self) -> None:
        """A command that ran before it was counted makes room beyond the slots, which the next event grants."""
        self.queues.reordered(self.now)

    @rule(data=st.data(), failed=st.booleans(), seconds=st.floats(0, 1))
    def complete(self, data: st.DataObject, failed: bool, seconds: float) -> None:
        self.now += seconds
        if held := [one for one in self.live() if one.state is not QUEUED]:
            one = data.draw(st.sampled_from(held))
            self.queues.complete(one.session, one.job, [Completion(id=one.id, failed=failed)], self.now)

    @rule(data=st.data())
    def pass_on(self, data: st.DataObject) -> None:
        """Under a lease the slot goes to the job's next monotask without a question."""
        pairs = [
            (one, then)
            for one in self.live()
            if one.state in (GRANTED, OVERDUE) and one.lease_until
            for then in self.live()
            if (then.job, then.session, then.kind, then.state) == (one.job, one.session, one.kind, QUEUED)
        ]
        if pairs:
            one, then = data.draw(st.sampled_from(pairs))
            self.queues.complete(one.session, one.job, [Completion(id=one.id, then=then.id)], self.now)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        if live := self.live():
            one = data.draw(st.sampled_from(live))
            self.queues.cancel(one.session, one.job, [one.id], self.now)

    @rule(session=SESSIONS)
    def hang_up(self, session: int) -> None:
        self.queues.drop_session(session, list(USERS), self.now)

    @rule(job=JOBS)
    def end_job(self, job: str) -> None:
        self.queues.remove_job(job, self.now)
        self.add(job)

    @rule(moved=st.lists(st.tuples(JOBS, st.integers(-2, 2)), max_size=4))
    def reorder(self, moved: list[tuple[str, int]]) -> None:
        for job, priority in moved:
            self.queues.set_priority(job, float(priority), self.now)
        self.queues.reordered(self.now)

    @rule(slots=st.integers(0, 3))
    def withhold(self, slots: int) -> None:
        withhold(self.queues, min(slots, self.cores), self.now)

    @rule(job=JOBS)
    def begin_beside(self, job: str) -> None:
        spec = MonotaskSpec(id=self.fresh(), kind=ResourceKind.CPU, input_bytes=0)
        slotless.begin(self.queues, job, spec, self.now)

    @rule(data=st.data())
    def promote(self, data: st.DataObject) -> None:
        if able := [one for one in self.live() if one.state is BYPASSING and one.session == COMMANDS]:
            one = data.draw(st.sampled_from(able))
            if one.kind is ResourceKind.CPU and self.queues.idle().of(one.kind) >= 1:
                spec = MonotaskSpec(id=one.id, kind=one.kind, input_bytes=7)
                slotless.give_slot(self.queues, one.job, spec, self.now)
                self.first_command()

    @rule(seconds=st.sampled_from([0.5, 2.5, 6.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.queues.tick(self.now)
        overdue.take_back(self.queues, self.now, HELD_S)

    # ------------------------------------------------------------ what holds

    @invariant()
    def no_grant_was_lost(self) -> None:
        if hasattr(self, "queues"):
            found = self.queues.grant_free(set(self.queues.resources()), self.now)
            assert not found, "a monotask that may run waits"

    @invariant()
    def counts_are_those_of_the_monotasks(self) -> None:
        if not hasattr(self, "queues"):
            return
        live = self.live()
        for resource in self.queues.resources():
            mine = [one for one in live if one.kind is resource.kind]
            holding = [one for one in mine if one.state is GRANTED]
            small = sum(one.small for one in holding)
            assert resource.running == len(holding) - small + -(-small // 16)
            assert resource.queued == sum(one.state is QUEUED for one in mine)
            assert resource.bypassing == sum(one.state is BYPASSING for one in mine)
            counted = resource.held if resource.commands is None else resource.commands
            assert counted is not None
            of_cpu = resource.kind is ResourceKind.CPU
            kept = [one.job for one in holding if not one.small and (not of_cpu or one.session == COMMANDS)]
            assert {job.id: count for job, count in counted.items()} == {job: kept.count(job) for job in kept}
        for job in self.queues.jobs():
            own = [one for one in live if one.job == job.id]
            assert job.running == sum(one.state is not QUEUED for one in own)
            commands = [one for one in own if one.session == COMMANDS and one.state is GRANTED and not one.small]
            assert job.by_cpu == sum(one.kind is ResourceKind.CPU for one in commands)
            assert job.commands == sum(one.kind is not ResourceKind.CPU for one in commands)

    def teardown(self) -> None:
        """End all running monotasks, one after the other, until there are none: then nothing waits, and all slots are
        free.
        """
        if not hasattr(self, "queues"):
            return
        withhold(self.queues, 0, self.now)
        while held := [one for one in self.live() if one.state is not QUEUED]:
            self.now += 0.1
            self.queues.complete(held[0].session, held[0].job, [Completion(id=held[0].id)], self.now)
        assert self.queues.queued() == 0, "monotasks wait though nothing runs"
        for resource in self.queues.resources():
            assert (resource.free, resource.small, resource.overdue) == (resource.slots, 0, 0)
            assert not resource.held and not resource.commands and not resource.aside


TestNeverStand = NeverStand.TestCase
TestNeverStand.settings = settings(max_examples=50, stateful_step_count=50)

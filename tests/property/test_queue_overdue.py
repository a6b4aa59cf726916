"""Slots that are taken back, among all events of queues: the free, overdue and pending counts stay true."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from agent.queues import Monotask, overdue
from agent.queues.debts import parts
from agent.queues.monotask import GRANTED, OVERDUE, QUEUED, TOGETHER
from penstock.model import KINDS, MonotaskSpec, ResourceKind
from penstock.wire.agent_api import Completion
from tests.fakes.queues import make_queues

USERS = {"a": "eve", "b": "eve", "c": "max", "d": "zoe"}
SLOTS, HELD_S, WAIT_S = 2, 5.0, 2.0
KEYS = st.sampled_from([(session, job) for session in (0, 1, 2) for job in USERS])


class Queues(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1.0
        self.fresh = 0
        self.granted: set[tuple[int, str, object]] = set()
        self.said_to_run: set[object] = set()  # by clients, after a restart: they are believed

    @initialize(small=st.sampled_from([0, 100]), lease_s=st.sampled_from([0.0, 1.0]))
    def begin(self, small: int, lease_s: float) -> None:
        self.queues = make_queues(
            SLOTS, disks=SLOTS, links=SLOTS, disk_small_bytes=small, lease_s=lease_s, job_wait_max_s=WAIT_S
        )
        for number, (job, user) in enumerate(USERS.items()):
            self.queues.add_job(job, -float(number), user)

    def live(self) -> list[Monotask]:
        return [one for job in self.queues.jobs() for live in job.live.values() for one in live.values()]

    def grant(self, granted: list[Monotask]) -> None:
        for one in granted:
            key = (one.session, one.job, one.id)
            assert key not in self.granted, "granted at most once"
            self.granted.add(key)

    @rule(key=KEYS, kind=st.sampled_from(KINDS), size=st.sampled_from([1, 1000]), running=st.booleans())
    def submit(self, key: tuple[int, str], kind: ResourceKind, size: int, running: bool) -> None:
        self.fresh += 1
        if running:
            self.said_to_run.add(self.fresh)
        spec = MonotaskSpec(id=self.fresh, kind=kind, input_bytes=size, running=running)
        self.grant(self.queues.submit(*key, [spec], self.now))

    @rule(data=st.data(), cancel=st.booleans())
    def end(self, data: st.DataObject, cancel: bool) -> None:
        held = [one for one in self.live() if cancel or one.state is not QUEUED]
        if not held:
            return
        one = data.draw(st.sampled_from(held))
        if cancel:
            self.grant(self.queues.cancel(one.session, one.job, [one.id], self.now))
        else:
            self.grant(self.queues.complete(one.session, one.job, [Completion(id=one.id)], self.now))

    @rule(session=st.sampled_from([0, 1, 2]))
    def hang_up(self, session: int) -> None:
        self.grant(self.queues.drop_session(session, list(USERS), self.now))

    @rule(seconds=st.sampled_from([0.5, 2.0, 6.0]))
    def tick(self, seconds: float) -> None:
        self.now += seconds
        self.grant(self.queues.tick(self.now))
        starved = {resource.kind: list(resource.starving) for resource in self.queues.resources()}
        since = {id(one): one.granted_at for one in self.live()}
        waits = {(one.kind, one.job) for one in self.live() if one.state is QUEUED}
        taken, granted = overdue.take_back(self.queues, self.now, HELD_S)
        self.grant(granted)
        for each in taken:
            one = each.monotask
            assert one.state is OVERDUE and one.session != 0
            assert self.now - since[id(one)] == each.held_s > HELD_S
            assert USERS[each.waiting] != USERS[one.job]
            assert (one.kind, each.waiting) in waits, "nothing is taken for a job that does not wait"
            assert each.waiting in {job.id for job in starved[one.kind]}
        assert len({(each.monotask.kind, each.waiting) for each in taken}) == len(taken), "one slot for each job"

    @invariant()
    def counts_are_true(self) -> None:
        for resource in self.queues.resources():
            mine = [one for one in self.live() if one.kind is resource.kind]
            holding = [one for one in mine if one.state is GRANTED]
            small = sum(one.small for one in holding)
            assert resource.running == len(holding) - small + -(-small // 16)
            assert resource.overdue == sum(one.state is OVERDUE for one in mine)
            assert resource.queued == sum(one.state is QUEUED for one in mine)
            assert resource.pending_bytes == sum(one.input_bytes for one in mine)
            assert resource.slot_seconds >= 0
            has = {user: [one for one in mine if self.counts_for(one, user)] for user in USERS.values()}
            for user, his in has.items():
                at_most = SLOTS + sum(one.id in self.said_to_run for one in his)
                assert sum(one.state is OVERDUE for one in his) <= at_most, f"{user} keeps slots that were taken back"
            for one in mine:
                may = resource.free > 0 and one.state is QUEUED
                assert not may or self.owes(one, has[USERS[one.job]]), "no other waits beside a free slot"

    def counts_for(self, one: Monotask, user: str) -> bool:
        return USERS[one.job] == user and one.session != 0 and one.state in (GRANTED, OVERDUE)

    def owes(self, one: Monotask, has: list[Monotask]) -> bool:
        """Return whether the monotask would exceed its user's limit beside these, some of them without a slot."""
        owing = any(each.state is OVERDUE for each in has) and one.session != 0
        return owing and sum(map(parts, [*has, one])) > SLOTS * TOGETHER


TestQueues = Queues.TestCase
TestQueues.settings = settings(max_examples=75, stateful_step_count=40)

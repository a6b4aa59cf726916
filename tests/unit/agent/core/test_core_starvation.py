"""A slot that is held too long goes to another user's job that starves; waiting and order outlive the agent."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import pytest

from agent.core import events as e
from agent.core.instructions import Explain, Grant, Instruction, Notify, Record
from agent.core.records import Waits
from agent.core.starvation import ROOM
from agent.queues.counts import QueueCounts
from penstock.model import Capacity, ResourceKind
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Cancel, Complete, Completion
from penstock.wire.errors import RpcError
from penstock.wire.jobs_api import SlotTakenBack
from tests.fakes.node_bed import NodeBed

CPU = ResourceKind.CPU
EVE, MAX, ZOE = 1, 2, 3
USERS = {EVE: "eve", MAX: "max", ZOE: "zoe"}


class Bed(NodeBed):
    """A node whose clock a test moves; it keeps the node's messages to sessions."""

    def __init__(self, cores: int = 1, **settings: Any) -> None:
        capacity = Capacity(cores=cores, memory_bytes=10**9, disk_slots=1, network_slots=1)
        super().__init__(capacity=capacity, has_master=False, **settings)
        self.now, self.epoch_s = 100.0, 0.0
        self.granted: list[tuple[str, object]] = []
        self.told: list[SlotTakenBack] = []
        self.explained: list[dict[str, object]] = []
        self.connect()

    def connect(self) -> None:
        for session, user in USERS.items():
            self.open(session, user)

    def hear(self, one: Instruction) -> None:
        match one:
            case Grant(grants=grants):
                self.granted += [(grants.job, each) for each in grants.ids]
            case Notify(params=SlotTakenBack() as params):
                self.told.append(params)
            case Explain(facts=facts):
                self.explained.append(facts)

    def restart_host(self) -> None:
        """Start another agent on a clock that begins at 0. The journal's records of jobs come back in no order."""
        jobs = self.of("jobs")
        random.Random(len(jobs)).shuffle(jobs)
        self.restart(jobs=jobs)
        self.connect()

    def ticks(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.sampled()

    @property
    def counts(self) -> QueueCounts:
        return self.node.queues.counts(CPU, self.now)


def test_a_slot_held_too_long_goes_to_another_user_s_job_that_starves() -> None:
    bed = Bed(slot_held_max_s=60.0)
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1, 2, 3)
    bed.submit(MAX, his, 1)
    bed.ticks(59)
    assert bed.granted == [(hers, 1)]
    bed.ticks(3)
    assert bed.granted == [(hers, 1), (his, 1)], "and not the next in order, which is the same user's"
    (told,) = bed.told
    assert (told.job, told.id, told.kind) == (hers, 1, CPU)
    assert f"held for 61 s, and job {his} of another user had waited 61 s" in told.why
    assert "slot_held_max_s is 60" in told.why and bed.explained[-1]["why"] == told.why
    assert (bed.counts.running, bed.counts.overdue, bed.counts.taken_back) == (1, 1, 1)
    bed.complete(MAX, his, 1)  # the slot is free, and not for who has all that there is
    assert bed.granted[-1] == (his, 1)
    bed.complete(EVE, hers, 1)  # late, and as ever
    assert bed.node.queues.job_counts(hers)["done"] == 1
    assert (bed.counts.running, bed.counts.overdue) == (1, 0)
    assert bed.granted[2:] == [(hers, 2)], "what it held was given on before"
    bed.complete(EVE, hers, 2)
    assert bed.granted[-1] == (hers, 3)


def test_long_work_loses_nothing_while_no_other_user_starves() -> None:
    bed = Bed(slot_held_max_s=60.0)
    hers, also_hers, his = bed.register(EVE), bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1)
    bed.submit(EVE, also_hers, 1)
    bed.ticks(500)
    bed.submit(MAX, his, 1)
    bed.ticks(30)  # it has waited, and not for long
    assert bed.granted == [(hers, 1)] and not bed.told


def test_a_job_that_starves_starts_beyond_the_slots_of_the_disk_without_another_event_there() -> None:
    bed = Bed(ranked=True, job_wait_max_s=30.0)
    ahead, behind = bed.register(EVE), bed.register(EVE)  # of one user, whose slots are not taken back
    for job in (ahead, behind):
        bed.submit(EVE, job, 1, kind=ResourceKind.DISK, size=2**30)
    bed.ticks(30)
    assert bed.granted == [(ahead, 1)]
    bed.ticks(1)  # the first may hold the disk for hours, and nothing else asks for it
    assert bed.granted == [(ahead, 1), (behind, 1)]


@pytest.mark.parametrize("how", ["cancelled", "left"])
def test_a_job_whose_monotasks_were_withdrawn_takes_no_slot_of_others(how: str) -> None:
    bed = Bed(slot_held_max_s=60.0)
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1, 2)
    bed.submit(MAX, his, 1)
    bed.ticks(1)
    if how == "cancelled":
        bed.send(e.Requested(m.CANCEL, MAX, Cancel(job=his, ids=[1])))
    else:
        bed.send(e.SessionClosed(MAX))
    bed.ticks(100)
    assert not bed.told and all(his not in waits.since for waits in bed.of(ROOM))
    assert (bed.counts.running, bed.counts.overdue) == (1, 0)
    bed.complete(EVE, hers, 1)
    assert bed.granted == [(hers, 1), (hers, 2)], "she owes nothing"


def test_operators_may_switch_it_off_while_the_node_runs() -> None:
    bed = Bed(slot_held_max_s=0.0)
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1)
    bed.submit(MAX, his, 1)
    bed.ticks(300)
    assert not bed.told
    bed.send(e.Reconfigured(replace(bed.settings, slot_held_max_s=200.0), bed.now))
    bed.ticks(1)
    assert len(bed.told) == 1


@pytest.mark.parametrize("idle_s", [0, 300])
def test_a_user_who_completes_nothing_keeps_no_slot_with_any_queue(idle_s: int) -> None:
    bed = Bed(cores=2, slot_held_max_s=10.0, job_wait_max_s=5.0)
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, *range(20))
    for number in range(6):
        bed.submit(MAX, his, number)
        bed.ticks(20)
        assert bed.granted[-1] == (his, number)
        bed.complete(MAX, his, number)
        bed.ticks(idle_s)  # no other user waits, and she is granted no more for it
        bed.submit(EVE, hers, 100 + number)
    held = bed.counts.running + bed.counts.overdue
    assert (held, bed.counts.overdue >= 1) == (2, True)
    bed.complete(EVE, hers, 0)
    assert bed.granted[-1] == (hers, 2), "a job that completes gets other grants"


def test_a_slot_that_was_taken_back_cannot_be_passed_on() -> None:
    bed = Bed(slot_held_max_s=10.0, job_wait_max_s=5.0, lease_s=0.005)
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1)
    bed.submit(EVE, hers, 2)
    bed.submit(MAX, his, 1)
    bed.ticks(20)
    assert bed.granted[-1] == (his, 1)
    with pytest.raises(RpcError, match="without a lease"):
        bed.send(e.Requested(m.COMPLETE, EVE, Complete(job=hers, monotasks=[Completion(id=1, then=2)])))
    assert (bed.counts.running, bed.counts.overdue) == (1, 1)


def test_as_many_of_each_user_run_on_without_a_slot_as_there_are_slots() -> None:
    bed = Bed(cores=2, slot_held_max_s=10.0, job_wait_max_s=5.0)
    jobs = {session: bed.register(session) for session in USERS}
    for session, job in jobs.items():
        bed.submit(session, job, *range(10))
    bed.ticks(1000)
    assert (bed.counts.running, bed.counts.overdue) == (2, 2 * (len(USERS) - 1))
    for session in USERS:
        bed.send(e.SessionClosed(session))
    assert (bed.counts.running, bed.counts.overdue, bed.counts.pending_bytes) == (0, 0, 0)


class Client:
    """Has always something queued, and takes a second for each monotask, also over restarts."""

    def __init__(self, bed: Bed, session: int, job: str) -> None:
        self.bed, self.session, self.job = bed, session, job
        self.fresh = 0
        self.running: tuple[object, float] | None = None
        self.last = bed.wall_s
        self.worst_s = 0.0
        self.done = 0

    def queue(self) -> None:
        self.fresh += 1
        self.bed.submit(self.session, self.job, self.fresh)

    def rejoin(self) -> None:
        self.bed.register(self.session, job=self.job)
        if self.running is not None:
            self.bed.submit(self.session, self.job, self.running[0], running=True)
        self.queue()

    def look(self) -> None:
        mine = [one for job, one in self.bed.granted if job == self.job]
        self.bed.granted = [(job, one) for job, one in self.bed.granted if job != self.job]
        if mine:
            self.worst_s = max(self.worst_s, self.bed.wall_s - self.last)
            self.last = self.bed.wall_s
            self.running = (mine[-1], self.bed.wall_s)
            self.queue()
        elif self.running is not None and self.bed.wall_s > self.running[1]:
            self.done += 1
            one, self.running = self.running[0], None
            self.bed.complete(self.session, self.job, one)


@pytest.mark.parametrize("every_s", [4, 11, 25])
def test_no_job_starves_over_restarts(every_s: int) -> None:
    """Without the journal's word, a restart before ``job_wait_max_s`` begins each wait anew, for ever."""
    bed = Bed(job_wait_max_s=30.0)
    clients = [Client(bed, session, bed.register(session)) for session in USERS]
    for client in clients:
        client.queue()
    for second in range(600):
        bed.ticks(1)
        if second % every_s == every_s - 1:
            bed.restart_host()
            for client in reversed(clients) if second % 2 else clients:
                client.rejoin()
        for client in clients * 2:
            client.look()
    assert min(client.done for client in clients) >= 600 / (30 + 3 + every_s)
    # The journal's record may be three seconds old, and running monotasks and the other starving job go first.
    assert max(client.worst_s for client in clients) <= 30 + 3 + every_s + 2 * len(clients)


def test_jobs_keep_their_order_over_a_restart() -> None:
    bed = Bed()
    jobs = [bed.register(EVE) for _ in range(8)]
    bed.send(e.JobIntroduced("m-9", "guest", "zoe", 0.0))
    later = bed.register(EVE)
    bed.restart_host()
    assert [job.id for job in bed.node.queues.jobs()] == [*jobs, "m-9", later]
    bed.restart_host()
    assert [job.id for job in bed.node.queues.jobs()] == [*jobs, "m-9", later]
    assert bed.register(EVE) in list(bed.node.jobs)[-1:]


def test_waiting_is_journaled_where_it_changes_only() -> None:
    bed = Bed()
    hers, his = bed.register(EVE), bed.register(MAX)
    bed.submit(EVE, hers, 1)
    bed.submit(MAX, his, 1)
    bed.ticks(10)
    assert bed.of(ROOM) == [Waits({his: {0: 100.0}})]
    bed.done.clear()
    bed.ticks(20)
    assert not bed.given(Record)
    bed.complete(EVE, hers, 1)
    bed.ticks(5)
    assert bed.of(ROOM) == []

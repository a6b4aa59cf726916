"""A command of a job ahead in the order does not wait for the slots of those behind (docs/ranks.md)."""

from __future__ import annotations

import pytest

from agent.core.instructions import Instruction, StartContainer
from agent.queues.resource import MOST_AHEAD
from penstock.model import MOST_BEYOND, Capacity, KindAmounts, ResourceKind
from penstock.wire.master_api import SetPriority
from tests.fakes.node_bed import MIB, NodeBed

CORES = 2
WAIT_MAX_S = 30.0


class Bed(NodeBed):
    """A node of two cores with a master; ``started`` are the tasks whose commands run, in order."""

    def __init__(self, *, ranked: bool = True) -> None:
        capacity = Capacity(cores=CORES, memory_bytes=1 << 40, disk_slots=1)
        super().__init__(capacity=capacity, ranked=ranked, job_wait_max_s=WAIT_MAX_S, sample_interval_s=1.0)
        self.now = 100.0
        self.started: list[str] = []

    def hear(self, one: Instruction) -> None:
        if isinstance(one, StartContainer):
            self.started.extend(held.task for held in self.node.held if held.container == one.container)
            self.begin(one.container, 1000 + len(self.started))

    def place(self, job: str, tasks: int, priority: float, kind: ResourceKind = ResourceKind.CPU) -> None:
        usage = KindAmounts.single(kind, float(MIB))
        for number in range(tasks):
            self.command(f"{job}{number}", usage=usage, memory_bytes=MIB, command_kind=kind, job=job, priority=priority)

    def end(self, job: str, task: str) -> None:
        self.exit(self.container(task, job))

    def sample(self, seconds: float) -> None:
        self.now += seconds
        self.sampled()


def test_commands_of_another_job_start_though_those_of_the_first_hold_the_slots(bed: Bed) -> None:
    """As they may be waiting for a disk."""
    bed.place("first", 3, 1.0)
    bed.place("second", 3, 0.0)
    assert bed.started == ["first0", "first1", "second0", "second1"], "no job has more at once than there are slots"
    standings = bed.node.ranks.standings
    assert standings["first"].rank == 0 and standings["second"].rank == 1
    bed.end("second", "second0")
    assert bed.started[4:] == ["second2"]
    bed.end("first", "first0")
    assert bed.started[5:] == ["first2"]


def test_beyond_the_bound_a_job_behind_waits_and_one_ahead_starts(bed: Bed) -> None:
    for number in range(MOST_BEYOND):
        bed.place(f"j{number}-", 2, 10.0)
    bed.place("behind", 1, 5.0)
    assert len(bed.started) == MOST_BEYOND * CORES and "behind0" not in bed.started
    bed.place("ahead", 3, 20.0)
    assert bed.started[MOST_BEYOND * CORES :] == ["ahead0", "ahead1"]
    bed.decide(SetPriority(job="behind", priority=15.0))
    assert bed.started[-1] == "behind0", "processors that the first job leaves are not left to those behind"
    bed.place("last", 1, 5.0)
    bed.end("ahead", "ahead0")
    bed.end("behind", "behind0")
    assert bed.started[-1] == "ahead2" and "last0" not in bed.started, "those up to it still have the most"


def test_a_command_does_not_wait_for_a_disk_that_a_job_behind_holds(bed: Bed) -> None:
    bed.place("long", 2, 1.0, ResourceKind.DISK)
    assert bed.started == ["long0"]
    bed.place("short", 2, 2.0, ResourceKind.DISK)
    assert bed.started == ["long0", "short0"], "no more than twice as many as there are slots"
    bed.place("shortest", 1, 3.0, ResourceKind.DISK)
    bed.end("long", "long0")
    assert bed.started == ["long0", "short0", "shortest0"]
    bed.end("shortest", "shortest0")
    assert len(bed.started) == 3, "short0 holds the slot, so that no other of its job is granted one"
    bed.end("short", "short0")
    assert bed.started[3:] == ["short1"]
    bed.end("short", "short1")
    assert bed.started[4:] == ["long1"]


def test_however_many_jobs_come_there_is_a_bound(bed: Bed) -> None:
    for number in range(20):
        bed.place(f"j{number}-", 2, float(number))
    assert len(bed.started) == MOST_AHEAD * CORES


def test_a_job_that_has_waited_too_long_is_the_first_for_one_command(bed: Bed) -> None:
    for number in range(MOST_BEYOND):
        bed.place(f"j{number}-", 2, 10.0)
    bed.place("last", 2, 0.0)
    bed.sample(1.0)
    assert len(bed.started) == MOST_BEYOND * CORES
    bed.sample(WAIT_MAX_S + 1)
    assert bed.started[MOST_BEYOND * CORES :] == ["last0"]


@pytest.mark.parametrize(("kind", "slots"), [(ResourceKind.CPU, CORES), (ResourceKind.DISK, 1)])
def test_where_the_kernel_cannot_get_the_order_commands_keep_to_the_slots(kind: ResourceKind, slots: int) -> None:
    bed = Bed(ranked=False)
    bed.place("long", slots, 1.0, kind)
    bed.place("short", 1, 2.0, kind)
    assert bed.started == [f"long{number}" for number in range(slots)]
    assert bed.node.load(bed.now).most_commands == 0 < Bed().node.load(bed.now).most_commands

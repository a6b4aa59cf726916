"""A command of a job that stands ahead does not wait for the slots of those behind (docs/ranks.md)."""

from __future__ import annotations

from agent.core import Node
from agent.core import events as e
from agent.core.instructions import StartContainer
from agent.core.settings import NodeSettings
from agent.core.snapshot import Snapshot
from agent.queues.resource import MOST_BEYOND
from penstock.model import Capacity, ContainerSpec, KindAmounts, ResourceKind, TaskRequest
from penstock.wire.master_api import Assign, SetPriority

CORES = 2
WAIT_MAX_S = 30.0


class Bed:
    """A node of two cores with a master; ``started`` are the tasks whose commands run, in order."""

    def __init__(self, *, ranked: bool = True) -> None:
        capacity = Capacity(cores=CORES, memory_bytes=1 << 40, disk_slots=1)
        settings = NodeSettings(
            node="n",
            instance="i",
            capacity=capacity,
            has_master=True,
            ranked=ranked,
            job_wait_max_s=WAIT_MAX_S,
            sample_interval_s=1.0,
        )
        self.node = Node(settings)
        self.now = 100.0
        self.told = 0
        self.started: list[str] = []

    def send(self, event: e.Event) -> None:
        done = self.node.handle(event, self.now)
        tasks = {held.container: held.task for held in self.node.held if held.container}
        for container in [one.container for one in done if isinstance(one, StartContainer)]:
            self.started.append(tasks[container])
            self.send(e.ContainerStarted(container, 1000 + len(self.started), {}, self.now))

    def decide(self, *decisions: Assign | SetPriority) -> None:
        self.told += 1
        self.send(e.Decided(self.told, list(decisions)))

    def place(self, job: str, tasks: int, priority: float, kind: ResourceKind = ResourceKind.CPU) -> None:
        requests = [
            TaskRequest(
                task=f"{job}{number}", usage=KindAmounts.single(kind, float(1 << 20)), memory_bytes=1 << 20,
                command=ContainerSpec(argv=("x",)), command_kind=kind,
            )
            for number in range(tasks)
        ]  # fmt: skip
        self.decide(
            *(Assign(job=job, stage="s", user="u", origin="o", priority=priority, request=each) for each in requests)
        )

    def end(self, job: str, task: str) -> None:
        self.send(e.ContainerExited(self.node.held.by_key[job, task].container, 0, None, 1.0, 0, 0, self.now))

    def sample(self, seconds: float) -> None:
        self.now += seconds
        self.send(e.Sampled(Snapshot(self.now, 1.0), self.now))


def test_a_job_that_the_master_moves_ahead_starts_at_once_and_the_other_goes_on_behind() -> None:
    bed = Bed()
    bed.place("long", 3, 1.0)
    bed.place("short", 3, 0.0)
    assert bed.started == ["long0", "long1"]
    bed.decide(SetPriority(job="short", priority=2.0))
    assert bed.started[2:] == ["short0", "short1"], "no job has more at once than there are slots"
    standings = bed.node.ranks.standings
    assert standings["short"].rank == 0 and standings["long"].rank == 1
    bed.end("short", "short0")
    assert bed.started[4:] == ["short2"]
    for task in ("short1", "short2"):
        bed.end("short", task)
    assert bed.started[5:] == [], "those of the long job hold both slots"
    bed.end("long", "long0")
    assert bed.started[5:] == ["long2"]


def test_a_job_behind_waits_for_a_slot() -> None:
    bed = Bed()
    bed.place("first", 2, 2.0)
    bed.place("second", 1, 1.0)
    bed.decide(SetPriority(job="second", priority=1.5))
    assert bed.started == ["first0", "first1"]


def test_a_disk_has_no_more_than_its_slots() -> None:
    bed = Bed()
    bed.place("long", 1, 1.0, ResourceKind.DISK)
    bed.place("short", 1, 2.0, ResourceKind.DISK)
    assert bed.started == ["long0"]


def test_however_many_jobs_come_there_is_a_bound() -> None:
    bed = Bed()
    for number in range(20):
        bed.place(f"j{number}-", 2, float(number))
    assert len(bed.started) == MOST_BEYOND * CORES


def test_while_a_job_has_waited_too_long_nothing_starts_beyond_the_slots() -> None:
    bed = Bed()
    bed.place("running", 2, 1.0)
    bed.place("last", 1, 0.0)
    bed.sample(WAIT_MAX_S + 1)
    bed.place("fresh", 2, 2.0)
    assert bed.started == ["running0", "running1"]
    bed.end("running", "running0")
    assert bed.started[2:] == ["last0", "fresh0", "fresh1"]


def test_where_the_kernel_cannot_be_told_the_order_commands_keep_to_the_slots() -> None:
    bed = Bed(ranked=False)
    bed.place("long", 2, 1.0)
    bed.place("short", 1, 2.0)
    assert bed.started == ["long0", "long1"]
    assert bed.node.load(bed.now).most_commands == 0 < Bed().node.load(bed.now).most_commands

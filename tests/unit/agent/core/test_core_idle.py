"""The idle cores in a node's heartbeats: one that a placed task is about to take does not count (Ursa §4.2.2)."""

from __future__ import annotations

from penstock.model import KindAmounts, ResourceKind, TaskRequest
from tests.fakes.node_bed import NodeBed


class Bed(NodeBed):
    """A node of four cores with a job of a client."""

    def __init__(self) -> None:
        super().__init__()
        self.open()
        self.job = self.register()

    def place(self, task: str = "t", **usage: float) -> None:
        self.assign_request(TaskRequest(task=task, usage=KindAmounts(**usage)), job=self.job)

    def queue(self, number: int, kind: ResourceKind, size: int) -> None:
        self.submit(1, self.job, number, kind=kind, size=size, task="t")


def test_a_placed_task_takes_its_core_until_something_of_it_is_queued(bed: Bed) -> None:
    bed.place(cpu=50.0, disk=10.0)
    load = bed.node.load(0.0)
    assert (load.idle.cpu, load.idle.disk) == (3.0, 1.0), "its framework has only now heard where it is"
    assert load.pending == KindAmounts(cpu=50.0, disk=10.0)
    bed.queue(1, ResourceKind.DISK, 10)
    assert bed.node.load(0.0).idle == KindAmounts(cpu=4.0, disk=0.0, network=2.0), "it reads: its core is idle"
    bed.now = 1.0
    bed.complete(1, bed.job, 1)
    bed.queue(2, ResourceKind.CPU, 50)
    assert bed.node.load(1.0).idle.cpu == 3.0, "taken once, and not a second time for its being placed lately"


def test_a_task_that_does_not_compute_takes_no_core_and_there_are_never_fewer_than_none(bed: Bed) -> None:
    bed.place(disk=10.0)
    assert bed.node.load(0.0).idle.cpu == 4.0
    for number in range(6):
        bed.place(f"c{number}", cpu=50.0)
    assert bed.node.load(0.0).idle.cpu == 0.0


def test_a_command_is_in_its_queue_at_once(bed: Bed) -> None:
    bed.command("c", spec={"cpu_cores": 1.0}, usage=KindAmounts(cpu=50.0), job=bed.job)
    assert bed.node.load(0.0).idle.cpu == 3.0

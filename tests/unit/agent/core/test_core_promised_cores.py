"""Promised cores and CPU slots on the node: commands that start at once, commands that wait, frameworks in a
container.
"""

from __future__ import annotations

from agent.core import instructions as i
from agent.core.snapshot import ContainerUse
from penstock.model import KindAmounts, ResourceKind
from penstock.wire.master_api import Promote
from tests.fakes.node_bed import NodeBed

CORES = 4
CPU = ResourceKind.CPU


class Bed(NodeBed):
    """A node of four cores with a master; containers start on request at once."""

    def __init__(self) -> None:
        super().__init__(cores=CORES, memory_bytes=1 << 40, ranked=True)
        self.granted: list[object] = []
        self.containers: dict[str, str] = {}  # task → container

    def hear(self, one: i.Instruction) -> None:
        match one:
            case i.Grant(_, grants):
                self.granted += grants.ids
            case i.StartContainer(container):
                self.containers[str(self.node.containers.live[container].task)] = container
                self.begin(container)

    def framework(self, session: int, container: str = "") -> str:
        self.open(session, container=container)
        return self.register(session)

    def submit(self, session: int, job: str, *numbers: int) -> list[object]:
        """Submit a monotask; return the grants."""
        self.granted.clear()
        super().submit(session, job, *numbers, stage="s")
        return list(self.granted)

    def place(self, task: str, cores: float, *, opportunistic: bool = False) -> None:
        self.command(
            task, spec={"cpu_cores": cores}, usage=KindAmounts(), command_kind=CPU, opportunistic=opportunistic
        )

    def sample(self, **cores: float) -> list[object]:
        """Let each task's container use so many cores; return the grants."""
        self.granted.clear()
        self.now += 1.0
        self.sampled({self.containers[task]: ContainerUse(cpu_cores=used) for task, used in cores.items()})
        return list(self.granted)

    @property
    def running(self) -> int:
        return int(self.node.queues.counts(CPU, self.now).running)


def test_a_promised_command_starts_at_once_though_every_slot_is_held_and_holds_none(bed: Bed) -> None:
    job = bed.framework(1)
    assert bed.submit(1, job, 1, 2, 3, 4, 5) == [1, 2, 3, 4]
    bed.place("t", 3.0)
    assert "t" in bed.containers
    assert bed.running == 4
    bed.granted.clear()
    bed.complete(1, job, 1, 2, 3)
    assert bed.granted == [], "of three cores there are no slots"
    bed.complete(1, job, 4)
    assert bed.granted == [5]
    assert bed.node.load(bed.now).idle.cpu == 0


def test_idle_cores_of_a_promise_are_lent_from_the_second_sample_on_until_they_are_used(bed: Bed) -> None:
    job = bed.framework(1)
    bed.place("t", 4.0)
    assert bed.submit(1, job, *range(1, 9)) == []
    assert bed.sample(t=0.0) == [], "the first sample of a container tells no rate"
    assert bed.sample(t=1.01) == [1, 2, 3]
    assert bed.sample(t=3.95) == [], "a tenth of a core is the least that a slot is granted for"
    bed.granted.clear()
    bed.complete(1, job, 1, 2, 3)
    assert bed.granted == [], "the loan is over"


def test_resources_that_a_container_waits_for_are_not_idle(bed: Bed) -> None:
    """As measured of a loop of one thread on a busy host: it ran 0.87 of the time and waited 0.13 of it."""
    job = bed.framework(1)
    bed.place("t", 1.0)
    assert bed.submit(1, job, 1, 2, 3, 4) == [1, 2, 3]
    waits = {bed.containers["t"]: ContainerUse(cpu_cores=0.87, cpu_stalled=0.13)}
    for _ in range(3):
        bed.now += 1.0
        bed.granted.clear()
        bed.sampled(waits)
        assert bed.granted == []
    throttled = {bed.containers["t"]: ContainerUse(cpu_cores=0.2, cpu_stalled=0.8, cpu_throttled=0.8)}
    bed.sampled(throttled)
    assert bed.granted == [4], "cores that its own limit keeps from it are idle"


def test_the_end_of_a_promise_gives_its_slots_free(bed: Bed) -> None:
    job = bed.framework(1)
    bed.place("t", 4.0)
    assert bed.submit(1, job, 1, 2) == []
    bed.exit(bed.containers["t"])
    assert bed.granted == [1, 2]


def test_a_framework_in_a_promised_container_computes_with_its_promise(bed: Bed) -> None:
    bed.place("t", 4.0)
    inside = bed.framework(2, bed.containers["t"])
    outside = bed.framework(1)
    assert bed.submit(1, outside, 1) == []
    assert sorted(map(str, bed.submit(2, inside, 2, 3))) == ["1", "2", "3"], (
        "its cores count as slots while it asks for some"
    )
    bed.complete(2, inside, 2, 3)
    bed.sample(t=4.0)
    assert bed.submit(1, outside, 4) == [], "it asks for none any more"


def test_a_promised_command_that_is_promoted_needs_no_idle_slot(bed: Bed) -> None:
    bed.place("t", 2.0, opportunistic=True)
    job = bed.framework(1)
    assert bed.submit(1, job, 1, 2, 3, 4) == [1, 2, 3, 4]
    bed.decide(Promote(job=bed.JOB, task="t"))
    assert not bed.node.held.by_key[bed.JOB, "t"].opportunistic
    assert bed.running == 4
    bed.complete(1, job, 1, 2)
    assert bed.submit(1, job, 5) == []


def test_after_a_restart_the_promise_of_running_work_is_withheld_and_no_slot_is_held(bed: Bed) -> None:
    bed.place("t", 3.0)
    bed.restart(bed.containers["t"])
    assert bed.running == 0
    assert bed.node.load(0.0).idle.cpu == 1

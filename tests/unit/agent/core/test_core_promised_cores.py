"""Promised cores and CPU slots on the node: what starts at once, what waits, what a framework in a container has."""

from __future__ import annotations

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model import Capacity, ContainerSpec, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Complete, Completion, JobRegistered, RegisterJob, Submit
from penstock.wire.master_api import Assign, Promote

CORES = 4
CPU = ResourceKind.CPU


class Bed:
    """A node of four cores with a master; containers start as soon as they are told to."""

    def __init__(self) -> None:
        self.settings = NodeSettings(
            node="n", instance="x", capacity=Capacity(cores=CORES, memory_bytes=1 << 40), has_master=True, ranked=True
        )
        self.node = Node(self.settings)
        self.now = 0.0
        self.number = 0
        self.granted: list[object] = []
        self.containers: dict[str, str] = {}  # task → container

    def send(self, event: e.Event) -> object:
        reply: object = None
        for instruction in self.node.handle(event, self.now):
            match instruction:
                case i.Reply(result):
                    reply = result
                case i.Grant(_, grants):
                    self.granted += grants.ids
                case i.StartContainer(container):
                    task = self.node.containers.live[container].task
                    self.containers[str(task)] = container
                    self.send(e.ContainerStarted(container, 7, {}, self.now))
                case _:
                    pass
        return reply

    def framework(self, session: int, container: str = "") -> str:
        self.send(e.SessionOpened(session, "eve", 1000, "f", container=container))
        registered = self.send(e.JobRegistered(session, RegisterJob(name="j"), 0.0))
        assert isinstance(registered, JobRegistered)
        return registered.job

    def submit(self, session: int, job: str, *numbers: int) -> list[object]:
        """What is granted because of it."""
        self.granted.clear()
        specs = [MonotaskSpec(id=number, kind=CPU, input_bytes=1, stage="s") for number in numbers]
        self.send(e.Asked(m.SUBMIT, session, Submit(job=job, monotasks=specs)))
        return list(self.granted)

    def place(self, task: str, cores: float, *, opportunistic: bool = False) -> None:
        self.number += 1
        request = TaskRequest(
            task=task, usage=KindAmounts(), command=ContainerSpec(argv=("x",), cpu_cores=cores), command_kind=CPU
        )
        decision = Assign(
            job="placed", stage="s", user="eve", origin="o", priority=0.0, request=request, opportunistic=opportunistic
        )
        self.send(e.Decided(self.number, [decision]))

    def sample(self, **cores: float) -> list[object]:
        """Each task's container uses so many cores; return what is granted."""
        self.granted.clear()
        self.now += 1.0
        uses = {self.containers[task]: ContainerUse(cpu_cores=used) for task, used in cores.items()}
        self.send(e.Sampled(Snapshot(self.now, 1.0, containers=uses), self.now))
        return list(self.granted)

    @property
    def running(self) -> int:
        return self.node.queues.running(CPU)


def test_a_promised_command_starts_at_once_though_every_slot_is_held_and_holds_none() -> None:
    bed = Bed()
    job = bed.framework(1)
    assert bed.submit(1, job, 1, 2, 3, 4, 5) == [1, 2, 3, 4]
    bed.place("t", 3.0)
    assert "t" in bed.containers
    assert bed.running == 4
    bed.granted.clear()
    for number in (1, 2, 3):
        bed.send(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=number)])))
    assert bed.granted == [], "of three cores there are no slots"
    bed.send(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=4)])))
    assert bed.granted == [5]
    assert bed.node.load(bed.now).idle.cpu == 0


def test_idle_cores_of_a_promise_are_lent_from_the_second_sample_on_until_they_are_used() -> None:
    bed = Bed()
    job = bed.framework(1)
    bed.place("t", 4.0)
    assert bed.submit(1, job, *range(1, 9)) == []
    assert bed.sample(t=0.0) == [], "the first sample of a container tells no rate"
    assert bed.sample(t=1.01) == [1, 2, 3]
    assert bed.sample(t=3.95) == [], "a tenth of a core is the least that a slot is granted for"
    bed.granted.clear()
    for number in (1, 2, 3):
        bed.send(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=number)])))
    assert bed.granted == [], "the loan is over"


def test_what_a_container_waits_for_is_not_idle() -> None:
    """As measured of a loop of one thread on a busy host: it ran 0.87 of the time and waited 0.13 of it."""
    bed = Bed()
    job = bed.framework(1)
    bed.place("t", 1.0)
    assert bed.submit(1, job, 1, 2, 3, 4) == [1, 2, 3]
    waits = {bed.containers["t"]: ContainerUse(cpu_cores=0.87, cpu_stalled=0.13)}
    for _ in range(3):
        bed.now += 1.0
        bed.granted.clear()
        bed.send(e.Sampled(Snapshot(bed.now, 1.0, containers=waits), bed.now))
        assert bed.granted == []
    throttled = {bed.containers["t"]: ContainerUse(cpu_cores=0.2, cpu_stalled=0.8, cpu_throttled=0.8)}
    bed.send(e.Sampled(Snapshot(bed.now, 1.0, containers=throttled), bed.now))
    assert bed.granted == [4], "what its own limit keeps it from is idle"


def test_the_end_of_a_promise_gives_its_slots_free() -> None:
    bed = Bed()
    job = bed.framework(1)
    bed.place("t", 4.0)
    assert bed.submit(1, job, 1, 2) == []
    bed.send(e.ContainerExited(bed.containers["t"], 0, None, 1.0, 0, 0, bed.now))
    assert bed.granted == [1, 2]


def test_a_framework_in_a_promised_container_computes_with_its_promise() -> None:
    bed = Bed()
    bed.place("t", 4.0)
    inside = bed.framework(2, bed.containers["t"])
    outside = bed.framework(1)
    assert bed.submit(1, outside, 1) == []
    assert sorted(map(str, bed.submit(2, inside, 2, 3))) == ["1", "2", "3"], (
        "its cores count as slots while it asks for some"
    )
    for number in (2, 3):
        bed.send(e.Asked(m.COMPLETE, 2, Complete(job=inside, monotasks=[Completion(id=number)])))
    bed.sample(t=4.0)
    assert bed.submit(1, outside, 4) == [], "it asks for none any more"


def test_a_promised_command_that_is_promoted_needs_no_idle_slot() -> None:
    bed = Bed()
    bed.place("t", 2.0, opportunistic=True)
    job = bed.framework(1)
    assert bed.submit(1, job, 1, 2, 3, 4) == [1, 2, 3, 4]
    bed.number += 1
    bed.send(e.Decided(bed.number, [Promote(job="placed", task="t")]))
    assert not bed.node.held.by_key["placed", "t"].opportunistic
    assert bed.running == 4
    bed.send(e.Asked(m.COMPLETE, 1, Complete(job=job, monotasks=[Completion(id=1), Completion(id=2)])))
    assert bed.submit(1, job, 5) == []


def test_after_a_restart_the_promise_of_what_runs_is_withheld_and_no_slot_is_held() -> None:
    bed = Bed()
    bed.place("t", 3.0)
    records = list(bed.node.containers.live.values())
    held, jobs = list(bed.node.held), [job.record for job in bed.node.jobs.values()]
    bed.node = Node(bed.settings)
    bed.send(e.Recovered(jobs, held, records, {records[0].container: 7}, frozenset(), 0.0))
    assert bed.running == 0
    assert bed.node.load(0.0).idle.cpu == 1

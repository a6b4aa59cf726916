"""Placed opportunistic commands run beside the slots; what the node says is in use; what jobs allow."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, HostUse, Snapshot
from penstock.model import Capacity, ContainerSpec, EndedBy, KindAmounts, MonotaskSpec, ResourceKind, TaskRequest
from penstock.model.work import Opportunistic, OpportunisticJob
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import JobRegistered, Place, RegisterJob, Submit
from penstock.wire.master_api import Assign, CommandEnded, Decided, Promote, ReadyTasks, Withdraw

JOB = "other-1"
CPU = ResourceKind.CPU


class Bed:
    """A node of two cores, a disk and two network slots; commands start as soon as they may."""

    def __init__(self, **settings: Any) -> None:
        capacity = Capacity(cores=2, memory_bytes=1000)
        self.node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True, **settings))
        self.node.handle(e.SessionOpened(1, "eve", 1000, "f"), 0.0)
        self.now = 0.0
        self.requests = 0
        self.done: list[i.Instruction] = []

    def send(self, event: e.Event) -> Any:
        instructions = self.node.handle(event, self.now)
        self.done += instructions
        return next((one.result for one in instructions if isinstance(one, i.Reply)), None)

    def decide(self, decision: Any) -> list[str]:
        """Why it was refused."""
        self.requests += 1
        answer = self.send(e.Decided(self.requests, [decision]))
        assert isinstance(answer, Decided)
        return [refusal.reason for refusal in answer.refused]

    def assign(
        self, name: str, kind: ResourceKind = CPU, *, opportunistic: bool = True, memory: int = 100
    ) -> list[str]:
        request = TaskRequest(
            task=name, usage=KindAmounts.single(kind, 50.0), memory_bytes=memory,
            command=ContainerSpec(argv=("x",)), command_kind=kind,
        )  # fmt: skip
        return self.decide(
            Assign(
                job=JOB, stage="s", user="eve", origin="o", priority=0.0, request=request, opportunistic=opportunistic
            )
        )

    def started(self) -> list[str]:
        """Tasks whose command was started, in order."""
        named = {held.container: held.task for held in self.node.held}
        return [named.get(one.container, "gone") for one in self.done if isinstance(one, i.StartContainer)]

    def over(self, task: str) -> None:
        """It ran and ended."""
        container = self.container(task)
        self.send(e.ContainerStarted(container, 7, {}, self.now))
        self.send(e.ContainerExited(container, 0, None, 1.0, 0, 0, self.now))

    def container(self, task: str) -> str:
        return self.node.held.by_key[JOB, task].container

    def sample(self, *seen: str, **host: float) -> None:
        uses = {self.container(task): ContainerUse(cpu_cores=0.5, memory_bytes=10) for task in seen}
        self.send(e.Sampled(Snapshot(self.now, 1.0, HostUse(**host), uses), self.now))


def test_an_opportunistic_command_starts_though_every_slot_is_held() -> None:
    bed = Bed()
    for name in ("r0", "r1", "r2"):
        assert bed.assign(name, opportunistic=False) == []
    assert bed.started() == ["r0", "r1"], "two slots"
    assert bed.assign("o") == []
    assert bed.started() == ["r0", "r1", "o"]
    load = bed.node.load(0.0)
    assert (load.idle.cpu, load.pending.cpu) == (0, 150), "it takes no slot, and its work is in nobody's way"


def test_what_runs_beside_the_slots_serves_its_job_and_ends_without_freeing_one() -> None:
    bed = Bed()
    for name in ("r0", "r1", "r2"):
        bed.assign(name, opportunistic=False)
    bed.assign("o")
    bed.now = 3.0
    (use,) = bed.node.load(3.0).jobs
    assert (use.service_s, use.running) == (9.0, 3)
    bed.over("o")
    assert "r2" not in bed.started(), "it waits for a slot that somebody holds"
    assert bed.node.queues.job_counts(JOB) == {"queued": 1, "running": 2, "done": 1, "failed": 0}
    assert bed.node.load(3.0).rates.cpu == 0, "what ran on what was left says nothing of how fast a core is"


def test_a_promoted_command_takes_a_slot_where_one_is_free() -> None:
    bed = Bed()
    bed.assign("r0", opportunistic=False)
    bed.assign("o")
    assert bed.decide(Promote(job=JOB, task="o")) == []
    assert bed.node.load(0.0).idle.cpu == 0
    assert bed.node.load(0.0).pending.cpu == 100
    bed.assign("p")
    assert bed.decide(Promote(job=JOB, task="p")) == ["cpu: no slot is free"]
    bed.assign("r1", opportunistic=False)
    bed.over("o")
    assert bed.started()[-1] == "r1", "its end frees the slot"


@pytest.mark.parametrize(("opportunistic", "idle"), [(True, 2), (False, 1)])
def test_after_a_restart_a_command_has_the_slot_that_it_is_to_have(opportunistic: bool, idle: int) -> None:
    before = Bed()
    before.assign("c", opportunistic=opportunistic)
    records = list(before.node.containers.live.values())
    running = {before.container("c"): 7}
    jobs = [job.record for job in before.node.jobs.values()]
    after = Bed()
    after.send(e.Recovered(jobs, list(before.node.held), records, running, frozenset(), 0.0))
    assert after.node.load(0.0).idle.cpu == idle
    after.send(e.ContainerExited(after.container("c"), 0, None, 1.0, 0, 0, 1.0))
    assert after.node.load(0.0).idle.cpu == 2


def test_the_load_says_how_much_of_disk_and_network_is_in_use() -> None:
    bed = Bed()
    bed.sample(disk_busy=0.3, network_busy=0.1)
    job = bed.send(e.JobRegistered(1, RegisterJob(name="j"), 0.0)).job
    bed.send(
        e.Asked(
            m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=1, kind=ResourceKind.NETWORK, input_bytes=10**9)])
        )
    )
    bed.send(e.Asked(m.SUBMIT, 1, Submit(job=job, monotasks=[MonotaskSpec(id=2, kind=CPU, input_bytes=5)])))
    load = bed.node.load(0.0)
    assert (load.used_cores, load.disk_busy, load.network_busy) == (1, 0.3, 0.5), "slots that frameworks hold count"
    bed.assign("d", ResourceKind.DISK)
    assert bed.node.load(0.0).disk_busy == 1.3, "no sample has seen it: it counts in full"
    bed.sample("d", disk_busy=0.4)
    assert bed.node.load(0.0).disk_busy == 0.4


def test_what_finds_no_slack_waits_on_the_node_and_starts_as_soon_as_there_is_some() -> None:
    bed = Bed(opportunistic_queue=2)
    for name in ("o0", "o1", "o2"):
        assert bed.assign(name, memory=400) == []
    assert bed.started() == ["o0", "o1"], "900 are to be used at most"
    load = bed.node.load(0.0)
    assert (load.opportunistic_queue_free, load.used_memory_bytes) == (1, 1200), "it is not for others"
    assert bed.assign("o3", memory=100) == []
    assert bed.started()[-1] == "o3", "what fits need not wait for what does not"
    assert bed.assign("o4", memory=400) == []
    (why,) = bed.assign("o5", memory=400)
    assert why.startswith("memory: 400 B asked"), "the queue is full"
    bed.send(e.Sampled(Snapshot(0.0, 1.0, HostUse(), {bed.container("o1"): ContainerUse(0.1, 400)}), 0.0))
    bed.over("o0")
    assert bed.started()[-1] == "o2", "with the event that gives room"
    assert bed.node.load(0.0).opportunistic_queue_free == 1


def test_what_has_waited_too_long_goes_back_to_the_master() -> None:
    bed = Bed(opportunistic_queue=1, opportunistic_wait_s=5.0)
    bed.assign("o0", memory=800)
    bed.assign("o1", memory=800)
    bed.now = 4.0
    bed.sample("o0")
    assert bed.started() == ["o0", "o1"], "it uses 10 and not the 800 that it asked for"
    bed.assign("o2", memory=900)
    bed.now = 10.0
    bed.sample("o0", "o1")
    (told,) = [one.params for one in bed.done if isinstance(one, i.TellMaster)]
    assert isinstance(told, CommandEnded)
    assert (told.task, told.ended.by, told.ended.reason) == ("o2", EndedBy.PREEMPTED, "it has waited 5 s for slack")
    assert bed.node.load(10.0).opportunistic_queue_free == 1


def test_what_waits_can_be_promoted_withdrawn_and_taken_back_after_a_restart() -> None:
    bed = Bed(opportunistic_queue=4)
    bed.assign("o0", memory=800)
    for name in ("p", "w", "r"):
        bed.assign(name, memory=200)
    assert bed.decide(Promote(job=JOB, task="p")) == []
    assert bed.started() == ["o0", "p"], "as any regular command, with a slot"
    assert bed.node.load(0.0).idle.cpu == 1
    assert bed.decide(Withdraw(job=JOB, task="w")) == []
    assert list(bed.node.held.waiting) == [(JOB, "r")]
    after = Bed(opportunistic_queue=4)
    jobs = [job.record for job in bed.node.jobs.values()]
    records = list(bed.node.containers.live.values())
    running = {record.container: 7 for record in records}
    after.send(e.Recovered(jobs, list(bed.node.held), records, running, frozenset(), 0.0))
    assert after.started() == []
    after.sample("o0", "p")
    assert after.started() == ["r"]


@pytest.mark.parametrize(
    ("job", "asked", "said"),
    [
        (None, True, True),
        (None, "only", "only"),
        (False, True, False),
        (False, "only", False),
        (True, False, True),
        (True, "only", "only"),
        ("only", False, "only"),
        ("only", True, "only"),
        (["s"], False, True),
        (["s"], "only", "only"),
        (["other"], True, False),
    ],
)
def test_a_job_opts_out_or_names_its_stages(job: OpportunisticJob, asked: Opportunistic, said: Opportunistic) -> None:
    bed = Bed()
    registered = bed.send(e.JobRegistered(1, RegisterJob(name="j", opportunistic=job), 0.0))
    assert isinstance(registered, JobRegistered)
    bed.done.clear()
    request = TaskRequest(task="t", usage=KindAmounts())
    bed.send(e.Asked(m.PLACE, 1, Place(job=registered.job, stage="s", tasks=[request], opportunistic=asked)))
    (ready,) = [one.params for one in bed.done if isinstance(one, i.TellMaster)]
    assert isinstance(ready, ReadyTasks)
    assert ready.opportunistic == said
    recovered = Bed()
    recovered.send(e.Recovered([bed.node.jobs[registered.job].record], [], [], {}, frozenset(), 0.0))
    assert recovered.node.jobs[registered.job].record.allows("s", asked) == said

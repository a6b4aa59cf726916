"""Placed opportunistic commands run beside the slots; the node's report of its use; the permissions of jobs."""

from __future__ import annotations

from typing import Any

import pytest

from agent.core import events as e
from agent.core import instructions as i
from agent.core.snapshot import ContainerUse, HostUse
from penstock.model import EndedBy, KindAmounts, ResourceKind, TaskRequest
from penstock.model.work import Opportunistic, OpportunisticJob
from penstock.wire import agent_methods as m
from penstock.wire.agent_api import Place
from penstock.wire.master_api import CommandEnded, Promote, ReadyTasks, Withdraw
from tests.fakes.node_bed import NodeBed

JOB = "other-1"
CPU = ResourceKind.CPU


class Bed(NodeBed):
    """A node of two cores, a disk and two network slots; commands start as soon as they may."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(cores=2, memory_bytes=1000, **settings)
        self.open()

    def assign(
        self, name: str, kind: ResourceKind = CPU, *, opportunistic: bool = True, memory: int = 100
    ) -> list[str]:
        usage = KindAmounts.single(kind, 50.0)
        return self.command(name, usage=usage, memory_bytes=memory, command_kind=kind, opportunistic=opportunistic)

    def started(self) -> list[str]:
        """Return the tasks whose command was started, in order."""
        named = {held.container: held.task for held in self.node.held}
        return [named.get(one.container, "gone") for one in self.given(i.StartContainer)]

    def over(self, task: str) -> None:
        """Let a command run and end."""
        container = self.container(task)
        self.begin(container)
        self.exit(container)

    def sample(self, *seen: str, **host: float) -> None:
        use = ContainerUse(cpu_cores=0.5, memory_bytes=10)
        self.sampled({self.container(task): use for task in seen}, HostUse(**host))


def test_an_opportunistic_command_starts_though_every_slot_is_held(bed: Bed) -> None:
    for name in ("r0", "r1", "r2"):
        assert bed.assign(name, opportunistic=False) == []
    assert bed.started() == ["r0", "r1"], "two slots"
    assert bed.assign("o") == []
    assert bed.started() == ["r0", "r1", "o"]
    load = bed.node.load(0.0)
    assert (load.idle.cpu, load.pending.cpu) == (0, 150), "it takes no slot, and its work delays no other"


def test_slotless_work_serves_its_job_and_ends_without_freeing_a_slot(bed: Bed) -> None:
    for name in ("r0", "r1", "r2"):
        bed.assign(name, opportunistic=False)
    bed.assign("o")
    bed.now = 3.0
    (use,) = bed.node.load(3.0).jobs
    assert (use.service_s, use.running) == (9.0, 3)
    bed.over("o")
    assert "r2" not in bed.started(), "it waits for a slot that another holds"
    assert bed.node.queues.job_counts(JOB) == {"queued": 1, "running": 2, "done": 1, "failed": 0}
    assert bed.node.load(3.0).rates.cpu == 0, "work on slack does not show how fast a core is"


def test_a_promoted_command_takes_a_slot_where_one_is_free(bed: Bed) -> None:
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


def test_no_promotion_promises_more_of_the_link_than_it_has() -> None:
    bed = Bed(link_bytes_per_s=100)
    bed.command("r", spec={"network_bytes_per_s": 80}, memory_bytes=100)
    bed.command("o", spec={"network_bytes_per_s": 50}, memory_bytes=100, opportunistic=True)
    (why,) = bed.decide(Promote(job=JOB, task="o"))
    assert why.startswith("network: ")
    assert bed.node.ledger().promised_network_bytes_per_s == 80


@pytest.mark.parametrize(("opportunistic", "idle"), [(True, 2), (False, 1)])
def test_after_a_restart_a_command_has_the_slot_that_it_is_to_have(opportunistic: bool, idle: int) -> None:
    before = Bed()
    before.assign("c", opportunistic=opportunistic)
    after = before.restart(before.container("c"))
    assert after.node.load(0.0).idle.cpu == idle
    after.exit(after.container("c"))
    assert after.node.load(0.0).idle.cpu == 2


def test_the_load_has_the_use_of_disk_and_network(bed: Bed) -> None:
    bed.sample(disk_busy=0.3, network_busy=0.1)
    job = bed.register()
    bed.submit(1, job, 1, kind=ResourceKind.NETWORK, size=10**9)
    bed.submit(1, job, 2)
    load = bed.node.load(0.0)
    assert (load.used_cores, load.disk_busy, load.network_busy) == (1, 0.3, 0.5), "slots that frameworks hold count"
    bed.assign("d", ResourceKind.DISK)
    assert bed.node.load(0.0).disk_busy == 1.3, "no sample has seen it: it counts in full"
    bed.sample("d", disk_busy=0.4)
    assert bed.node.load(0.0).disk_busy == 0.4


def test_a_command_without_slack_waits_on_the_node_and_starts_as_soon_as_there_is_some() -> None:
    bed = Bed(opportunistic_queue=2)
    for name in ("o0", "o1", "o2"):
        assert bed.assign(name, memory=400) == []
    assert bed.started() == ["o0", "o1"], "900 are to be used at most"
    load = bed.node.load(0.0)
    assert (load.opportunistic_queue_free, load.used_memory_bytes) == (1, 1200), "it is not for others"
    assert bed.assign("o3", memory=100) == []
    assert bed.started()[-1] == "o3", "a command that fits need not wait for one that does not"
    assert bed.assign("o4", memory=400) == []
    (why,) = bed.assign("o5", memory=400)
    assert why.startswith("memory: 400 B asked"), "the queue is full"
    bed.sampled({bed.container("o1"): ContainerUse(0.1, 400)})
    bed.over("o0")
    assert bed.started()[-1] == "o2", "with the event that gives room"
    assert bed.node.load(0.0).opportunistic_queue_free == 1


def test_a_command_that_has_waited_too_long_goes_back_to_the_master() -> None:
    bed = Bed(opportunistic_queue=1, opportunistic_wait_s=5.0)
    bed.assign("o0", memory=800)
    bed.assign("o1", memory=800)
    bed.now = 4.0
    bed.sample("o0")
    assert bed.started() == ["o0", "o1"], "it uses 10 and not the 800 that it asked for"
    bed.assign("o2", memory=900)
    bed.now = 10.0
    bed.sample("o0", "o1")
    (told,) = bed.to_master(CommandEnded)
    assert (told.task, told.ended.by, told.ended.reason) == ("o2", EndedBy.PREEMPTED, "it has waited 5 s for slack")
    assert bed.node.load(10.0).opportunistic_queue_free == 1


def test_a_waiting_command_can_be_promoted_withdrawn_and_taken_back_after_a_restart() -> None:
    bed = Bed(opportunistic_queue=4)
    bed.assign("o0", memory=800)
    for name in ("p", "w", "r"):
        bed.assign(name, memory=200)
    assert bed.decide(Promote(job=JOB, task="p")) == []
    assert bed.started() == ["o0", "p"], "as any regular command, with a slot"
    assert bed.node.load(0.0).idle.cpu == 1
    assert bed.decide(Withdraw(job=JOB, task="w")) == []
    assert list(bed.node.held.waiting) == [(JOB, "r")]
    after = bed.restart(*bed.node.containers.live)
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
def test_a_job_opts_out_or_names_its_stages(
    bed: Bed, job: OpportunisticJob, asked: Opportunistic, said: Opportunistic
) -> None:
    registered = bed.register(opportunistic=job)
    bed.send(
        e.Requested(
            m.PLACE,
            1,
            Place(job=registered, stage="s", tasks=[TaskRequest(task="t", usage=KindAmounts())], opportunistic=asked),
        )
    )
    (ready,) = bed.to_master(ReadyTasks)
    assert ready.opportunistic == said
    bed.restart()
    assert bed.node.jobs[registered].record.allows("s", asked) == said

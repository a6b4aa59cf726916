"""A real agent and a master of the test's own: executors are held and reported on, their last parts before their
ends.
"""

from __future__ import annotations

import asyncio
import getpass
import os
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from agent.core import Node
from agent.core import events as e
from agent.core import instructions as i
from agent.core.settings import NodeSettings
from agent.core.snapshot import ContainerUse, Snapshot
from agent.journal import Journal
from agent.master_link import MasterLink
from penstock.config.endpoint import UnixEndpoint
from penstock.model import Capacity, ContainerSpec, EndedBy, Executor, KindAmounts, Profile, TaskRequest
from penstock.wire import master_api as api
from penstock.wire.agent_api import EndJob, RegisterJob
from penstock.wire.agent_methods import END_JOB
from tests.fakes.master import FakeMaster

Start = Callable[..., Any]
JOB = "elsewhere-1"
MIB = 2**20


def assign(fifo: Path, profile: Profile | None, task: str = "e1") -> api.Assign:
    command = ContainerSpec(argv=("sh", "-c", f"cat {fifo}; exit 0"), cpu_cores=1.0, memory_bytes=64 * MIB)
    return api.Assign(
        job=JOB,
        stage="s",
        user=getpass.getuser(),
        origin="elsewhere",
        priority=0.0,
        request=TaskRequest(
            task=task,
            usage=KindAmounts(cpu=1e6),
            memory_bytes=64 * MIB,
            command=command,
            executor=Executor(application="cat", run="r1"),
        ),
        profile=profile,
    )


async def begin(start_agent: Start, master: FakeMaster, tmp_path: Path) -> tuple[Any, Path]:
    """An agent that is linked, and an executor on it that ends when its FIFO is written to."""
    agent = await asyncio.to_thread(start_agent, master=master.listen, executor_slot_s=0.2, sample_interval_s=0.05)
    fifo = tmp_path / "fifo"
    os.mkfifo(fifo)
    await master.until(lambda: bool(master.availabilities()))
    profile = Profile(slot_s=0.2, cpu_cores=(0.5, 1.5, 0.5, 0.25), memory_bytes=(64 * MIB,))
    assert await master.decide(assign(fifo, profile)) == []
    return agent, fifo


def assembled(uses: list[api.ExecutorUse]) -> int:
    """Return how many slots were reported; each must come once, in order."""
    slots = 0
    for use in uses:
        assert (use.job, use.task, use.slot_s, use.first) == (JOB, "e1", 0.2, slots)
        assert len(use.mean) == len(use.peak)
        slots += len(use.mean)
    return slots


async def test_an_executors_slots_reach_the_master_and_their_tail_before_its_end(
    start_agent: Start, fake_master: FakeMaster, tmp_path: Path
) -> None:
    agent, fifo = await begin(start_agent, fake_master, tmp_path)
    (first,) = fake_master.availabilities()
    assert first.slots == [first.capacity] and first.capacity[0] == 2000
    await fake_master.until(lambda: len(fake_master.availabilities()) > 1)
    assert min(slot[0] for slot in fake_master.availabilities()[1].slots) <= 500
    (refusal,) = await fake_master.decide(assign(fifo, Profile(slot_s=0.2, cpu_cores=(2.5,)), task="e2"))
    assert refusal.reason.startswith("cpu: 2.5 cores asked in slot 0 of its profile")
    (container,) = agent.status()["containers"]
    assert container["executor"]["application"] == "cat" and container["executor"]["run"] == "r1"
    await fake_master.until(lambda: assembled(fake_master.uses()) >= 3)
    assert await fake_master.decide(api.TellStages(job=JOB, ended=1)) == []
    await fake_master.until(lambda: bool(fake_master.uses()[-1].stages))
    told = assembled(fake_master.uses())
    fake_master.hang_up()
    await fake_master.until(lambda: fake_master.connections == 2 and assembled(fake_master.uses()) >= told)
    assert fake_master.availabilities(), "a new connection hears it again"
    await asyncio.to_thread(fifo.write_text, "go")
    await fake_master.until(lambda: bool(fake_master.ended()))
    (over,) = fake_master.ended()
    assert (over.task, over.ended.by, over.ended.exit_status) == ("e1", EndedBy.EXIT, 0)
    uses = fake_master.uses()
    assert uses[-1].ended and assembled(uses) > told, "all of it, in one run, before the word of its end"
    assert uses[-1].stages[-1] == assembled(uses)


async def test_a_recording_is_reported_by_the_next_agent_and_unobserved_time_is_not_learnt_from(
    start_agent: Start, fake_master: FakeMaster, tmp_path: Path
) -> None:
    """Slots of 0.2 s: while an agent starts, far more of this short run passes than may be unseen."""
    agent, fifo = await begin(start_agent, fake_master, tmp_path)
    await fake_master.until(lambda: assembled(fake_master.uses()) >= 5)
    told = [mean for use in fake_master.uses() for mean in use.mean]
    agent.kill()
    await asyncio.to_thread(start_agent, master=fake_master.listen, executor_slot_s=0.2, sample_interval_s=0.05)
    await fake_master.until(lambda: fake_master.connections == 2)
    (_, registration) = fake_master.order[0]
    assert [held.task for held in registration.placed] == ["e1"]
    await fake_master.until(lambda: assembled(fake_master.uses()) > len(told))
    again = [mean for use in fake_master.uses() for mean in use.mean]
    assert again[: len(told) - 1] == told[:-1], "the last one may not have been journaled yet"
    await asyncio.to_thread(fifo.write_text, "go")
    await fake_master.until(lambda: bool(fake_master.ended()))
    assert fake_master.ended()[0].ended.ok
    last = fake_master.uses()[-1]
    assert last.ended and last.mean == [] and last.first > len(again)


def link_of(node: Node, master: FakeMaster) -> MasterLink:
    shell: Any = SimpleNamespace(node=node, link=None)
    path = Path(master.listen)
    return MasterLink(shell, UnixEndpoint(path), Journal(path.with_suffix(".journal")))


async def test_an_executor_that_ended_while_the_master_was_away_is_reported_in_full_before_its_end(
    fake_master: FakeMaster,
) -> None:
    capacity = Capacity(cores=2, memory_bytes=2**30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True, executor_slot_s=1.0))
    link = link_of(node, fake_master)
    node.handle(e.Decided(1, [assign(Path("/fifo"), None)], 0.0), 0.0)
    (container,) = node.containers.live
    node.handle(e.ContainerStarted(container, 7, {}, 0.0), 0.0)
    for second in range(1, 1001):
        use = ContainerUse(cpu_cores=1.0, memory_bytes=MIB)
        node.handle(e.Sampled(Snapshot(float(second), 1.0, containers={container: use}), 0.0), float(second))
    for told in node.handle(e.ContainerExited(container, 0, None, 1.0, 0, 0, 0.0), 1000.0):
        if isinstance(told, i.SendToMaster):
            link.send(told.params)
    running = asyncio.create_task(link.run())
    try:
        await fake_master.until(lambda: bool(fake_master.ended()))
    finally:
        running.cancel()
    methods = [method for method, _ in fake_master.order]
    before = fake_master.order[: methods.index("command_ended")]
    uses = [use for _, said in before if isinstance(said, api.Heartbeat) for use in said.executors]
    assert (len(uses) > 1, uses[-1].ended, sum(len(use.mean) for use in uses)) == (True, True, 1000), "in pieces"


@pytest.mark.parametrize("gaps_read", [False, True])
async def test_only_a_master_that_reads_gaps_gets_slots_that_were_not_measured(
    fake_master: FakeMaster, gaps_read: bool
) -> None:
    fake_master.profile_gaps = gaps_read
    capacity = Capacity(cores=2, memory_bytes=2**30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True, executor_slot_s=1.0))
    link = link_of(node, fake_master)
    node.handle(e.Decided(1, [assign(Path("/fifo"), None)], 0.0), 0.0)
    (container,) = node.containers.live
    node.handle(e.ContainerStarted(container, 7, {}, 0.0), 0.0)
    for at, interval_s in ((1.0, 1.0), (5.5, 4.5), (6.0, 0.5)):
        uses = {container: ContainerUse(cpu_cores=1.0, memory_bytes=MIB)}
        node.handle(e.Sampled(Snapshot(at, interval_s, containers=uses), 0.0), at)
    running = asyncio.create_task(link.run())
    try:
        await fake_master.until(lambda: sum(len(use.mean) for use in fake_master.uses()) == 6)
    finally:
        running.cancel()
    told = [slot for use in fake_master.uses() for slot in use.mean]
    assert [slot is None for slot in told] == [False, *[gaps_read] * 4, False]


@pytest.mark.parametrize("parts_read", [False, True])
async def test_only_a_master_that_reads_it_gets_the_part_of_a_last_slot(
    fake_master: FakeMaster, parts_read: bool
) -> None:
    fake_master.last_parts = parts_read
    capacity = Capacity(cores=2, memory_bytes=2**30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True, executor_slot_s=2.0))
    link = link_of(node, fake_master)
    node.handle(e.Decided(1, [assign(Path("/fifo"), None)], 0.0), 0.0)
    (container,) = node.containers.live
    node.handle(e.ContainerStarted(container, 7, {}, 0.0), 0.0)
    for at in (1.0, 2.0, 3.0):
        uses = {container: ContainerUse(cpu_cores=1.0, memory_bytes=MIB)}
        node.handle(e.Sampled(Snapshot(at, 1.0, containers=uses), 0.0), at)
    node.handle(e.ContainerExited(container, 0, None, 1.0, 0, 0, 0.0), 3.0)
    running = asyncio.create_task(link.run())
    try:
        await fake_master.until(lambda: any(use.ended for use in fake_master.uses()))
    finally:
        running.cancel()
    assert fake_master.uses()[-1].last_part == (0.5 if parts_read else 1.0)


@pytest.mark.parametrize("read", [False, True])
async def test_only_a_master_that_reads_it_gets_the_reason_why_a_job_failed(
    fake_master: FakeMaster, read: bool
) -> None:
    fake_master.job_failed = read
    capacity = Capacity(cores=2, memory_bytes=2**30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True))
    link = link_of(node, fake_master)
    node.handle(e.SessionOpened(1, "u", "c"), 0.0)
    node.handle(e.JobRegistered(1, RegisterJob(name="j"), 0.0), 0.0)
    for each in node.handle(e.Requested(END_JOB, 1, EndJob(job="n-x-1", failed="1 task refused")), 0.0):
        if isinstance(each, i.SendToMaster):
            link.send(each.params)
    running = asyncio.create_task(link.run())
    try:
        await fake_master.until(lambda: any(isinstance(said, api.JobEnded) for _, said in fake_master.order))
    finally:
        running.cancel()
    [ended] = [said for _, said in fake_master.order if isinstance(said, api.JobEnded)]
    assert ended.failed == ("1 task refused" if read else "")


@pytest.mark.parametrize("lasts_read", [False, True])
async def test_only_a_master_that_reads_it_gets_the_last_of_a_job(fake_master: FakeMaster, lasts_read: bool) -> None:
    fake_master.job_lasts = lasts_read
    capacity = Capacity(cores=2, memory_bytes=2**30)
    node = Node(NodeSettings(node="n", instance="x", capacity=capacity, has_master=True))
    link = link_of(node, fake_master)
    node.handle(e.JobIntroduced("other-1", "j", "u", 0.0), 0.0)
    node.handle(e.SessionOpened(1, "u", "c"), 0.0)
    node.handle(e.JobRegistered(1, RegisterJob(name="j", job="other-1"), 0.0), 0.0)
    node.handle(e.JobRegistered(1, RegisterJob(name="j"), 0.0), 0.0)
    for each in node.handle(e.SessionClosed(1), 0.0):
        if isinstance(each, i.SendToMaster):
            link.send(each.params)
    running = asyncio.create_task(link.run())
    try:
        await fake_master.until(lambda: [method for method, _ in fake_master.order].count("heartbeat") > 1)
    finally:
        running.cancel()
    [ended] = [said for _, said in fake_master.order if isinstance(said, api.JobEnded)]
    uses = [use for _, said in fake_master.order if isinstance(said, api.Heartbeat) for use in said.load.jobs]
    assert (ended.use is not None) == lasts_read
    assert [(use.job, use.last) for use in uses] == [("other-1", True)] * lasts_read

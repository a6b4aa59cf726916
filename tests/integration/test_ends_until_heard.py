"""The end of a command is reported until the master has answered; a master that ends itself may never have read it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from agent import last_report
from agent.core import Node
from agent.core import events as e
from agent.core.attained_service import LastCount
from agent.core.events import EndAcknowledged
from agent.core.instructions import ToMaster
from agent.core.settings import NodeSettings
from agent.journal import Journal
from agent.master_link import MasterLink
from agent.shell import Shell
from penstock.config.endpoint import UnixEndpoint
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.transport import RpcPeer
from penstock.wire import agent_methods as m
from penstock.wire import master_api as api
from penstock.wire.agent_api import Done, Place, TaskRefs
from penstock.wire.connection import LINK_FRAME_BYTES, MAX_FRAME_BYTES, RpcConnection, read_params
from tests.fakes.node_bed import NodeBed

SETTINGS = NodeSettings(node="n", instance="x", capacity=Capacity(cores=4, memory_bytes=1 << 30), has_master=True)
END = api.CommandEnded(job="j", task="t", origin="o", ended=Ended(by=EndedBy.EXIT, exit_status=0))


class Master:
    """A master that records its messages; at the first end it closes its connection without an answer."""

    def __init__(self) -> None:
        self.peers: list[RpcPeer] = []
        self.heard: list[list[str]] = []
        self.news = asyncio.Event()
        self.gone = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        self.peers.append(peer)
        self.heard.append([])

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        self.heard[-1].append(method)
        self.news.set()
        if method == "register":
            self.registered = read_params(params, api.Register)
            return api.Registered(protocol=1, version="0", heartbeat_s=30.0)
        if len(self.peers) == 1:
            peer.close()
            return asyncio.sleep(0)  # no answer gets out any more
        return Done()

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        self.heard[-1].append(method)
        self.news.set()

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error

    async def until(self, connection: int, method: str) -> None:
        async with asyncio.timeout(30):
            while len(self.heard) <= connection or method not in self.heard[connection]:
                self.news.clear()
                await self.news.wait()


def shell(heard: list[object]) -> Shell:
    """The part of a shell that the link needs: the node, and a record of the answers."""
    return cast("Shell", SimpleNamespace(node=Node(SETTINGS), link=None, dispatch=heard.append))


@asynccontextmanager
async def linked(
    directory: Path,
    answered: list[object],
    method: str,
    params: ToMaster | None = None,
    of: Shell | None = None,
    master: Master | None = None,
) -> AsyncIterator[tuple[Master, MasterLink]]:
    """A link to a master; ``params`` are reported before there is one."""
    master = master or Master()
    path = directory / "master.sock"
    server = await asyncio.get_running_loop().create_unix_server(
        lambda: RpcPeer(master, RpcConnection(LINK_FRAME_BYTES)), str(path)
    )
    journal = Journal(directory / "journal")
    link = MasterLink(of or shell(answered), UnixEndpoint(path), journal)
    if params is not None:
        link.send(params)
    running = asyncio.create_task(link.run())
    try:
        await master.until(0, method)
        yield master, link
    finally:
        master.gone.clear()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await asyncio.wait_for(master.gone.wait(), 30)  # an agent that stops takes no decisions any more
        server.close()
        for peer in master.peers:
            peer.close()
        journal.close()


async def test_an_unanswered_end_is_sent_again_right_behind_the_registration(tmp_path: Path) -> None:
    answered: list[object] = []
    async with linked(tmp_path, answered, "heartbeat") as (master, link):
        link.send(END)
        await master.until(1, "heartbeat")
        assert master.heard[1][:2] == ["register", "command_ended"], "before anything could be decided without it"
        assert master.heard[1].count("command_ended") == 1
        assert answered == [EndAcknowledged("j", "t")], "once: the journal forgets it"
        master.peers[1].close()
        await master.until(2, "heartbeat")
        assert "command_ended" not in master.heard[2], "it was answered"


async def test_a_node_registers_however_much_it_was_asked_for(tmp_path: Path) -> None:
    """Each request is within the limit of a message; a new master has to know all of them together."""
    bed = NodeBed()
    bed.open()
    job, env = bed.register(), {"DATA": "x" * 1000}
    asked = 9000
    for first in range(0, asked, 1000):
        tasks = [
            TaskRequest(task=f"t{number}", usage=KindAmounts(), command=ContainerSpec(argv=("x",), env=env))
            for number in range(first, first + 1000)
        ]
        bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=tasks)))
    node = SimpleNamespace(node=bed.node, link=None, dispatch=lambda event: None)
    async with linked(tmp_path, [], "heartbeat", of=cast("Shell", node)) as (master, _):
        (ready,) = master.registered.ready
        assert len(ready.tasks) == asked
        assert len(env["DATA"]) * asked > MAX_FRAME_BYTES


@pytest.mark.parametrize(
    ("sampled_at", "sent_at"),
    [
        ([7.0, 7.25, 7.5, 7.75, 8.0], [7.0, 8.0]),
        ([7.0, 8.3, 9.0, 10.0], [7.0, 8.3, 9.0, 10.0]),  # one sample was late
        ([7.0, 7.9996, 9.0], [7.0, 7.9996, 9.0]),  # the timer was early
    ],
)
def test_a_sample_is_sent_at_once_and_no_other_before_the_next_heartbeat_is_due(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampled_at: list[float], sent_at: list[float]
) -> None:
    clock, sent = SimpleNamespace(now=0.0), []
    monkeypatch.setattr("asyncio.get_running_loop", lambda: SimpleNamespace(time=lambda: clock.now))
    link = MasterLink(shell([]), UnixEndpoint(Path("/none")), Journal(tmp_path))
    monkeypatch.setattr(link, "send_heartbeat", lambda: sent.append(clock.now))
    for clock.now in sampled_at:
        link.sampled()
    assert sent == sent_at


async def test_the_count_of_an_earlier_agent_is_removed_before_this_one_registers(tmp_path: Path) -> None:
    """A registration reports service; an agent that is killed right after it would leave a record of less."""
    journal = Journal(tmp_path / "journal")
    last_report.write(journal, LastCount(cpu_s={"c-1": 3.0}))
    journal.close()
    async with linked(tmp_path, [], "register") as (_, link):
        assert last_report.read(link._journal) is None


async def test_a_heartbeat_replaces_those_that_are_due(tmp_path: Path) -> None:
    """While samples come, no timer wakes the agent only to find that there is nothing to send."""
    async with linked(tmp_path, [], "heartbeat") as (_, link):
        link.send_soon()
        soon, late = link._soon, link._late
        assert soon is not None
        assert late is not None
        link._sampled_at -= link._heartbeat_s
        link.sampled()
        assert soon.cancelled()
        assert late.cancelled()
        assert link._soon is None
        assert link._late is not None


async def test_heartbeats_go_on_without_samples_and_after_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(now: float) -> api.Heartbeat:
        raise RuntimeError("a defect")

    async with linked(tmp_path, [], "heartbeat") as (master, link):
        link._heartbeat_s = 0.01
        with monkeypatch.context() as patched, pytest.raises(RuntimeError):
            patched.setattr(link._shell, "node", SimpleNamespace(heartbeat=fail))
            link.send_heartbeat()
        before = master.heard[0].count("heartbeat")
        async with asyncio.timeout(30):
            while master.heard[0].count("heartbeat") < before + 2:
                master.news.clear()
                await master.news.wait()


async def test_only_what_changes_the_load_brings_the_next_heartbeat_forward(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short command has two such messages among seven, and the master looks for work at each heartbeat."""
    deciding = SimpleNamespace(node=Node(SETTINGS), link=None, dispatch=lambda event: api.Decided())
    asked = TaskRequest(task="t", usage=KindAmounts(cpu=1.0))
    decided: list[api.AnyDecision] = [
        api.SetPriority(job="j", priority=1.0), api.AdmitJob(job="j"),
        api.Assign(job="j", stage="s", user="u", origin="n", request=asked, priority=0.0, opportunistic=False),
        api.TellPlaced(job="j", task="t", node="n"), api.TellEnded(job="j", task="t", node="n", ended=END.ended),
    ]  # fmt: skip
    sent: list[str] = []
    forward: list[str] = []
    async with linked(tmp_path, [], "heartbeat", of=cast("Shell", deciding)) as (master, link):
        monkeypatch.setattr(link, "send_soon", lambda: forward.append(sent[-1]))
        for number, decision in enumerate(decided, 1):
            sent.append(type(decision).__name__)
            await master.peers[0].start_request("decide", api.Decide(number=number, decisions=[decision]))
        for told in (api.ReadyTasks(job="j", stage="s", tasks=[asked]), api.Progress(job="j", stages=[]), END):
            sent.append(type(told).__name__)
            link.send(told)
    assert forward == ["Assign", "CommandEnded"]


async def test_an_end_is_not_lost_with_a_connection_that_breaks_before_the_registration(tmp_path: Path) -> None:
    answered: list[object] = []
    link = MasterLink(shell(answered), UnixEndpoint(Path("/nowhere")), Journal(tmp_path))
    link.send(END)
    gone = RpcPeer(Master())
    gone.close()
    with pytest.raises(ConnectionResetError):
        await link._register(gone)
    assert list(link._kept.values()) == [END]
    assert answered == []


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("tasks_done", api.TasksDone(job="elsewhere-1", tasks=["t"])),
        ("tasks_cancelled", api.TasksCancelled(job="j", tasks=["t"])),
        ("job_ended", api.JobEnded(job="j")),
    ],
)
async def test_unanswered_reports_are_sent_again(tmp_path: Path, method: str, said: ToMaster) -> None:
    async with linked(tmp_path, [], method, said) as (master, _):
        master.peers[0].close()  # it may not have read that
        await master.until(1, method)
        assert master.heard[1].count(method) == 1


@pytest.mark.parametrize(
    ("method", "said"),
    [
        ("tasks_done", api.TasksDone(job="elsewhere-1", tasks=["t"])),
        ("tasks_cancelled", api.TasksCancelled(job="j", tasks=["t"])),
    ],
)
async def test_what_a_framework_reported_to_an_agent_that_died_is_sent_by_the_next_one_until_it_is_answered(
    tmp_path: Path, method: str, said: ToMaster
) -> None:
    """The framework has its answer and asks for nothing any more: a cancelled command would run to its end."""
    died = MasterLink(shell([]), UnixEndpoint(Path("/nowhere")), Journal(tmp_path / "journal"))
    died.send(said)
    async with linked(tmp_path, [], method) as (master, _):
        master.peers[0].close()  # it may not have read that
        await master.until(1, "heartbeat")
        assert master.heard[1].count(method) == 1
    async with linked(tmp_path, [], "heartbeat") as (master, _):
        assert method not in master.heard[0], "the master has it"


class ReadsOn(Master):
    """It answers a registration once it has read of a cancellation."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        if method == "register":
            return self._register(super().request(peer, method, params))
        self.heard[-1].append(method)
        self.news.set()
        return Done()

    async def _register(self, answer: object) -> object:
        await self.until(0, "tasks_cancelled")
        return answer


async def test_a_cancellation_is_sent_before_the_master_can_place_the_task(tmp_path: Path) -> None:
    said = api.TasksCancelled(job="j", tasks=["t"])
    async with linked(tmp_path, [], "heartbeat", said, master=ReadsOn()) as (master, _):
        assert master.heard[0] == ["register", "tasks_cancelled", "heartbeat"]


async def test_a_cancelled_command_is_registered_as_unwanted_until_its_end(tmp_path: Path) -> None:
    """A master that had given the job up would place it again."""
    bed = NodeBed()
    bed.open()
    job, request = bed.register(), TaskRequest(task="t", usage=KindAmounts(), command=ContainerSpec(argv=("x",)))
    bed.send(e.Requested(m.PLACE, 1, Place(job=job, stage="s", tasks=[request])))
    bed.decide(api.TellPlaced(job=job, task="t", node="o"))
    bed.send(e.Requested(m.CANCEL_TASKS, 1, TaskRefs(job=job, tasks=["t"])))
    node = SimpleNamespace(node=bed.node, link=None, dispatch=lambda event: None)
    async with linked(tmp_path, [], "heartbeat", of=cast("Shell", node)) as (master, _):
        assert [awaited.request.task for awaited in master.registered.awaited] == ["t"]
        assert master.heard[0][:2] == ["register", "tasks_cancelled"]
        bed.decide(api.TellEnded(job=job, task="t", node="o", ended=Ended(by=EndedBy.CANCELLED)))
        master.peers[0].close()
        await master.until(1, "heartbeat")
        assert "tasks_cancelled" not in master.heard[1]


async def test_a_node_with_news_of_done_tasks_registers_as_serving_their_job(tmp_path: Path) -> None:
    """Its framework reported it while the master was away, and has left since: from others it would be refused."""
    done = api.TasksDone(job="elsewhere-1", tasks=["t"])
    async with linked(tmp_path, [], "tasks_done", done) as (master, _):
        assert master.heard[0][:2] == ["register", "tasks_done"]
        assert [use.job for use in master.registered.load.jobs] == ["elsewhere-1"]


async def test_a_node_registers_what_a_job_that_has_left_used_until_its_last_report(tmp_path: Path) -> None:
    """With less than it had reported, the master would take its count as begun anew, and count all of it again."""
    bed, job = NodeBed(), "elsewhere-1"
    bed.open()
    bed.send(e.JobIntroduced(job, "j", "eve", 0.0))
    bed.register(job=job)
    bed.assign_request(TaskRequest(task="t", usage=KindAmounts(cpu=1.0)), job=job, origin="elsewhere")
    bed.submit(1, job, 1)
    bed.now = 4.0
    assert [use.service_s for use in bed.node.load(bed.now).jobs] == [4.0]
    bed.now = 6.0
    bed.complete(1, job, 1)
    bed.send(e.Requested(m.TASKS_DONE, 1, TaskRefs(job=job, tasks=["t"])))
    [done] = bed.to_master(api.TasksDone)
    bed.send(e.SessionClosed(1))
    node = SimpleNamespace(node=bed.node, link=None, dispatch=lambda event: None)
    async with linked(tmp_path, [], "tasks_done", done, of=cast("Shell", node)) as (master, _):
        assert master.registered.load.jobs == [api.JobUse(job=job, service_s=6.0)]
    bed.node.attained.lasts_read = True  # as from a master of this version
    assert bed.node.load(bed.now).jobs == [api.JobUse(job=job, service_s=6.0, last=True)]


class DecidesAtOnce(Master):
    """While an agent registers, its framework asks for a task that has ended; the end comes right behind the answer."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        answer = super().request(peer, method, params)
        if method == "register":
            self.asks()
            asyncio.get_running_loop().call_soon(self._decide, peer)
        return answer

    def _decide(self, peer: RpcPeer) -> None:
        told = api.TellEnded(job="j", task="t", node="o", ended=END.ended)
        answer = peer.start_request("decide", api.Decide(number=1, decisions=[told]))
        peer.push()  # so that the agent reads both at once
        answer.add_done_callback(lambda _: self.heard[-1].append("answer"))
        answer.add_done_callback(lambda _: self.news.set())

    def asks(self) -> None:
        raise NotImplementedError


async def test_requests_during_the_registration_are_sent_before_a_decision_is_answered(tmp_path: Path) -> None:
    """Once the end is answered the master drops it; a request for the task only then would have it run again."""
    master = DecidesAtOnce()
    path = tmp_path / "master.sock"
    server = await asyncio.get_running_loop().create_unix_server(lambda: RpcPeer(master), str(path))
    deciding = SimpleNamespace(node=Node(SETTINGS), link=None, dispatch=lambda event: api.Decided())
    link = MasterLink(cast("Shell", deciding), UnixEndpoint(path), Journal(tmp_path / "journal"))
    request = TaskRequest(task="t", usage=KindAmounts(cpu=1.0))
    ready = api.ReadyTasks(job="j", stage="s", tasks=[request], opportunistic=False)
    master.asks = lambda: link.send(ready)  # type: ignore[method-assign]
    running = asyncio.create_task(link.run())
    try:
        await master.until(0, "answer")
        assert "tasks_ready" in master.heard[0][: master.heard[0].index("answer")]
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        server.close()

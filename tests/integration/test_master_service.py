"""The master's RPC server and HTTP site in this process, spoken to over a real socket by bare connections."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from master.config import MasterConfig
from master.daemon import Master
from penstock.daemon import StartError
from penstock.model import Capacity, ContainerSpec, Ended, EndedBy, KindAmounts, TaskRequest
from penstock.transport import RpcPeer, connect_unix
from penstock.wire import master_api as api
from penstock.wire.agent_api import Done
from penstock.wire.connection import read_params
from penstock.wire.errors import ErrorCode, RpcError


class Agent:
    """The far end of a connection: keeps the decisions, and gives the configured answers."""

    def __init__(self) -> None:
        self.peer: RpcPeer
        self.requests: list[api.Decide] = []
        self.order: list[str] = []  # received messages, in order
        self.errors: list[dict[str, Any]] = []
        self.tenants: list[object] = []  # as notified
        self.answer: Callable[[api.Decide], object] = lambda decide: api.Decided()
        self.gone = asyncio.Event()
        self._fresh = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        self.peer = peer

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        decide = read_params(params, api.Decide)
        self.requests.append(decide)
        self._fresh.set()
        return self.answer(decide)

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        if method == api.NAME_TENANTS.name:
            self.tenants.append(read_params(params, api.NAME_TENANTS.params).tenants)
        else:
            self.errors.append(read_params(params, dict))
        self._fresh.set()

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(30):
            while not condition():
                self._fresh.clear()
                await self._fresh.wait()

    def decisions(self, kind: type[Any]) -> list[Any]:
        return [decision for decide in self.requests for decision in decide.decisions if isinstance(decision, kind)]


def registration(node: str, **more: Any) -> api.Register:
    values: dict[str, Any] = {"capacity": Capacity(cores=2, memory_bytes=10**9), "load": load()}
    return api.Register(protocol=1, node=node, version="0", complete=True, **{**values, **more})


def load() -> api.Load:
    return api.Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(2, 1, 2))


def job(name: str) -> api.JobState:
    return api.JobState(job=name, name=name, user="u", memory_bytes=0, priority=0.0, submitted_at=1.0)


def ready(name: str, *tasks: str, **more: Any) -> api.ReadyTasks:
    requests = [TaskRequest(task=task, usage=KindAmounts(cpu=1e6), **more) for task in tasks]
    return api.ReadyTasks(job=name, stage="s", tasks=requests)


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    config = MasterConfig(
        listen=f"{tmp_path}/master.sock", http="127.0.0.1:0", store=f"{tmp_path}/master.db", interval_s=0.01,
        ept_s=0.02, gather_s=0.0,
    )  # fmt: skip
    running = Master(config)
    await running.start()
    yield running
    await running.close()


@pytest.fixture
async def connect(master: Master) -> AsyncIterator[Callable[..., Any]]:
    agents: list[Agent] = []

    async def make(node: str = "", **more: Any) -> Agent:
        agent = Agent()
        await connect_unix(master.service.address, agent)
        agents.append(agent)
        if node:
            answer = await agent.peer.request("register", registration(node, **more), api.Registered)
            assert answer.heartbeat_s == 1.0 and answer.profile_gaps and answer.last_parts
        return agent

    yield make
    for agent in agents:
        agent.peer.close()


async def test_a_task_finds_its_node_and_its_end_finds_its_origin(connect: Callable[..., Any]) -> None:
    origin, other = await connect("a"), await connect("b")
    origin.peer.notify("job_submitted", job("j"))
    origin.peer.notify("tasks_ready", ready("j", "t", nodes=("b",)))
    await origin.until(lambda: bool(origin.decisions(api.TellPlaced)))
    assert origin.decisions(api.TellPlaced)[0].node == "b"
    assert other.decisions(api.Assign)[0].why.startswith("ursa: F = ")
    other.peer.notify("tasks_done", api.TasksDone(job="j", tasks=["t"]))
    await origin.until(lambda: bool(origin.decisions(api.TellEnded)))
    assert [decide.number for decide in origin.requests] == list(range(1, len(origin.requests) + 1))


async def test_an_end_is_answered_when_the_origin_has_it(connect: Callable[..., Any]) -> None:
    origin, other = await connect("a"), await connect("b")
    may_answer = asyncio.Event()

    async def hesitate() -> api.Decided:
        await may_answer.wait()
        return api.Decided()

    def answer(decide: api.Decide) -> object:
        return hesitate() if any(isinstance(said, api.TellEnded) for said in decide.decisions) else api.Decided()

    origin.answer = answer
    origin.peer.notify("job_submitted", job("j"))
    origin.peer.notify("tasks_ready", ready("j", "t", nodes=("b",), command=ContainerSpec(argv=("true",))))
    await origin.until(lambda: bool(origin.decisions(api.TellPlaced)))
    said = api.CommandEnded(job="j", task="t", origin="a", ended=Ended(by=EndedBy.EXIT, exit_status=0))
    answered = other.peer.start_request("command_ended", said)
    await origin.until(lambda: bool(origin.decisions(api.TellEnded)))
    await other.peer.request("heartbeat", api.Heartbeat(load=load(), decided=0), Done)
    assert not answered.done(), "the later request is answered before"
    may_answer.set()
    async with asyncio.timeout(30):
        await answered
        await other.peer.request("command_ended", said, Done)  # it is known now


async def test_the_registration_is_answered_before_anything_is_decided(connect: Callable[..., Any]) -> None:
    agent = await connect()
    answered = agent.peer.start_request("register", registration("a", jobs=[job("j")], ready=[ready("j", "t")]))
    agent.answer = lambda decide: agent.order.append("decide") or api.Decided()
    await agent.until(lambda: bool(agent.order) or answered.done())
    assert answered.done()
    await agent.until(lambda: bool(agent.decisions(api.Assign)))


async def test_refused_tasks_come_back_and_an_agent_that_does_not_understand_refuses_all(
    connect: Callable[..., Any], master: Master
) -> None:
    agent = await connect("a")
    agent.answer = lambda decide: api.Decided(
        refused=[
            api.Refusal(index=index, reason="not now")
            for index, decision in enumerate(decide.decisions)
            if isinstance(decision, api.Assign)
        ]
    )
    agent.peer.notify("job_submitted", job("j"))
    agent.peer.notify("tasks_ready", ready("j", "t"))
    await agent.until(lambda: len(agent.decisions(api.Assign)) == 1)

    def confused(decide: api.Decide) -> object:
        raise RpcError(ErrorCode.BAD_REQUEST, "what is that?")

    agent.answer = confused
    agent.peer.notify("heartbeat", api.Heartbeat(load=load(), decided=agent.requests[-1].number))
    await agent.until(lambda: len(agent.decisions(api.Assign)) == 2)
    agent.answer = lambda decide: api.Decided()
    agent.peer.notify("heartbeat", api.Heartbeat(load=load(), decided=agent.requests[-1].number))
    await agent.until(lambda: len(agent.decisions(api.TellPlaced)) == 1)
    assert master.status().decisions["refused"] == 2


async def test_an_agent_that_fails_on_a_decision_is_asked_to_register_again(connect: Callable[..., Any]) -> None:
    agent = await connect("a")
    agent.answer = lambda decide: {"refused": "all of it"}
    agent.peer.notify("job_submitted", job("j"))
    await asyncio.wait_for(agent.gone.wait(), MasterConfig().node_timeout_s / 2)  # not for its silence
    # Garbage as an answer was taken for "not understood" would lose work that was done: the truth comes with register.
    again = await connect("a", jobs=[job("j")])
    await again.until(lambda: bool(again.decisions(api.AdmitJob)))


async def test_bad_messages_name_the_field_and_affect_no_other_node(connect: Callable[..., Any]) -> None:
    good, bad = await connect("a"), await connect()
    for method, params, field in (
        ("heartbeat", api.Heartbeat(load=load()), "method"),
        ("launch", {}, "method"),
        ("register", {"protocol": 1, "node": 5}, "node"),
        ("register", {"protocol": 1}, "node"),
    ):
        with pytest.raises(RpcError) as caught:
            await bad.peer.request(method, params, dict)
        assert (caught.value.code, caught.value.body.field) == (ErrorCode.BAD_REQUEST, field)
    with pytest.raises(RpcError) as caught:
        await bad.peer.request("register", {**registration_map("b"), "protocol": 7}, dict)
    assert caught.value.body.field == "protocol"
    await bad.peer.request("register", registration("b"), dict)
    with pytest.raises(RpcError) as caught:
        await bad.peer.request("register", registration("b"), dict)
    assert caught.value.code is ErrorCode.REFUSED
    bad.peer.notify("tasks_ready", {"job": "j", "stage": "s", "tasks": [{"task": "t", "usage": {"gpu": 1}}]})
    bad.peer.notify("tasks_done", api.TasksDone(job="j", tasks=["never heard of"]))
    bad.peer.notify("job_submitted", {**job_map("x"), "submitted_at": float("nan")})
    await bad.until(lambda: len(bad.errors) == 2)
    assert [error["field"] for error in bad.errors] == ["tasks[0].usage", "submitted_at"]
    good.peer.notify("job_submitted", job("j"))
    await good.until(lambda: bool(good.decisions(api.AdmitJob)))


def registration_map(node: str) -> dict[str, Any]:
    from penstock.wire.connection import to_wire

    return dict(to_wire(registration(node)))


def job_map(name: str) -> dict[str, Any]:
    from penstock.wire.connection import to_wire

    return dict(to_wire(job(name)))


async def test_agents_are_told_the_tenants_on_the_open_link(connect: Callable[..., Any], master: Master) -> None:
    """A connection that was closed for it failed all calls that users had under way on that host."""
    agent = await connect("a")
    master.reconfigure(MasterConfig(tenants={"eve": "research"}, placement="tetris"))
    research = {"eve": ("research", 1.0)}
    await agent.until(lambda: agent.tenants == [research])
    master.reconfigure(MasterConfig(tenants={"eve": "research"}))
    other = await connect("b")
    await other.until(lambda: other.tenants == [research])
    master.reconfigure(MasterConfig())
    await agent.until(lambda: agent.tenants == [research, None])
    assert not agent.gone.is_set()


async def test_garbled_bytes_end_their_connection_only(connect: Callable[..., Any], master: Master) -> None:
    good = await connect("a")
    for garbled in (b"\xc1", b"\x93\x02\xa1x\x90\xc1", b"POST / HTTP/1.1\r\n\r\n\x93\x02\xa1x\x90"):
        reader, writer = await asyncio.open_unix_connection(master.service.address)
        writer.write(garbled)
        assert b"not MessagePack" in await asyncio.wait_for(reader.read(), 30)
        writer.close()
        await writer.wait_closed()
    good.peer.notify("job_submitted", job("j"))
    await good.until(lambda: bool(good.decisions(api.AdmitJob)))


async def test_two_hosts_cannot_have_one_name(connect: Callable[..., Any], master: Master) -> None:
    await connect("a")
    second = await connect()
    with pytest.raises(RpcError) as caught:
        await second.peer.request("register", registration("a"), dict)
    assert caught.value.body.field == "node"
    assert "is connected from this host" in caught.value.body.message
    assert list(master.status().nodes) == ["a"]


async def test_a_node_can_come_back_at_once_when_its_connection_was_lost(
    connect: Callable[..., Any], master: Master
) -> None:
    first = await connect("a")
    first.peer.close()
    await asyncio.wait_for(first.gone.wait(), 30)
    second = await connect()  # our side closed first: the master may not have read of it yet
    async with asyncio.timeout(30):
        while True:
            try:
                await second.peer.request("register", registration("a"), dict)
                break
            except RpcError as error:
                assert error.code is ErrorCode.REFUSED
    assert master.status().nodes["a"].state == "connected"


async def test_status_metrics_and_health(connect: Callable[..., Any], master: Master) -> None:
    agent = await connect("a")
    agent.peer.notify("job_submitted", job("j"))
    agent.peer.notify("tasks_ready", ready("j", "t", "too-large", memory_bytes=6 * 10**8))
    await agent.until(lambda: len(agent.decisions(api.TellPlaced)) == 1)
    async with aiohttp.ClientSession() as session:
        base = f"http://{master.site.address}"
        status = await (await session.get(f"{base}/status")).json()
        metrics = await (await session.get(f"{base}/metrics")).text()
        assert await (await session.get(f"{base}/healthz")).text() == "ok\n"
    assert status["nodes"]["a"]["state"] == "connected"
    assert status["nodes"]["a"]["memory_free_bytes"] == 4 * 10**8
    assert status["tasks"] == {"ready": 1, "placed": 1, "ended": {}}
    waits = status["jobs"]["j"]["waits"]
    assert waits == "1 task of stage s waits for a node: of 1 node 1 lacks memory"
    for line in (
        'penstock_master_nodes{state="connected"} 1.0',
        'penstock_master_tasks{state="ready"} 1.0',
        "penstock_master_tasks_assigned_total 1.0",
    ):
        assert line in metrics.splitlines()
    assert "penstock_master_round_seconds_count" in metrics


async def test_a_taken_http_port_does_not_keep_the_master_from_starting(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        http = f"127.0.0.1:{taken.getsockname()[1]}"
        running = Master(MasterConfig(listen=f"{tmp_path}/master.sock", http=http, store=":memory:"))
        await running.start()
    degraded = running.status().degraded
    assert [row.what for row in degraded] == ["http"] and http in degraded[0].why
    await running.close()


async def test_a_socket_that_is_taken_is_one_clear_line(tmp_path: Path) -> None:
    address = f"{tmp_path}/master.sock"
    with socket.socket(socket.AF_UNIX) as taken:
        taken.bind(address)
        taken.listen()
        running = Master(MasterConfig(listen=address, http="127.0.0.1:0", store=":memory:"))
        with pytest.raises(StartError, match=f"^listen: cannot listen on {address}: "):
            await running.start()
        await running.close()

"""Master and agents over mutual TLS: a node's name is that of its certificate, and renewal needs no restart."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import ssl
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from agent.command import main as agent_command
from master.command import main as master_command
from master.config import MasterConfig
from master.daemon import Master
from penstock.daemon import StartError
from penstock.model import Capacity, KindAmounts
from penstock.security import tls
from penstock.security.authority import Authority
from penstock.security.tls import TlsFiles
from penstock.transport import RpcPeer, connect_tcp
from penstock.wire import master_api as api
from penstock.wire.connection import RpcConnection
from penstock.wire.errors import ErrorCode, RpcError
from tests.integration.conftest import Daemon, Recorder, until
from tests.security_bed import DAY, NOW, authority, carried, files, settings

LIMIT_S = 100


def registration(node: str) -> api.Register:
    load = api.Load(rates=KindAmounts(), pending=KindAmounts(), idle=KindAmounts(2, 1, 2))
    capacity = Capacity(cores=2, memory_bytes=10**9)
    return api.Register(protocol=api.PROTOCOL, node=node, version="0", complete=True, capacity=capacity, load=load)


@contextlib.asynccontextmanager
async def here(directory: Path, of_master: TlsFiles, **keys: str) -> AsyncIterator[Master]:
    """A master in this process."""
    places: dict[str, Any] = {"listen": "127.0.0.1:0", "http": "127.0.0.1:0", "store": f"{directory}/m.db"}
    running = Master(MasterConfig(**(places | keys | settings(of_master))))
    await running.start()
    try:
        yield running
    finally:
        await running.close()


@pytest.fixture
async def master(tmp_path: Path) -> AsyncIterator[Master]:
    async with here(tmp_path, files(authority(tmp_path / "ca"), "head", master=True)) as running:
        yield running


class Node(Recorder):
    """An agent that follows decisions, and reports nothing of it."""

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        return api.Decided()


@pytest.fixture
async def connect_as(tmp_path: Path, master: Master) -> AsyncIterator[Callable[..., Any]]:
    peers: list[tuple[RpcPeer, Node]] = []

    async def make(*names: str) -> RpcPeer:
        shown = files(Authority(tmp_path / "ca"), *names)
        host, _, port = master.service.address.rpartition(":")
        recorder = Node()
        peer = await connect_tcp(host, int(port), recorder, tls.mutual_client(shown), "head")
        peers.append((peer, recorder))
        return peer

    yield make
    for peer, recorder in peers:
        peer.close()
        await recorder.gone.wait()


async def test_a_node_registers_under_the_name_of_its_certificate_only(connect_as: Callable[..., Any]) -> None:
    peer = await connect_as("alpha", "alpha.example.org")
    for stolen in ("beta", "ALPHA", "alpha.example", "*"):
        with pytest.raises(RpcError, match=r"shows a certificate for 'alpha', 'alpha\.example\.org'") as caught:
            await peer.request("register", registration(stolen), api.Registered)
        assert caught.value.code is ErrorCode.REFUSED
        assert caught.value.body.remedy.startswith("set `node` to that, or `penstock ca issue")
    with pytest.raises(RpcError, match="starts with `register`"):
        await peer.request("job_ended", api.JobEnded(job="j"), api.Done)
    assert (await peer.request("register", registration("alpha.example.org"), api.Registered)).protocol == api.PROTOCOL


async def test_a_node_cannot_speak_for_another_one_s_jobs(connect_as: Callable[..., Any], master: Master) -> None:
    alpha, beta = await connect_as("alpha"), await connect_as("beta")
    await alpha.request("register", registration("alpha"), api.Registered)
    await beta.request("register", registration("beta"), api.Registered)
    job = api.JobState(job="alpha-1", name="x", user="eve", memory_bytes=0, priority=0.0, submitted_at=1.0)
    await alpha.request("job_submitted", job, api.Done)
    for method, params in (
        ("job_submitted", job),
        ("job_ended", api.JobEnded(job="alpha-1")),
        ("tasks_ready", api.ReadyTasks(job="alpha-1", stage="s", tasks=[])),
        ("progress", api.Progress(job="alpha-1", stages=[])),
        ("tasks_done", api.TasksDone(job="alpha-1", tasks=["t"])),
        ("tasks_cancelled", api.TasksCancelled(job="alpha-1", tasks=["t"])),
        ("join_job", api.JoinJob(job="alpha-1", user="mallory")),
    ):
        with pytest.raises(RpcError, match=r"belongs to (node 'alpha'|eve)"):
            await beta.request(method, params, api.Done)
    assert list(master.service.cluster.jobs) == ["alpha-1"]


async def test_without_certificates_there_is_no_port() -> None:
    for config, line in (
        (MasterConfig(http="127.0.0.1:0", store=":memory:"), "^tls_ca: empty, and `listen` is a TCP port"),
        (
            MasterConfig(store=":memory:", tls_ca="/none", tls_certificate="/none", tls_key="/none"),
            "^tls_certificate: /none: No such",
        ),
    ):
        refused = Master(config)
        with pytest.raises(StartError, match=line):
            await refused.start()
        await refused.close()


@pytest.mark.parametrize(
    ("daemon", "keys", "line"),
    [
        ("master", (), "tls_ca: empty, and `listen` is a TCP port"),
        ("agent", ("master=head.example.org:7420",), "tls_ca: empty, and `master` is a TCP port; set tls_ca"),
    ],
)
def test_a_daemon_that_others_could_hear_does_not_start(
    daemon: str, keys: tuple[str, ...], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    main = {"agent": agent_command, "master": master_command}[daemon]
    assert main([part for key in keys for part in ("--set", key)]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"penstock {daemon}: ") and line in said and said.count("\n") == 1


async def test_an_expired_certificate_is_said_on_both_sides_and_its_renewal_needs_no_restart(
    tmp_path: Path, start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon], connect: Callable[..., Any]
) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    of_master = files(ca, "head", master=True)
    of_node = files(ca, "test", since=NOW - 50 * DAY, days=20)
    master = await asyncio.to_thread(lambda: start_master(listen="127.0.0.1:0", **settings(of_master)))
    agent = await asyncio.to_thread(
        start_agent, master=master.addresses["listen"], master_name="head", **settings(of_node)
    )
    said = await _logged(agent, "no link to the master")
    assert "the master head refuses our certificate: it has expired; renew it with `penstock ca renew`" in said
    said = await _logged(master, "no connection")
    assert "the certificate of the agent is refused here: it has expired" in said
    assert agent.status()["master"]["linked"] is False
    ca.renew("test", NOW)
    client = await connect(agent)
    await client.call("register_job", name="x")
    await client.recorder.wait_for("job_admitted")
    assert agent.status()["master"]["linked"] is True
    assert list(master.status()["nodes"]) == ["test"]


async def test_a_revoked_node_is_shut_out_of_what_runs_and_the_others_come_back(
    tmp_path: Path, start_master: Callable[..., Daemon], start_agent: Callable[..., Daemon], connect: Callable[..., Any]
) -> None:
    ca = authority(tmp_path / "ca")
    of_master = files(ca, "head", master=True, listed=True)
    master = await asyncio.to_thread(lambda: start_master(listen="127.0.0.1:0", **settings(of_master)))
    common = {"master": master.addresses["listen"], "master_name": "head"}
    agent = await asyncio.to_thread(start_agent, **common, **settings(files(ca, "test")))
    client = await connect(agent)
    await client.call("register_job", name="x")
    await client.recorder.wait_for("job_admitted")
    thief = Node()
    stolen = tls.mutual_client(carried(files(ca, "stolen"), tmp_path / "elsewhere"))
    host, _, port = master.addresses["listen"].rpartition(":")
    peer = await connect_tcp(host, int(port), thief, stolen, "head")
    await peer.request("register", registration("stolen"), api.Registered)
    assert set(master.status()["nodes"]) == {"test", "stolen"}

    ca.revoke("stolen", NOW)
    master.process.send_signal(signal.SIGHUP)
    async with asyncio.timeout(LIMIT_S):
        await thief.gone.wait()
    with pytest.raises(OSError):  # at once, or in place of the first answer
        again = await connect_tcp(host, int(port), Node(), stolen, "head")
        await again.request("register", registration("stolen"), api.Registered)
    assert "the certificate of the agent is refused here: it was revoked" in await _logged(master, "no connection")
    await client.call("register_job", name="y")
    await client.recorder.wait_for("job_admitted", 2)
    states = {name: node["state"] for name, node in master.status()["nodes"].items()}
    assert states == {"test": "connected", "stolen": "away"}


async def test_a_handshake_that_began_before_the_revocation_opens_nothing(tmp_path: Path) -> None:
    """The list that it is judged by is the one of its beginning; a thief could keep one waiting."""
    ca = authority(tmp_path / "ca")
    of_master = files(ca, "head", master=True, listed=True)
    async with here(tmp_path, of_master) as running:
        stolen = tls.mutual_client(carried(files(ca, "stolen"), tmp_path / "elsewhere"))
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        thief = stolen.wrap_bio(there, back, server_hostname="head")
        host, _, port = running.service.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(LIMIT_S):
            with pytest.raises(ssl.SSLWantReadError):
                thief.do_handshake()
            writer.write(back.read())
            # so the master has begun, with the certificates that it trusted until now
            there.write(await reader.read(65536))
            ca.revoke("stolen", NOW)
            running.service.check_certificates()
            while True:
                try:
                    thief.do_handshake()
                    break
                except ssl.SSLWantReadError:
                    there.write(await reader.read(65536))
            thief.write(RpcConnection().send_request("register", registration("stolen"))[1])
            writer.write(back.read())
            answered = b"?"
            while answered == b"?":
                try:
                    answered = thief.read()  # nothing: the other side has announced that it closes
                except ssl.SSLWantReadError:
                    there.write(await reader.read(65536))
        assert not answered
        assert running.status().nodes == {}
        writer.close()


async def test_an_agent_leaves_a_master_that_was_revoked(
    tmp_path: Path, start_agent: Callable[..., Daemon], connect: Callable[..., Any]
) -> None:
    ca = authority(tmp_path / "ca")
    of_master = carried(files(ca, "head", master=True), tmp_path / "head")
    async with here(tmp_path, of_master) as running:
        listed = files(ca, "test", listed=True, days=20)
        agent = await asyncio.to_thread(
            start_agent, master=running.service.address, master_name="head", **settings(listed)
        )
        client = await connect(agent)
        await client.call("register_job", name="x")
        await client.recorder.wait_for("job_admitted")
        status = await asyncio.to_thread(agent.status)
        assert [row["key"] for row in status["certificates"]] == ["tls_certificate", "tls_ca"]
        assert "a certificate ends soon" in await _logged(agent, "ends soon")
        metrics = (await asyncio.to_thread(agent.get, "/metrics")).decode()
        assert 'penstock_certificate_end_timestamp_seconds{key="tls_certificate"}' in metrics
        ca.revoke("head", NOW)
        agent.process.send_signal(signal.SIGHUP)
        said = await _logged(agent, "is refused here")
        assert "the certificate of the master head is refused here: it was revoked" in said
        assert (await asyncio.to_thread(agent.status))["master"]["linked"] is False


async def _logged(daemon: Daemon, what: str) -> str:
    """The line."""

    def lines() -> list[str]:
        return [line for line in daemon.log.read_text().splitlines() if what in line]

    return (await asyncio.to_thread(until, lines, f"{what!r} was not logged"))[0]


async def test_the_master_s_pages_elsewhere_speak_tls_and_want_a_token(tmp_path: Path) -> None:
    """On every address of this host, which is elsewhere than on loopback; asked on that, which is one of them."""
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    ca = authority(tmp_path / "ca")
    own = files(ca, "head", master=True)
    elsewhere = {"http": "0.0.0.0:0", "http_read_token_file": str(token)}
    trusted = ssl.create_default_context(cafile=str(ca.certificate))
    async with here(tmp_path, own, listen=f"{tmp_path}/master.sock", **elsewhere) as running:
        url = f"https://127.0.0.1:{running.site.address.rpartition(':')[2]}"
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusted)) as session:
            for path, headers, status in (
                ("/healthz", {}, 200),
                ("/status", {}, 401),
                ("/", {}, 401),
                ("/status", {"Authorization": "Bearer 0123456789abcdef"}, 200),
                ("/status", {"Authorization": "Bearer 0123456789abcdeg"}, 401),
            ):
                async with session.get(url + path, headers=headers, server_hostname="head") as answer:
                    assert answer.status == status, path

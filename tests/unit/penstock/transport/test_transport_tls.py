"""Two peers over mutual TLS 1.3: those that are let in, those that are not, and the log lines on either side."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import functools
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.security import tls
from penstock.security.authority import Authority
from penstock.transport import Listener, RpcPeer, connect_tcp, listener
from penstock.transport.listener import HANDSHAKES_PER_ADDRESS, SILENT_PER_ADDRESS
from penstock.wire.connection import read_params
from tests.security_bed import DAY, NOW, authority, carried, files
from tests.unit.penstock.transport import loops
from tests.unit.penstock.transport.loops import LIMIT_S


class Side:
    """Answers ``echo`` with its parameter."""

    def __init__(self) -> None:
        self.heard: list[Any] = []
        self.gone = asyncio.Event()

    def connected(self, peer: RpcPeer) -> None:
        self.heard.append("connected")

    def request(self, peer: RpcPeer, method: str, params: list[Any]) -> object:
        self.heard.append(method)
        return {"echo": read_params(params, dict)["text"], "names": list(tls.names(peer.get_extra_info("peercert")))}

    def notification(self, peer: RpcPeer, method: str, params: list[Any]) -> None:
        self.heard.append(method)

    def disconnected(self, peer: RpcPeer, error: Exception | None) -> None:
        self.gone.set()

    def internal_error(self, peer: RpcPeer, method: str, error: Exception) -> None:
        raise error


class Port:
    """A listener and all its log lines about peers that it did not let in."""

    def __init__(self, contexts: tls.Contexts) -> None:
        self.sides: list[Side] = []
        self.peers: list[RpcPeer] = []
        self.refusals: asyncio.Queue[str] = asyncio.Queue()
        self.contexts = contexts
        self.listener = Listener(self._make, lambda _, error: self.refusals.put_nowait(tls.why(error, "node")))

    def _make(self) -> RpcPeer:
        self.sides.append(Side())
        self.peers.append(RpcPeer(self.sides[-1]))
        return self.peers[-1]

    @property
    def number(self) -> int:
        return int(self.listener.address.rpartition(":")[2])

    async def connect(self, with_files: tls.TlsFiles, name: str = "head") -> RpcPeer:
        return await self.connect_with(tls.mutual_client(with_files), name)

    async def connect_with(self, context: ssl.SSLContext, name: str = "head") -> RpcPeer:
        return await connect_tcp("127.0.0.1", self.number, Side(), context, name)

    async def connect_without_tls(self) -> RpcPeer:
        loop = asyncio.get_running_loop()
        _, peer = await loop.create_connection(lambda: RpcPeer(Side()), "127.0.0.1", self.number)
        return peer


OpenPort = Callable[[tls.TlsFiles], Awaitable[Port]]


@contextlib.asynccontextmanager
async def ports() -> AsyncIterator[OpenPort]:
    opened: list[Port] = []

    async def make(of: tls.TlsFiles) -> Port:
        port = Port(tls.Contexts(of, tls.mutual_server))
        await port.listener.listen_tcp("127.0.0.1", 0, port.contexts.current)
        opened.append(port)
        return port

    yield make
    for port in opened:  # not where a test failed: its open connections could be waited for for ever
        port.listener.close()
        await port.listener.wait_closed()


on_both_loops = functools.partial(loops.on_both_loops, open_port=ports)


async def head(tmp_path: Path, open_port: OpenPort) -> tuple[Authority, Port]:
    """Return a CA, and the port of a master of that name."""
    ca = authority(tmp_path / "ca")
    return ca, await open_port(files(ca, "head", master=True))


async def echo(peer: RpcPeer, text: str = "x") -> dict[str, Any]:
    async with asyncio.timeout(LIMIT_S):
        return await peer.request("echo", {"text": text}, dict)


async def refusal(port: Port) -> str:
    async with asyncio.timeout(LIMIT_S):
        return await port.refusals.get()


async def close(peer: RpcPeer) -> None:
    handler = peer._handler
    assert isinstance(handler, Side)
    peer.close()
    async with asyncio.timeout(LIMIT_S):
        await handler.gone.wait()


@on_both_loops
async def test_both_sides_know_each_other_and_speak_tls_1_3(tmp_path: Path, open_port: OpenPort) -> None:
    ca, port = await head(tmp_path, open_port)
    peer = await port.connect(files(ca, "alpha", "alpha.example.org"))
    large = "y" * 3_000_000  # more than a socket takes at once
    assert await echo(peer, large) == {"echo": large, "names": ["alpha", "alpha.example.org"]}
    assert peer.get_extra_info("ssl_object").version() == "TLSv1.3"
    await close(peer)


@on_both_loops
async def test_a_host_that_vanishes_is_noticed_on_both_sides(tmp_path: Path, open_port: OpenPort) -> None:
    """By the kernel, which gives up in seconds data without an acknowledgement."""
    ca, port = await head(tmp_path, open_port)
    peer = await port.connect(files(ca, "alpha"))
    await echo(peer, "hello")
    for each in (peer, port.peers[0]):
        connection = each.get_extra_info("socket")
        assert 0 < connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT) <= 30_000
    await close(peer)


@on_both_loops
async def test_nothing_of_what_is_said_can_be_read_on_the_way(tmp_path: Path, open_port: OpenPort) -> None:
    ca, port = await head(tmp_path, open_port)
    seen = bytearray()

    async def pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            seen.extend(data)
            writer.write(data)
        writer.close()

    async def tap(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        beyond_reader, beyond_writer = await asyncio.open_connection("127.0.0.1", port.number)
        await asyncio.gather(pump(reader, beyond_writer), pump(beyond_reader, writer))

    tapped = await asyncio.start_server(tap, "127.0.0.1", 0)
    client = tls.mutual_client(files(ca, "alpha"))
    peer = await connect_tcp("127.0.0.1", tapped.sockets[0].getsockname()[1], Side(), client, "head")
    assert (await echo(peer, "a secret between us"))["echo"] == "a secret between us"
    await close(peer)
    tapped.close()
    assert len(seen) > 500
    assert b"secret" not in seen
    assert b"echo" not in seen


_HERE = "the certificate of node is refused here: it "
REFUSED_HERE = [
    ("another CA", f"{_HERE}is not signed by the CA in tls_ca", "is not signed by the CA in tls_ca"),
    ("expired", f"{_HERE}has expired", "it has expired; renew it"),
    ("too early", f"{_HERE}is not valid yet", "it is not valid yet"),
    ("a master's", f"{_HERE}was issued for something else", "it was issued for something else"),
    ("revoked", f"{_HERE}was revoked", ""),
    ("none", "node shows no certificate", ""),
]


@pytest.mark.parametrize(("case", "here", "there"), REFUSED_HERE, ids=[case for case, _, _ in REFUSED_HERE])
@on_both_loops
async def test_a_node_that_cannot_show_who_it_is_is_never_heard(
    case: str, here: str, there: str, tmp_path: Path, open_port: OpenPort
) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    port = await open_port(files(ca, "head", master=True, listed=case == "revoked"))
    match case:
        case "another CA":
            shown = files(authority(tmp_path / "other"), "alpha", ca=ca.certificate)
        case "expired":
            shown = files(ca, "alpha", since=NOW - 50 * DAY, days=20)
        case "too early":
            shown = files(ca, "alpha", since=NOW + 50 * DAY)
        case "revoked":
            shown = carried(files(ca, "alpha"), tmp_path / "host")
            ca.revoke("alpha", NOW)
        case _:
            shown = files(ca, "alpha", master=case == "a master's")
    context = tls.mutual_client(shown)
    if case == "none":
        context = ssl.create_default_context(cafile=str(ca.certificate))
    with pytest.raises(OSError):  # at once, or in place of the first answer
        await echo(await port.connect_with(context))
    assert (await refusal(port)).startswith(here)
    assert there in tls.shown(shown, server=False)[1]
    assert port.sides == [] or port.sides[0].heard == []


REFUSED_THERE = [
    ("another CA", "alpha", "it is not signed by the CA in tls_ca"),
    ("expired", "alpha", "it has expired"),
    ("revoked", "alpha", "it was revoked"),
    ("no list", "alpha", "the list in tls_crl is not of its CA"),
    ("wrong name", "tail", "Hostname mismatch, certificate is not valid for 'tail'"),
]


@pytest.mark.parametrize(("case", "_", "why"), REFUSED_THERE, ids=[case for case, _, _ in REFUSED_THERE])
@on_both_loops
async def test_a_master_that_is_not_the_one_is_told_nothing(
    case: str, _: str, why: str, tmp_path: Path, open_port: OpenPort
) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    since = NOW - 50 * DAY if case == "expired" else NOW
    of_master = authority(tmp_path / "other") if case == "another CA" else ca
    port = await open_port(
        carried(files(of_master, "head", master=True, since=since, ca=ca.certificate), tmp_path / "h")
    )
    shown = files(ca, "alpha", listed=case == "revoked")
    if case == "revoked":
        ca.revoke("head", NOW)
    if case == "no list":
        shown = dataclasses.replace(shown, tls_crl=authority(tmp_path / "foreign").revocations)
    with pytest.raises(ssl.SSLCertVerificationError) as caught:
        await port.connect(shown, "tail" if case == "wrong name" else "head")
    assert tls.why(caught.value, "the master").startswith(f"the certificate of the master is refused here: {why}")
    assert await refusal(port)
    assert port.sides == [] or port.sides[0].heard == []


@on_both_loops
async def test_either_side_without_tls_is_told_so(tmp_path: Path, open_port: OpenPort) -> None:
    ca, port = await head(tmp_path, open_port)
    plain = await port.connect_without_tls()
    plain.notify("register", {})
    assert await refusal(port) == "node does not speak TLS"
    await close(plain)
    without = await asyncio.get_running_loop().create_server(lambda: RpcPeer(Side()), "127.0.0.1", 0)
    with pytest.raises(OSError) as caught:
        number = without.sockets[0].getsockname()[1]
        await connect_tcp("127.0.0.1", number, Side(), tls.mutual_client(files(ca, "alpha")), "head")
    assert tls.why(caught.value, "the master") == "the master does not speak TLS"
    without.close()


@on_both_loops
async def test_tls_1_2_is_too_old(tmp_path: Path, open_port: OpenPort) -> None:
    ca, port = await head(tmp_path, open_port)
    context = tls.mutual_client(files(ca, "alpha"))
    context.minimum_version, context.maximum_version = ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2
    with pytest.raises(OSError):
        await echo(await port.connect_with(context))
    assert await refusal(port) == "node does not speak TLS 1.3"


@on_both_loops
async def test_renewed_certificates_hold_from_the_next_connection_on(tmp_path: Path, open_port: OpenPort) -> None:
    ca = authority(tmp_path / "ca", NOW - 100 * DAY)
    of_master = files(ca, "head", master=True, since=NOW - 50 * DAY, days=20)
    port = await open_port(of_master)
    shown = files(ca, "alpha")
    with pytest.raises(ssl.SSLCertVerificationError, match="expired"):
        await port.connect(shown)
    ca.renew("head", NOW)
    peer = await port.connect(shown)
    assert (await echo(peer))["names"] == ["alpha"]
    of_master.tls_key.write_text("half written")
    other = await port.connect(shown)  # an unusable file does not replace a usable one
    assert (await echo(other))["names"] == ["alpha"]
    assert (await echo(peer))["names"] == ["alpha"], "a connection that is there stays"
    await close(peer)
    await close(other)


async def stranger(port: Port, says: bytes = b"") -> socket.socket:
    """Return a connection that has sent these bytes and sends no more."""
    connection = socket.socket()
    connection.setblocking(False)
    await asyncio.get_running_loop().sock_connect(connection, ("127.0.0.1", port.number))
    await asyncio.get_running_loop().sock_sendall(connection, says)
    return connection


async def hung_up(connection: socket.socket) -> None:
    """Wait until the port has closed it, without a word."""
    with contextlib.suppress(ConnectionResetError):
        assert await asyncio.get_running_loop().sock_recv(connection, 1) == b""


@on_both_loops
async def test_a_peer_is_refused_at_a_first_byte_that_is_not_one_of_tls(
    tmp_path: Path, open_port: OpenPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_S", 10 * LIMIT_S)  # no refusal here comes from it
    port = await open_port(files(authority(tmp_path / "ca"), "head", master=True))
    for byte in (b"G", b"\0", b"\x15", b"\x80"):
        with await stranger(port, byte) as connection:
            await hung_up(connection)
            assert await refusal(port) == "node does not speak TLS"
    (await stranger(port)).close()
    assert await refusal(port) == "it closed the connection before it sent a byte"


@on_both_loops
async def test_silent_strangers_do_not_keep_a_node_out(
    tmp_path: Path, open_port: OpenPort, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "HANDSHAKE_TIMEOUT_S", 10 * LIMIT_S)  # no place becomes free by it
    ca, port = await head(tmp_path, open_port)
    silent = [await stranger(port) for _ in range(max(SILENT_PER_ADDRESS, HANDSHAKES_PER_ADDRESS))]
    peer = await port.connect(files(ca, "alpha"))
    assert (await echo(peer))["names"] == ["alpha"]
    silent += [await stranger(port) for _ in range(SILENT_PER_ADDRESS)]
    for one in silent[:-SILENT_PER_ADDRESS]:
        await hung_up(one)  # newer ones have their places
    for one in silent:
        one.close()
    for _ in range(SILENT_PER_ADDRESS):
        await refusal(port)
    assert (await echo(peer))["names"] == ["alpha"], "a connection that is there stays"
    assert port.refusals.empty()
    await close(peer)


@on_both_loops
async def test_one_address_cannot_keep_all_handshakes_busy(tmp_path: Path, open_port: OpenPort) -> None:
    ca, port = await head(tmp_path, open_port)
    slow = [await stranger(port, b"\x16") for _ in range(HANDSHAKES_PER_ADDRESS + 1)]
    ends = [asyncio.ensure_future(hung_up(one)) for one in slow]
    done, others = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    assert [one.exception() for one in done] == [None], "one too many is hung up on"
    for one in others:
        one.cancel()
    await asyncio.wait(others)
    for one in slow:
        one.close()
    for _ in range(HANDSHAKES_PER_ADDRESS):
        await refusal(port)
    peer = await port.connect(files(ca, "alpha"))
    assert (await echo(peer))["names"] == ["alpha"]
    await close(peer)


@on_both_loops
async def test_a_port_that_is_taken_is_no_harm(tmp_path: Path, open_port: OpenPort) -> None:
    ca = authority(tmp_path / "ca")
    first = await open_port(files(ca, "head", master=True))
    second = Listener(lambda: RpcPeer(Side()))
    with pytest.raises(OSError, match="in use"):
        await second.listen_tcp("127.0.0.1", first.number, first.contexts.current)
    peer = await first.connect(files(ca, "alpha"))
    assert (await echo(peer))["names"] == ["alpha"]
    await close(peer)

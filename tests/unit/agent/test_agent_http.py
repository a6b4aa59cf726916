"""The agent's site: the page, its files and events, and the users who may read them."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import aiohttp
import pytest
import structlog

from agent.core import Node
from agent.core.settings import NodeSettings
from agent.http import status_site
from agent.http_documents import Status
from penstock.model import Capacity
from penstock.security.http_access import HttpAccess
from penstock.trouble import Troubles
from tests.fakes.node_bed import status_of


def _node() -> Node:
    return Node(NodeSettings(node="n", instance="x", capacity=Capacity(cores=2, memory_bytes=1 << 30)))


def _status(node: Node | None = None) -> Callable[[], Status]:
    known = node or _node()
    return lambda: status_of(known)


@asynccontextmanager
async def served(access: HttpAccess | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    node = _node()
    site = status_site(_status(node), lambda: node.slack.by_resource(node.ledger()))
    await site.listen_when_free("127.0.0.1", 0, access, Troubles())
    async with aiohttp.ClientSession(f"http://{site.address}") as client:
        yield client
    await site.close()


async def test_the_page_its_events_and_the_documents_for_programs() -> None:
    async with served() as client:
        for path, of in (
            ("/", "text/html"),
            ("/static/node.js", "javascript"),
            ("/status", "application/json"),
            ("/metrics", "text/plain"),
            ("/healthz", "text/plain"),
            ("/openapi.json", "application/json"),
        ):
            async with client.get(path) as response:
                assert response.status == 200 and response.content_type.endswith(of)
                assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
        async with client.get("/events") as response:
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
            assert b"retry" in await response.content.readline()


class Noted(Troubles):
    """Sets an event at a repeated failure, and one at its end."""

    def __init__(self) -> None:
        super().__init__()
        self.again, self.over = asyncio.Event(), asyncio.Event()

    def begin(self, what: str, error: OSError) -> None:
        super().begin(what, error)
        if self.rows()[0].times > 2:
            self.again.set()

    def end(self, what: str) -> None:
        super().end(what)
        self.over.set()


async def test_a_port_that_another_process_has_is_taken_once_it_is_free() -> None:
    status = _status()
    site, troubles = status_site(status, dict), Noted()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        await site.listen_when_free("127.0.0.1", port, None, troubles, retry_s=0.01)
        (row,) = troubles.rows()
        assert row.what == "http" and f"another process has 127.0.0.1:{port}" in row.why and "`http`" in row.why
        assert site.address == ""
        async with asyncio.timeout(30):
            await troubles.again.wait()
    async with asyncio.timeout(30):
        await troubles.over.wait()
    assert not troubles.rows()
    async with aiohttp.ClientSession(f"http://{site.address}") as client, client.get("/status") as response:
        assert response.status == 200
    await site.close()


async def test_a_site_that_never_had_its_port_closes() -> None:
    site = status_site(_status(), dict)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        await site.listen_when_free("127.0.0.1", taken.getsockname()[1], None, Troubles())
        await site.close()


async def test_an_address_of_another_host_is_an_error() -> None:
    site = status_site(_status(), dict)
    with pytest.raises(OSError, match="address"):
        await site.listen_when_free("203.0.113.1", 0, None, Troubles())
    await site.close()


async def test_a_name_that_an_attacker_points_here_is_refused() -> None:
    async with served(HttpAccess(exposed=False)) as client:
        for path in ("/", "/events", "/static/node.js", "/status"):
            async with client.get(path, headers={"Host": "evil.example:7421"}) as response:
                assert response.status == 403
        async with client.get("/status") as response:
            assert (await response.json())["node"] == "n"


async def test_the_page_leads_to_its_description() -> None:
    async with served() as client, client.get("/") as page:
        target = page.links["service-desc"]["url"]
        async with client.get(target) as described:
            assert (await described.json())["info"]["title"] == "Penstock agent"


async def test_where_others_can_look_the_description_names_the_parts_that_need_a_token(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("0123456789abcdef")
    headers = {"Authorization": "Bearer 0123456789abcdef"}
    async with served(HttpAccess(exposed=True, reader=token)) as client:
        async with client.get("/openapi.json") as refused, client.get("/openapi.json", headers=headers) as answer:
            assert (refused.status, answer.status) == (401, 200)
            document = await answer.json()
        for path, methods in document["paths"].items():
            async with client.get(path) as nobody, client.get(path, headers=headers) as somebody:
                assert nobody.status == (401 if methods["get"]["security"] else 200), path
                assert somebody.status == 200, path


async def test_a_request_that_is_no_http_is_one_line_in_the_log() -> None:
    with structlog.testing.capture_logs() as said:
        async with served() as client:
            base = client._base_url
            assert base is not None
            reader, writer = await asyncio.open_connection(base.host, base.port)
            writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nX: \x00\r\n\r\n")
            answer = await reader.read()
            writer.close()
    assert answer.startswith((b"HTTP/1.0 400", b"HTTP/1.1 400"))
    [line] = [one for one in said if one["event"] == "not HTTP"]
    assert "Invalid header value" in line["why"] and "\n" not in line["why"] and "exc_info" not in line

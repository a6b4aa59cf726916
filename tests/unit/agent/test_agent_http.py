"""The agent's site: the page, its files and events, and who may look."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from agent.core import Node
from agent.core.settings import NodeSettings
from agent.history import resources
from agent.http import StatusSite
from agent.status import status_document
from penstock.http_access import HttpAccess
from penstock.model import Capacity


@asynccontextmanager
async def served(access: HttpAccess | None = None) -> AsyncIterator[aiohttp.ClientSession]:
    node = Node(NodeSettings(node="n", instance="x", capacity=Capacity(cores=2, memory_bytes=1 << 30)))

    def status() -> dict[str, Any]:
        master = {"address": "", "linked": False}
        return status_document(node, started_at=0.0, enforcement={}, master=master, events=[])

    site = StatusSite(status, lambda: resources(node))
    await site.listen("127.0.0.1", 0, access)
    async with aiohttp.ClientSession(f"http://{site.address}") as client:
        yield client
    await site.close()


async def test_the_page_its_events_and_what_programs_read() -> None:
    async with served() as client:
        for path, of in (
            ("/", "text/html"),
            ("/static/node.js", "javascript"),
            ("/status", "application/json"),
            ("/metrics", "text/plain"),
            ("/healthz", "text/plain"),
        ):
            async with client.get(path) as response:
                assert response.status == 200 and response.content_type.endswith(of)
                assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
        async with client.get("/events") as response:
            assert response.headers["Content-Security-Policy"].startswith("default-src 'self'")
            assert b"retry" in await response.content.readline()


async def test_a_name_that_somebody_else_made_point_here_is_refused() -> None:
    async with served(HttpAccess(exposed=False)) as client:
        for path in ("/", "/events", "/static/node.js", "/status"):
            async with client.get(path, headers={"Host": "evil.example:7421"}) as response:
                assert response.status == 403
        async with client.get("/status") as response:
            assert (await response.json())["node"] == "n"

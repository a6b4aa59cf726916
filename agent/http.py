"""HTTP on loopback: ``/status`` (JSON), ``/metrics`` (Prometheus), ``/healthz``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agent.metrics import registry


class StatusSite:
    """Serves one agent's status."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status
        self._registry = registry(status)
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def listen(self, host: str, port: int) -> None:
        """Open the port; :attr:`address` tells which it was.

        Raises:
            OSError: the port is taken.
        """
        app = web.Application()
        app.add_routes(
            [
                web.get("/status", self._get_status),
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_health),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        site = web.TCPSite(runner, host, port)
        await site.start()
        self._runner = runner
        address = runner.addresses[0]
        self.address = f"{address[0]}:{address[1]}"

    async def close(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _get_status(self, request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self._status()), content_type="application/json")

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")

"""HTTP on loopback: the status page and its ``/events``; ``/status`` (JSON), ``/metrics`` (Prometheus),
``/healthz``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from agent.metrics import registry
from penstock.http_access import HttpAccess
from penstock.web import pages
from penstock.web.history import Resources
from penstock.web.live import Live

#: The page shows so many of what is over, the latest.
_MOST_ENDED = 20
_MOST_PREEMPTIONS = 20
_MOST_EVENTS = 30
_MOST_JOBS = 100


class StatusSite:
    """Serves one agent's status."""

    def __init__(self, status: Callable[[], dict[str, Any]], resources: Callable[[], Resources] | None = None) -> None:
        """``resources`` is :func:`agent.history.resources`, to be kept for the page; None: only while it is watched."""
        self._status = status
        self._registry = registry(status)
        self._live = Live(lambda: shown(status()), resources)
        self._runner: web.AppRunner | None = None
        self.address = ""

    async def listen(self, host: str, port: int, access: HttpAccess | None = None) -> None:
        """Open the port; :attr:`address` tells which it was. ``access`` says who may look (None: all who can connect).

        Raises:
            OSError: the port is taken.
        """
        app = web.Application(middlewares=access.middlewares if access is not None else ())
        app.on_response_prepare.append(pages.add_headers)
        app.on_shutdown.append(self._hang_up)
        app.add_routes(
            [
                *pages.routes("node.html"),
                web.get("/events", self._live.get),
                web.get("/status", self._get_status),
                web.get("/metrics", self._get_metrics),
                web.get("/healthz", self._get_health),
            ]
        )
        runner = web.AppRunner(app, access_log=None)
        await runner.setup()
        self._runner = runner
        await web.TCPSite(runner, host, port, ssl_context=access.ssl if access is not None else None).start()
        self._live.start()
        address = runner.addresses[0]
        self.address = f"{address[0]}:{address[1]}"

    async def close(self) -> None:
        """Close the port."""
        if self._runner is not None:
            await self._runner.cleanup()

    async def _hang_up(self, app: web.Application) -> None:
        self._live.close()

    async def _get_status(self, request: web.Request) -> web.Response:
        return web.Response(body=msgspec.json.encode(self._status()), content_type="application/json")

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _get_health(self, request: web.Request) -> web.Response:
        return web.Response(text="ok\n")


def shown(status: dict[str, Any]) -> dict[str, Any]:
    """What of the status the page shows: the same keys, less of what is over, and how much there is in ``more``."""
    containers, jobs = status["containers"], status["jobs"]
    live = [each for each in containers if each["ended"] is None]
    ended = [each for each in containers if each["ended"] is not None]
    left_out = ("acts", "reaction", "uptime_s", "cores", "memory")
    return {key: value for key, value in status.items() if key not in left_out} | {
        "containers": live + ended[:_MOST_ENDED],
        "jobs": jobs[:_MOST_JOBS],
        "preemptions": status["preemptions"][-_MOST_PREEMPTIONS:],
        "events": status["events"][-_MOST_EVENTS:],
        "more": {"ended": max(0, len(ended) - _MOST_ENDED), "jobs": max(0, len(jobs) - _MOST_JOBS)},
    }

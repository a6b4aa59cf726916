"""One HTTP address of a daemon: the page, its events, the documents for programs, and the OpenAPI description."""

from __future__ import annotations

import asyncio
import errno
import logging
import ssl
from collections.abc import Sequence

import structlog
from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from penstock import __version__, openapi
from penstock.metrics import OwnMetrics
from penstock.openapi import Content, Operation
from penstock.security.http_access import OPEN, HttpAccess
from penstock.ticks import BETWEEN
from penstock.trouble import Troubles
from penstock.web import pages
from penstock.web.live import Live

log = structlog.get_logger()

#: The interval between attempts to open a port that another process has.
RETRY_S = 2.0


class Site:
    """An HTTP site, the common part of the agent's and the master's; each adds its own ``operations``."""

    def __init__(
        self, *, title: str, about: str, page: str, live: Live, registry: CollectorRegistry, prefix: str,
        operations: Sequence[Operation], phase: float = BETWEEN,
    ) -> None:  # fmt: skip
        """``title`` and ``about`` are for the OpenAPI document, ``page`` is the file served at ``/``, ``prefix`` is the
        prefix of the daemon's metric names, ``phase`` that of the looks at the loop's lag (:mod:`penstock.ticks`)."""
        self._title = title
        self._about = about
        self._page = page
        self._live = live
        self._registry = registry
        self._own = OwnMetrics(registry, prefix, phase)
        self._operations = operations
        self._runner: web.AppRunner | None = None
        self._opening: asyncio.Task[None] | None = None  # while another process has the port
        self.address = ""

    def resources_changed(self) -> None:
        """Record a row of the history, see :meth:`penstock.web.live.Live.changed`."""
        self._live.changed()

    async def listen_when_free(
        self, host: str, port: int, access: HttpAccess | None, troubles: Troubles, retry_s: float = RETRY_S
    ) -> None:
        """Open the port; :attr:`address` has the actual one. ``access`` checks clients (None: every client may read).

        A port that another process has is reported as a trouble, and tried again until it is free: any user may bind
        the port first, and that user must not keep the daemon from starting.

        Raises:
            OSError: the port cannot be opened for another reason.
        """
        await self._prepare(access)
        context = access.ssl if access is not None else None
        if not await self._opened(host, port, context, troubles):
            self._opening = asyncio.get_running_loop().create_task(
                self._keep_trying(host, port, context, troubles, retry_s)
            )

    async def _keep_trying(
        self, host: str, port: int, context: ssl.SSLContext | None, troubles: Troubles, retry_s: float
    ) -> None:
        opened = False
        while not opened:
            await asyncio.sleep(retry_s)
            try:
                opened = await self._opened(host, port, context, troubles)
            except OSError as error:  # no descriptors left, or the address was removed
                troubles.begin("http", error)

    async def _opened(self, host: str, port: int, context: ssl.SSLContext | None, troubles: Troubles) -> bool:
        """Try to open the port; return whether it is open, False if another process has it."""
        assert self._runner is not None
        site = web.TCPSite(self._runner, host, port, ssl_context=context)
        try:
            await site.start()
        except OSError as error:
            await site.stop()
            if error.errno != errno.EADDRINUSE:
                raise
            taken = f"another process has {host}:{port}; end it, or set `http` to another address"
            troubles.begin("http", OSError(taken))
            return False
        troubles.end("http")
        name, chosen = self._runner.addresses[0][:2]
        self.address = f"[{name}]:{chosen}" if ":" in name else f"{name}:{chosen}"
        return True

    async def _prepare(self, access: HttpAccess | None) -> None:
        app = web.Application(middlewares=(openapi.faults, *([access.check] if access is not None else [])))
        app.on_response_prepare.append(pages.add_headers)
        app.on_shutdown.append(self._hang_up)
        shown = openapi.Access(access is not None and access.exposed, frozenset({OPEN}))
        app.add_routes([*self.operations(shown), pages.STATIC])
        logger = logging.Logger("penstock.http", logging.WARNING)  # noqa: LOG001 - kept out of the global registry
        logger.addHandler(_Words())
        runner = web.AppRunner(app, access_log=None, logger=logger)
        await runner.setup()
        self._runner = runner
        self._live.start()
        self._own.start()

    async def close(self) -> None:
        """Close the port."""
        if self._opening is not None:
            self._opening.cancel()
            await asyncio.wait([self._opening])
        self._own.close()
        if self._runner is not None:
            await self._runner.cleanup()

    def operations(self, access: openapi.Access) -> list[Operation]:
        """Return all operations; ``access``: those that need a token, for the OpenAPI document."""
        described = [
            Operation(
                path="/",
                handler=pages.handler(self._page),
                summary="The status page, for people.",
                answer=Content("text/html", "The page; what it is made of is below /static/."),
                page="status-page.md",
            ),
            Operation(
                path="/events",
                handler=self._live.get,
                summary="The status, live, as server-sent events.",
                answer=Content(
                    "text/event-stream",
                    "Events `history` (the last ten minutes, then new rows) and `status` (the status, less of what is "
                    "over; then the keys that changed), each with an object in JSON, until either side closes.",
                ),
                faults={503: "The largest number of connections that may watch is reached."},
                page="status-page.md#live-and-light-on-the-host",
            ),
            *self._operations,
            Operation(
                path="/metrics",
                handler=self._get_metrics,
                summary="Metrics for Prometheus.",
                answer=Content(CONTENT_TYPE_LATEST.partition(";")[0], "The text format of Prometheus."),
                page="observability/README.md",
            ),
            Operation(
                path=OPEN,
                handler=_get_health,
                summary="Whether the daemon lives; open to everybody who can connect.",
                answer=Content("text/plain", "`ok`"),
            ),
        ]
        own = openapi.served(lambda: openapi.document(self._title, __version__, self._about, [*described, own], access))
        return [*described, own]

    async def _hang_up(self, app: web.Application) -> None:
        self._live.close()

    async def _get_metrics(self, request: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._registry), headers={"Content-Type": CONTENT_TYPE_LATEST})


async def _get_health(request: web.Request) -> web.Response:
    return web.Response(text="ok\n")


class _Words(logging.Handler):
    """Logs aiohttp's records to our log: one line for a request that is not HTTP, a traceback for other errors."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            log.info("not HTTP", what=record.getMessage(), why=" ".join(error.message.split())[:200])
        else:
            log.error("http", what=record.getMessage(), exc_info=error)

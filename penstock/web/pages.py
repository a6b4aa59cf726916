"""The page's files, and the headers of every answer: no inline code, no foreign sources, no guessing of types."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web

from penstock.openapi import LINK

_FILES = Path(__file__).with_name("static")
#: Set on every answer of the daemons' HTTP addresses. The page has no inline script or style, and loads from us alone.
HEADERS = {
    "Content-Security-Policy": (
        "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
    ),
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}


#: The route of the pages' files.
STATIC = web.static("/static", _FILES)


def handler(page: str) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return the handler of a page (``node.html`` or ``cluster.html``), with a link to the description for programs."""

    async def get(request: web.Request) -> web.FileResponse:
        return web.FileResponse(_FILES / page, headers={hdrs.CACHE_CONTROL: "no-cache", hdrs.LINK: LINK})

    return get


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers, for ``app.on_response_prepare``. Browsers revalidate files, as an upgrade changes them."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.path.startswith("/static/"):
        response.headers.setdefault("Cache-Control", "no-cache")

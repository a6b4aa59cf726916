"""The page's files, and the headers of every answer: no inline code, no foreign sources, no guessing of types."""

from __future__ import annotations

from pathlib import Path

from aiohttp import web

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


def routes(page: str) -> list[web.AbstractRouteDef]:
    """Return the routes: ``GET /`` for this page (``node.html`` or ``cluster.html``), ``/static/`` for its files."""

    async def get_page(request: web.Request) -> web.FileResponse:
        return web.FileResponse(_FILES / page, headers={"Cache-Control": "no-cache"})

    return [web.get("/", get_page), web.static("/static", _FILES)]


async def add_headers(request: web.Request, response: web.StreamResponse) -> None:
    """Add the headers, for ``app.on_response_prepare``. Browsers revalidate files, as an upgrade changes them."""
    for name, value in HEADERS.items():
        response.headers.setdefault(name, value)
    if request.path.startswith("/static/"):
        response.headers.setdefault("Cache-Control", "no-cache")

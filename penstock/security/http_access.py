"""Who may see a daemon's pages, and who may change something there.

On loopback everybody on the host may look. Elsewhere the pages are served with TLS, and whoever looks shows a token: as
``Authorization: Bearer TOKEN``, or in a browser as the password it asks for (any user name). Changes need the
operator's token as Bearer, everywhere: a browser sends a password along with what other sites make it ask, but never
that header.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
from aiohttp import web

from penstock.config.settings import SettingsError, host_port
from penstock.security import doors, tls

#: What a token must have at least, where others can try: `openssl rand -hex 16` has twice that.
LEAST_TOKEN_CHARACTERS = 16
#: Whether a daemon lives may be asked by everybody who can connect.
OPEN = "/healthz"
_LOOKS = frozenset({"GET", "HEAD"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpAccess:
    """For one site: a middleware and, elsewhere than on loopback, a TLS context."""

    def __init__(
        self, *, exposed: bool, contexts: tls.Contexts | None = None, operator: Path | None = None,
        reader: Path | None = None,
    ) -> None:  # fmt: skip
        """``operator`` and ``reader`` are files with the tokens of those who may change, and may only look."""
        self._exposed = exposed
        self._contexts = contexts
        self._operator = operator
        self._reader = reader

    @property
    def exposed(self) -> bool:
        """Whether others than this host's can connect, so that whoever looks shows a token."""
        return self._exposed

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """For ``web.TCPSite``; it serves renewed certificates to those who connect after that."""
        if self._contexts is None:
            return None
        contexts = self._contexts
        serving = tls.page_server(contexts.files)

        def fresh(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = contexts.current()

        serving.sni_callback = fresh
        return serving

    @property
    def middlewares(self) -> list[Any]:
        """For ``web.Application``."""

        @web.middleware
        async def access(request: web.Request, handler: _Handler) -> web.StreamResponse:
            said = request.headers.get("Authorization", "")
            changes_nothing = request.match_info.http_exception is not None  # no such page, or not by this method
            method = "GET" if changes_nothing else request.method
            refused = self.refusal(method, request.path, request.host, said)
            return await handler(request) if refused is None else _refuse(*refused)

        return [access]

    def refusal(self, method: str, path: str, host: str, authorization: str) -> tuple[int, str] | None:
        """Status and reason for one who may not; None: let him."""
        if not self._exposed and not _local(host):
            return 403, f"this page is on loopback, and {host[:80]!r} is a name that somebody else may have given it"
        if method not in _LOOKS:
            if self._operator is None:
                return 403, "nothing can be changed over HTTP here; set http_token_file"
            if not _same(_bearer(authorization), self._operator):
                return 401, "the header `Authorization: Bearer TOKEN` with the token of http_token_file is needed"
            return None
        if not self._exposed or path == OPEN:
            return None
        said = _bearer(authorization) or _password(authorization)
        files = [file for file in (self._operator, self._reader) if file is not None]
        if True in [_same(said, file) for file in files]:  # all are compared, whichever it is
            return None
        return 401, "a token is needed: `Authorization: Bearer TOKEN`, or as the password"


def _refuse(status: int, why: str) -> web.Response:
    asks = {"WWW-Authenticate": 'Basic realm="Penstock", charset="UTF-8"'} if status == 401 else {}
    body = msgspec.json.encode({"error": why})
    return web.Response(body=body, status=status, content_type="application/json", headers=asks)


def access_of(config: Any) -> HttpAccess:
    """What a daemon's configuration says of its pages.

    Raises:
        SettingsError: others could look, and TLS or a token is missing. tls.TlsError: a file cannot be used.
    """
    operator, reader = (
        Path(named) if named else None for named in (config.http_token_file, config.http_read_token_file)
    )
    host, _ = host_port(config.http, "http")
    doors.pages_required(config, host)
    if doors.is_loopback(host):
        return HttpAccess(exposed=False, operator=operator, reader=reader)
    for key, file in (("http_token_file", operator), ("http_read_token_file", reader)):
        if file is not None and len(_token(file, key)) < LEAST_TOKEN_CHARACTERS:
            raise SettingsError(
                f"{key}: {file}: a token has at least {LEAST_TOKEN_CHARACTERS} characters: openssl rand -hex 16"
            )
    files = tls.TlsFiles(Path(config.tls_certificate), Path(config.tls_key))
    return HttpAccess(exposed=True, contexts=tls.Contexts(files, tls.page_server), operator=operator, reader=reader)


def _local(host: str) -> bool:
    """What is in the header ``Host`` is an address, or this host's own name for itself. A name that somebody else
    made point here (DNS rebinding) would let his pages read ours."""
    name = host.rpartition(":")[0] if host.rpartition(":")[2].isdecimal() and not host.endswith("]") else host
    name = name.removeprefix("[").removesuffix("]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _bearer(authorization: str) -> str:
    scheme, _, said = authorization.partition(" ")
    return said.strip() if scheme.lower() == "bearer" else ""


def _password(authorization: str) -> str:
    scheme, _, said = authorization.partition(" ")
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(said, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _token(file: Path, key: str) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{key}: {file}: {getattr(error, 'strerror', None) or 'not text'}") from None


def _same(said: str, file: Path) -> bool:
    """A file that cannot be read, or is empty, lets nobody in."""
    try:
        token = _token(file, "http_token_file")
    except SettingsError:
        return False
    return bool(token) and hmac.compare_digest(said.encode("utf-8", "surrogateescape"), token.encode())

"""Authorize HTTP requests for a daemon's pages and for changes.

On loopback every user of the host may read. Elsewhere the pages are served with TLS, and each request needs a token:
as ``Authorization: Bearer TOKEN``, or in a browser as the password (with any user name). Changes always need the
operator's token as Bearer: a browser also sends a stored password with requests that other sites cause, but never
that header.
"""

from __future__ import annotations

import base64
import hmac
import ipaddress
import ssl
from collections.abc import Awaitable, Callable
from pathlib import Path

from aiohttp import hdrs, web

from penstock.config.settings import SettingsError, host_port
from penstock.openapi import Fault, json
from penstock.security import doors, tls

#: The minimum length of a token where other hosts can guess: `openssl rand -hex 16` gives twice that.
LEAST_TOKEN_CHARACTERS = 16
#: The liveness check, open to every client that can connect.
OPEN = "/healthz"
_LOOKS = frozenset({"GET", "HEAD"})
_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


class HttpAccess:
    """The access control of one site: a middleware and, outside loopback, a TLS context."""

    def __init__(
        self, *, exposed: bool, contexts: tls.Contexts | None = None, operator: Path | None = None,
        reader: Path | None = None,
    ) -> None:  # fmt: skip
        """``operator`` is the file of the token for changes, ``reader`` the file of the token for reading only."""
        self.exposed = exposed  # other hosts can connect, so that reading needs a token
        self._contexts = contexts
        self._operator = operator
        self._reader = reader

    @property
    def ssl(self) -> ssl.SSLContext | None:
        """Return the context for ``web.TCPSite``; new connections get renewed certificates."""
        if self._contexts is None:
            return None
        contexts = self._contexts
        serving = tls.page_server(contexts.files)

        def fresh(connection: ssl.SSLObject, name: str | None, _: ssl.SSLContext) -> None:
            connection.context = contexts.current()

        serving.sni_callback = fresh
        return serving

    @web.middleware
    async def check(self, request: web.Request, handler: _Handler) -> web.StreamResponse:
        """Answer a request, or refuse it: the middleware for ``web.Application``."""
        changes_nothing = request.match_info.http_exception is not None  # unknown page or wrong method
        method = "GET" if changes_nothing else request.method
        refused = self.refusal(method, request.path, request.host, request.headers.get(hdrs.AUTHORIZATION, ""))
        if refused is None:
            return await handler(request)
        status, why = refused
        answer = json(Fault(why), status)
        if status == 401:
            answer.headers[hdrs.WWW_AUTHENTICATE] = 'Basic realm="Penstock", charset="UTF-8"'
        return answer

    def refusal(self, method: str, path: str, host: str, authorization: str) -> tuple[int, str] | None:
        """Return the status and the reason to refuse a request; None: the request is allowed."""
        if not self.exposed and not _local(host):
            why = f"this page is on loopback, and {host[:80]!r} is a name that somebody else may have given it"
            return 403, f"{why}; open it as localhost"
        if method not in _LOOKS:
            if self._operator is None:
                return 403, "nothing can be changed over HTTP here; set http_token_file"
            if not _same(_bearer(authorization), self._operator):
                return 401, "the header `Authorization: Bearer TOKEN` with the token of http_token_file is needed"
            return None
        if not self.exposed or path == OPEN:
            return None
        said = _bearer(authorization) or _password(authorization)
        files = [file for file in (self._operator, self._reader) if file is not None]
        if True in [_same(said, file) for file in files]:  # compare all, so that timing does not reveal which matched
            return None
        return 401, "a token is needed: `Authorization: Bearer TOKEN`, or as the password"


def access_of(config: doors.Doors) -> HttpAccess:
    """Return the access control that a daemon's configuration sets for its pages.

    Raises:
        SettingsError: other hosts could read, and TLS or a token is missing. tls.TlsError: a file cannot be used.
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
    """Return whether the header ``Host`` has an address or ``localhost``.

    Another name may be a foreign site's that resolves to this host (DNS rebinding); its pages could then read ours.
    """
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
    """Return whether the token is that of the file. A file that is unreadable or empty matches no token."""
    try:
        token = _token(file, "http_token_file")
    except SettingsError:
        return False
    return bool(token) and hmac.compare_digest(said.encode("utf-8", "surrogateescape"), token.encode())

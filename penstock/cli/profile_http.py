"""HTTP client of the master for ``penstock profile``: over TLS, and with a token if the master requires one."""

from __future__ import annotations

import http.client
import json
import os
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from penstock.cli.errors import CommandError, usage_error
from penstock.cli.exit_statuses import Status

#: The default address of `penstock master` and `penstock up`.
DEFAULT = "http://127.0.0.1:7422"
#: The list of applications, which every master has.
PROFILES = "/profiles"
#: Environment variables for the credentials, overridden by options.
TOKEN, TOKEN_FILE, CA = "PENSTOCK_HTTP_TOKEN", "PENSTOCK_HTTP_TOKEN_FILE", "PENSTOCK_HTTP_CA"
_TIMEOUT_S = 10.0
_HOSTNAME_MISMATCH, _IP_MISMATCH = 62, 64  # X509_V_ERR_…, openssl/x509_vfy.h
_NOT_IN_TIME = {9: "it is not valid yet; is a clock wrong?", 10: "it has expired; renew it on the master"}


def credentials(ca: Path | None, token_file: Path | None) -> tuple[Path | None, str]:
    """Return the file of the CA and the token, from the options or the environment.

    Raises:
        CommandError: the token's file cannot be read, or is empty.
    """
    ca = ca or _path(CA)
    named = "--token-file" if token_file is not None else f"${TOKEN_FILE}"
    token_file = token_file or _path(TOKEN_FILE)
    if token_file is None:
        return ca, _printable(os.environ.get(TOKEN, "").strip(), f"${TOKEN}")
    try:
        token = token_file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"{named}: {token_file}: {getattr(error, 'strerror', None) or 'not text'}") from None
    if not token:
        raise usage_error(f"{named}: {token_file}: there is no token in it")
    return ca, _printable(token, f"{named}: {token_file}")


class MasterHttp:
    """The master's HTTP at ``http://HOST:PORT`` or ``https://HOST:PORT``.

    ``ca`` verifies the master's certificate (None: this host's CAs); ``token`` is sent (empty: none).

    Raises:
        CommandError: invalid address, unusable CA, or a token that would be sent in plain text.
    """

    def __init__(self, url: str, ca: Path | None, token: str) -> None:
        self._url = url.rstrip("/")
        self._ca = ca
        self._token = token
        parts = urlsplit(url if "//" in url else f"http://{url}")
        try:
            self._port = parts.port or (443 if parts.scheme == "https" else 7422)
            understood = parts.scheme in {"http", "https"} and parts.hostname and not parts.path.strip("/")
        except ValueError:  # an invalid port
            understood = False
        if not understood:
            raise usage_error(f"--master: {url!r} is not an address; write for example {DEFAULT}")
        self._host = str(parts.hostname)
        self._tls = _context(ca) if parts.scheme == "https" else None
        loopback = self._host in {"localhost", "::1"} or self._host.startswith("127.")
        if self._tls is None and token and not loopback:
            raise usage_error(f"--master: {url}: a token is not sent without TLS; write https://{self._host}")

    def get(self, path: str) -> Any:
        """Return a JSON document.

        Raises:
            CommandError: the server does not answer, or not with the requested document.
        """
        headers = {"Accept": "application/json"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        connection = self._connection()
        try:
            connection.request("GET", path, headers=headers)
            answer = connection.getresponse()
            body = answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise CommandError(self._why(error)) from None
        finally:
            connection.close()
        try:
            document = json.loads(body)
        except ValueError:
            document = None
        if answer.status == http.HTTPStatus.UNAUTHORIZED:
            missing = f"it requires a token; name its file with --token-file, or set ${TOKEN_FILE} or ${TOKEN}"
            wrong = "the token is refused; it is in the file http_token_file or http_read_token_file of the master"
            raise CommandError(f"{self._url}: {wrong if self._token else missing}")
        if answer.status == http.HTTPStatus.NOT_FOUND and path == PROFILES:
            port = urlsplit(DEFAULT).port
            why = f"this page is no master's, whose port is {port} unless it is configured"
            raise CommandError(f"{self._url}: {why}; give the master's address with --master")
        if answer.status != http.HTTPStatus.OK or document is None:
            why = (
                str(document.get("error"))
                if isinstance(document, dict)
                else f"HTTP {answer.status}: it keeps no profiles"
            )
            unknown = answer.status == http.HTTPStatus.NOT_FOUND and isinstance(document, dict)
            raise CommandError(f"{self._url}{path}: {why}", status=Status.UNKNOWN if unknown else Status.FAILED)
        return document

    def _connection(self) -> http.client.HTTPConnection:
        if self._tls is None:
            return http.client.HTTPConnection(self._host, self._port, timeout=_TIMEOUT_S)
        return http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT_S, context=self._tls)

    def _why(self, error: OSError | http.client.HTTPException) -> str:
        """Return one line with the cause and the remedy."""
        if isinstance(error, ssl.SSLCertVerificationError):
            if error.verify_code in {_HOSTNAME_MISMATCH, _IP_MISMATCH}:
                return f"{self._url}: its certificate is not for {self._host!r}; use a name in the certificate"
            if error.verify_code in _NOT_IN_TIME:
                return f"{self._url}: its certificate is refused: {_NOT_IN_TIME[error.verify_code]}"
            signer = f"by the CA in {self._ca}" if self._ca is not None else "by a CA trusted here"
            return (
                f"{self._url}: its certificate is not signed {signer}; give its CA with --ca ({error.verify_message})"
            )
        if isinstance(error, ssl.SSLError):
            if error.reason in {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST"}:
                return f"{self._url}: it does not speak TLS; write http://"
            return f"{self._url}: TLS failed: {error.reason or error}"
        if self._tls is None and isinstance(error, http.client.BadStatusLine | ConnectionResetError):
            return f"{self._url}: this is not HTTP; if the master's pages use TLS, write https://"
        why = getattr(error, "strerror", None) or error or type(error).__name__
        return f"no master at {self._url}: {why}; give its HTTP address with --master"


def _context(ca: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca is not None else None)
    except OSError as error:  # includes ssl.SSLError
        why = "there is no certificate in it" if isinstance(error, ssl.SSLError) else error.strerror
        raise usage_error(f"--ca: {ca}: {why}") from None
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    return context


def _path(variable: str) -> Path | None:
    named = os.environ.get(variable)
    return Path(named) if named else None


def _printable(token: str, where: str) -> str:
    """Raises CommandError: the token is not valid in a header."""
    if not token.isascii() or not token.isprintable():
        raise usage_error(f"{where}: a token is one line of plain ASCII characters")
    return token

"""Mutual TLS 1.3 between agents and master.

It makes contexts from files that may be renewed at any time, returns a certificate's names, and explains in one line
which side refused a connection and why. Both sides show a certificate of the operator's own CA (``penstock ca``). The
master's must carry the host that the agent connects to (or ``master_name``), an agent's the name of its node. Sessions
are never resumed, so every connection is checked with the present certificates.
"""

from __future__ import annotations

import contextlib
import ssl
import weakref
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, NoReturn

import structlog

log = structlog.get_logger()

_NO_CHECK_TIME = 0x200000  # X509_V_FLAG_NO_CHECK_TIME, openssl/x509_vfy.h


class TlsError(ValueError):
    """A file that cannot be used: one line that names the key and the file."""


@dataclass(frozen=True, slots=True)
class TlsFiles:
    """PEM files, named by their configuration keys.

    Without ``tls_ca`` clients need no certificate (HTTP pages). With ``tls_crl`` listed certificates are refused.
    """

    tls_certificate: Path
    tls_key: Path
    tls_ca: Path | None = None
    tls_crl: Path | None = None

    def named(self) -> dict[str, Path]:
        """Return key → file."""
        paths = {field.name: getattr(self, field.name) for field in fields(self)}
        return {key: path for key, path in paths.items() if path is not None}


class Contexts:
    """A TLS context that is made anew when a file changes on disk; each connection calls :meth:`current`."""

    def __init__(self, files: TlsFiles, make: Callable[[TlsFiles], ssl.SSLContext]) -> None:
        """Raise TlsError if the files cannot be used."""
        self.files = files
        self._make = make
        self._stamps = self._look()
        self._judges: weakref.WeakKeyDictionary[ssl.SSLContext, list[bytes]] = weakref.WeakKeyDictionary()
        self._context = self._made()

    def current(self) -> ssl.SSLContext:
        """Return the context of the present files; the former one if they are unusable, perhaps half replaced."""
        stamps = self._look()
        if stamps != self._stamps:
            self._stamps = stamps
            try:
                self._context = self._made()
            except TlsError as error:
                log.error("the certificates on disk are not usable, the former ones are kept", why=str(error))
            else:
                log.info("certificates read anew", certificate=str(self.files.tls_certificate))
        return self._context

    def outdated(self, context: ssl.SSLContext | None) -> bool:
        """Return whether the CA or its list changed since ``context`` was made.

        The present context may then refuse a peer that the former one accepted.
        """
        present = self._judges[self.current()]
        return context is not None and self._judges.get(context) != present

    def fault(self) -> str:
        """Return the reason why other daemons will refuse our present certificate; empty: none is known."""
        try:
            return shown(self.files, server=self._make is mutual_server)[1]
        except TlsError as error:
            return str(error)

    def _made(self) -> ssl.SSLContext:
        files = [file for file in (self.files.tls_ca, self.files.tls_crl) if file is not None]
        try:
            trusted = [file.read_bytes() for file in files]
        except OSError:  # being replaced at this moment; the next read will differ
            trusted = []
        context = self._make(self.files)
        self._judges[context] = trusted
        return context

    def _look(self) -> list[tuple[int, int, int]]:
        stamps = []
        for path in self.files.named().values():
            try:
                status = path.stat()
            except OSError:
                stamps.append((0, 0, 0))
            else:
                stamps.append((status.st_mtime_ns, status.st_ino, status.st_size))
        return stamps


def mutual_server(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for the master's port: clients must show a certificate of the CA.

    Raises:
        TlsError: a file cannot be used.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files, ssl.CERT_REQUIRED)


def mutual_client(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for an agent: the master's certificate must be of the CA and carry the expected name.

    Raises:
        TlsError: a file cannot be used.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), files, ssl.CERT_REQUIRED)


def page_server(files: TlsFiles) -> ssl.SSLContext:
    """Return a context for the HTTP pages: browsers have no certificate, they identify themselves by a token.

    Raises:
        TlsError: a file cannot be used.
    """
    return _loaded(ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), files, ssl.CERT_NONE)


def shown(files: TlsFiles, *, server: bool) -> tuple[tuple[str, ...], str]:
    """Return the names of our own certificate, and the reason why peers that trust ``tls_ca`` refuse it (empty: none).

    The reason comes from a handshake with ourselves in memory: a server that refuses a client's certificate ends the
    connection before the client can receive the reason.

    Raises:
        TlsError: a file cannot be used.
    """
    offering, judging = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if server:
        offering, judging = judging, offering
    judging.check_hostname = offering.check_hostname = False
    _loaded(offering, files, ssl.CERT_NONE)
    _loaded(judging, files, ssl.CERT_REQUIRED)
    try:
        return names(_shaken(offering, judging, server=server)), ""
    except ssl.SSLCertVerificationError as error:
        return (), _REFUSED.get(error.verify_code) or error.verify_message


def decoded(files: TlsFiles) -> dict[str, Any]:
    """Return the fields of our own certificate in the form of ``SSLObject.getpeercert``, even if it is not valid.

    Raises:
        TlsError: a file cannot be used.
    """
    for server in (True, False):
        offering, judging = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        if not server:
            offering, judging = judging, offering
        judging.check_hostname = offering.check_hostname = False
        _loaded(offering, files, ssl.CERT_NONE)
        judging.verify_mode = ssl.CERT_REQUIRED
        judging.load_verify_locations(files.tls_certificate)  # trusted for this once
        judging.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN | _NO_CHECK_TIME
        try:
            return dict(_shaken(offering, judging, server=server) or {})
        except ssl.SSLError:  # the certificate is not for that use
            continue
    return {}


def authorities(files: TlsFiles) -> list[dict[str, Any]]:
    """Return the fields of the certificates in ``tls_ca``, in the same form; empty without such a file."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _load_trusted(context, files)
    return [dict(one) for one in context.get_ca_certs()]


def _shaken(offering: ssl.SSLContext, judging: ssl.SSLContext, *, server: bool) -> Mapping[str, Any] | None:
    """Shake hands in memory, and return the certificate that ``offering`` (server or client) shows to ``judging``.

    Raises:
        ssl.SSLError: the certificate is refused.
    """
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    ours = offering.wrap_bio(there, back, server_side=server)
    theirs = judging.wrap_bio(back, there, server_side=not server)
    for _ in range(3):
        for end in (theirs, ours) if server else (ours, theirs):
            with contextlib.suppress(ssl.SSLWantReadError):
                end.do_handshake()
    return theirs.getpeercert()


def _loaded(context: ssl.SSLContext, files: TlsFiles, verify: ssl.VerifyMode) -> ssl.SSLContext:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    if verify is ssl.CERT_NONE:
        context.check_hostname = False
    context.verify_mode = verify
    if context.protocol is ssl.PROTOCOL_TLS_SERVER:
        context.num_tickets = 0  # a resumed session would not check the certificate again
    _readable(files)
    _load_trusted(context, files)
    if files.tls_crl is not None and verify is not ssl.CERT_NONE:
        _load_revoked(context, files.tls_crl)
    try:
        context.load_cert_chain(files.tls_certificate, files.tls_key, password=_encrypted)
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            raise TlsError(f"tls_key: {files.tls_key}: is not the key of {files.tls_certificate}") from None
        why = f"tls_certificate, tls_key: {files.tls_certificate}, {files.tls_key}: not in PEM: {_reason(error)}"
        raise TlsError(why) from None
    return context


def _load_trusted(context: ssl.SSLContext, files: TlsFiles) -> None:
    if files.tls_ca is not None:
        try:
            context.load_verify_locations(files.tls_ca)
        except (ssl.SSLError, OSError) as error:
            raise TlsError(f"tls_ca: {files.tls_ca}: no certificate in PEM: {_reason(error)}") from None


def _load_revoked(context: ssl.SSLContext, file: Path) -> None:
    """Load revocation lists. The file must hold no certificate, as OpenSSL would trust it as a CA."""
    before = context.cert_store_stats()
    try:
        context.load_verify_locations(file)
    except (ssl.SSLError, OSError) as error:
        raise TlsError(f"tls_crl: {file}: no list in PEM: {_reason(error)}") from None
    after = context.cert_store_stats()
    if after["x509"] != before["x509"] or not after["crl"]:
        raise TlsError(f"tls_crl: {file}: a certificate is in it, or no list; `penstock ca revoke` writes crl.pem")
    context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _readable(files: TlsFiles) -> None:
    for key, path in files.named().items():
        try:
            with path.open("rb") as file:
                file.read(1)
        except OSError as error:
            raise TlsError(f"{key}: {path}: {error.strerror}") from None
    if files.tls_key.stat().st_mode & 0o007:
        raise TlsError(f"tls_key: {files.tls_key}: everybody may use it; chmod o= {files.tls_key}")


def _encrypted() -> NoReturn:
    raise TlsError("tls_key: it is encrypted, and a daemon has nobody to ask for the passphrase; store it without")


def _reason(error: OSError) -> str:
    return getattr(error, "reason", None) or error.strerror or str(error)


# ---------------------------------------------------------------- names


def names(certificate: Mapping[str, Any] | None) -> tuple[str, ...]:
    """Return the names of a certificate (from ``SSLObject.getpeercert``): its DNS names, or else its common name."""
    certificate = certificate or {}
    found = [value for kind, value in certificate.get("subjectAltName", ()) if kind == "DNS"]
    common = [value for part in certificate.get("subject", ()) for key, value in part if key == "commonName"]
    return tuple(found or common)


# ---------------------------------------------------------------- failures

_REFUSED = {  # X509_V_ERR_…, openssl/x509_vfy.h
    3: "the list in tls_crl is not of its CA; put the lists of all that tls_ca trusts into that file",
    9: "it is not valid yet; is a clock wrong?",
    10: "it has expired; renew it with `penstock ca renew`",
    11: "the list in tls_crl is not valid yet; is a clock wrong?",
    12: "the list in tls_crl has expired; `penstock ca revoke` writes a fresh one",
    23: "it was revoked",
    26: "it was issued for something else; a master's is issued with --master, a node's without",
    **dict.fromkeys((2, 18, 19, 20, 21), "it is not signed by the CA in tls_ca"),
}
_ALERTS = {  # alerts of the other side
    "UNKNOWN_CA": "it is not signed by the CA that is trusted there",
    "CERTIFICATE_REVOKED": "it was revoked; `penstock ca issue` makes another",
    "CERTIFICATE_EXPIRED": "it has expired; renew it with `penstock ca renew`",
    "CERTIFICATE_REQUIRED": "we showed none",
    "UNSUPPORTED_CERTIFICATE": "it was issued for something else; a master's is issued with --master, a node's without",
    "BAD_CERTIFICATE": "it does not carry the name that was asked for, or is not valid yet",
    "CERTIFICATE_UNKNOWN": "see its log",
}
_NO_TLS = ("WRONG_VERSION_NUMBER", "HTTP_REQUEST", "UNEXPECTED_MESSAGE", "RECORD_LAYER_FAILURE", "NO_SHARED")


def why(error: BaseException, them: str) -> str:
    """Return in one line which side refused the connection and why. ``them`` is the peer, such as ``the master``."""
    if isinstance(error, ssl.SSLCertVerificationError):
        said = _REFUSED.get(error.verify_code) or f"{error.verify_message.rstrip('.')}"
        return f"the certificate of {them} is refused here: {said}"
    if isinstance(error, ssl.SSLError):
        reason = error.reason or ""
        for alert, said in _ALERTS.items():
            if reason.endswith(alert):
                return f"{them} refuses our certificate: {said}"
        if reason.endswith("PEER_DID_NOT_RETURN_A_CERTIFICATE"):
            return f"{them} shows no certificate; its tls_certificate and tls_key are not set"
        if reason.endswith(("PROTOCOL_VERSION", "UNSUPPORTED_PROTOCOL")):
            return f"{them} does not speak TLS 1.3"
        if any(sign in reason for sign in _NO_TLS):
            return f"{them} does not speak TLS"
        return f"TLS with {them} failed: {reason or error}"
    return str(error) or type(error).__name__

"""The access keys of both configurations (TLS files, tokens, ``http``), and their checks (docs/security.md)."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated

import msgspec
import structlog

from penstock.config.endpoint import Endpoint, UnixEndpoint, endpoint
from penstock.config.settings import SettingsError, host_port
from penstock.security import tls

log = structlog.get_logger()
Meta = msgspec.Meta
HttpAddress = Annotated[str, Meta(description="ADDRESS:PORT of status and metrics; port 0: any free one")]


class Doors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The base of both daemons' configuration tables. Each daemon has its own default for ``http``."""

    tls_ca: Annotated[
        str,
        Meta(
            description="PEM file with the CA of all agents and the master (`penstock ca`); required for connections "
            "over TCP"
        ),
    ] = ""
    tls_crl: Annotated[
        str, Meta(description="PEM file with the revocation list of that CA (`penstock ca revoke`); empty: none")
    ] = ""
    tls_certificate: Annotated[
        str, Meta(description="PEM file with the daemon's certificate; new connections use a renewed one")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM file with its key, readable by the daemon alone")] = ""
    http: HttpAddress = ""
    http_token_file: Annotated[
        str,
        Meta(
            description="file with the operators' token, for all changes over HTTP; outside loopback, `http` requires "
            "this key or the next"
        ),
    ] = ""
    http_read_token_file: Annotated[str, Meta(description="file with the token that only allows to read `http`")] = ""


def is_loopback(host: str) -> bool:
    """Return whether data sent to this address stays on the host."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def shown_by(config: Doors) -> tls.TlsFiles | None:
    """Return the files of the certificate that the daemon shows to agents, the master or browsers; None: none."""
    if not (config.tls_certificate and config.tls_key):
        return None
    trusted = Path(config.tls_ca) if config.tls_ca else None
    return tls.TlsFiles(Path(config.tls_certificate), Path(config.tls_key), trusted)


def required(config: Doors, key: str, place: Endpoint) -> tls.TlsFiles | None:
    """Return the files for the connections of ``key`` (``listen`` or ``master``); None on a Unix socket.

    There is no TCP without TLS, not even on loopback: any local user could connect, or listen there first.

    Raises:
        SettingsError: a TCP port, and a file is not named.
    """
    if isinstance(place, UnixEndpoint):
        return None
    missing = next((name for name in ("tls_ca", "tls_certificate", "tls_key") if not getattr(config, name)), None)
    if missing is not None:
        remedy = "set tls_ca, tls_certificate and tls_key (`penstock ca` makes them)"
        if is_loopback(place.host):
            remedy += f', or {key} = "/run/penstock/master.sock": on one host a Unix socket needs no certificates'
        raise SettingsError(f"{missing}: empty, and `{key}` is a TCP port; {remedy}")
    revoked = Path(config.tls_crl) if config.tls_crl else None
    return tls.TlsFiles(Path(config.tls_certificate), Path(config.tls_key), Path(config.tls_ca), revoked)


def pages_required(config: Doors, host: str) -> None:
    """Check that TLS and a token are configured if HTTP pages on ``host`` need them; the files are not read.

    Raises:
        SettingsError: other hosts could read the pages, and TLS or a token is missing.
    """
    if is_loopback(host):
        return
    for key in ("tls_certificate", "tls_key"):
        if not getattr(config, key):
            raise SettingsError(f"{key}: empty, and `http` is not on loopback; set it (`penstock ca` makes one)")
    if not (config.http_token_file or config.http_read_token_file):
        made = "set it, or http_token_file; `openssl rand -hex 16` makes a token"
        raise SettingsError(f"http_read_token_file: empty, and `http` is not on loopback; {made}")


def check(config: Doors, key: str) -> None:
    """Check the addresses of ``key`` (``listen`` or ``master``) and of HTTP, and the keys that they require.

    Raises:
        SettingsError: one line for each fault.
    """
    faults: list[str] = []
    try:
        pages_required(config, host_port(config.http, "http")[0])
    except SettingsError as error:
        faults += error.faults
    try:
        if address := getattr(config, key):  # an agent may have no master
            required(config, key, endpoint(address, key))
    except SettingsError as error:
        faults += error.faults
    if faults:
        raise SettingsError(*faults)


def contexts(config: Doors, key: str, place: Endpoint, name: str = "") -> tls.Contexts | None:
    """Return the TLS contexts for the connections of ``key``; None on a Unix socket.

    Logs an error if other daemons will refuse our certificate, which should carry ``name``.

    Raises:
        SettingsError: as :func:`required`. tls.TlsError: a file cannot be used.
    """
    files = required(config, key, place)
    if files is None:
        return None
    server = key == "listen"
    made = tls.Contexts(files, tls.mutual_server if server else tls.mutual_client)
    carried, fault = tls.shown(files, server=server)
    if not fault and name and name not in carried:
        fault = f"it is for {', '.join(carried) or 'nobody'}; set `node` to that, or `penstock ca issue {name}`"
    if fault:
        log.error("our own certificate will be refused", certificate=str(files.tls_certificate), why=fault)
    return made

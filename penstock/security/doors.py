"""Who gets into a daemon, and how: the keys that both configurations have for it, and what they require of each other
(docs/security.md)."""

from __future__ import annotations

import ipaddress
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import structlog

from penstock.config.settings import SettingsError, host_port
from penstock.security import tls

log = structlog.get_logger()
Meta = msgspec.Meta
HttpAddress = Annotated[str, Meta(description="ADDRESS:PORT of status and metrics; port 0: any free one")]


class Doors(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the tables of both daemons begin with. Each has a default of its own for ``http``."""

    tls: Annotated[
        Literal["require", "off"],
        Meta(
            description="connections between agents and master: mutual TLS 1.3 (docs/security.md); "
            "off: only on loopback"
        ),
    ] = "require"
    tls_ca: Annotated[str, Meta(description="PEM file with the CA of all agents and the master (`penstock ca`)")] = ""
    tls_crl: Annotated[
        str, Meta(description="PEM file with what that CA has revoked (`penstock ca revoke`); empty: nothing")
    ] = ""
    tls_certificate: Annotated[
        str, Meta(description="PEM file with our certificate; a renewed one is taken up at the next connection")
    ] = ""
    tls_key: Annotated[str, Meta(description="PEM file with its key, for us alone")] = ""
    http: HttpAddress = ""
    http_token_file: Annotated[
        str,
        Meta(
            description="file with the operators' token, for all changes over HTTP; elsewhere than on loopback `http` "
            "needs it or the next"
        ),
    ] = ""
    http_read_token_file: Annotated[str, Meta(description="file with the token of those who only look at `http`")] = ""


def is_loopback(host: str) -> bool:
    """Whether what is sent there stays on this host."""
    try:
        return ipaddress.ip_address(host.partition("%")[0]).is_loopback
    except ValueError:
        return host == "localhost"


def files_of(config: Doors) -> tls.TlsFiles | None:
    """What a daemon's configuration names; None where any of the three is missing."""
    if not (config.tls_ca and config.tls_certificate and config.tls_key):
        return None
    revoked = Path(config.tls_crl) if config.tls_crl else None
    return tls.TlsFiles(Path(config.tls_certificate), Path(config.tls_key), Path(config.tls_ca), revoked)


def shown_by(config: Doors) -> tls.TlsFiles | None:
    """The certificate that the daemon shows anybody, to agents, the master or browsers; None: none."""
    if not (config.tls_certificate and config.tls_key):
        return None
    trusted = Path(config.tls_ca) if config.tls_ca else None
    return tls.TlsFiles(Path(config.tls_certificate), Path(config.tls_key), trusted)


def required(config: Doors, key: str, host: str) -> tls.TlsFiles | None:
    """The files for the connections of ``key`` (``listen`` or ``master``), whose host is ``host``; None: without TLS.

    Raises:
        SettingsError: TLS and no files for it; or none, and others could listen.
    """
    files = files_of(config)
    remedy = "set tls_ca, tls_certificate and tls_key (`penstock ca` makes them)"
    if config.tls == "off":
        if not is_loopback(host):
            raise SettingsError(f'tls: "off" is for loopback addresses, and `{key}` is {host}; {remedy}')
        return None
    if files is None:
        missing = next(name for name in ("tls_ca", "tls_certificate", "tls_key") if not getattr(config, name))
        alone = ', or tls = "off", as that is a loopback address' if is_loopback(host) else ""
        raise SettingsError(f"{missing}: empty, and `{key}` needs TLS; {remedy}{alone}")
    return files


def pages_required(config: Doors, host: str) -> None:
    """Whether all that HTTP pages on ``host`` need is configured; the files are not looked at.

    Raises:
        SettingsError: others could look, and TLS or a token is missing.
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
    """What a configuration leaves open: on the connections of ``key`` (``listen`` or ``master``), and over HTTP.

    Raises:
        SettingsError: something; an address that is none is somebody else's to find.
    """
    faults: list[str] = []
    for name in (key, "http"):
        try:
            host, _ = host_port(getattr(config, name), name)
        except SettingsError:
            continue
        try:
            if name == key:
                required(config, key, host)
            else:
                pages_required(config, host)
        except SettingsError as error:
            faults += error.faults
    if faults:
        raise SettingsError(*faults)


def contexts(config: Doors, key: str, host: str, name: str = "") -> tls.Contexts | None:
    """For the connections of ``key``, as :func:`required`; None: without TLS. Says in the log what others will have
    against our certificate, which should carry ``name``.

    Raises:
        SettingsError: as :func:`required`. tls.TlsError: a file cannot be used.
    """
    files = required(config, key, host)
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

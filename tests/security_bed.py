"""Authorities and certificates for tests, as ``penstock ca`` makes them, for any time that a test wants."""

from __future__ import annotations

import dataclasses
import datetime as dt
import shutil
from pathlib import Path

from penstock.security.authority import Authority
from penstock.security.tls import TlsFiles

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def authority(directory: Path, since: dt.datetime = NOW) -> Authority:
    """A fresh one."""
    made = Authority(directory)
    made.init("test CA", 3650, since)
    return made


def files(
    made: Authority, name: str, *also: str, master: bool = False, since: dt.datetime = NOW, days: int = 30,
    ca: Path | None = None, listed: bool = False,
) -> TlsFiles:  # fmt: skip
    """Return a certificate issued at ``since``, to be used with the ``ca`` of another authority if that is named, and
    with the list of revoked ones at ``listed``.
    """
    issued = made.issue(name, also, days, since, master=master)
    return TlsFiles(issued.certificate, issued.key, ca or made.certificate, made.revocations if listed else None)


def carried(of: TlsFiles, directory: Path) -> TlsFiles:
    """Copy the files to a host of their own: later changes of the authority do not affect them."""
    directory.mkdir()
    for file in (of.tls_certificate, of.tls_key):
        shutil.copy(file, directory)
    own = directory / of.tls_certificate.name
    return dataclasses.replace(of, tls_certificate=own, tls_key=own.with_suffix(".key"))


def settings(of: TlsFiles) -> dict[str, str]:
    """As the daemons' configuration names them."""
    return {key: str(path) for key, path in of.named().items()}

"""Authorities and certificates for tests: what ``penstock ca`` makes, at any time that a test wants."""

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
    """A certificate issued at ``since``, to be used with the ``ca`` of another authority if that is named, and where it
    is ``listed`` what was revoked."""
    issued = made.issue(name, also, days, since, master=master)
    return TlsFiles(issued.certificate, issued.key, ca or made.certificate, made.revocations if listed else None)


def carried(of: TlsFiles, directory: Path) -> TlsFiles:
    """The same on a host of its own: what the authority does with its copies is nothing to these."""
    directory.mkdir()
    for file in (of.tls_certificate, of.tls_key):
        shutil.copy(file, directory)
    own = directory / of.tls_certificate.name
    return dataclasses.replace(of, tls_certificate=own, tls_key=own.with_suffix(".key"))


def settings(of: TlsFiles) -> dict[str, str]:
    """As the daemons' configuration names them."""
    return {key: str(path) for key, path in of.named().items()}

"""Authorities and certificates for tests: what ``penstock ca`` makes, at any time that a test wants."""

from __future__ import annotations

import datetime as dt
from pathlib import Path

from penstock.authority import Authority
from penstock.tls import TlsFiles

NOW = dt.datetime.now(dt.UTC)
DAY = dt.timedelta(days=1)


def authority(directory: Path, since: dt.datetime = NOW) -> Authority:
    """A fresh one."""
    made = Authority(directory)
    made.init("test CA", 3650, since)
    return made


def files(
    made: Authority, name: str, *also: str, master: bool = False, since: dt.datetime = NOW, days: int = 30,
    ca: Path | None = None,
) -> TlsFiles:  # fmt: skip
    """A certificate issued at ``since``, to be used with the ``ca`` of another authority if that is named."""
    issued = made.issue(name, also, days, since, master=master)
    return TlsFiles(issued.certificate, issued.key, ca or made.certificate)


def settings(of: TlsFiles) -> dict[str, str]:
    """As the daemons' configuration names them."""
    return {key: str(path) for key, path in of.named().items()}

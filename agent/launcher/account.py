"""User accounts: looked up in the child, because that may take long, and cached by the launcher for later starts."""

from __future__ import annotations

import os
import pwd
import time
from typing import NamedTuple

#: The maximum age of a directory service's answer. Changes to the local files are noticed at once.
_KEPT_S = 60.0
_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")


class Account(NamedTuple):
    """The account data that a session needs."""

    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str
    shell: str


def look_up(name: str) -> Account:
    """Ask the host's user database.

    Raises:
        KeyError: no user has that name.
    """
    entry = pwd.getpwnam(name)
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")


class Accounts:
    """A cache of recent lookups."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Account]] = {}
        self._files = _stamps()

    def get(self, name: str) -> Account | None:
        """Return a cached account; None: unknown, or expired."""
        stamps = _stamps()
        if stamps != self._files:
            self._files = stamps
            self._known.clear()
        until, account = self._known.get(name, (0.0, None))
        return account if time.monotonic() < until else None

    def put(self, name: str, account: Account) -> None:
        """Store the result of a child's lookup."""
        self._known[name] = (time.monotonic() + _KEPT_S, account)


def _stamps() -> list[tuple[int, int]]:
    found = []
    for path in _FILES:
        try:
            status = os.stat(path)  # noqa: PTH116 - pathlib is too large for a process forked for every start
        except OSError:
            continue
        found.append((status.st_mtime_ns, status.st_ino))
    return found

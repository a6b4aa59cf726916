"""Who a user is: looked up in the child, as that may take long, and remembered by the launcher for the next one."""

from __future__ import annotations

import os
import pwd
import time
from dataclasses import dataclass

#: How long what a directory service said may be out of date. Changes to the local files are seen at once.
_KEPT_S = 60.0
_FILES = ("/etc/passwd", "/etc/group", "/etc/nsswitch.conf")


@dataclass(frozen=True, slots=True)
class Account:
    """What a session of the user's has."""

    name: str
    uid: int
    gid: int
    groups: list[int]
    home: str
    shell: str


def look_up(name: str) -> Account:
    """Ask the host's user database.

    Raises:
        KeyError: nobody has that name.
    """
    entry = pwd.getpwnam(name)
    groups = os.getgrouplist(entry.pw_name, entry.pw_gid)
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid, groups, entry.pw_dir, entry.pw_shell or "/bin/sh")


class Accounts:
    """Those looked up lately."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, Account]] = {}
        self._files = _stamps()

    def get(self, name: str) -> Account | None:
        """None: not known, or not any more."""
        stamps = _stamps()
        if stamps != self._files:
            self._files = stamps
            self._known.clear()
        until, account = self._known.get(name, (0.0, None))
        return account if time.monotonic() < until else None

    def put(self, name: str, account: Account) -> None:
        """What a child was told."""
        self._known[name] = (time.monotonic() + _KEPT_S, account)


def _stamps() -> list[tuple[int, int]]:
    found = []
    for path in _FILES:
        try:
            status = os.stat(path)  # noqa: PTH116 - pathlib is not for a process that is forked for every start
        except OSError:
            continue
        found.append((status.st_mtime_ns, status.st_ino))
    return found

"""Processes lent for the rank of a job: moved into a container like adopted ones, and moved back later."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from agent.cgroup_root import members
from agent.launcher.adopt import NotAdoptable, cgroup_of
from agent.launcher.rounds import each_once

#: Cgroup settings that a process would lose by leaving: file → its default value.
_OWN_LIMITS = {
    "cpu.max": "max 100000",
    "cpu.weight": "100",
    "cpuset.cpus": "",
    "memory.max": "max",
    "memory.high": "max",
    "memory.low": "0",
    "memory.min": "0",
}
#: Errors of a cgroup that takes no process: one below it has controllers, it is threaded, or it is gone.
_TAKES_NONE = {errno.ENOENT, errno.ENODEV, errno.EBUSY, errno.EOPNOTSUPP}


def place_of(pid: int, mount: Path) -> Path:
    """Return the cgroup of a process that may be borrowed; ``mount`` is the cgroup v2 mount.

    Raises:
        NotAdoptable: it has limits there that it would lose, or it has ended.
    """
    try:
        where = cgroup_of(pid)
    except ProcessLookupError:
        raise NotAdoptable(f"process {pid} has ended") from None
    path = mount / where.lstrip("/")
    if not where or "/.." in where or not path.is_dir():
        raise NotAdoptable(f"process {pid} is in a cgroup that is not visible here")
    for cgroup in (path, *path.parents):
        if cgroup == mount:
            break
        for name, free in _OWN_LIMITS.items():
            if _read(cgroup / name, free) != free:
                raise NotAdoptable(f"process {pid} is in a cgroup with limits of its own: {name} of {cgroup}")
    return path


def former(pid: int, mount: Path) -> Path:
    """Return the cgroup of a process that may be adopted; ``mount`` if it has ended."""
    try:
        return mount / cgroup_of(pid).lstrip("/")
    except ProcessLookupError:
        return mount


def put_back(container: Path, origin: Path, mount: Path) -> bool:
    """Move every process of a container back to its former cgroup, or to the nearest ancestor that takes it.

    Return whether the container is empty.
    """
    below = [each for each in (origin, *origin.parents) if each == mount or mount in each.parents]
    each_once(lambda _: members(container), lambda pid: _move(pid, container.name, below))
    return not members(container)


def _move(pid: int, container: str, places: list[Path]) -> None:
    """Move a process into the first cgroup that takes it, unless the pid has been reused."""
    try:
        pidfd = os.pidfd_open(pid)
    except OSError:
        return
    try:
        if container not in cgroup_of(pid).split("/"):
            return
        for place in places:
            try:
                (place / "cgroup.procs").write_bytes(b"%d" % pid)
            except OSError as error:
                if error.errno not in _TAKES_NONE:
                    return
            else:
                return
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)


def _read(path: Path, otherwise: str) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:
        return otherwise

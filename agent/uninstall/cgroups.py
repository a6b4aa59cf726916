"""Penstock's trees in a cgroup v2 hierarchy, and their processes, as plain files: CgroupTree covers one tree only."""

from __future__ import annotations

import os
import select
import signal
from pathlib import Path

from agent.cgroup_root import is_group, members, wait_until_empty
from agent.cgroups import Cgroup
from agent.cgroups.limits import Surroundings

#: The directories that an agent and its launcher create in a tree's root.
_PARTS = frozenset({"containers", "holder", "daemons"})
#: The tree of the launcher's unit (systemd/penstock-containers.service).
_UNIT = "penstock.slice/penstock-containers.service"
#: How long to wait for killed processes to end.
END_TIMEOUT_S = 60


def roots(mount: Path) -> list[Path]:
    """Return the roots that agents have created at the top, and that of the launcher's unit."""
    made = [path for path in sorted(mount.glob("penstock-*")) if is_root(path)]
    unit = mount / _UNIT
    return [*made, unit] if is_root(unit) else made


def is_root(path: Path) -> bool:
    """Return whether an agent or launcher created a tree there: the directory has only its parts in it."""
    parts = {child.name for child in below(path)}
    return bool(parts) and parts <= _PARTS


def below(cgroup: Path) -> list[Path]:
    """Return the cgroups directly below."""
    return [child for child in sorted(cgroup.iterdir()) if child.is_dir()] if cgroup.is_dir() else []


def running(root: Path) -> list[Path]:
    """Return the containers of a tree that have processes."""
    found, directories = [], [root / "containers"]
    for directory in directories:
        for child in below(directory):
            if is_group(child.name):
                directories.append(child)
            elif populated(child):
                found.append(child)
    return found


def launchers(root: Path) -> list[int]:
    """Return the processes in a tree's holder."""
    return members(root / "holder")


def populated(cgroup: Path) -> bool:
    """Return whether a process is in the cgroup or below."""
    try:
        return "populated 1" in (cgroup / "cgroup.events").read_text(encoding="ascii")
    except OSError:
        return False  # it vanished


def kill(cgroup: Path) -> None:
    """Send SIGKILL to all processes in the cgroup and below, and wait until they are gone.

    Raises:
        TimeoutError: they do not end: one hangs in the kernel.
    """
    Cgroup(cgroup, frozenset(), Surroundings({}, ())).kill()
    if cgroup.is_dir() and not wait_until_empty(cgroup, END_TIMEOUT_S):
        raise TimeoutError(f"processes in {cgroup} do not end")


def remove(root: Path) -> None:
    """Remove a tree; the BPF programs of its cgroups are removed with it. A unit's own cgroup is left to systemd.

    Raises:
        OSError: EBUSY, a process is in it.
    """
    for child in below(root):
        remove(child)
    if root.is_dir() and not root.name.endswith((".service", ".scope")):
        root.rmdir()


def end(pid: int) -> None:
    """Send SIGTERM to a launcher, which then ends its containers and removes a tree that it created; wait for it.

    Raises:
        TimeoutError: it does not end.
        PermissionError: it is another user's.
    """
    try:
        pidfd = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        signal.pidfd_send_signal(pidfd, signal.SIGTERM)
        if not select.select([pidfd], [], [], END_TIMEOUT_S)[0]:
            raise TimeoutError(f"the launcher (process {pid}) does not end")
    except ProcessLookupError:
        return
    finally:
        os.close(pidfd)

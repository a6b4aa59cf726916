"""The place of the containers' tree without configuration or a unit of Penstock; cgroups as plain directories."""

from __future__ import annotations

import contextlib
import os
import re
import select
from pathlib import Path

#: The prefix of roots that launchers create; the instance of the agent follows, 8 digits.
_MADE = "penstock-"
#: Values of `cgroup_root` without a path. With the second one a launcher gets a scope of systemd's.
AUTO, SCOPE = "auto", "scope"
#: The prefix of the units that hold containers and their launcher alone: that of the installation, and scopes.
CONTAINERS_UNIT = "penstock-containers"
#: The characters of containers' ids.
OF_IDS = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


def cgroup2_mount(mounts: Path = Path("/proc/self/mounts")) -> Path | None:
    """Return the cgroup v2 mount, even beside v1 controllers (where it has no controllers of its own)."""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == "cgroup2":
            return Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[1]))
    return None


def own_cgroup(mount: Path, membership: Path = Path("/proc/self/cgroup")) -> Path:
    """Return the cgroup v2 directory of this process."""
    for line in membership.read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            return mount / line[3:].strip().lstrip("/")
    return mount


def is_delegated(cgroup: Path) -> bool:
    """Return whether systemd delegated it, from an extended attribute (systemd ≥ 236 trusted, ≥ 251 user)."""
    for attribute in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(cgroup, attribute) == b"1":
                return True
        except OSError:
            continue
    return False


def choose_root(instance: str) -> Path | None:
    """Return a directory for the tree of an agent outside a unit of Penstock's.

    That is the delegated scope or service of this process; else, for root, a new directory at the top, where the rule
    that only leaves hold processes does not apply; else None.
    """
    mount = cgroup2_mount()
    if mount is None:
        return None
    own = own_cgroup(mount)
    if is_delegated(own) and os.access(own, os.W_OK):
        return own
    if os.geteuid() == 0 and os.access(mount, os.W_OK):
        return mount / f"{_MADE}{instance}"
    return None


def was_made_by_launcher(root: Path) -> bool:
    """Return whether a root has a name from :func:`choose_root`, so that an earlier launcher created it."""
    return root.parent == cgroup2_mount() and root.name.startswith(_MADE) and len(root.name) == len(_MADE) + 8


def is_group(name: str) -> bool:
    """Return whether a cgroup below ``containers/`` is a group of containers (agent.core.groups): its name has a dot,
    or another character that no container's id has.
    """
    return not OF_IDS.issuperset(name)


def container_directory(root: Path, container: str) -> Path:
    """Return the directory of a container in a tree: right below ``containers/``, unless it is in groups."""
    directories = [root / "containers"]
    for directory in directories:
        if (directory / container).is_dir():
            return directory / container
        directories += (each for each in directory.glob("*") if is_group(each.name) and each.is_dir())
    return root / "containers" / container


def members(cgroup: Path) -> list[int]:
    """Return the processes in a cgroup and those below it; one that vanished has none."""
    found: list[int] = []
    for directory, _, _ in os.walk(cgroup):
        with contextlib.suppress(OSError):
            found += map(int, Path(directory, "cgroup.procs").read_text(encoding="ascii").split())
    return found


def wait_until_empty(cgroup: Path, timeout_s: float) -> bool:
    """Wait until killed processes are gone, and return whether they are. POLLPRI on cgroup.events signals it (4.2)."""
    with (cgroup / "cgroup.events").open("rb", buffering=0) as events:
        watch = select.poll()
        watch.register(events, select.POLLPRI)
        while b"populated 1" in events.read(4096):
            if not watch.poll(timeout_s * 1000):
                return False
            events.seek(0)
    return True


def vacate(root: Path) -> None:
    """Move the processes of a delegated cgroup into a leaf of it: only then can its children have controllers.

    A directory that is no cgroup, or does not exist yet, has none.
    """
    daemons = root / "daemons"
    try:
        pids = (root / "cgroup.procs").read_text(encoding="utf-8").split()
    except FileNotFoundError:
        return
    if not pids:
        return
    daemons.mkdir(exist_ok=True)
    for pid in pids:
        try:
            (daemons / "cgroup.procs").write_bytes(pid.encode())
        except ProcessLookupError:
            continue  # it ended meanwhile

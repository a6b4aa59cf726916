"""Where the containers' tree goes when nobody said so and no delegated unit owns it yet."""

from __future__ import annotations

import os
from pathlib import Path

#: What the names of roots begin with that launchers make; the instance of the agent follows, 8 digits.
_MADE = "penstock-"


def cgroup2_mount(mounts: Path = Path("/proc/self/mounts")) -> Path | None:
    """The cgroup v2 mount, also where it hangs beside v1 controllers (there it has none of its own)."""
    for line in mounts.read_text(encoding="utf-8", errors="replace").splitlines():
        fields = line.split()
        if len(fields) > 2 and fields[2] == "cgroup2":
            return Path(fields[1])
    return None


def own_cgroup(mount: Path, membership: Path = Path("/proc/self/cgroup")) -> Path:
    """The cgroup v2 directory that this process is in."""
    for line in membership.read_text(encoding="utf-8").splitlines():
        if line.startswith("0::"):
            return mount / line[3:].strip().lstrip("/")
    return mount


def is_delegated(cgroup: Path) -> bool:
    """Whether systemd handed it over: it says so in an extended attribute (systemd ≥ 236 trusted, ≥ 251 user)."""
    for attribute in ("user.delegate", "trusted.delegate"):
        try:
            if os.getxattr(cgroup, attribute) == b"1":
                return True
        except OSError:
            continue
    return False


def choose_root(instance: str) -> Path | None:
    """A directory for the tree of an agent that runs outside a unit of ours.

    The delegated scope or service that we run in; else, for root, a new directory at the top, where the rule that only
    leaves hold processes does not bind; else none.
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
    """Whether a root is one that :func:`choose_root` names, and that an earlier launcher made."""
    return root.parent == cgroup2_mount() and root.name.startswith(_MADE) and len(root.name) == len(_MADE) + 8


def vacate(root: Path) -> None:
    """Move the processes of a delegated cgroup into a leaf of it: only then can its children have controllers."""
    daemons = root / "daemons"
    pids = (root / "cgroup.procs").read_text(encoding="utf-8").split()
    if not pids:
        return
    daemons.mkdir(exist_ok=True)
    for pid in pids:
        try:
            (daemons / "cgroup.procs").write_bytes(pid.encode())
        except ProcessLookupError:
            continue  # it ended meanwhile

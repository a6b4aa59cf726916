"""Why a feature is unavailable on this host, and its remedy."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from agent.cgroups.filesystem import NotSupported

UNIFIED = "boot with systemd.unified_cgroup_hierarchy=1, or use the virtual machine of `make demo`"
DELEGATE = (
    "run the agent under its delegated unit (ansible/), or: systemd-run --user --scope -p Delegate=yes penstock up"
)
#: The kernel version that introduced a file.
_SINCE = {
    "cgroup.freeze": "5.2",
    "cgroup.kill": "5.14",
    "cpu.idle": "5.15",
    "cpu.max.burst": "5.14",
    "memory.oom.group": "4.19",
    "memory.reclaim": "5.19",
    "memory.peak": "5.19",
}


@dataclass(frozen=True, slots=True)
class Reason:
    """A cause, and a remedy, which is empty if there is none."""

    why: str
    remedy: str = ""

    def __str__(self) -> str:
        return f"{self.why}; remedy: {self.remedy}" if self.remedy else self.why


def refused(error: OSError) -> Reason:
    """Explain the kernel's error for a write to an operator."""
    path = os.fspath(error.filename) if error.filename else ""
    name = Path(path).name
    if isinstance(error, NotSupported):
        since = _SINCE.get(name)
        return Reason(f"this kernel has no {name}", f"use Linux {since} or later" if since else "")
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return Reason(f"{path}: {os.strerror(error.errno)}", DELEGATE)
    if error.errno == errno.ENODEV:
        return Reason(f"{path}: the disk is gone, or its driver cannot be limited")
    if name == "cpuset.cpus" and error.errno in (errno.ERANGE, errno.EINVAL):
        return Reason("this host has no such processors", "see /sys/devices/system/cpu/online")
    if error.errno in (errno.EINVAL, errno.ERANGE):
        return Reason(f"the kernel refuses this value for {name}")
    return Reason(f"{name}: {error.strerror}")


def unavailable(
    controllers: Sequence[str], cgroup: str, proc_cgroups: Path = Path("/proc/cgroups")
) -> dict[str, Reason]:
    """Return why these controllers are missing from a cgroup's ``cgroup.controllers``."""
    table = _table(proc_cgroups) if controllers else None
    return {controller: _unavailable(controller, cgroup, table) for controller in controllers}


def _unavailable(controller: str, cgroup: str, table: str | None) -> Reason:
    hierarchy, enabled = _bound(controller, table)
    if enabled is None:
        return Reason(f"this kernel has no {controller} controller", "use a kernel that is built with it")
    if not enabled:
        return Reason(
            f"the {controller} controller was disabled at boot",
            "take cgroup_disable= off the kernel's command line and reboot",
        )
    if hierarchy != 0:
        return Reason(f"the {controller} controller is bound to cgroup v1", UNIFIED)
    return Reason(f"the {controller} controller is not delegated to {cgroup}", DELEGATE)


def by_cause(missing: Mapping[str, Reason]) -> list[tuple[list[str], Reason]]:
    """Return the controllers that are missing for the same reason together, with that reason ("each is bound to …")."""
    groups: dict[Reason, list[str]] = {}
    for controller, reason in missing.items():
        of_each = replace(reason, why=reason.why.replace(f"the {controller} controller", "each"))
        groups.setdefault(of_each, []).append(controller)
    return [(names, of_each if len(names) > 1 else missing[names[0]]) for of_each, names in groups.items()]


def _table(proc_cgroups: Path) -> str | None:
    """Return the kernel's table of controllers; None: it has none (CONFIG_CGROUPS_V1 off)."""
    try:
        return proc_cgroups.read_text(encoding="ascii")
    except OSError:
        return None


def _bound(controller: str, table: str | None) -> tuple[int, bool | None]:
    """Return the controller's hierarchy (0: the unified one) and whether it is enabled; None: unknown to the kernel."""
    name = "blkio" if controller == "io" else controller  # /proc/cgroups uses version 1's name
    if table is None:
        return 0, True  # only the unified hierarchy exists
    for line in table.splitlines():
        fields = line.split()
        if len(fields) == 4 and fields[0] == name:
            return int(fields[1]), fields[3] == "1"
    return 0, None

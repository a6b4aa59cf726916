"""Properties of the host apart from the tree: pressure, users, the unit, swap, the clock."""

from __future__ import annotations

import contextlib
from pathlib import Path

from agent.cgroups import CgroupTree
from agent.cgroups.pressure import MEMORY_STALL_US, MEMORY_WINDOW_US, PressureTrigger
from agent.cgroups.reason import DELEGATE, UNIFIED
from agent.check.facts.base import Fact, Host

#: A clock that ticks more rarely than this cannot time slices of 10 ms.
_COARSEST_TICK_S = 0.001
_CAP_SETGID, _CAP_SETUID, _CAP_KILL = 6, 7, 5
_UNITS = (".service", ".scope")


def pressure(host: Host) -> Fact:
    """Return whether scarce memory wakes the agent, and how soon."""
    memory = host.pressure / "memory"
    try:
        memory.read_text(encoding="ascii")
    except FileNotFoundError:
        return Fact(False, "this kernel has no pressure stall information", "use Linux 4.20 or later, built with PSI")
    except OSError as error:  # EOPNOTSUPP: built in, but switched off
        return Fact(False, f"{memory}: {error.strerror}", "add psi=1 to the kernel's command line and reboot")
    try:
        with contextlib.closing(PressureTrigger(memory, MEMORY_STALL_US, MEMORY_WINDOW_US)) as trigger:
            compromise, window_s = trigger.compromise, trigger.window_us / 1e6
    except OSError as error:
        return Fact(False, f"{memory}: {error.strerror}", "run the agent as root, or use Linux 6.5 or later")
    remedy = compromise.remedy if compromise is not None else ""
    return Fact(True, f"PSI of memory, cpu and io; scarce memory wakes the agent within {window_s:g} s", remedy)


def users(host: Host) -> Fact:
    """Return whether work can run as the user who asked for it."""
    if host.euid() != 0:
        return Fact(False, "not root: only this user's own work can be started", "run the agent as root (ansible/)")
    if all(host.may(capability) for capability in (_CAP_SETGID, _CAP_SETUID, _CAP_KILL)):
        return Fact(True, "work runs as the user who asked for it")
    return Fact(
        False, "root without CAP_SETUID, CAP_SETGID and CAP_KILL: only root's own work can be started",
        "leave these in CapabilityBoundingSet= of the agent's unit, or in the container's capabilities",
    )  # fmt: skip


def delegation(tree: CgroupTree | None, host: Host) -> Fact:
    """Return which unit contains the containers' tree: systemd's actions on that unit affect the containers."""
    mount = host.cgroup2_mount()
    if tree is None or mount is None:
        return Fact(False, "there is no tree", UNIFIED if mount is None else DELEGATE)
    unit = _unit(tree.root, mount)
    if unit is None:
        return Fact(True, f"{tree.root} is in no unit: it outlives the agent, and systemd does not change it")
    name = unit.name
    if name.endswith(".service") and unit == _unit(host.own_cgroup(mount), mount):
        return Fact(
            False,
            f"{tree.root} is in the agent's own {name}, whose restart kills the containers or fails (219/CGROUP)",
            "give them a unit of their own: penstock-containers.service (systemd/, ansible/)",
        )
    if not host.is_delegated(unit):
        return Fact(False, f"{name} is not delegated: systemd may undo limits", f"Delegate=yes in {name}")
    return Fact(True, f"{name}, delegated, apart from the agent")


def _unit(cgroup: Path, mount: Path) -> Path | None:
    """Return the innermost unit that a cgroup is in."""
    for directory in (cgroup, *cgroup.parents):
        if directory == mount:
            break
        if directory.name.endswith(_UNITS):
            return directory
    return None


def swap(host: Host) -> Fact:
    """Return whether there is swap, which determines the effect of memory.high. Neither is an error."""
    try:
        lines = host.swaps.read_text(encoding="utf-8").splitlines()[1:]
    except OSError:
        lines = []
    if lines:
        return Fact(
            True, "swap: above memory.high, rarely used memory is swapped out; containers with memory.max do not swap"
        )
    return Fact(
        True,
        "no swap: above memory.high a container that only allocates stalls; shrinking stops at its anonymous memory",
    )


def clock(host: Host) -> Fact:
    """Return whether slices of 10 ms can be timed."""
    tick_s = host.tick_s()
    if tick_s <= _COARSEST_TICK_S:
        return Fact(True, f"CLOCK_MONOTONIC, ticks of {tick_s * 1e9:.0f} ns")
    return Fact(
        False, f"CLOCK_MONOTONIC ticks every {tick_s * 1e3:.0f} ms only", "use a kernel with CONFIG_HIGH_RES_TIMERS"
    )

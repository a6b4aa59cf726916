"""One fact per thing that Penstock can enforce: whether this host can, why (not), and the command that mends it.

Where a tree of ours exists (the daemon) the facts are about it; otherwise (``penstock check``) about a tree that is
made for the probe and removed again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent import network, place
from agent.cgroups import Cgroup, CgroupTree, Disk, Reason, whole_disks
from agent.cgroups.reason import DELEGATE, UNIFIED
from penstock.model import Limits

#: What a probe asks of each disk: more than any has, so that it limits nobody.
_PROBE_BYTES_PER_S = 1 << 40
#: A clock that ticks more rarely than this cannot time slices of 10 ms.
_COARSEST_TICK_S = 0.001


@dataclass(frozen=True, slots=True)
class Fact:
    """``why`` is what was found; ``remedy`` is empty where nothing needs mending."""

    ok: bool
    why: str
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class Host:
    """What the facts are about; tests bring another one."""

    pressure: Path = Path("/proc/pressure")
    cgroup2_mount: Callable[[], Path | None] = place.cgroup2_mount
    disks: Callable[[], Sequence[Disk]] = whole_disks
    network_why_not: Callable[[], str | None] = network.probe
    euid: Callable[[], int] = os.geteuid
    tick_s: Callable[[], float] = field(default=lambda: time.get_clock_info("monotonic").resolution)


HOST = Host()


def enforcement(tree: CgroupTree | None, host: Host = HOST) -> dict[str, Fact]:
    """Name → fact, in the order of the status page."""
    facts = _of_tree(tree, host) if tree is not None else _without_tree(host)
    facts["network"] = _network(tree, host)
    facts["pressure"] = _pressure(host)
    facts["users"] = _users(host)
    facts["clock"] = _clock(host)
    return facts


def _without_tree(host: Host) -> dict[str, Fact]:
    mount = host.cgroup2_mount()
    if mount is None:
        missing = Fact(False, "no cgroup v2 is mounted", UNIFIED)
    else:
        missing = Fact(False, f"no cgroup under {mount} is ours", DELEGATE)
    return dict.fromkeys(
        ("containers", "cpu", "memory", "disk", "pids", "freeze", "kill", "opportunistic", "peak"), missing
    )


def _of_tree(tree: CgroupTree, host: Host) -> dict[str, Fact]:
    with probe_leaf(tree) as leaf:
        return {
            "containers": Fact(True, f"cgroups under {tree.root}"),
            "cpu": _controller(tree, "cpu", "cpu.max, cpu.weight"),
            "memory": _controller(tree, "memory", "memory.high, memory.max"),
            "disk": _disks(tree, leaf, host),
            "pids": _controller(tree, "pids", "pids.max"),
            "freeze": _file(leaf, "cgroup.freeze", "use Linux 5.2 or later"),
            "kill": _kill(leaf),
            "opportunistic": _opportunistic(tree, leaf),
            "peak": _peak(tree, leaf),
        }


def _not(reason: Reason) -> Fact:
    return Fact(False, reason.why, reason.remedy)


def _controller(tree: CgroupTree, controller: str, files: str) -> Fact:
    reason = tree.missing.get(controller)
    return Fact(True, files) if reason is None else _not(reason)


def _disks(tree: CgroupTree, leaf: Cgroup, host: Host) -> Fact:
    """Not by its files: io.max is there on hosts whose disks cannot be limited, too."""
    if (reason := tree.missing.get("io")) is not None:
        return _not(reason)
    disks = host.disks()
    if not disks:
        return Fact(False, "no whole disk was found that io.max could bind", "attach a disk; /sys/block shows none")
    failed = leaf.apply(Limits(disk_read_bytes_per_s=_PROBE_BYTES_PER_S), opportunistic=False)
    if failed:
        why, _, remedy = failed["disk_read_bytes_per_s"].partition("; remedy: ")
        return Fact(False, why, remedy)
    names = ", ".join(disk.name for disk in disks)
    return Fact(True, f"io.max on {names}; buffered writes are charged late and not bounded while they are cached")


def _file(leaf: Cgroup, name: str, remedy: str) -> Fact:
    return Fact(True, name) if leaf.has(name) else Fact(False, f"this kernel has no {name}", remedy)


def _kill(leaf: Cgroup) -> Fact:
    if leaf.has("cgroup.kill"):
        return Fact(True, "cgroup.kill")
    return Fact(leaf.has("cgroup.freeze"), "freeze, SIGKILL to each, thaw (cgroup.kill came with Linux 5.14)")


def _opportunistic(tree: CgroupTree, leaf: Cgroup) -> Fact:
    if (reason := tree.missing.get("cpu")) is not None:
        return Fact(False, f"without cpu.idle others' cores are not kept from it: {reason.why}", reason.remedy)
    return Fact(True, "cpu.idle" if leaf.has("cpu.idle") else "cpu.weight 1 (cpu.idle came with Linux 5.15)")


def _peak(tree: CgroupTree, leaf: Cgroup) -> Fact:
    if (reason := tree.missing.get("memory")) is not None:
        return _not(reason)
    return _file(leaf, "memory.peak", "use Linux 5.19 or later; without it the peak is that of the first process alone")


def _network(tree: CgroupTree | None, host: Host) -> Fact:
    if tree is None:
        return Fact(False, "egress limits need a cgroup v2 tree", UNIFIED)
    why = host.network_why_not()
    if why is None:
        return Fact(True, "egress by HTB and a BPF program per container; ingress is not limited")
    reason, _, remedy = why.partition("; remedy: ")
    return Fact(False, reason, remedy)


def _pressure(host: Host) -> Fact:
    try:
        (host.pressure / "memory").read_text(encoding="ascii")
    except FileNotFoundError:
        return Fact(False, "this kernel has no pressure stall information", "use Linux 4.20 or later, built with PSI")
    except OSError as error:  # EOPNOTSUPP: built in and switched off
        return Fact(
            False, f"{host.pressure}/memory: {error.strerror}", "add psi=1 to the kernel's command line and reboot"
        )
    return Fact(True, "PSI of memory, cpu and io")


def _users(host: Host) -> Fact:
    if host.euid() == 0:
        return Fact(True, "work runs as the user who asked for it")
    return Fact(False, "not root: only this user's own work can be started", "run the agent as root (ansible/)")


def _clock(host: Host) -> Fact:
    tick_s = host.tick_s()
    if tick_s <= _COARSEST_TICK_S:
        return Fact(True, f"CLOCK_MONOTONIC, ticks of {tick_s * 1e9:.0f} ns")
    return Fact(
        False, f"CLOCK_MONOTONIC ticks every {tick_s * 1e3:.0f} ms only", "use a kernel with CONFIG_HIGH_RES_TIMERS"
    )


@contextlib.contextmanager
def probe_leaf(tree: CgroupTree) -> Iterator[Cgroup]:
    """A leaf of our own for a moment."""
    cgroup = tree.create(f"probe-{secrets.token_hex(4)}")
    try:
        yield cgroup
    finally:
        cgroup.remove()


@contextlib.contextmanager
def probe_tree() -> Iterator[CgroupTree | None]:
    """The tree that an agent started here would have, made for a moment; None where there is none to have."""
    root = place.choose_root(f"check-{secrets.token_hex(4)}")
    if root is None:
        yield None
        return
    made = not root.exists()
    tree = CgroupTree(root, whole_disks())
    try:
        if not made:
            place.vacate(root)
        tree.prepare()
    except OSError:
        yield None
        return
    try:
        yield tree
    finally:
        if made:
            tree.dismantle()
        else:
            (tree.root / "containers").rmdir()

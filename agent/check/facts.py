"""One fact per thing that Penstock can enforce: whether this host can, why (not), and the command that mends it.

Where a tree of ours exists (the daemon) the facts are about it; otherwise (``penstock check``) about a tree that is
made for the probe and removed again.
"""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from agent import network, place
from agent.cgroups import CgroupTree, whole_disks

_UNIFIED = (
    "boot with systemd.unified_cgroup_hierarchy=1 (Debian 11 and later, Ubuntu 22.04 and later do), or use the "
    "virtual machine of `make demo`"
)
_DELEGATE = "run it under the delegated unit (ansible/), or: systemd-run --user --scope -p Delegate=yes penstock up"


@dataclass(frozen=True, slots=True)
class Fact:
    """``why`` is what was found; ``remedy`` is empty where nothing needs mending."""

    ok: bool
    why: str
    remedy: str = ""


def enforcement(tree: CgroupTree | None) -> dict[str, Fact]:
    """Name → fact, in the order of the status page."""
    facts: dict[str, Fact] = {}
    if tree is None:
        mount = place.cgroup2_mount()
        missing = (
            Fact(False, "no cgroup v2 is mounted", _UNIFIED)
            if mount is None
            else Fact(False, f"no cgroup under {mount} is ours", _DELEGATE)
        )
        facts = dict.fromkeys(
            ("containers", "cpu", "memory", "disk", "pids", "freeze", "kill", "opportunistic"), missing
        )
    else:
        facts["containers"] = Fact(True, f"cgroups under {tree.root}")
        for name, controller, files in (
            ("cpu", "cpu", "cpu.max, cpu.weight"),
            ("memory", "memory", "memory.high, memory.max"),
            ("disk", "io", "io.max"),
            ("pids", "pids", "pids.max"),
        ):
            facts[name] = _controller(tree, controller, files)
        if facts["disk"].ok:
            facts["disk"] = _disks()
        facts |= _files(tree)
    facts["network"] = _network(tree)
    facts["users"] = _users()
    return facts


def _controller(tree: CgroupTree, controller: str, files: str) -> Fact:
    if controller in tree.controllers:
        return Fact(True, files)
    why = f"the {controller} controller is not available in {tree.root}"
    v1 = Path("/sys/fs/cgroup") / ("blkio" if controller == "io" else controller)
    if v1.is_dir() and not (Path("/sys/fs/cgroup") / "cgroup.controllers").exists():
        return Fact(False, f"{why}: cgroup v1 holds it ({v1})", _UNIFIED)
    return Fact(False, why, _DELEGATE)


def _disks() -> Fact:
    disks = whole_disks()
    if not disks:
        return Fact(False, "no whole disk was found that io.max could bind", "attach a disk; /sys/block shows none")
    names = ", ".join(disk.name for disk in disks)
    return Fact(True, f"io.max on {names}; buffered writes are charged late and not bounded while they are cached")


def _files(tree: CgroupTree) -> dict[str, Fact]:
    """What depends on the kernel's age: a probe leaf tells."""
    with probe_leaf(tree) as leaf:
        found = {name: (leaf / name).exists() for name in ("cgroup.freeze", "cgroup.kill", "cpu.idle", "memory.peak")}
    facts = {
        "freeze": Fact(True, "cgroup.freeze") if found["cgroup.freeze"] else _old("cgroup.freeze", "5.2"),
        "kill": Fact(True, "cgroup.kill")
        if found["cgroup.kill"]
        else Fact(True, "freeze, SIGKILL to each, thaw (cgroup.kill came with Linux 5.14)"),
    }
    if "cpu" not in tree.controllers:
        facts["opportunistic"] = Fact(
            False, "opportunistic work cannot be kept from others' cores without cpu.idle", _UNIFIED
        )
    elif found["cpu.idle"]:
        facts["opportunistic"] = Fact(True, "cpu.idle")
    else:
        facts["opportunistic"] = Fact(True, "cpu.weight 1 (cpu.idle came with Linux 5.15)")
    return facts


def _old(file: str, version: str) -> Fact:
    return Fact(False, f"this kernel has no {file}", f"use Linux {version} or later")


@contextlib.contextmanager
def probe_leaf(tree: CgroupTree) -> Iterator[Path]:
    """A leaf of our own for a moment."""
    cgroup = tree.create(f"probe-{secrets.token_hex(4)}")
    try:
        yield cgroup.path
    finally:
        cgroup.remove()


def _network(tree: CgroupTree | None) -> Fact:
    if tree is None:
        return Fact(False, "egress limits need a cgroup v2 tree", _UNIFIED)
    why = network.probe()
    if why is None:
        return Fact(True, "egress by HTB and a BPF program per container; ingress is not limited")
    reason, _, remedy = why.partition("; ")
    return Fact(False, reason, remedy)


def _users() -> Fact:
    if os.geteuid() == 0:
        return Fact(True, "work runs as the user who asked for it")
    return Fact(False, "not root: only this user's own work can be started", "run the agent as root (ansible/)")


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
        (tree.root / "containers").rmdir()
        if made:
            tree.root.rmdir()

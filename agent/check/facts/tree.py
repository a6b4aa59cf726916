"""Features of the containers' tree: controllers, and files that not every kernel has."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator

from agent import cgroup_root
from agent.cgroups import Cgroup, CgroupTree, limited_disks
from agent.cgroups.reason import DELEGATE, UNIFIED
from agent.check.facts.base import Fact, Host
from agent.check.facts.disks import disk, disk_weight

_NAMES = (
    "containers", "cpu", "cpuset", "memory", "memory_promise", "reclaim", "peak", "disk", "disk_weight", "pids",
    "freeze", "kill", "opportunistic",
)  # fmt: skip
_PEAK_REMEDY = "use Linux 5.19 or later; without it, the peak is only the first process's"


def without_tree(host: Host) -> dict[str, Fact]:
    """Return the facts of a host without a tree."""
    mount = host.cgroup2_mount()
    if mount is None:
        missing = Fact(False, "no cgroup v2 is mounted", UNIFIED)
    else:
        missing = Fact(False, f"no cgroup under {mount} is available to Penstock", DELEGATE)
    return dict.fromkeys(_NAMES, missing)


def of_tree(tree: CgroupTree, host: Host) -> dict[str, Fact]:
    """Return name → fact."""
    no_memory = Fact.no(tree.missing["memory"]) if "memory" in tree.missing else None
    with probe_leaf(tree) as leaf:
        facts = {
            "containers": Fact(True, f"cgroups under {tree.root}"),
            "cpu": _cpu(tree, leaf),
            "cpuset": _controller(tree, leaf, "cpuset", "cpuset.cpus"),
            "memory": _controller(tree, leaf, "memory", "memory.high", "memory.max"),
            "memory_promise": _memory_promise(tree, leaf, host),
            "reclaim": no_memory or _reclaim(leaf),
            "peak": no_memory or _file(leaf, "memory.peak", _PEAK_REMEDY),
            "disk": disk(tree, leaf, host),
            "disk_weight": disk_weight(tree, host),
            "pids": _controller(tree, leaf, "pids", "pids.max"),
            "freeze": _file(leaf, "cgroup.freeze", "use Linux 5.2 or later"),
            "kill": _kill(leaf),
            "opportunistic": _opportunistic(tree, leaf),
        }
    assert tuple(facts) == _NAMES
    return facts


def _controller(tree: CgroupTree, leaf: Cgroup, controller: str, *files: str) -> Fact:
    if (reason := tree.missing.get(controller)) is not None:
        return Fact.no(reason)
    for file in files:
        if not leaf.has(file):
            return Fact(False, f"this kernel has no {file}", f"use a kernel with the {controller} controller")
    return Fact(True, ", ".join(files))


def _cpu(tree: CgroupTree, leaf: Cgroup) -> Fact:
    fact = _controller(tree, leaf, "cpu", "cpu.max", "cpu.weight")
    if not fact.ok:
        return fact
    burst = "cpu.max.burst" if leaf.has("cpu.max.burst") else "no bursts (cpu.max.burst came with Linux 5.14)"
    return Fact(True, f"{fact.why}, {burst}")


def _memory_promise(tree: CgroupTree, leaf: Cgroup, host: Host) -> Fact:
    """Return whether memory can be protected. Protection is limited by the ancestors, which belong to others."""
    fact = _controller(tree, leaf, "memory", "memory.min", "memory.low")
    mount = host.cgroup2_mount()
    if not fact.ok or mount is None:
        return fact
    for above in tree.root.parents:
        if above == mount or mount not in above.parents:
            break
        if above.name.startswith("penstock"):  # the unit's slice: the agent sets it when promises are made
            continue
        low = above / "memory.low"
        with contextlib.suppress(OSError):
            if low.read_text(encoding="ascii").strip() == "0":
                return Fact(
                    False, f"{low} is 0, and protects nothing below it",
                    f"systemctl set-property {above.name} MemoryLow=AMOUNT, all that is promised to containers",
                )  # fmt: skip
    return fact


def _reclaim(leaf: Cgroup) -> Fact:
    if leaf.has("memory.reclaim"):
        return Fact(True, "memory.reclaim")
    return Fact(True, "memory.high for a moment (memory.reclaim came with Linux 5.19)")


def _file(leaf: Cgroup, name: str, remedy: str) -> Fact:
    return Fact(True, name) if leaf.has(name) else Fact(False, f"this kernel has no {name}", remedy)


def _kill(leaf: Cgroup) -> Fact:
    if leaf.has("cgroup.kill"):
        return Fact(True, "cgroup.kill")
    return Fact(leaf.has("cgroup.freeze"), "freeze, SIGKILL to each, thaw (cgroup.kill came with Linux 5.14)")


def _opportunistic(tree: CgroupTree, leaf: Cgroup) -> Fact:
    if (reason := tree.missing.get("cpu")) is not None:
        return Fact(False, f"without cpu.idle, opportunistic work competes for cores: {reason.why}", reason.remedy)
    return Fact(True, "cpu.idle" if leaf.has("cpu.idle") else "cpu.weight 1 (cpu.idle came with Linux 5.15)")


@contextlib.contextmanager
def probe_leaf(tree: CgroupTree) -> Iterator[Cgroup]:
    """Create a leaf for the duration of the probe."""
    cgroup = tree.create(f"probe-{secrets.token_hex(4)}")
    try:
        yield cgroup
    finally:
        cgroup.remove()


@contextlib.contextmanager
def probe_tree() -> Iterator[CgroupTree | None]:
    """Create the tree that an agent started here would have, for the duration of the probe; None if impossible."""
    root = cgroup_root.choose_root(f"check-{secrets.token_hex(4)}")
    if root is None:
        yield None
        return
    made = not root.exists()
    tree = CgroupTree(root, limited_disks(), owns_root=made)
    try:
        if not made:
            cgroup_root.vacate(root)
        tree.prepare()
    except OSError:
        with contextlib.suppress(OSError):  # the reason is the first failure
            tree.dismantle()
        yield None
        return
    try:
        yield tree
    finally:
        tree.dismantle()

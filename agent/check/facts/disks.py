"""Disks: which of them the limits of a container bind, and on which of them a path lies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.cgroups import Cgroup, CgroupTree, Disk, Reason
from agent.check.facts.base import HOST, Fact, Host
from agent.core.confinement import Confinement

#: What a probe asks of each disk: more than any has, so that it limits nobody.
_PROBE_BYTES_PER_S = 1 << 40
_LATE = "buffered writes are charged when the cache lets go of them, and are not felt before"


def disk(tree: CgroupTree, leaf: Cgroup, host: Host) -> Fact:
    """Not by its files: io.max is there on hosts whose disks cannot be limited, too."""
    if (reason := tree.missing.get("io")) is not None:
        return Fact.no(reason)
    disks = host.disks()
    if not disks:
        return Fact(False, "no whole disk was found that io.max could bind", "attach a disk; /sys/block shows none")
    failed = leaf.confine(Confinement(disk_read_bytes_per_s=_PROBE_BYTES_PER_S)).failed
    if failed:
        return Fact.told(failed["disk_read_bytes_per_s"])
    names = ", ".join(disk.name for disk in disks)
    late = (
        _LATE
        if "memory" not in tree.missing
        else "buffered writes are not charged to a cgroup without the memory controller"
    )
    return Fact(True, f"io.max on {names}; {late}")


def disk_weight(tree: CgroupTree, host: Host) -> Fact:
    """Regular before opportunistic on the same disk. Divided where requests are queued: on hardware."""
    if (reason := tree.missing.get("io")) is not None:
        return Fact.no(reason)
    mount, disks = host.cgroup2_mount(), host.hardware()
    if mount is None or not disks:
        return Fact(False, "no whole disk was found whose weights could be looked at", "see /sys/block")
    for each in disks:
        if (reason := host.weight_works(each, mount)) is not None:
            return Fact.no(reason)
    return Fact(True, f"weights on {', '.join(disk.name for disk in disks)}")


def paths(asked: Iterable[Path], facts: dict[str, Fact], host: Host = HOST) -> dict[str, Fact]:
    """``path P`` → the disk that it lies on, whether a container's limits bind there, and what to mind.

    Args:
        facts: those of :func:`agent.check.facts.enforcement`.
    """
    limited = frozenset(host.disks())
    return {f"path {path}": _path(path, facts["disk"], limited, host) for path in asked}


def _path(path: Path, disk: Fact, limited: frozenset[Disk], host: Host) -> Fact:
    try:
        placement = host.disks_of(path)
    except OSError as error:
        return Fact(False, f"{error.strerror}", "name a path that exists")
    caveat = placement.caveat or Reason("")
    if not placement.disks:
        return Fact.no(caveat)
    if not disk.ok:
        return Fact(False, f"{placement.how}; {disk.why}", disk.remedy)
    if missing := [each.name for each in placement.disks if each not in limited]:
        return Fact(False, f"{placement.how}; no limit is put on {', '.join(missing)}", caveat.remedy)
    names = ", ".join(each.name for each in placement.disks)
    return Fact(True, "; ".join(filter(None, (placement.how, f"io.max on {names}", caveat.why))), caveat.remedy)

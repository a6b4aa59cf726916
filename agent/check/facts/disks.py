"""Disks: those on which a container's limits take effect, and those on which a path lies."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from agent.cgroups import Cgroup, CgroupTree, Disk, Reason
from agent.check.facts.base import HOST, Fact, Host
from agent.core.confinement import Confinement

#: The limit that a probe sets on each disk: more than any disk's rate, so that it slows no work.
_PROBE_BYTES_PER_S = 1 << 40
_LATE = "buffered writes are charged when the cache writes them back, not earlier"


def disk(tree: CgroupTree, leaf: Cgroup, host: Host) -> Fact:
    """Return whether disks can be limited, by setting a limit: io.max also exists where the disks cannot be limited."""
    if (reason := tree.missing.get("io")) is not None:
        return Fact.no(reason)
    disks = host.disks()
    if not disks:
        return Fact(False, "no whole disk was found that io.max can limit", "attach a disk; /sys/block shows none")
    failed = leaf.confine(Confinement(disk_read_bytes_per_s=_PROBE_BYTES_PER_S)).failed
    if failed:
        return Fact.unavailable(failed["disk_read_bytes_per_s"])
    names = ", ".join(disk.name for disk in disks)
    late = (
        _LATE
        if "memory" not in tree.missing
        else "buffered writes are not charged to a cgroup without the memory controller"
    )
    return Fact(True, f"io.max on {names}; {late}")


def disk_weight(tree: CgroupTree, host: Host) -> Fact:
    """Return whether weights favour regular over opportunistic work. Disks queue requests on real hardware only."""
    if (reason := tree.missing.get("io")) is not None:
        return Fact.no(reason)
    mount, disks = host.cgroup2_mount(), host.hardware()
    if mount is None or not disks:
        return Fact(False, "no whole disk was found to check weights on", "see /sys/block")
    for each in disks:
        if (reason := host.weight_works(each, mount)) is not None:
            return Fact.no(reason)
    return Fact(True, f"weights on {', '.join(disk.name for disk in disks)}")


def paths(asked: Iterable[Path], facts: dict[str, Fact], host: Host = HOST) -> dict[str, Fact]:
    """Return for each ``path P`` its disk, whether a container's limits take effect there, and any caveat.

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

"""From what was asked to what the kernel's files say, writing only what changes."""

from __future__ import annotations

import errno
from collections.abc import Callable, Mapping, Sequence
from functools import partial

from agent.cgroups.cpu import DEFAULT_WEIGHT, enforceable_cores
from agent.cgroups.devices import Disk
from agent.cgroups.files import Gone, NotSupported, set_and_check
from agent.cgroups.io import IoFiles
from agent.cgroups.memory import PAGE_BYTES, MemoryFiles
from agent.cgroups.reason import Reason, refused
from agent.cgroups.sample import Files
from penstock.model import Limits


class NoDisk(OSError):  # noqa: N818 - it says what is so
    """There is no disk that ``io.max`` could bind."""


def apply_limits(
    files: Files, limits: Limits, *, opportunistic: bool, missing: Mapping[str, Reason], disks: Sequence[Disk]
) -> dict[str, str]:
    """Set limits and class. What is not asked for goes back to the kernel's default.

    Args:
        missing: controller → why it is not there.

    Returns:
        Name of what was asked for and is not enforced → why, with the remedy.

    Raises:
        Gone: the cgroup vanished.
    """
    changes: tuple[tuple[str, str, object, Callable[[], None]], ...] = (
        ("cpu_cores", "cpu", limits.cpu_cores, lambda: _cpu_max(files, limits.cpu_cores)),
        ("opportunistic", "cpu", opportunistic or None, lambda: _cpu_class(files, opportunistic)),
        ("cpu_weight", "cpu", limits.cpu_weight, lambda: _cpu_weight(files, limits.cpu_weight, opportunistic)),
        ("memory_high_bytes", "memory", limits.memory_high_bytes, partial(_high, files.memory, limits)),
        ("memory_max_bytes", "memory", limits.memory_max_bytes, partial(_max, files.memory, limits)),
        ("disk_read_bytes_per_s", "io", limits.disk_read_bytes_per_s, partial(_disks, files.io, disks, "rbps", limits)),
        (
            "disk_write_bytes_per_s",
            "io",
            limits.disk_write_bytes_per_s,
            partial(_disks, files.io, disks, "wbps", limits),
        ),
        ("pids_max", "pids", limits.pids_max, lambda: set_and_check(files.pids, "max", limits.pids_max)),
    )
    failed: dict[str, str] = {}
    for name, controller, asked, change in changes:
        why = missing.get(controller) or _attempt(change)
        if why is not None and asked is not None:
            failed[name] = str(why)
    if limits.network_egress_bytes_per_s is not None:
        failed["network_egress_bytes_per_s"] = "not a cgroup file: agent.network limits what a container sends"
    return failed


def _attempt(change: Callable[[], None]) -> Reason | None:
    try:
        change()
    except Gone:
        raise
    except NoDisk as error:
        return Reason(str(error.strerror), "see /sys/block for what this host has")
    except OSError as error:
        return refused(error)
    return None


def _cpu_max(files: Files, cores: float | None) -> None:
    set_and_check(files.cpu, "max", enforceable_cores(cores))


def _cpu_class(files: Files, opportunistic: bool) -> None:
    """Opportunistic work runs when nobody else wants the processor (cpu.idle); before 5.15 weight 1 comes near."""
    try:
        set_and_check(files.cpu, "idle", opportunistic)
    except NotSupported:
        if opportunistic:
            set_and_check(files.cpu, "weight", 1)


def _cpu_weight(files: Files, weight: int | None, opportunistic: bool) -> None:
    """While cpu.idle is 1 the weight reads 0 and cannot be written: the class goes first, and wins."""
    if opportunistic:
        if weight is not None:
            raise OSError(errno.EBUSY, "opportunistic work has no weight of its own", "cpu.weight")
        return
    set_and_check(files.cpu, "weight", weight or DEFAULT_WEIGHT)


def _high(memory: MemoryFiles, limits: Limits) -> None:
    set_and_check(memory, "high", limits.memory_high_bytes, granularity=PAGE_BYTES)


def _max(memory: MemoryFiles, limits: Limits) -> None:
    """With the limit goes swap: excess is killed, as promised, and does not go to a disk that others use."""
    set_and_check(memory, "max", limits.memory_max_bytes, granularity=PAGE_BYTES)
    try:
        set_and_check(memory, "swap_max", None if limits.memory_max_bytes is None else 0)
    except NotSupported:
        return  # a kernel that does not account swap


def _disks(io: IoFiles, disks: Sequence[Disk], key: str, limits: Limits) -> None:
    """The same limit on each disk; one that fails does not keep the others from theirs."""
    rate = limits.disk_read_bytes_per_s if key == "rbps" else limits.disk_write_bytes_per_s
    if not disks and rate is not None:
        raise NoDisk(errno.ENODEV, "no disk was found that io.max could bind")
    failure: OSError | None = None
    for disk in disks:
        try:
            _disk(io, disk, key, rate)
        except Gone:
            raise
        except OSError as error:
            failure = error
    if failure is not None:
        raise failure


def _disk(io: IoFiles, disk: Disk, key: str, rate: int | None) -> None:
    if io.max.get(disk.number, {}).get(key) == rate:
        return
    io.max = (disk.number, {key: rate})
    found = io.max.get(disk.number, {}).get(key)
    if found != rate:
        raise OSError(errno.EIO, f"wrote {key}={rate}, read back {found}", "io.max")

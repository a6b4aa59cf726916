"""From a path to what ``io.max`` must be told so that it binds what is read and written there."""

from __future__ import annotations

import fcntl
import os
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from agent.cgroups.devices.blocks import Disk, Loop, binding, label, loop, read_disk, slaves
from agent.cgroups.devices.mounts import MOUNTINFO, Mount, mount_number, mounts
from agent.cgroups.reason import Reason

SYS_DEV_BLOCK = Path("/sys/dev/block")
SYS_BTRFS = Path("/sys/fs/btrfs")
_MEMORY = {"tmpfs", "ramfs", "devtmpfs", "hugetlbfs"}
_NETWORK = {"nfs", "nfs4", "cifs", "smb3", "ceph", "9p", "virtiofs", "afs", "glusterfs", "lustre", "beegfs"}
#: Whose writeback is charged to the cgroup that made the pages dirty (SB_I_CGROUPWB, Linux 6.1).
_CHARGED = {"ext2", "ext4", "btrfs", "f2fs", "xfs"}
#: BTRFS_IOC_FS_INFO (linux/btrfs.h): 1,024 bytes, the file system's id at 16.
_BTRFS_FS_INFO = 0x8400941F


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a file lies. ``disks`` are the ones to limit, each for itself; none: ``caveat`` says why."""

    disks: tuple[Disk, ...]
    how: str
    """The way down, e.g. ``ext4 on dm-0 (vg-data) on nvme0n1p2``."""
    caveat: Reason | None = None


def _btrfs_id(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return str(uuid.UUID(bytes=fcntl.ioctl(descriptor, _BTRFS_FS_INFO, bytes(1024))[16:32]))
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Sources:
    """Whom we ask; tests bring others."""

    dev_block: Path = SYS_DEV_BLOCK
    btrfs: Path = SYS_BTRFS
    mountinfo: Path = MOUNTINFO
    device: Callable[[Path], int] = lambda path: path.stat().st_dev
    mount: Callable[[Path], int] = mount_number
    btrfs_id: Callable[[Path], str] = _btrfs_id


HOST = Sources()


def disks_of(path: Path, sources: Sources = HOST) -> Placement:
    """The disks whose ``io.max`` binds what is read and written at a path.

    Raises:
        OSError: there is no such file.
    """
    number = sources.device(path)
    mount = mounts(sources.mountinfo.read_text(encoding="utf-8", errors="replace")).get(sources.mount(path))
    kind = mount.kind if mount is not None else "a file system"
    if os.major(number) and not kind.startswith("fuse"):
        return _on_number(kind, f"{os.major(number)}:{os.minor(number)}", sources)
    if kind == "btrfs":
        return _on_btrfs(path, sources)
    if mount is not None and kind == "overlay":
        return _on_overlay(mount, sources)
    return Placement((), kind, _diskless(path, kind))


def disk_of(path: Path, sources: Sources = HOST) -> Disk | Reason:
    """The one disk whose ``io.max`` binds what is read and written at a path; or why there is not one.

    Raises:
        OSError: there is no such file.
    """
    placement = disks_of(path, sources)
    if len(placement.disks) == 1:
        return placement.disks[0]
    if not placement.disks and placement.caveat is not None:
        return placement.caveat
    return Reason(f"{path} does not lie on one disk: {', '.join(disk.name for disk in placement.disks)}")


def _on_number(kind: str, number: str, sources: Sources) -> Placement:
    try:
        device = (sources.dev_block / number).resolve(strict=True)
        return _on_device(kind, device, sources)
    except OSError as error:
        return Placement((), kind, Reason(f"the block device {number} is not in {sources.dev_block}: {error.strerror}"))


def _on_device(kind: str, device: Path, sources: Sources) -> Placement:
    bound = binding(device)
    disks = tuple(disk for each in bound if (disk := read_disk(each)) is not None)
    how = f"{kind} on {_way_down(device)}"
    if len(bound) == 1 and (file := loop(bound[0])) is not None:
        return _on_loop(how, disks, file, sources)
    if not disks:
        return Placement((), how, Reason(f"{label(device)} is no disk that io.max could bind"))
    return Placement(disks, how, _uncharged(kind))


def _on_loop(how: str, disks: tuple[Disk, ...], file: Loop, sources: Sources) -> Placement:
    """With direct I/O the disks below bind. Without it what reaches them is charged to whoever made the file, so that
    only the loop device itself binds.
    """
    try:
        below = disks_of(file.file, sources)
    except OSError as error:
        below = Placement((), f"a file that cannot be seen from here ({error.strerror})")
    how = f"{how} of {file.file}, {below.how}"
    return Placement(below.disks, how, below.caveat) if file.direct and below.disks else Placement(disks, how)


def _on_btrfs(path: Path, sources: Sources) -> Placement:
    """Its files have device numbers that no block device has; the file system tells its devices in /sys."""
    try:
        devices = sorted((sources.btrfs / sources.btrfs_id(path) / "devices").iterdir())
        each = [_on_device("btrfs", device.resolve(strict=True), sources) for device in devices]
    except OSError as error:
        return Placement((), "btrfs", Reason(f"the devices of btrfs at {path} are not told: {error.strerror}"))
    return _together("btrfs on " + " and ".join(one.how.removeprefix("btrfs on ") for one in each), each)


def _on_overlay(mount: Mount, sources: Sources) -> Placement:
    """What is written goes to the upper layer, what is read may come from each."""
    layers = [*mount.option("upperdir"), *mount.option("lowerdir")]
    each = []
    for layer in layers:
        try:
            each.append(disks_of(Path(layer), sources))
        except OSError:
            continue  # mounted in another mount namespace, or a layer that is no path of its own ("::" of 6.7)
    if not each:
        why = Reason(f"the layers of the overlay at {mount.point} cannot be seen from here ({mount.options})")
        return Placement((), "overlay", why)
    hows = dict.fromkeys(one.how for one in each)
    return _together(f"overlay over {' and '.join(hows)}", each)


def _together(how: str, each: Iterable[Placement]) -> Placement:
    each = list(each)
    disks = tuple(dict.fromkeys(disk for one in each for disk in one.disks))
    caveat = next((one.caveat for one in each if one.caveat is not None), None)
    if caveat is None and len(disks) > 1:
        caveat = Reason(f"each of {', '.join(disk.name for disk in disks)} is bounded for itself, their sum is not")
    return Placement(disks, how, caveat)


def _way_down(device: Path) -> str:
    """``dm-0 (vg-data) on nvme0n1p2 and vdc1``."""
    under = slaves(device)
    return f"{label(device)} on {' and '.join(_way_down(slave) for slave in under)}" if under else label(device)


def _uncharged(kind: str) -> Reason | None:
    if kind in _CHARGED:
        return None
    return Reason(f"buffered writes on {kind} are charged to nobody: only direct ones are bounded", "use ext4 or xfs")


def _diskless(path: Path, kind: str) -> Reason:
    if kind in _MEMORY:
        return Reason(f"{path} is on {kind}: memory, no disk; memory.max bounds it")
    if kind in _NETWORK or kind.startswith("fuse"):
        return Reason(f"{path} is on {kind}: another machine's disk or another process's; io.max does not see it")
    return Reason(f"{path} is on {kind}, a file system without a block device of its own", "use ext4, xfs or btrfs")

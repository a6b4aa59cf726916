"""Map a path to the disks to name in ``io.max`` so that it limits reads and writes there."""

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
#: File systems that charge writeback to the cgroup that dirtied the pages (SB_I_CGROUPWB, Linux 6.1).
_CHARGED = {"ext2", "ext4", "btrfs", "f2fs", "xfs"}
#: BTRFS_IOC_FS_INFO (linux/btrfs.h): 1,024 bytes, the file system's id at 16.
_BTRFS_FS_INFO = 0x8400941F


@dataclass(frozen=True, slots=True)
class Placement:
    """The location of a file. ``disks`` must be limited, each separately; if there is none, ``caveat`` says why."""

    disks: tuple[Disk, ...]
    how: str
    """The devices from top to bottom, e.g. ``ext4 on dm-0 (vg-data) on nvme0n1p2``."""
    caveat: Reason | None = None


def _btrfs_id(path: Path) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    try:
        return str(uuid.UUID(bytes=fcntl.ioctl(descriptor, _BTRFS_FS_INFO, bytes(1024))[16:32]))
    finally:
        os.close(descriptor)


@dataclass(frozen=True, slots=True)
class Sources:
    """Sources of the information; tests supply others."""

    dev_block: Path = SYS_DEV_BLOCK
    btrfs: Path = SYS_BTRFS
    mountinfo: Path = MOUNTINFO
    device: Callable[[Path], int] = lambda path: path.stat().st_dev
    mount: Callable[[Path], int] = mount_number
    btrfs_id: Callable[[Path], str] = _btrfs_id


HOST = Sources()


def disks_of(path: Path, sources: Sources = HOST) -> Placement:
    """Return the disks whose ``io.max`` limits reads and writes at a path.

    Raises:
        OSError: the file does not exist.
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


def _on_number(kind: str, number: str, sources: Sources) -> Placement:
    try:
        device = (sources.dev_block / number).resolve(strict=True)
        return _on_device(kind, device, sources)
    except OSError as error:
        return Placement((), kind, Reason(f"the block device {number} is not in {sources.dev_block}: {error.strerror}"))


def _on_device(kind: str, device: Path, sources: Sources) -> Placement:
    bound = binding(device)
    disks = tuple(disk for each in bound if (disk := read_disk(each)) is not None)
    how = f"{kind} on {_devices_below(device)}"
    if len(bound) == 1 and (file := loop(bound[0])) is not None:
        return _on_loop(how, disks, file, sources)
    if not disks:
        return Placement((), how, Reason(f"{label(device)} is not a disk that io.max can limit"))
    return Placement(disks, how, _uncharged(kind))


def _on_loop(how: str, disks: tuple[Disk, ...], file: Loop, sources: Sources) -> Placement:
    """Place a file on a loop device. With direct I/O, limits on the disks below take effect. Without it, their I/O is
    charged to the owner of the file, so only a limit on the loop device itself takes effect.
    """
    try:
        below = disks_of(file.file, sources)
    except OSError as error:
        below = Placement((), f"a file that is not visible here ({error.strerror})")
    how = f"{how} of {file.file}, {below.how}"
    return Placement(below.disks, how, below.caveat) if file.direct and below.disks else Placement(disks, how)


def _on_btrfs(path: Path, sources: Sources) -> Placement:
    """Place a file on btrfs: no block device has its device number; the file system lists its devices in /sys."""
    try:
        devices = sorted((sources.btrfs / sources.btrfs_id(path) / "devices").iterdir())
        each = [_on_device("btrfs", device.resolve(strict=True), sources) for device in devices]
    except OSError as error:
        return Placement((), "btrfs", Reason(f"the devices of btrfs at {path} are unknown: {error.strerror}"))
    return _together("btrfs on " + " and ".join(one.how.removeprefix("btrfs on ") for one in each), each)


def _on_overlay(mount: Mount, sources: Sources) -> Placement:
    """Place a file on an overlay: writes go to the upper layer, reads may come from each."""
    layers = [*mount.option("upperdir"), *mount.option("lowerdir")]
    each = []
    for layer in layers:
        try:
            each.append(disks_of(Path(layer), sources))
        except OSError:
            continue  # mounted in another mount namespace, or a layer that is not a path of its own ("::" of 6.7)
    if not each:
        why = Reason(f"the layers of the overlay at {mount.point} are not visible here ({mount.options})")
        return Placement((), "overlay", why)
    hows = dict.fromkeys(one.how for one in each)
    return _together(f"overlay over {' and '.join(hows)}", each)


def _together(how: str, each: Iterable[Placement]) -> Placement:
    each = list(each)
    disks = tuple(dict.fromkeys(disk for one in each for disk in one.disks))
    caveat = next((one.caveat for one in each if one.caveat is not None), None)
    if caveat is None and len(disks) > 1:
        caveat = Reason(
            f"each of {', '.join(disk.name for disk in disks)} is limited separately; their sum is not limited"
        )
    return Placement(disks, how, caveat)


def _devices_below(device: Path) -> str:
    """Return the devices from top to bottom: ``dm-0 (vg-data) on nvme0n1p2 and vdc1``."""
    under = slaves(device)
    return f"{label(device)} on {' and '.join(_devices_below(slave) for slave in under)}" if under else label(device)


def _uncharged(kind: str) -> Reason | None:
    if kind in _CHARGED:
        return None
    return Reason(
        f"buffered writes on {kind} are not charged to a cgroup: only direct ones are limited", "use ext4 or xfs"
    )


def _diskless(path: Path, kind: str) -> Reason:
    if kind in _MEMORY:
        return Reason(f"{path} is on {kind}, which is memory; memory.max limits it")
    if kind in _NETWORK or kind.startswith("fuse"):
        return Reason(f"{path} is on {kind}, which belongs to another machine or process; io.max does not apply")
    return Reason(f"{path} is on {kind}, a file system without a block device of its own", "use ext4, xfs or btrfs")

"""Disks, from a /sys and a mount table of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from agent.cgroups import Disk, Placement, Reason, disks_of, limited_disks, whole_disks
from agent.cgroups.devices import Sources


class Sys:
    """/sys/block, /sys/dev/block and /sys/fs/btrfs, with links as the kernel has them; and a mount table."""

    def __init__(self, root: Path) -> None:
        self.block = root / "block"
        self.dev = root / "dev/block"
        self.btrfs = root / "btrfs"
        self.devices = root / "devices"
        self.mountinfo = root / "mountinfo"
        for directory in (self.block, self.dev, self.devices, self.btrfs):
            directory.mkdir(parents=True)
        self.mountinfo.touch()
        self._files: dict[str, tuple[str, int]] = {}  # path → number of its device, number of its mount

    def add(self, name: str, number: str, *, hardware: bool = True, size: int = 1000, **files: str) -> Path:
        """A whole block device; ``dm_uuid`` is the file dm/uuid."""
        device = self.devices / name
        device.mkdir()
        (self.block / name).symlink_to(device)
        if hardware:
            (device / "device").mkdir()
        return self._fill(device, number, size, files)

    def partition(self, of: str, name: str, number: str) -> Path:
        """A partition."""
        device = self.devices / of / name
        device.mkdir()
        return self._fill(device, number, 100, {"partition": "1"})

    def on(self, upper: Path, *lower: Path) -> Path:
        """``upper`` lies on ``lower``."""
        (upper / "slaves").mkdir()
        for device in lower:
            (upper / "slaves" / device.name).symlink_to(device)
        return upper

    def mount(self, path: str, number: str, kind: str, source: str = "none", options: str = "rw") -> Path:
        """A file system at a path, whose files have a device number."""
        mount = 20 + len(self._files)
        octal = path.replace(" ", "\\040")
        line = f"{mount} 1 {number} / {octal} rw,relatime shared:1 master:2 - {kind} {source} {options}\n"
        self.mountinfo.write_text(self.mountinfo.read_text() + line)
        self._files[path] = (number, mount)
        return Path(path)

    @property
    def sources(self) -> Sources:
        """What production asks of the host."""
        return Sources(
            self.dev, self.btrfs, self.mountinfo, lambda path: self._number(path), lambda path: self._of(path)[1],
            lambda path: "id",
        )  # fmt: skip

    def _number(self, path: Path) -> int:
        major, _, minor = self._of(path)[0].partition(":")
        return os.makedev(int(major), int(minor))

    def _of(self, path: Path) -> tuple[str, int]:
        for directory in (path, *path.parents):
            if (found := self._files.get(str(directory))) is not None:
                return found
        raise FileNotFoundError(2, "No such file or directory", str(path))

    def _fill(self, device: Path, number: str, size: int, files: dict[str, str]) -> Path:
        for name, text in {"dev": number, "size": str(size), **files}.items():
            file = device / name.replace("_", "/", 1)
            file.parent.mkdir(exist_ok=True)
            file.write_text(f"{text}\n")
        (self.dev / number).symlink_to(device)
        return device


VDA, VDB, NVME = Disk("vda", 254, 0), Disk("vdb", 254, 16), Disk("nvme0n1", 259, 0)


@pytest.fixture
def sys_(tmp_path: Path) -> Sys:
    """Three disks, the first of them with two partitions."""
    made = Sys(tmp_path)
    made.add("vda", "254:0")
    made.partition("vda", "vda1", "254:1")
    made.partition("vda", "vda2", "254:2")
    made.add("vdb", "254:16")
    made.add("nvme0n1", "259:0")
    return made


def test_whole_disks_are_those_with_hardware_and_a_medium(sys_: Sys) -> None:
    sys_.add("nvme0c0n1", "259:1", hidden="1")
    sys_.add("loop0", "7:0", hardware=False)
    sys_.add("dm-0", "253:0", hardware=False)
    sys_.add("sr0", "11:0")
    sys_.add("mmcblk0", "179:0")
    sys_.add("mmcblk0boot0", "179:8")
    sys_.add("sdz", "65:0", size=0)
    assert whole_disks(sys_.block) == [Disk("mmcblk0", 179, 0), NVME, VDA, VDB]
    assert VDA.number == "254:0"


def test_no_sys(tmp_path: Path) -> None:
    assert whole_disks(tmp_path / "nowhere") == limited_disks(tmp_path / "nowhere") == []


def test_a_disk_that_is_unplugged_while_we_look(sys_: Sys) -> None:
    (sys_.add("sda", "8:0") / "dev").unlink()
    sys_.on(sys_.add("dm-0", "253:0", hardware=False), sys_.devices / "gone")
    assert whole_disks(sys_.block) == limited_disks(sys_.block) == [NVME, VDA, VDB]


def test_limited_are_the_lowest_and_what_joins_several(sys_: Sys) -> None:
    linear = sys_.on(sys_.add("dm-0", "253:0", hardware=False), sys_.devices / "vda/vda1")
    stripe = sys_.on(sys_.add("dm-1", "253:1", hardware=False), linear, sys_.devices / "vdb")
    sys_.on(sys_.add("dm-2", "253:2", hardware=False), stripe)  # what it lies on joins already
    sys_.on(sys_.add("dm-3", "253:3", hardware=False, dm_uuid="mpath-35000"), sys_.devices / "nvme0n1")
    sys_.add("nbd0", "43:0", hardware=False)
    sys_.add("nbd1", "43:1", hardware=False, size=0)
    sys_.add("zram0", "252:0", hardware=False)
    sys_.add("ram0", "1:0", hardware=False)
    found = [disk.name for disk in limited_disks(sys_.block)]
    assert found == ["dm-1", "dm-3", "nbd0", "nvme0n1", "vda", "vdb"]


@pytest.mark.parametrize(
    ("files", "limited"),
    [
        ({"loop_backing_file": "/img", "loop_dio": "0", "ro": "0"}, True),
        ({"loop_backing_file": "/img", "loop_dio": "1", "ro": "0"}, False),  # the disk below binds
        ({"loop_backing_file": "/snap", "loop_dio": "0", "ro": "1"}, False),
        ({}, False),
    ],
)
def test_loops_that_the_disk_below_does_not_bind(sys_: Sys, files: dict[str, str], limited: bool) -> None:
    sys_.add("loop0", "7:0", hardware=False, **files)
    assert (Disk("loop0", 7, 0) in limited_disks(sys_.block)) == limited


Stack = Callable[[Sys], Path]
STACKS: list[tuple[str, Stack, tuple[Disk, ...], str]] = [
    ("disk", lambda s: s.mount("/m", "254:16", "xfs"), (VDB,), "xfs on vdb"),
    ("partition", lambda s: s.mount("/m", "254:1", "ext4"), (VDA,), "ext4 on vda1"),
]


def stack(name: str, disks: tuple[Disk, ...], how: str) -> Callable[[Stack], Stack]:
    """Register one way to lay a file system on the disks of ``sys_``."""

    def register(build: Stack) -> Stack:
        STACKS.append((name, build, disks, how))
        return build

    return register


@stack("LVM on crypt", (VDA,), "ext4 on dm-1 (vg-data) on dm-0 (crypt) on vda2")
def _lvm(s: Sys) -> Path:
    crypt = s.on(s.add("dm-0", "253:0", hardware=False, dm_name="crypt"), s.devices / "vda/vda2")
    s.on(s.add("dm-1", "253:1", hardware=False, dm_name="vg-data"), crypt)
    return s.mount("/m", "253:1", "ext4")


@stack("LVM over two", (Disk("dm-0", 253, 0),), "ext4 on dm-0 (vg-wide) on vda1 and vdb")
def _wide(s: Sys) -> Path:
    s.on(s.add("dm-0", "253:0", hardware=False, dm_name="vg-wide"), s.devices / "vda/vda1", s.devices / "vdb")
    return s.mount("/m", "253:0", "ext4")


@stack("LVM on md", (Disk("md0", 9, 0),), "ext4 on dm-0 (vg-data) on md0 on nvme0n1 and vdb")
def _md(s: Sys) -> Path:
    md = s.on(s.add("md0", "9:0", hardware=False), s.devices / "vdb", s.devices / "nvme0n1")
    s.on(s.add("dm-0", "253:0", hardware=False, dm_name="vg-data"), md)
    return s.mount("/m", "253:0", "ext4")


@stack("LVM over two partitions of one disk", (VDA,), "ext4 on dm-0 on vda1 and vda2")
def _two_of_one(s: Sys) -> Path:
    s.on(s.add("dm-0", "253:0", hardware=False), s.devices / "vda/vda1", s.devices / "vda/vda2")
    return s.mount("/m", "253:0", "ext4")


@stack("multipath", (Disk("dm-0", 253, 0),), "ext4 on dm-0 (mpatha) on nvme0n1 and vdb")
def _multipath(s: Sys) -> Path:
    mapped = s.add("dm-0", "253:0", hardware=False, dm_name="mpatha", dm_uuid="mpath-35000c")
    s.on(mapped, s.devices / "nvme0n1", s.devices / "vdb")
    return s.mount("/m", "253:0", "ext4")


@stack("cached loop", (Disk("loop3", 7, 3),), "ext4 on loop3 of /home/disk.img, xfs on vdb")
def _loop(s: Sys) -> Path:
    s.mount("/home", "254:16", "xfs")
    s.add("loop3", "7:3", hardware=False, loop_backing_file="/home/disk.img", loop_dio="0")
    return s.mount("/m", "7:3", "ext4")


@stack("direct loop", (VDB,), "ext4 on dm-0 on loop3 of /home/disk.img, xfs on vdb")
def _direct_loop(s: Sys) -> Path:
    s.mount("/home", "254:16", "xfs")
    loop = s.add("loop3", "7:3", hardware=False, loop_backing_file="/home/disk.img", loop_dio="1")
    s.on(s.add("dm-0", "253:0", hardware=False), loop)
    return s.mount("/m", "253:0", "ext4")


@stack("direct loop whose file is elsewhere", (Disk("loop3", 7, 3),),
       "ext4 on loop3 of /elsewhere, a file that is not visible here (No such file or directory)")  # fmt: skip
def _lost_loop(s: Sys) -> Path:
    s.add("loop3", "7:3", hardware=False, loop_backing_file="/elsewhere", loop_dio="1")
    return s.mount("/m", "7:3", "ext4")


@stack("btrfs", (NVME,), "btrfs on nvme0n1")
def _btrfs(s: Sys) -> Path:
    (s.btrfs / "id/devices").mkdir(parents=True)
    (s.btrfs / "id/devices/nvme0n1").symlink_to(s.devices / "nvme0n1")
    return s.mount("/m", "0:33", "btrfs", "/dev/nvme0n1")


@stack("overlay", (VDB,), "overlay over xfs on vdb")
def _overlay(s: Sys) -> Path:
    s.mount("/var/a,b", "254:16", "xfs")
    return s.mount("/m", "0:40", "overlay", "ov", r"rw,lowerdir=/var/a\,b/1:/var/a\,b/2,upperdir=/var/a\,b/up")


@pytest.mark.parametrize(("name", "build", "disks", "how"), STACKS, ids=[each[0] for each in STACKS])
def test_what_binds(sys_: Sys, name: str, build: Stack, disks: tuple[Disk, ...], how: str) -> None:
    path = build(sys_)
    assert disks_of(path / "file", sys_.sources) == Placement(disks, how), name
    # What an agent limits by default is enough.
    assert set(disks) <= set(limited_disks(sys_.block)) or "elsewhere" in how


def test_btrfs_over_two_disks_is_bounded_on_each(sys_: Sys) -> None:
    path = _btrfs(sys_)
    (sys_.btrfs / "id/devices/vdb").symlink_to(sys_.devices / "vdb")
    found = disks_of(path, sys_.sources)
    assert found.disks == (NVME, VDB) and found.how == "btrfs on nvme0n1 and vdb"
    assert "each of nvme0n1, vdb is limited separately" in str(found.caveat)


def test_overlay_over_several_file_systems(sys_: Sys) -> None:
    sys_.mount("/lower", "254:16", "xfs")
    sys_.mount("/upper", "259:0", "ext4")
    path = sys_.mount("/m", "0:40", "overlay", "ov", "rw,lowerdir=/lower/a:/gone,upperdir=/upper/b")
    found = disks_of(path, sys_.sources)
    assert found.disks == (NVME, VDB) and found.how == "overlay over ext4 on nvme0n1 and xfs on vdb"
    assert found.caveat is not None and "their sum is not" in found.caveat.why


@pytest.mark.parametrize(
    ("number", "kind", "options", "why"),
    [
        ("0:42", "tmpfs", "rw", "is on tmpfs, which is memory; memory.max limits it"),
        ("0:42", "nfs4", "rw", "io.max does not apply"),
        ("0:42", "fuse.sshfs", "rw", "io.max does not apply"),
        ("254:16", "fuseblk", "rw", "io.max does not apply"),
        ("0:42", "proc", "rw", "without a block device of its own"),
        ("0:42", "overlay", "rw,lowerdir=/gone", "are not visible here"),
        ("0:42", "btrfs", "rw", "the devices of btrfs at /m are unknown"),
        ("8:99", "ext4", "rw", "the block device 8:99 is not in"),
        ("11:0", "iso9660", "ro", "sr0 is not a disk that io.max can limit"),
    ],
)
def test_no_disk(sys_: Sys, number: str, kind: str, options: str, why: str) -> None:
    sys_.add("sr0", "11:0")
    path = sys_.mount("/m", number, kind, options=options)
    found = disks_of(path, sys_.sources)
    assert found.disks == () and found.how and found.caveat is not None and why in found.caveat.why


def test_a_file_system_whose_writeback_is_charged_to_nobody(sys_: Sys) -> None:
    found = disks_of(sys_.mount("/m", "254:1", "vfat"), sys_.sources)
    assert found.disks == (VDA,) and found.caveat is not None and "not charged to a cgroup" in found.caveat.why


def test_a_garbled_mount_table(sys_: Sys) -> None:
    path = sys_.mount("/m m", "254:1", "ext4")
    sys_.mountinfo.write_text(f"\n - \nx y z - ext4\n1 2\n{sys_.mountinfo.read_text()}")
    assert disks_of(path, sys_.sources) == Placement((VDA,), "ext4 on vda1")
    sys_.mountinfo.write_text("")
    assert disks_of(path, sys_.sources).disks == (VDA,)  # its number says enough


def test_on_this_host() -> None:
    """Whatever /sys says of the file system of /proc, it is no disk."""
    found = disks_of(Path("/proc"))
    assert found.how == "proc" and not found.disks and isinstance(found.caveat, Reason)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        disks_of(Path("/no/such/file"))

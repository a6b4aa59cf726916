"""Disks, from a /sys of the test's own."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.cgroups import Disk, Reason, disk_of, whole_disks


class Sys:
    """/sys/block and /sys/dev/block, with links as the kernel has them."""

    def __init__(self, root: Path) -> None:
        self.block = root / "block"
        self.dev = root / "dev/block"
        self.devices = root / "devices"
        for directory in (self.block, self.dev, self.devices):
            directory.mkdir(parents=True)

    def add(self, name: str, number: str, *, hardware: bool = True, size: int = 1000, **files: str) -> Path:
        """A whole block device."""
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

    def on(self, upper: Path, *lower: Path) -> None:
        """``upper`` lies on ``lower``."""
        (upper / "slaves").mkdir()
        for device in lower:
            (upper / "slaves" / device.name).symlink_to(device)

    def _fill(self, device: Path, number: str, size: int, files: dict[str, str]) -> Path:
        for name, text in {"dev": number, "size": str(size), **files}.items():
            (device / name).write_text(f"{text}\n")
        (self.dev / number).symlink_to(device)
        return device


@pytest.fixture
def sys_(tmp_path: Path) -> Sys:
    return Sys(tmp_path)


def test_whole_disks_are_those_with_hardware_and_a_medium(sys_: Sys) -> None:
    sys_.add("vda", "254:0")
    sys_.partition("vda", "vda1", "254:1")
    sys_.add("nvme0n1", "259:0")
    sys_.add("nvme0c0n1", "259:1", hidden="1")
    sys_.add("loop0", "7:0", hardware=False)
    sys_.add("dm-0", "253:0", hardware=False)
    sys_.add("sr0", "11:0")
    sys_.add("mmcblk0", "179:0")
    sys_.add("mmcblk0boot0", "179:8")
    sys_.add("sdz", "65:0", size=0)
    assert whole_disks(sys_.block) == [Disk("mmcblk0", 179, 0), Disk("nvme0n1", 259, 0), Disk("vda", 254, 0)]
    assert Disk("vda", 254, 0).number == "254:0"


def test_no_sys(tmp_path: Path) -> None:
    assert whole_disks(tmp_path / "nowhere") == []


def test_a_disk_that_is_unplugged_while_we_look(sys_: Sys) -> None:
    (sys_.add("sda", "8:0") / "dev").unlink()
    assert whole_disks(sys_.block) == []


class _OnDevice(type(Path())):  # type: ignore[misc]
    """A path whose file is on the device of its name."""

    def stat(self, **_: object) -> os.stat_result:
        major, _colon, minor = self.name.partition(":")
        return os.stat_result((0, 0, os.makedev(int(major), int(minor)), 0, 0, 0, 0, 0, 0, 0))


@pytest.fixture
def stacked(sys_: Sys) -> Sys:
    """vda with a partition; dm-0 on it; md0 on two disks; a loop device."""
    sys_.add("vda", "254:0")
    sys_.add("vdb", "254:16")
    partition = sys_.partition("vda", "vda1", "254:1")
    mapped = sys_.add("dm-0", "253:0", hardware=False)
    sys_.on(mapped, partition)
    sys_.on(sys_.add("dm-1", "253:1", hardware=False), mapped)
    sys_.on(sys_.add("md0", "9:0", hardware=False), partition, sys_.devices / "vdb")
    sys_.add("loop0", "7:0", hardware=False)
    return sys_


@pytest.mark.parametrize("number", ["254:0", "254:1", "253:0", "253:1"])
def test_the_disk_under_a_file(stacked: Sys, number: str) -> None:
    assert disk_of(_OnDevice(number), stacked.dev) == Disk("vda", 254, 0)


@pytest.mark.parametrize(
    ("number", "why"),
    [
        ("9:0", "does not lie on one disk: vda, vdb"),
        ("7:0", "does not lie on one disk: none that io.max could bind"),
        ("0:42", "without a block device of its own"),
        ("8:99", "is not in"),
    ],
)
def test_where_there_is_not_one_disk(stacked: Sys, number: str, why: str) -> None:
    found = disk_of(_OnDevice(number), stacked.dev)
    assert isinstance(found, Reason) and why in str(found)


def test_on_this_host() -> None:
    """Whatever /sys says of the file system of /proc, it is no disk."""
    assert isinstance(disk_of(Path("/proc")), Reason)


def test_a_file_that_is_not_there() -> None:
    with pytest.raises(FileNotFoundError):
        disk_of(Path("/no/such/file"))

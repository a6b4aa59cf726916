"""The disks that a path is resolved to are those whose ``io.max`` binds, whatever lies between: direct I/O against wall
time, buffered I/O against what the kernel charges. On the two empty disks that the machine has for this.

All that lies between is built beside each other, and measured two at a time, each in a cgroup of its own.
"""

from __future__ import annotations

import os
import secrets
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import pytest

from agent.cgroups import Cgroup, CgroupTree, Disk, Placement, disk_of, disks_of, limited_disks, whole_disks
from agent.place import cgroup2_mount

#: So little that what is measured at once does not keep the emulated processors busy.
RATE, AT_ONCE = 2_000_000, 2
WINDOWS = 5
WINDOW_S, SETTLE_S = 3.0, 0.5
#: One of them shows whether there is a limit at all.
GLANCE_S = 0.5
#: And their partitions, in megabytes: each of what is built has its own.
NVME, VIRTIO = Path("/dev/nvme0n1"), Path("/dev/vdc")
PARTITIONS = {NVME: (110, 110, 110, 110, 110, 110, 110, 200), VIRTIO: (110, 110, 110, 110, 110)}
MODULES = ("dm_mod", "dm_crypt", "dm_multipath", "dm_round_robin", "dm_thin_pool", "raid0", "loop", "btrfs")
MIB = 1 << 20
FILE_BYTES, BUFFERED_BYTES = 16 * MIB, 12 * MIB
#: Four threads read or write a file in blocks of 64 KiB, again and again, so that the throttle always has something
#: waiting. Told seconds to settle in (the throttle starts) and to measure for, it says bytes per second.
WORK = """
import mmap, os, sys, threading, time
path, mode, size = sys.argv[1], sys.argv[2], int(sys.argv[3])
flags = {"read": os.O_RDONLY | os.O_DIRECT, "write": os.O_WRONLY | os.O_DIRECT, "buffered": os.O_WRONLY | os.O_CREAT}
file = os.open(path, flags[mode])
move = os.preadv if mode == "read" else os.pwritev
done = [0] * 4
asked = threading.Event()

def work(number):
    block = mmap.mmap(-1, 65536)
    block.write(os.urandom(65536))
    offset = number * size // len(done)
    while asked.wait():
        moved = move(file, [block], offset)
        done[number] += moved
        offset = (offset + moved) % size

for number in range(len(done)):
    threading.Thread(target=work, args=(number,), daemon=True).start()
print("ready", flush=True)
for line in sys.stdin:
    settle, seconds = map(float, line.split())
    asked.set()
    time.sleep(settle)
    before, start = sum(done), time.monotonic()
    time.sleep(seconds)
    after, end = sum(done), time.monotonic()
    asked.clear()
    print((after - before) / (end - start), flush=True)
os._exit(0)
"""


class Worker:
    """A process that does WORK in a cgroup, when it is asked to."""

    def __init__(self, cgroup: Cgroup, file: Path, mode: str, size: int = FILE_BYTES) -> None:
        door = cgroup.open_procs()
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-ISc", WORK, str(file), mode, str(size)], text=True,
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=lambda: os.write(door, b"0"),
            )  # fmt: skip
        finally:
            os.close(door)

    def __enter__(self) -> Self:
        assert self._line() == "ready"
        return self

    def __exit__(self, *_: object) -> None:
        self._process.communicate()

    def ask(self, seconds: float, settle: float = 0.0) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{settle} {seconds}\n")
        self._process.stdin.flush()

    def answer(self) -> float:
        """Bytes per second."""
        return float(self._line())

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


def bounded(workers: list[Worker]) -> list[float]:
    """The best of some windows of each, none of which may exceed the limit: a host that is busy with other things
    starves the machine, which lowers the figure and never raises it.
    """
    best = [0.0] * len(workers)
    for _ in range(WINDOWS):
        for worker in workers:
            worker.ask(WINDOW_S, SETTLE_S)
        rates = [worker.answer() for worker in workers]
        assert max(rates) < 1.05 * RATE
        best = list(map(max, best, rates))
        if min(best) > 0.97 * RATE:
            break
    return best


def unbounded(worker: Worker) -> float:
    """The best of some windows, or the first that shows that no such limit holds."""
    best = 0.0
    for _ in range(WINDOWS):
        worker.ask(GLANCE_S)
        best = max(best, worker.answer())
        if best > 2 * RATE:
            break
    return best


@pytest.fixture
def tree() -> Iterator[CgroupTree]:
    """As below, for one test."""
    with ExitStack() as stack:
        yield new_tree(stack)


def new_tree(undo: ExitStack) -> CgroupTree:
    """Every controller, so that writeback is charged."""
    mount = cgroup2_mount()
    assert mount is not None
    made = CgroupTree(mount / f"penstock-devices-{secrets.token_hex(4)}", ())
    assert made.prepare() == {}

    def dismantle() -> None:
        for name in made.existing():
            assert made.get(name).remove()
        made.dismantle()

    undo.callback(dismantle)
    return made


@pytest.fixture
def undo() -> Iterator[ExitStack]:
    """Commands for the end of the test, the last one first."""
    with ExitStack() as stack:
        yield stack


def run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
    return done.stdout.strip()


def mounted(undo: ExitStack, device: str, make: str = "mke2fs -q -F -t ext4") -> Path:
    """A new file system."""
    run(f"wipefs -qa {device}; {make} {device}")
    return mount(undo, device)


def mount(undo: ExitStack, what: str, options: str = "") -> Path:
    point = Path(f"/run/penstock-mount-{secrets.token_hex(4)}")
    point.mkdir()
    undo.callback(point.rmdir)
    run(f"mount {options} {what} {point}")
    undo.callback(run, f"umount {point}")
    return point


def mapped(undo: ExitStack, table: str, kind: str = "") -> str:
    """A device mapper device."""
    name = f"t-{secrets.token_hex(4)}"
    run(f"dmsetup create {name} --uuid {kind}-{name} --table '{table}' && udevadm settle")
    undo.callback(run, f"udevadm settle; dmsetup remove --retry {name}")
    return f"/dev/mapper/{name}"


def sectors(device: Path | str) -> int:
    return int(run(f"blockdev --getsz {device}"))


def partition(undo: ExitStack) -> Path:
    return mounted(undo, f"{NVME}p1")


def linear(undo: ExitStack) -> Path:
    return mounted(undo, mapped(undo, f"0 {sectors(f'{NVME}p2')} linear {NVME}p2 0"))


def crypt(undo: ExitStack) -> Path:
    """Its reads and writes come from threads of the kernel's."""
    return mounted(undo, mapped(undo, f"0 {sectors(f'{VIRTIO}1')} crypt aes-xts-plain64 {'ab' * 32} 0 {VIRTIO}1 0"))


def thin(undo: ExitStack) -> Path:
    run(f"dd if=/dev/zero of={VIRTIO}2 bs=4k count=1")
    size = sectors(f"{VIRTIO}3") // 128 * 128
    pool = mapped(undo, f"0 {size} thin-pool {VIRTIO}2 {VIRTIO}3 128 0")
    run(f"dmsetup message {pool} 0 'create_thin 0'")
    return mounted(undo, mapped(undo, f"0 300000 thin {pool} 0"))


def striped(undo: ExitStack) -> Path:
    size = min(sectors(f"{NVME}p3"), sectors(f"{VIRTIO}4")) // 256 * 256
    return mounted(undo, mapped(undo, f"0 {2 * size} striped 2 128 {NVME}p3 0 {VIRTIO}4 0"))


def raid0(undo: ExitStack) -> Path:
    """md without mdadm, by its files."""
    Path("/sys/module/md_mod/parameters/new_array").write_text("md_devices")
    md = Path("/sys/block/md_devices/md")
    undo.callback((md / "array_state").write_text, "clear")
    for name, text in {"metadata_version": "none", "level": "raid0", "chunk_size": "65536", "raid_disks": "2"}.items():
        (md / name).write_text(text)
    for slot, member in enumerate((f"{NVME.name}p4", f"{VIRTIO.name}5")):
        (md / "new_dev").write_text(Path(f"/sys/class/block/{member}/dev").read_text())
        (md / f"dev-{member}/size").write_text("100000")
        (md / f"dev-{member}/slot").write_text(str(slot))
    (md / "array_state").write_text("active")
    return mounted(undo, "/dev/md_devices")


def btrfs(undo: ExitStack) -> Path:
    """A subvolume, bound elsewhere: its files have a device number that neither device nor mount table has."""
    top = mounted(undo, f"{NVME}p8", "mkfs.btrfs -q -f")
    run(f"btrfs subvolume create {top}/volume")
    return mount(undo, f"{top}/volume", "-o bind")


def overlay(undo: ExitStack) -> Path:
    below = mounted(undo, f"{NVME}p5")
    run(f"mkdir {below}/upper {below}/work {below}/lower")
    return mount(undo, "over", f"-t overlay -o lowerdir={below}/lower,upperdir={below}/upper,workdir={below}/work")


def loop(undo: ExitStack, device: str, direct: str) -> Path:
    below = mounted(undo, device)
    run(f"dd if=/dev/zero of={below}/image bs=1M count=80 conv=fsync")
    made = run(f"losetup --find --show --direct-io={direct} {below}/image")
    undo.callback(run, f"losetup --detach {made}")
    return mounted(undo, made)


def direct_loop(undo: ExitStack) -> Path:
    return loop(undo, f"{NVME}p6", "on")


def cached_loop(undo: ExitStack) -> Path:
    return loop(undo, f"{NVME}p7", "off")


def file_in(directory: Path) -> Path:
    file = directory / "data"
    run(f"dd if=/dev/zero of={file} bs=1M count={FILE_BYTES // MIB} conv=fsync")
    return file


def limited(tree: CgroupTree, *, rate: int | None = RATE) -> Cgroup:
    """A container with a limit on each disk that an agent limits."""
    cgroup = tree.create(f"c-{secrets.token_hex(4)}")
    for disk in limited_disks() if rate is not None else ():
        write_limit(cgroup, disk.number)
    return cgroup


def write_limit(cgroup: Cgroup, number: str) -> None:
    door = os.open(cgroup.path / "io.max", os.O_WRONLY)
    try:
        os.write(door, f"{number} rbps={RATE} wbps={RATE}".encode())
    finally:
        os.close(door)


def report(name: str, text: str) -> None:
    """Into the JUnit report's output, and on the terminal with -rA."""
    print(f"{name}: {text}")


def test_the_ways_of_multipath_do_not_bind(tree: CgroupTree, undo: ExitStack) -> None:
    """Its requests are cloned past their throttle, so that the mapped device itself has to be limited.

    First, as it needs all of a disk.
    """
    prepare()
    run(f"wipefs -qa {VIRTIO}")
    table = f"0 {sectors(VIRTIO)} multipath 0 0 1 1 round-robin 0 1 1 {VIRTIO} 1000"
    file = file_in(mounted(undo, mapped(undo, table, "mpath")))
    below = tree.create(f"c-{secrets.token_hex(4)}")
    write_limit(below, Path(f"/sys/block/{VIRTIO.name}/dev").read_text().strip())
    with Worker(below, file, "write") as worker:
        past = unbounded(worker)
    disk = disk_of(file)
    assert isinstance(disk, Disk) and disk.name.startswith("dm-") and disk in limited_disks()
    with Worker(limited(tree), file, "write") as worker:
        (rate,) = bounded([worker])
    report(
        "multipath write", f"{rate / 1e6:.2f} of {RATE / 1e6:g} MB/s; {past / 1e6:.0f} with a limit on its way alone"
    )
    assert rate > 0.95 * RATE
    assert past > 2 * RATE


def prepare() -> None:
    """The kernel has what is built here, and the disks are there."""
    run(f"modprobe --all {' '.join(MODULES)}")
    for disk in (NVME, VIRTIO):
        if not disk.exists():
            pytest.fail(f"this machine has no {disk}; run: python -m tests.vm test --drives nvme,virtio")


#: What joins its disks or hides them is limited itself.
ITSELF = (striped, raid0, cached_loop)
BUILDS: tuple[Callable[[ExitStack], Path], ...] = (
    partition, linear, crypt, thin, btrfs, overlay, direct_loop, striped, raid0, cached_loop,
)  # fmt: skip
BUFFERED = (partition, btrfs, overlay, cached_loop)


@pytest.fixture(scope="module")
def built() -> Iterator[dict[str, Path]]:
    """A directory of each."""
    prepare()
    for disk, sizes in PARTITIONS.items():
        table = "".join(f"\\n,{size}M" for size in sizes)
        run(rf"wipefs -qa {disk}; printf 'label: gpt{table}\n' | sfdisk -q {disk}")
    run("udevadm settle")
    with ExitStack() as undo:
        yield {build.__name__: build(undo) for build in BUILDS}


@dataclass(frozen=True)
class Direct:
    """What direct I/O came to, bytes per second by its mode: with a limit, and without."""

    placement: Placement
    rate: dict[str, float]
    without: dict[str, float]


@pytest.fixture(scope="module")
def direct(built: dict[str, Path]) -> dict[str, Direct]:
    """Each without a limit, one after the other, then some at once, within their limits."""
    found = {name: Direct(disks_of(directory), {}, {}) for name, directory in built.items()}
    files = {name: file_in(directory) for name, directory in built.items()}
    with ExitStack() as stack:
        tree = new_tree(stack)
        free = limited(tree, rate=None)
        cgroups = {name: limited(tree) for name in files}
        for mode in ("read", "write"):
            for name, file in files.items():
                with Worker(free, file, mode) as worker:
                    found[name].without[mode] = unbounded(worker)
            for first in range(0, len(files), AT_ONCE):
                names = list(files)[first : first + AT_ONCE]
                with ExitStack() as working:
                    workers = [working.enter_context(Worker(cgroups[name], files[name], mode)) for name in names]
                    for name, rate in zip(names, bounded(workers), strict=True):
                        found[name].rate[mode] = rate
    return found


@pytest.mark.parametrize("name", [build.__name__ for build in BUILDS])
def test_direct_io_is_bounded(direct: dict[str, Direct], name: str) -> None:
    found = direct[name]
    placement = found.placement
    assert placement.disks and set(placement.disks) <= set(limited_disks()), placement
    assert (placement.disks[0] in whole_disks()) == (name not in {each.__name__ for each in ITSELF}), placement
    for mode in ("read", "write"):
        rate, without = found.rate[mode], found.without[mode]
        report(
            f"{name} {mode}", f"{rate / 1e6:.2f} of {RATE / 1e6:g} MB/s ({without / 1e6:.0f} without), {placement.how}"
        )
        assert rate > 0.95 * RATE
        assert without > 2 * RATE


@pytest.mark.parametrize("name", [build.__name__ for build in BUFFERED])
def test_buffered_writes_are_charged_at_the_limit_and_not_felt(
    tree: CgroupTree, built: dict[str, Path], name: str
) -> None:
    """The cache takes them at once; what reaches the disk is bounded, and counted for the container.

    In a file of its own: one that somebody else wrote to last is written back at somebody else's expense.
    """
    disk, cgroup, own = disk_of(built[name]), limited(tree), built[name] / "own"
    own.unlink(missing_ok=True)  # where the test runs again
    with Worker(cgroup, own, "buffered", BUFFERED_BYTES) as worker:
        started, before = time.monotonic(), charged(cgroup, disk)
        worker.ask(2.0, SETTLE_S)
        seen = worker.answer()
    run("sync")
    written = charged(cgroup, disk) - before
    elapsed = time.monotonic() - started
    report(f"{name} buffered", f"{seen / 1e6:.0f} MB/s, {written / elapsed / 1e6:.2f} charged")
    assert seen > 2 * RATE
    assert written >= BUFFERED_BYTES
    assert written / elapsed < 1.05 * RATE


def charged(cgroup: Cgroup, disk: object) -> int:
    assert isinstance(disk, Disk), disk
    for line in (cgroup.path / "io.stat").read_text().splitlines():
        device, *pairs = line.split()  # no pairs yet where it has done nothing
        if device == disk.number:
            return int(dict(pair.split("=") for pair in pairs).get("wbytes", 0))
    return 0

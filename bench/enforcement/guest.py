"""``python -m bench.enforcement.guest FILE [PART…]``: measure on the host that this runs on; reports to FILE, as JSON.

Root, cgroup v2 with every controller, ``/scratch`` and a slow disk: the project's virtual machine has them.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec

from bench.enforcement import accuracy, falling, files, isolation, reaction
from bench.enforcement.bed import Bed
from bench.enforcement.figures import Figure, measure

SCRATCH = Path("/scratch")
#: The slow disk of the virtual machine: its name in user mode (tests/vm/user_mode.py), its size in sectors under QEMU
#: (tests/vm/machine.py).
_SLOW_DISK = "nullb0"
_SLOW_SECTORS = 768 * 1024**2 // 512


def limits() -> Iterator[Figure]:
    """CPU, memory and disk."""
    with _bed() as bed:
        yield from accuracy.cpu(bed)
        yield from accuracy.memory(bed, SCRATCH)
        yield from accuracy.disk(bed, SCRATCH)
        yield from accuracy.resized(bed)


def isolated() -> Iterator[Figure]:
    """Beside ten hogs."""
    slow = slow_directory()
    with _bed(**isolation.SETTINGS) as bed:
        yield from isolation.all_of(bed, slow, SCRATCH)


def network() -> Iterator[Figure]:
    """In namespaces of its own."""
    from bench.enforcement.network import SETTINGS, Network

    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        with contextlib.closing(Network(Path(directory))) as made:
            yield from made.egress((1, 10, 100))
            yield from made.changed(5, 50)
            yield from made.ingress((10, 100))
        with contextlib.closing(Network(Path(directory), **SETTINGS)) as made:
            yield from made.shared()


def reacted() -> Iterator[Figure]:
    """Memory free again."""
    with _bed(**reaction.SETTINGS) as bed:
        yield from reaction.penstock(bed)
    yield from reaction.oomd()


def limit_lowered() -> Iterator[Figure]:
    """A disk's limit, while a reader waits behind it."""
    with _bed(**falling.SETTINGS) as bed:
        yield from falling.lowered(bed, SCRATCH)


PARTS: dict[str, Callable[[], Iterator[Figure]]] = {
    "limits": limits,
    "isolation": isolated,
    "network": network,
    "reaction": reacted,
    "files": files.costs,
    "falling": limit_lowered,
}


def slow_directory() -> Path:
    """A file system on the machine's slow disk."""
    (device,) = (
        Path("/dev") / each.name
        for each in Path("/sys/block").iterdir()
        if each.name == _SLOW_DISK or int((each / "size").read_text()) == _SLOW_SECTORS
    )
    directory = Path("/run/penstock-slow")
    if not directory.is_mount():
        directory.mkdir(exist_ok=True)
        subprocess.run(["mke2fs", "-q", "-F", "-t", "ext4", "-E", "lazy_itable_init=0", device], check=True)
        subprocess.run(["mount", "-o", "noatime", device, directory], check=True)
    return directory


def _bed(**settings: object) -> Bed:
    return Bed(Path(tempfile.mkdtemp(prefix="penstock-bench-")), **settings)


def main(arguments: Sequence[str]) -> int:
    """Measure the parts that are named, or all."""
    target, *names = arguments
    reports = measure(PARTS, names or PARTS, "virtual machine, 2 emulated processors")
    Path(target).parent.mkdir(exist_ok=True)
    Path(target).write_bytes(msgspec.json.encode(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

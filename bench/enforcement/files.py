"""How long the agent's code takes to read and write the files of 500 containers' cgroups, in a tree of our own."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from agent.cgroup_root import cgroup2_mount
from agent.cgroups import Cgroup, CgroupSample, CgroupTree, limited_disks
from agent.cgroups.sample import COUNTERS
from agent.core.confinement import Confinement
from agent.process import raise_descriptors
from bench.enforcement.figures import Cost, Figure

CONTAINERS, ONE_IN = 500, 10
#: Each operation is timed once a round, by turns; a figure is the median.
ROUNDS = 7
#: Operations of microseconds are done so often in a round.
OFTEN = 1000
#: The limits of every container. None of them binds for a process that sleeps.
_CONFINEMENT = Confinement(cpu_cores=0.5, cpu_weight=100, memory_max_bytes=64 << 20, pids_max=64)
_REMOVE_S = 60.0


class Operation(NamedTuple):
    """``run`` does it ``times`` times. It must take at most ``bar`` times as long as the operation ``peer``."""

    what: str
    run: Callable[[], None]
    times: int = 1
    peer: str = ""
    bar: float | None = None


def costs(containers: int = CONTAINERS, rounds: int = ROUNDS) -> Iterator[Figure]:
    """Measure every operation that the host's controllers allow."""
    with confined(containers) as tree:
        yield from timed(operations(tree), rounds)


def timed(of: Sequence[Operation], rounds: int) -> Iterator[Figure]:
    """Time each operation once a round, after a round that does not count; one figure for each, its median."""
    taken: dict[str, list[float]] = {operation.what: [] for operation in of}
    for number in range(rounds + 1):
        for operation in of:
            began = time.perf_counter()
            operation.run()
            if number:
                taken[operation.what].append((time.perf_counter() - began) / operation.times)
    medians = {what: statistics.median(times) for what, times in taken.items()}
    for what, _, _, peer, bar in of:
        yield Cost(what=what, time_s=medians[what], peer=peer, peer_s=medians.get(peer), bar=bar)


def operations(tree: CgroupTree) -> list[Operation]:
    """Return the operations on each container of a tree.

    Without controllers no limit is written, and no memory read.
    """
    kept = [tree.get(container) for container in tree.existing()]
    opened = [Cgroup(one.path, tree.controllers, tree.surroundings) for one in kept]
    limits = _Limits(kept)
    opening, keeping = "read all counters, opening each file", "read all counters, descriptors kept open"
    found = [
        Operation(opening, lambda: _sample(opened)),
        Operation(keeping, lambda: _sample(kept), peer=opening, bar=1.0),
        Operation(
            "read CPU time, memory, I/O and processes only, descriptors kept open",
            lambda: _sample(kept, full=False), peer=keeping, bar=0.9,
        ),
        Operation("ask for limits that are known to be in force", limits.same, peer=keeping, bar=0.1),
    ]  # fmt: skip
    if not tree.missing:
        comparing = "read every limit back and compare it (drift)"
        adding = "all containers together: read `memory.current` and `memory.stat` (working set)"
        found += [
            Operation(comparing, limits.compare),
            Operation("change one limit (`cpu.weight`) and read it back", limits.change, peer=comparing, bar=0.5),
            Operation(adding, lambda: _often(tree.memory_working_set), OFTEN),
            Operation(
                "all containers together: read `memory.current`", lambda: _often(tree.memory_current), OFTEN,
                peer=adding, bar=0.5,
            ),
        ]  # fmt: skip
    return found


class _Limits:
    """The limits of many containers, and their known values.

    Raises:
        RuntimeError: the kernel's files do not have the values that were written last.
    """

    def __init__(self, cgroups: Sequence[Cgroup]) -> None:
        self._cgroups = cgroups
        self._known = _CONFINEMENT
        for cgroup in cgroups:
            cgroup.confine(self._known)

    def same(self) -> None:
        self._confine(self._known, self._known, ())

    def compare(self) -> None:
        self._confine(self._known, None, ())

    def change(self) -> None:
        wanted = replace(self._known, cpu_weight=300 - self._known.cpu_weight)  # 100 or 200
        self._confine(wanted, self._known, ("cpu.weight",))
        self._known = wanted

    def _confine(self, wanted: Confinement, since: Confinement | None, written: tuple[str, ...]) -> None:
        for cgroup in self._cgroups:
            applied = cgroup.confine(wanted, since)
            if applied.written != written:
                raise RuntimeError(f"{cgroup.path}: written {applied.written}, expected {written}")


def _sample(cgroups: Sequence[Cgroup], *, full: bool = True) -> None:
    for cgroup in cgroups:
        if (cgroup.sample() if full else cgroup.use(CgroupSample())) is None:
            raise RuntimeError(f"{cgroup.path} vanished")


def _often(read: Callable[[], object]) -> None:
    for _ in range(OFTEN):
        read()


@contextlib.contextmanager
def confined(containers: int) -> Iterator[CgroupTree]:
    """Make a tree of so many containers below the host's cgroup2 mount, one in ten with a process that sleeps.

    It is removed afterwards, also where SIGTERM ends this process.

    Raises:
        RuntimeError: no cgroup2 hierarchy is mounted, or too few descriptors may be open.
    """
    mount = cgroup2_mount()
    if mount is None:
        raise RuntimeError("no cgroup v2 hierarchy is mounted: mount -t cgroup2 none /sys/fs/cgroup")
    raise_descriptors()
    needed = 2 * containers * len(COUNTERS)  # half of them are kept for reading
    if (most := resource.getrlimit(resource.RLIMIT_NOFILE)[0]) < needed:
        raise RuntimeError(f"{most} descriptors may be open, {needed} are needed: ulimit -n {needed}")
    tree = CgroupTree(mount / f"penstock-bench-{secrets.token_hex(4)}", limited_disks())
    before = signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    processes: list[subprocess.Popen[bytes]] = []
    try:
        tree.prepare()
        for number in range(containers):
            cgroup = tree.create(f"bench-{number}")
            if number % ONE_IN == 0:
                processes.append(_sleep_in(cgroup))
        yield tree
    finally:
        _remove(tree, processes)
        signal.signal(signal.SIGTERM, before)


def _sleep_in(cgroup: Cgroup) -> subprocess.Popen[bytes]:
    door = cgroup.open_procs()
    try:
        return subprocess.Popen(["sleep", "86400"], preexec_fn=lambda: os.write(door, b"0"))  # noqa: PLW1509 - no threads
    finally:
        os.close(door)


def _remove(tree: CgroupTree, processes: Sequence[subprocess.Popen[bytes]]) -> None:
    cgroups = [tree.get(container) for container in tree.existing()]
    for cgroup in cgroups:
        cgroup.kill()
    for process in processes:
        process.wait()
    deadline = time.monotonic() + _REMOVE_S
    for cgroup in cgroups:
        while not cgroup.remove():
            if time.monotonic() > deadline:
                raise RuntimeError(f"{cgroup.path} stays: its processes do not end")
            time.sleep(0.01)  # until the kernel has let go of a process that was reaped
    tree.dismantle()

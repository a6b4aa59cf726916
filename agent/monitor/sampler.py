"""One snapshot per tick: the cgroups of the containers, and the host, each read once.

Reading a container's ten files takes 0.1 ms, and most containers of a busy host wait. A container is *quiet* if two
reads in a row found that it used no CPU time and that nothing else of it had changed. It is skipped while the cgroup
above all containers has used no more than the containers that were read, and its memory has changed by the same amount.
Each quiet container is read nevertheless once in :data:`_ROUND` ticks: the total and its parts are not read at the same
moment, so a container that does next to nothing may be overlooked for that long.

Three of the ten files have only what people are shown: they are read in every :data:`_SHOWN`-th tick. So are the three
with stalled times, for containers on which nothing is decided by these
(:meth:`agent.core.containers.Containers.watched_closely`). Of a quiet container, whose processes have not run, both are
read once in :data:`_THOROUGH` ticks; as soon as they run, in the tick that finds it.
"""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Collection, Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from itertools import count
from pathlib import Path

import msgspec

from agent.cgroups import CgroupSample, CgroupTree, SummedUse
from agent.cgroups.filesystem import KERNEL
from agent.core.snapshot import ContainerUse, Snapshot
from agent.monitor.host import HostMonitor
from agent.network import Counters

_NO_TRAFFIC = Counters()
_PAGE_BYTES = resource.getpagesize()
#: Seven numbers of at most 20 digits (proc_pid_statm(5)).
_STATM_BYTES = 160
#: Every container is read at least once in this many ticks.
_ROUND = 16
#: Everything of every container is read at least once in this many ticks: processes from outside may enter it.
_THOROUGH = 4 * _ROUND
#: What no decision depends on (peak, processes, events) is read once in this many ticks, and when a container stops.
_SHOWN = 4
#: CPU time too small to matter: part of the time that a read takes.
_NOTHING_S = 0.002
#: Memory too small to matter: the kernel charges some pages in advance (mm/memcontrol.c, MEMCG_CHARGE_BATCH).
_NOTHING_BYTES = 1 << 20


@dataclass(slots=True)
class _Read:
    """The last read of a container: ``at`` this time, as its rates are means since then; ``stalled_at``: that of its
    stalled times, None: they were not read yet.
    """

    at: float
    sample: CgroupSample
    traffic: Counters
    stalled_at: float | None


class Sampler:
    """Computes rates from the previous and the present counters."""

    def __init__(self, tree: CgroupTree | None, host: HostMonitor) -> None:
        self._tree = tree
        self._host = host
        self._before: dict[str, _Read] = {}
        self._quiet: set[str] = set()
        self._sum: SummedUse | None = None  # right after the containers were read one by one
        self._ticks = 0
        self._counter = count()
        self._numbers: dict[str, int] = {}  # each container's, which decides in which ticks it is read
        self._last = Snapshot(at=time.monotonic(), interval_s=0.0)

    def sample(
        self, containers: Collection[str], traffic: Mapping[str, Counters], closely: AbstractSet[str]
    ) -> Snapshot:
        """Read the containers that may have changed; ``traffic`` is container → its network counters, and ``closely``
        are those whose stalled times are read in each tick in which they have run.

        Containers that vanished are left out.
        """
        started = time.monotonic()
        uses: dict[str, ContainerUse] = {}
        if self._tree is not None:
            uses = self._read(self._tree, containers, traffic, closely)
        self._last = Snapshot(at=started, interval_s=started - self._last.at, host=self._host.sample(), containers=uses)
        return self._last

    def _read(
        self, tree: CgroupTree, containers: Collection[str], traffic: Mapping[str, Counters], closely: AbstractSet[str]
    ) -> dict[str, ContainerUse]:
        self._ticks += 1
        if not containers:
            self._before, self._sum = {}, None
            self._quiet.clear()
            return {}
        old, counter = self._numbers, self._counter
        numbers = self._numbers = {name: old[name] if name in old else next(counter) for name in containers}
        due = {name for name, number in numbers.items() if (number + self._ticks) % _ROUND == 0}
        left_out = {name for name in containers if name not in due and self._is_quiet(name, traffic)}
        before = tree.summed_use() if left_out else None
        fresh: dict[str, _Read] = {}
        for name in containers:
            if name not in left_out:
                self._read_one(tree, name, traffic, fresh, closely=name in closely)
        after = tree.summed_use() if before is not None else None
        if before is not None and after is not None and self._more_was_used(fresh, before, after):
            for name in left_out:
                self._read_one(tree, name, traffic, fresh, closely=name in closely)
            left_out = set()
        self._find_quiet(fresh)
        fresh |= {name: self._before[name] for name in left_out}
        # The next tick compares with it if it leaves out a container, which only quiet ones are.
        self._sum = (after or tree.summed_use()) if self._quiet else None
        uses = self._uses(containers, fresh)
        self._before = fresh
        self._quiet &= fresh.keys()
        return uses

    def _uses(self, containers: Collection[str], fresh: Mapping[str, _Read]) -> dict[str, ContainerUse]:
        """Return the use of each container: its last one if the earlier read is still valid."""
        uses: dict[str, ContainerUse] = {}
        now = time.monotonic()
        for name in containers:
            read, had = fresh.get(name), self._before.get(name)
            if read is None:
                continue
            if read is had:
                read.at = read.stalled_at = now
                uses[name] = self._last.containers[name]
            else:
                uses[name] = self._use(name, had or read, read)
        return uses

    def _find_quiet(self, fresh: Mapping[str, _Read]) -> None:
        """Note which of the containers that were read have used nothing since they were read before."""
        for name, read in fresh.items():
            had = self._before.get(name)
            used_nothing = had is not None and (read.sample, read.traffic) == (had.sample, had.traffic)
            (self._quiet.add if used_nothing else self._quiet.discard)(name)

    def _is_quiet(self, name: str, traffic: Mapping[str, Counters]) -> bool:
        """Return whether the container used nothing when last read, and has had no network traffic since."""
        return name in self._quiet and traffic.get(name, _NO_TRAFFIC) == self._before[name].traffic

    def _read_one(
        self, tree: CgroupTree, name: str, traffic: Mapping[str, Counters], fresh: dict[str, _Read], *, closely: bool
    ) -> None:
        """Read a container, unless it vanished: its use, and the other files whose turn it is.

        All of them if it used no CPU time since it was read before, as it may be skipped from now on, and if it has
        just ceased to be quiet. None of them if it is quiet and its use is the same: the earlier read is still valid.
        """
        cgroup, had, turn = tree.get(name), self._before.get(name), self._numbers[name] + self._ticks
        sample = cgroup.use(had.sample if had is not None else CgroupSample())
        if sample is None:
            return
        if had is not None and turn % _THOROUGH and self._is_quiet(name, traffic) and sample == had.sample:
            fresh[name] = had
            return
        everything = name in self._quiet or (had is not None and sample.cpu_usage_s == had.sample.cpu_usage_s)
        stalled = everything or closely or turn % _SHOWN == 0
        shown = everything or had is None or turn % _SHOWN == 0
        sample = cgroup.rest(sample, stalled=stalled, shown=shown)
        if sample is not None:
            now, stalled_at = time.monotonic(), had.stalled_at if had is not None else None
            fresh[name] = _Read(now, sample, traffic.get(name, _NO_TRAFFIC), now if stalled else stalled_at)

    def _more_was_used(self, fresh: Mapping[str, _Read], before: SummedUse, after: SummedUse) -> bool:
        """Return whether, since the last tick, all containers together surely used more than those that were read, or
        memory moved in another way: by reclaim, for example. ``before`` and ``after`` they were read one by one.
        """
        if self._sum is None:
            return True
        cpu_s = before.cpu_s - self._sum.cpu_s
        disk_bytes = before.disk_bytes - self._sum.disk_bytes
        memory_bytes = after.memory_bytes - self._sum.memory_bytes
        for name, read in fresh.items():
            had = self._before.get(name)
            sample, was = read.sample, had.sample if had is not None else CgroupSample()
            cpu_s -= sample.cpu_usage_s - was.cpu_usage_s
            disk_bytes -= sample.io_read_bytes + sample.io_write_bytes - was.io_read_bytes - was.io_write_bytes
            memory_bytes -= sample.memory_current_bytes - was.memory_current_bytes
        return cpu_s > _NOTHING_S or disk_bytes > 0 or abs(memory_bytes) > _NOTHING_BYTES

    def look(self, containers: Iterable[str]) -> Snapshot:
        """Return the latest snapshot, with the containers' present memory."""
        uses = dict(self._last.containers)
        for container in containers:
            had = self._before.get(container)
            since = had.sample if had is not None else CgroupSample()
            sample = self._tree.get(container).use(since) if self._tree is not None else None
            if sample is None:
                uses.pop(container, None)
                continue
            uses[container] = msgspec.structs.replace(
                uses.get(container, ContainerUse()),
                memory_bytes=self._memory_bytes(container, sample),
                memory_cache_bytes=sample.memory_cache_bytes,
                memory_unreclaimable_bytes=sample.memory_unreclaimable_bytes,
                memory_peak_bytes=sample.memory_peak_bytes,
            )
        return replace(self._last, containers=uses)

    def read_cpu_times(self, containers: Iterable[str]) -> Snapshot:
        """Return the latest snapshot, with the present CPU time of the containers that ran during the last tick, and of
        new ones.
        """
        uses = dict(self._last.containers)
        for container in containers:
            if self._tree is None or container in self._quiet:
                continue
            if (cpu_s := self._tree.get(container).cpu_s()) is not None:
                uses[container] = msgspec.structs.replace(uses.get(container, ContainerUse()), cpu_seconds=cpu_s)
        return replace(self._last, containers=uses)

    def _use(self, container: str, before: _Read, now: _Read) -> ContainerUse:
        was, sample, seconds = before.sample, now.sample, now.at - before.at
        if (last := self._last.containers.get(container)) is not None and now.stalled_at == before.stalled_at:
            cpu_stalled, memory_stalled, disk_stalled = last.cpu_stalled, last.memory_stalled, last.disk_stalled
        else:
            cpu_stalled, memory_stalled, disk_stalled = _stalled(before, now)
        return ContainerUse(
            cpu_cores=_rate(sample.cpu_usage_s, was.cpu_usage_s, seconds),
            memory_bytes=self._memory_bytes(container, sample),
            memory_cache_bytes=sample.memory_cache_bytes,
            memory_unreclaimable_bytes=sample.memory_unreclaimable_bytes,
            memory_peak_bytes=sample.memory_peak_bytes,
            disk_bytes_per_s=_rate(
                sample.io_read_bytes + sample.io_write_bytes, was.io_read_bytes + was.io_write_bytes, seconds
            ),
            network_send_bytes_per_s=_rate(now.traffic.sent_bytes, before.traffic.sent_bytes, seconds),
            network_receive_bytes_per_s=_rate(now.traffic.received_bytes, before.traffic.received_bytes, seconds),
            pids=sample.pids,
            oom_kills=sample.oom_kills,
            memory_high_events=sample.memory_high_events,
            cpu_seconds=sample.cpu_usage_s,
            cpu_throttled=_rate(sample.cpu_throttled_s, was.cpu_throttled_s, seconds),
            cpu_stalled=cpu_stalled,
            memory_stalled=memory_stalled,
            disk_stalled=disk_stalled,
        )

    def _memory_bytes(self, container: str, sample: CgroupSample) -> int:
        assert self._tree is not None
        if "memory" in self._tree.controllers:
            return sample.memory_working_set_bytes
        return memory_of(self._tree.get(container).path)


def _rate(after: float, earlier: float, seconds: float) -> float:
    return max(0.0, after - earlier) / seconds if seconds > 0 else 0.0


def _stalled(before: _Read, now: _Read) -> tuple[float, float, float]:
    """Return the fractions of the time between both for which it waited: for processors, for memory, for disks.

    At most 1: ``before`` has the time of the last tick, also if the container was overlooked then because it used next
    to no CPU time, and what it waited meanwhile counts now.
    """
    if before.stalled_at is None or now.stalled_at is None:
        return 0.0, 0.0, 0.0
    was, sample, seconds = before.sample, now.sample, now.stalled_at - before.stalled_at
    return (
        min(1.0, _rate(sample.cpu_stalled_s, was.cpu_stalled_s, seconds)),
        min(1.0, _rate(sample.memory_stalled_s, was.memory_stalled_s, seconds)),
        min(1.0, _rate(sample.io_stalled_s, was.io_stalled_s, seconds)),
    )


def memory_of(cgroup: Path, proc: Path = Path("/proc")) -> int:
    """Return the memory of a cgroup's processes, for hosts without the memory controller: the sum of what is resident,
    without pages shared with files, in bytes.

    Read from proc_pid_statm(5) directly: psutil also reads the start time of each process, which takes four times as
    long.
    """
    try:
        pids = KERNEL.read(os.fsencode(cgroup) + b"/cgroup.procs").split()
    except OSError:
        return 0
    return sum(_own_pages(f"{proc}/{pid}/statm") for pid in pids) * _PAGE_BYTES


def _own_pages(statm: str) -> int:
    """Return the pages of a process that do not belong to files, or 0 if it has ended.

    With a Path and a buffered file it takes twice as long.
    """
    try:
        descriptor = os.open(statm, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return 0
    try:
        _, resident, shared, *_ = os.read(descriptor, _STATM_BYTES).split()
    except (OSError, ValueError):  # it ended meanwhile
        return 0
    finally:
        os.close(descriptor)
    return max(0, int(resident) - int(shared))

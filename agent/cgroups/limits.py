"""Translate a confinement to the values of the kernel's files, and write only those that change."""

from __future__ import annotations

import contextlib
import errno
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from agent.cgroups.cpu import enforceable_burst_s, enforceable_cores
from agent.cgroups.cpuset import parse_cpus
from agent.cgroups.devices import Disk
from agent.cgroups.files import V2Controller
from agent.cgroups.filesystem import Gone, NotSupported
from agent.cgroups.memory import Pages
from agent.cgroups.reason import Reason, refused
from agent.cgroups.sample import Files
from agent.core.confinement import Confinement, differing
from penstock.model.floors import wrong_processors
from penstock.model.units import format_bytes

_DEFAULTS = Confinement()
#: bfq takes weights up to this (block/bfq-iosched.h, BFQ_MAX_WEIGHT), io.cost up to ten times as much.
_BFQ_MAX_WEIGHT = 1000
_MOST_OPS = (1 << 32) - 1
DISK_KEYS = {
    "disk_read_bytes_per_s": "rbps",
    "disk_write_bytes_per_s": "wbps",
    "disk_read_ops_per_s": "riops",
    "disk_write_ops_per_s": "wiops",
}


@dataclass(frozen=True, slots=True)
class Applied:
    """The result of applying a confinement.

    ``failed``: field of Confinement that was asked for (differs from its default) and is not enforced → why, with the
    remedy. ``written``: the kernel's files that had other values; in a drift repair, the files that had drifted.
    ``shrink_to_bytes``: memory.max was not lowered, because more than this is in use and lowering it would kill; use
    ``Cgroup.shrink_memory``.
    """

    failed: dict[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    shrink_to_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class Surroundings:
    """The environment of a container's cgroup: controller → why it is missing, and the host's disks.

    ``no_disk_weight`` is why weights have no effect on at least one disk.
    """

    missing: Mapping[str, Reason]
    disks: Sequence[Disk]
    no_disk_weight: Reason | None = None


class _Unenforced(Exception):  # noqa: N818 - describes a state
    """The kernel accepts the value, without effect. The argument is the :class:`Reason`."""


def _as_it_is(value: Any) -> Any:
    return value


class _Step(NamedTuple):
    """How a field is enforced: ``by`` a function, or, without one, by its value, made ``fit`` for the kernel, in an
    ``interface`` of the controller.
    """

    name: str
    controller: str
    interface: str = ""
    fit: Callable[[Any], Any] = _as_it_is
    by: Callable[[ConfinementChange], None] | None = None


def _steps_of_disks(limit: Callable[[ConfinementChange, str], None]) -> list[_Step]:
    def step(name: str) -> _Step:
        return _Step(name, "io", by=lambda change: limit(change, name))

    return [step(name) for name in DISK_KEYS]


class ConfinementChange:
    """A change of one cgroup's confinement; its private methods enforce a field or raise the obstacle."""

    def __init__(
        self, files: Files, wanted: Confinement, since: Confinement | None, surroundings: Surroundings
    ) -> None:
        """``since`` is the confinement known to be in force, if any."""
        self._files = files
        self._wanted = wanted
        self._since = since
        self._surroundings = surroundings
        self._written: list[str] = []
        self._shrink_to_bytes: int | None = None

    def apply(self) -> Applied:
        """Write the fields that differ; see ``Cgroup.confine``.

        Raises:
            Gone: the cgroup vanished.
        """
        if self._since == self._wanted:
            return Applied()
        changed = differing(self._since, self._wanted)
        if "opportunistic" in changed:
            changed |= {"cpu_weight"}
        if "cpu_cores" in changed and self._wanted.cpu_burst_s:  # the burst is at most the quota
            changed |= {"cpu_burst_s"}
        failed: dict[str, str] = {}
        for name, controller, interface, fit, by in self._IN_ORDER:
            if name not in changed:
                continue
            why, value = self._surroundings.missing.get(controller), getattr(self._wanted, name)
            asked = value != getattr(_DEFAULTS, name)
            try:
                if why is None and by is not None:
                    by(self)
                elif why is None:
                    self._put(controller, interface, fit(value))
            except Gone:
                raise
            except _Unenforced as unenforced:
                why = unenforced.args[0]
            except OSError as error:
                why = refused(error)
                asked = asked or not isinstance(error, NotSupported)  # a limit that cannot be lifted is reported too
            if why is not None and asked:
                failed[name] = str(why)
        return Applied(failed, tuple(dict.fromkeys(self._written)), self._shrink_to_bytes)

    def _put(self, name: str, interface: str, value: Any) -> None:
        """Set an attribute of the controller of this name."""
        controller: V2Controller = getattr(self._files, name)
        if filename := controller.put(interface, value, read=self._since is None):
            self._written.append(filename)

    # ------------------------------------------------------------ cpu

    def _opportunistic(self) -> None:
        """Set the idle class: opportunistic work runs when no other work needs the processor."""
        with contextlib.suppress(NotSupported):  # before 5.15, weight 1 comes close
            self._put("cpu", "idle", self._wanted.opportunistic)

    def _cpu_weight(self) -> None:
        """Set the weight. It cannot be written while cpu.idle is 1; leaving the class resets it to the default."""
        if not self._wanted.opportunistic:
            self._put("cpu", "weight", self._wanted.cpu_weight)
        elif not self._files.cpu.has("cpu.idle"):
            self._put("cpu", "weight", 1)

    def _less_burst(self) -> None:
        with contextlib.suppress(NotSupported):  # reported when the burst is to grow
            if self._burst() < self._present_burst():
                self._put("cpu", "burst", self._burst())

    def _more_burst(self) -> None:
        wanted = self._wanted.cpu_burst_s
        try:
            if self._burst() > self._present_burst():
                self._put("cpu", "burst", self._burst())
        except NotSupported:
            if wanted is not None:
                raise
        if wanted is not None and wanted > self._burst() + 1e-6:
            raise _Unenforced(Reason(f"the kernel accumulates at most one period's quota, {self._burst():g} s"))

    def _burst(self) -> float:
        return enforceable_burst_s(self._wanted.cpu_burst_s, self._wanted.cpu_cores)

    def _present_burst(self) -> float:
        since = self._since
        if since is None:
            return float(self._files.cpu.burst)
        return enforceable_burst_s(since.cpu_burst_s, since.cpu_cores)

    def _cpus(self) -> None:
        wanted = self._wanted.cpus
        if not wanted:
            self._all_cpus()
            return
        for wrong, remedy in wrong_processors(wanted):  # in the journal of an older agent, which accepted any numbers
            raise _Unenforced(Reason(wrong, remedy))
        cpus = parse_cpus(wanted)
        self._put("cpuset", "cpus", cpus)
        effective = self._files.cpuset.effective
        if not effective <= cpus:
            where = ",".join(map(str, sorted(effective)))
            raise _Unenforced(Reason(f"containers may use none of these processors; this one runs on {where}"))

    def _all_cpus(self) -> None:
        """Allow the parent's processors; with processes inside, list them (cpuset.c, validate_change)."""
        everything = self._files.parent_cpuset.effective
        if self._since is None and self._files.cpuset.cpus == everything:
            return
        try:
            self._put("cpuset", "cpus", frozenset())
        except OSError as error:
            if error.errno != errno.ENOSPC:
                raise
            self._put("cpuset", "cpus", everything)

    # ------------------------------------------------------------ memory

    def _more_memory_max(self) -> None:
        if not self._lowers_memory_max():
            self._put("memory", "max", self._wanted.memory_max_bytes)
            self._swap()

    def _less_memory_max(self) -> None:
        """Lower memory.max, but not below the memory in use, which would kill."""
        wanted = self._wanted.memory_max_bytes
        if wanted is None or not self._lowers_memory_max():
            return
        self._swap()
        in_use = self._files.memory.current
        if in_use > wanted:
            self._shrink_to_bytes = wanted
            raise _Unenforced(Reason(f"{format_bytes(in_use)} are in use; shrinking"))
        self._put("memory", "max", wanted)

    def _lowers_memory_max(self) -> bool:
        since, wanted = self._since, self._wanted.memory_max_bytes
        present = self._files.memory.max if since is None else since.memory_max_bytes
        return wanted is not None and not Pages.holds(wanted, present) and (present or math.inf) > wanted

    def _swap(self) -> None:
        """Limit swap together with memory: excess is killed, as promised, and not swapped to a disk that others use."""
        with contextlib.suppress(NotSupported):  # kernels without swap accounting
            self._put("memory", "swap_max", None if self._wanted.memory_max_bytes is None else 0)

    # ------------------------------------------------------------ disks

    def _disk_weight(self) -> None:
        io, weight = self._files.io, self._wanted.disk_weight
        if io.has("io.weight"):
            self._put("io", "weight", weight)
        if io.has("io.bfq.weight"):
            self._put("io", "bfq_weight", min(weight, _BFQ_MAX_WEIGHT))
        if self._surroundings.no_disk_weight is not None:
            raise _Unenforced(self._surroundings.no_disk_weight)

    def _disk_limit(self, name: str) -> None:
        """Set a limit on each disk; a failure on one does not affect the others."""
        key, limit = DISK_KEYS[name], getattr(self._wanted, name)
        if not self._surroundings.disks and limit is not None:
            raise _Unenforced(
                Reason("no disk was found that io.max can limit", "see /sys/block for what this host has")
            )
        failure: OSError | None = None
        for disk in self._surroundings.disks:
            try:
                self._put("io", "max", (disk.number, {key: enforceable_rate(key, limit)}))
            except Gone:
                raise
            except OSError as error:
                failure = error
        if failure is not None:
            raise failure

    #: In the order that the kernel requires: a quota may not be less than the burst (EINVAL otherwise), and
    #: ``memory.high`` stays below ``memory.max``.
    _IN_ORDER: ClassVar[tuple[_Step, ...]] = (
        _Step("opportunistic", "cpu", by=_opportunistic),
        _Step("cpu_weight", "cpu", by=_cpu_weight),
        _Step("cpu_burst_s", "cpu", by=_less_burst),
        _Step("cpu_cores", "cpu", "max", enforceable_cores),
        _Step("cpu_burst_s", "cpu", by=_more_burst),
        _Step("cpus", "cpuset", by=_cpus),
        _Step("memory_min_bytes", "memory", "min"),
        _Step("memory_low_bytes", "memory", "low"),
        _Step("memory_max_bytes", "memory", by=_more_memory_max),
        _Step("memory_high_bytes", "memory", "high"),
        _Step("memory_max_bytes", "memory", by=_less_memory_max),
        _Step("oom_group", "memory", "oom_group"),
        _Step("disk_weight", "io", by=_disk_weight),
        *_steps_of_disks(_disk_limit),
        _Step("pids_max", "pids", "max"),
    )


def enforceable_rate(key: str, limit: int | None) -> int | None:
    """Round to what io.max can express: at least 2, and operations in 32 bits (block/blk-throttle.c, tg_set_limit)."""
    if limit is None or (key.endswith("iops") and limit >= _MOST_OPS):
        return None
    return max(2, limit)

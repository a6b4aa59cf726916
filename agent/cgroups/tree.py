"""The containers' tree: a directory of ours, ``containers/`` in it, one leaf per container.

No process is ever in the root or in ``containers/`` (a cgroup with controllers for its children may hold none), and a
container never moves: classes are settings, not places.
"""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agent.cgroups.core import CoreFiles
from agent.cgroups.cpu import CpuFiles, quota_us
from agent.cgroups.devices import Disk
from agent.cgroups.files import Gone, NotSupported, V2Controller, set_and_check
from agent.cgroups.io import IoFiles
from agent.cgroups.memory import PAGE_BYTES, MemoryFiles
from penstock.model import Limits

CONTROLLERS = ("cpu", "io", "memory", "pids")
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


@dataclass(frozen=True, slots=True)
class CgroupSample:
    """Counters of one cgroup; zero where the controller is not there."""

    cpu_usage_s: float = 0.0
    cpu_throttled_s: float = 0.0
    memory_current_bytes: int = 0
    memory_working_set_bytes: int = 0
    memory_peak_bytes: int = 0
    oom_kills: int = 0
    memory_high_events: int = 0
    memory_max_events: int = 0
    io_read_bytes: int = 0
    io_write_bytes: int = 0
    pids: int = 0


class CgroupTree:
    """Owns ``root``: a cgroup2 directory that was delegated to us or that we made."""

    def __init__(self, root: Path, disks: Sequence[Disk]) -> None:
        self.root = root
        self.controllers: frozenset[str] = frozenset()
        self._disks = tuple(disks)
        self._containers = root / "containers"

    def prepare(self) -> dict[str, str]:
        """Make ``containers/`` and enable controllers, top-down; what is missing, with the remedy."""
        self._containers.mkdir(parents=True, exist_ok=True)
        missing: dict[str, str] = {}
        for directory in (self.root, self._containers):
            files = CoreFiles(directory)
            for controller in CONTROLLERS:
                if controller in missing or controller in files.subtree_control:
                    continue
                why = _enable(files, controller)
                if why:
                    missing[controller] = why
        self.controllers = frozenset(CONTROLLERS) - missing.keys()
        return missing

    def create(self, container: str) -> Cgroup:
        """Make a container's leaf.

        Raises:
            OSError: the kernel refuses (too deep, too many, not ours).
        """
        cgroup = self.get(container)
        cgroup.path.mkdir()
        return cgroup

    def get(self, container: str) -> Cgroup:
        """A container's leaf, whether it is there or not. Ids are the agent's own; a client's name never comes here."""
        assert container and _SAFE.issuperset(container), container
        return Cgroup(self._containers / container, self.controllers, self._disks)

    def existing(self) -> list[str]:
        """The containers that have a leaf."""
        return sorted(entry.name for entry in self._containers.iterdir() if entry.is_dir())

    def cap_all(self, memory_max_bytes: int | None) -> None:
        """A limit on all containers together."""
        if "memory" in self.controllers:
            set_and_check(MemoryFiles(self._containers), "max", memory_max_bytes, granularity=PAGE_BYTES)


class Cgroup:
    """One container's leaf."""

    def __init__(self, path: Path, controllers: frozenset[str], disks: tuple[Disk, ...]) -> None:
        self.path = path
        self._controllers = controllers
        self._disks = disks
        self._core = CoreFiles(path)
        self._cpu = CpuFiles(path)
        self._memory = MemoryFiles(path)
        self._io = IoFiles(path)

    # ------------------------------------------------------------ limits

    def apply(self, limits: Limits, *, opportunistic: bool) -> dict[str, str]:
        """Set limits and class, writing only what changes; what is asked for and cannot be enforced → why."""
        failed: dict[str, str] = {}

        def attempt(controller: str, name: str, asked: bool, change: Callable[[], None]) -> None:
            why = ""
            if controller not in self._controllers:
                why = f"no {controller} controller here (run `penstock check`)"
            else:
                try:
                    change()
                except Gone:
                    raise
                except OSError as error:
                    why = f"{error.strerror}: {error.filename}"
            if why and asked:
                failed[name] = why

        cores = limits.cpu_cores
        attempt("cpu", "cpu_cores", cores is not None, lambda: self._set_cpu_max(cores))
        attempt(
            "cpu",
            "cpu_weight",
            limits.cpu_weight is not None or opportunistic,
            lambda: self._set_cpu_class(limits.cpu_weight, opportunistic),
        )
        for name, file, bytes_ in (
            ("memory_high_bytes", "high", limits.memory_high_bytes),
            ("memory_max_bytes", "max", limits.memory_max_bytes),
        ):
            attempt(
                "memory",
                name,
                bytes_ is not None,
                lambda file=file, bytes_=bytes_: set_and_check(self._memory, file, bytes_, granularity=PAGE_BYTES),  # type: ignore[misc]
            )
        for name, key, rate in (
            ("disk_read_bytes_per_s", "rbps", limits.disk_read_bytes_per_s),
            ("disk_write_bytes_per_s", "wbps", limits.disk_write_bytes_per_s),
        ):
            attempt("io", name, rate is not None, lambda key=key, rate=rate: self._set_io_max(key, rate))  # type: ignore[misc]
        pids = limits.pids_max
        attempt("pids", "pids_max", pids is not None, lambda: set_and_check(self._core, "pids_max", pids))
        if limits.network_egress_bytes_per_s is not None:
            failed["network_egress_bytes_per_s"] = "not a cgroup file: agent.network limits what a container sends"
        return failed

    def _set_cpu_max(self, cores: float | None) -> None:
        wanted = None if cores is None else quota_us(cores) / 100_000
        set_and_check(self._cpu, "max", wanted)

    def _set_cpu_class(self, weight: int | None, opportunistic: bool) -> None:
        """Opportunistic work runs when nobody else wants the processor (cpu.idle); before 5.15 weight 1 comes near."""
        try:
            set_and_check(self._cpu, "idle", int(opportunistic))
        except NotSupported:
            set_and_check(self._cpu, "weight", 1 if opportunistic else weight or 100)
            return
        if not opportunistic:
            set_and_check(self._cpu, "weight", weight or 100)

    def _set_io_max(self, key: str, rate_bytes_per_s: int | None) -> None:
        if not self._disks and rate_bytes_per_s is not None:
            raise OSError(errno.ENODEV, "no disk found that io.max could bind", "io.max")
        for disk in self._disks:
            if self._io.max.get(disk.number, {}).get(key) == rate_bytes_per_s:
                continue
            self._io.max = (disk.number, {key: rate_bytes_per_s})
            found = self._io.max.get(disk.number, {}).get(key)
            if found != rate_bytes_per_s:
                raise OSError(errno.EIO, f"wrote {key}={rate_bytes_per_s}, read back {found}", "io.max")

    # ------------------------------------------------------------ processes

    def open_procs(self) -> int:
        """A descriptor of ``cgroup.procs``: whoever holds it can enter, also after becoming another user."""
        return os.open(self.path / "cgroup.procs", os.O_WRONLY | os.O_CLOEXEC)

    def freeze(self, frozen: bool) -> None:
        """Stop or resume every process; a cgroup that vanished has none."""
        try:
            self._core.freeze = int(frozen)
        except Gone:
            return

    def kill(self) -> None:
        """SIGKILL to every process in it, also while they fork; a cgroup that vanished has none."""
        try:
            self._core.kill = 1
        except Gone:
            return
        except NotSupported:  # before 5.14: frozen, nobody forks between reading and killing
            self.freeze(True)
            for pid in self.pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
            self.freeze(False)

    def pids(self) -> list[int]:
        """The processes in it."""
        try:
            return [int(pid) for pid in self._core.procs]
        except Gone:
            return []

    def populated(self) -> bool:
        """Whether any process is in it or below, zombies not counted."""
        try:
            return bool(self._core.events.get("populated"))
        except Gone:
            return False

    def remove(self) -> bool:
        """Remove it and what was made below it; False while its dead are not reaped."""
        try:
            for below in sorted(self.path.rglob("*/"), key=lambda p: -len(p.parts)):
                below.rmdir()
            self.path.rmdir()
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    # ------------------------------------------------------------ reading

    def sample(self) -> CgroupSample | None:
        """All counters now; None: it vanished."""
        try:
            cpu = self._cpu.stat
            memory: dict[str, int] = {}
            events: dict[str, int] = {}
            current = peak = 0
            if "memory" in self._controllers:
                memory, events, current = self._memory.stat, self._memory.events, self._memory.current
                peak = _or_zero(self._memory, "peak")
            io: dict[str, dict[str, int | None]] = self._io.stat if "io" in self._controllers else {}
            pids = self._core.pids_current if "pids" in self._controllers else len(self._core.procs)
        except Gone:
            return None
        return CgroupSample(
            cpu_usage_s=cpu.get("usage_usec", 0) / 1e6,
            cpu_throttled_s=cpu.get("throttled_usec", 0) / 1e6,
            memory_current_bytes=current,
            memory_working_set_bytes=max(0, current - memory.get("inactive_file", 0)),
            memory_peak_bytes=peak,
            oom_kills=events.get("oom_kill", 0),
            memory_high_events=events.get("high", 0),
            memory_max_events=events.get("max", 0),
            io_read_bytes=sum(fields.get("rbytes") or 0 for fields in io.values()),
            io_write_bytes=sum(fields.get("wbytes") or 0 for fields in io.values()),
            pids=pids,
        )


def _enable(files: CoreFiles, controller: str) -> str:
    """Enable one controller for the children; why not, if not."""
    if controller not in files.available:
        return f"the {controller} controller is not delegated to {os.fsdecode(files.node.full_path)}"
    try:
        files.subtree_control = [f"+{controller}"]
    except OSError as error:
        if error.errno == errno.EBUSY:
            return (
                f"processes are in {os.fsdecode(files.node.full_path)}: only a cgroup without any can have controllers"
            )
        return f"{error.strerror}: {error.filename}"
    return ""


def _or_zero(controller: V2Controller, name: str) -> int:
    try:
        return int(getattr(controller, name))
    except NotSupported:
        return 0

"""The containers' tree: the agent's root directory, ``containers/`` in it, and one leaf per container, which may be in
a group of containers (:mod:`agent.cgroups.groups`).

No process is ever in the root, in ``containers/`` or in a group (a cgroup with controllers for its children may hold
none), and a container never moves: its class is a setting, not a place in the tree.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from msgspec import structs

from agent.cgroup_root import CONTAINERS_UNIT, OF_IDS
from agent.cgroups.cgroup import Cgroup
from agent.cgroups.core import CoreFiles
from agent.cgroups.devices import Disk
from agent.cgroups.filesystem import KERNEL, FdBudget, FdCache, Filesystem, Gone
from agent.cgroups.groups import Groups
from agent.cgroups.idle import IdleClass
from agent.cgroups.limits import Applied, ConfinementChange, Surroundings
from agent.cgroups.memory import PAGE_BYTES, MemoryFiles
from agent.cgroups.reason import Reason, refused, unavailable
from agent.cgroups.sample import COUNTERS, Files, SummedUse
from agent.cgroups.weight import hierarchy_top, io_weight_works
from agent.core.confinement import Confinement
from penstock.model.units import format_bytes

CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")


class CgroupTree:
    """Owns ``root``: a cgroup2 directory delegated to the agent or created by it, with no process in it.

    Args:
        owns_root: False: the root itself and its files belong to its creator (systemd, for a delegated unit).
    """

    def __init__(
        self, root: Path, disks: Sequence[Disk], filesystem: Filesystem = KERNEL, *, owns_root: bool = True
    ) -> None:
        self.root = root
        #: The controllers enabled for containers; empty until :meth:`prepare`.
        self.controllers: frozenset[str] = frozenset()
        #: Controller → why it is missing.
        self.missing: dict[str, Reason] = {}
        self._disks = tuple(disks)
        self._filesystem = filesystem
        self._owns_root = owns_root
        self._containers = root / "containers"
        self.groups = Groups(self._containers, filesystem)
        self._enabled: list[tuple[Path, str]] = []  # by the agent, in this order
        self._fd_budget = FdBudget()
        self._fd_cache = FdCache(filesystem, COUNTERS, self._fd_budget)
        self._together = Files(os.fsencode(self._containers), filesystem, self._fd_cache.read)
        self._cgroups: dict[str, Cgroup] = {}
        #: The environment of the containers.
        self.surroundings = Surroundings({}, self._disks)
        serving = self._serving_containers()
        self._memory_above = [MemoryFiles(directory, filesystem) for directory in serving]
        # A scope with another name may have the daemons in it, too: they must not be idle.
        above = [each for each in serving if each.suffix != ".scope" or each.name.startswith(CONTAINERS_UNIT)]
        self._idle_class = IdleClass((*reversed(above), self._containers), filesystem)
        self._idle = False
        self._caps: Confinement | None = None
        self._capped: Confinement | None = None  # the part of it that is known to be in force

    def prepare(self) -> dict[str, str]:
        """Create ``containers/`` and enable controllers, top-down; return missing controller → why, and the remedy.

        Raises:
            OSError: no directory can be created here.
        """
        self.close()
        self.missing = {}
        self._make(self.root)
        self._enable_above()
        self._enable_in(self.root)
        self._make(self._containers)
        self._enable_in(self._containers)
        self.make_idle(False)  # an earlier agent may have left it
        self.controllers = frozenset(CONTROLLERS) - self.missing.keys()
        self.surroundings = Surroundings(self.missing, self._disks, self._no_disk_weight())
        self.groups.prepare(sorted(self.controllers), self.surroundings)
        return {controller: str(reason) for controller, reason in self.missing.items()}

    def close(self) -> None:
        """Close kept descriptors; they are reopened on demand."""
        for cgroup in self._cgroups.values():
            cgroup.close()
        self._cgroups.clear()
        self._fd_cache.close()

    def _no_disk_weight(self) -> Reason | None:
        top = hierarchy_top(self.root, self._filesystem)
        reasons = (io_weight_works(disk, top, filesystem=self._filesystem) for disk in self._disks)
        return next(filter(None, reasons), None)

    def _make(self, directory: Path) -> None:
        try:
            self._filesystem.mkdir(os.fsencode(directory))
        except FileExistsError:
            return

    def _enable_above(self) -> None:
        """Enable controllers at the hierarchy's top, if the root is right below it: systemd enables few of them there.

        The top may hold processes nevertheless, and systemd cannot disable controllers that our root uses (EBUSY). All
        other ancestors belong to their creators.
        """
        top = CoreFiles(self.root.parent, self._filesystem)
        if not top.has("cgroup.controllers") or top.has("cgroup.events"):  # only the top has no cgroup.events
            return
        for controller in sorted(set(CONTROLLERS) & set(top.available) - set(top.subtree_control)):
            with contextlib.suppress(OSError):  # reported below, for our root
                self._enable(self.root.parent, controller)

    def _enable_in(self, directory: Path) -> list[str]:
        files = CoreFiles(directory, self._filesystem)
        available, enabled = set(files.available), set(files.subtree_control)
        lacking = [each for each in CONTROLLERS if each not in self.missing and each not in enabled]
        self.missing |= unavailable([each for each in lacking if each not in available], str(directory))
        if available.isdisjoint(lacking):
            return []
        # The kernel would enable cpu and pids nevertheless, and turn this into a threaded domain, unusable for
        # containers.
        crowded = files.has("cgroup.events") and bool(files.procs)
        done = []
        for controller in lacking:
            if controller not in available:
                continue
            if crowded:
                self.missing[controller] = _crowded(directory)
                continue
            try:
                self._enable(directory, controller)
                done.append(controller)
            except OSError as error:
                self.missing[controller] = refused(error)
        return done

    def _enable(self, directory: Path, controller: str) -> None:
        CoreFiles(directory, self._filesystem).subtree_control = [f"+{controller}"]
        self._enabled.append((directory, controller))

    def dismantle(self) -> None:
        """Undo :meth:`prepare` and :meth:`cap` in reverse, once no container is left.

        A root that the agent does not own is left as it was found.

        Raises:
            OSError: a container, or another program's cgroup, is left.
        """
        self.close()
        with contextlib.suppress(OSError):
            self.make_idle(False)
        with contextlib.suppress(FileNotFoundError):  # :meth:`prepare` failed before it
            self.groups.remove_empty()
        ours = (self._containers, self.root) if self._owns_root else (self._containers,)
        for directory in ours:
            with contextlib.suppress(FileNotFoundError):  # likewise
                self._filesystem.rmdir(os.fsencode(directory))
        while self._enabled:
            directory, controller = self._enabled.pop()
            if directory not in ours:
                with contextlib.suppress(OSError):  # meanwhile used by another program
                    CoreFiles(directory, self._filesystem).subtree_control = [f"-{controller}"]
        self._caps = self._capped = None

    def create(self, container: str, groups: Sequence[str] = ()) -> Cgroup:
        """Create a container's leaf, in the innermost of these groups.

        Raises:
            OSError: the kernel refuses (it exists already, too many cgroups, no permission).
        """
        enters = bool(groups) and container not in self._cgroups
        if enters:
            self.groups.enter(container, groups)
        cgroup = self.get(container)
        try:
            self._filesystem.mkdir(os.fsencode(cgroup.path))
        except OSError:
            if enters:
                self._removed(container)
            raise
        return cgroup

    def get(self, container: str) -> Cgroup:
        """Return a container's leaf, whether it exists or not; the same object until it is removed.

        ``container`` is an id of the agent, never a client's name.
        """
        found = self._cgroups.get(container)
        if found is None:
            assert container and OF_IDS.issuperset(container), container
            found = self._cgroups[container] = Cgroup(
                self.groups.parents.get(container, self._containers) / container,
                self.controllers, self.surroundings, self._filesystem, self._fd_budget,
                on_removed=lambda: self._removed(container),
            )  # fmt: skip
        return found

    def _removed(self, container: str) -> None:
        self._cgroups.pop(container, None)
        if container in self.groups.parents:
            self.groups.leave(container)

    def existing(self) -> list[str]:
        """Return the containers that have a leaf."""
        return sorted(self.groups.found())

    # ------------------------------------------------------------ all containers together

    def summed_use(self) -> SummedUse:
        """Return the use of all containers; zeros if their cgroup vanished."""
        files = self._together
        try:
            io: dict[str, dict[str, int | None]] = files.io.stat if "io" in self.controllers else {}
            disk_bytes = sum((fields.get("rbytes") or 0) + (fields.get("wbytes") or 0) for fields in io.values())
            memory_bytes = int(files.memory.current) if "memory" in self.controllers else 0
            return SummedUse(files.cpu.stat.get("usage_usec", 0) / 1e6, disk_bytes, memory_bytes)
        except Gone:
            return SummedUse(0.0, 0, 0)

    def cap(
        self,
        *,
        memory_max_bytes: int | None = None,
        memory_low_bytes: int = 0,
        cpu_cores: float | None = None,
        pids_max: int | None = None,
    ) -> dict[str, str]:
        """Limit all containers together, and protect memory for them; return the fields not enforced → why.

        A container's ``memory.low`` takes effect only as far as every ancestor has it, so the root gets as much.
        ``memory.max`` is not lowered below the memory in use: :meth:`repair` lowers it once less is in use.

        Raises:
            FileNotFoundError: the tree vanished.
        """
        caps = Confinement(
            memory_max_bytes=memory_max_bytes, memory_low_bytes=memory_low_bytes, cpu_cores=cpu_cores, pids_max=pids_max
        )
        before, self._caps = self._capped, caps
        failed = dict(self._put_caps(caps, before).failed)
        if memory_low_bytes and (above := self._unprotected(memory_low_bytes)) is not None:
            failed.setdefault("memory_low_bytes", str(above))
        return failed

    def protect(self, memory_low_bytes: int) -> None:
        """Protect this much memory for all containers together; the other limits of :meth:`cap` stay.

        Raises:
            FileNotFoundError: the tree vanished.
        """
        self._caps = structs.replace(self._caps or Confinement(), memory_low_bytes=memory_low_bytes)
        self._put_caps(self._caps, self._capped)

    def make_idle(self, idle: bool) -> None:
        """Put all containers together behind everything else on the host (:mod:`agent.cgroups.idle`), or no longer.

        Raises:
            OSError: they cannot be made regular again.
        """
        self._idle = idle
        self._idle_class.set(idle)

    def repair(self) -> list[str]:
        """Undo all that :meth:`repairs` does, at once; return a description of the drift. Raises as that."""
        return [drift for found in self.repairs() for drift in found]

    def repairs(self) -> Iterator[list[str]]:
        """Undo foreign changes to controllers and caps, from the top down, then to one group after the other; yield a
        description of the drift. The caller may do other work before each group.

        If a controller had been disabled, each container's limits must be enforced again.

        The tree itself is made again if it vanished: systemd removes a scope with its last process, the launcher.

        Raises:
            OSError: it cannot be made here.
        """
        vanished = not CoreFiles(self._containers, self._filesystem).has("cgroup.procs")
        if vanished:
            self.prepare()
        found, self.missing = self.missing, {}
        self._enable_above()
        drifted = [f"{self._containers} had vanished"] if vanished else []
        drifted += [
            f"{controller} was not enabled in {directory}"
            for directory in (self.root, self._containers)
            for controller in self._enable_in(directory)
        ]
        self.controllers = frozenset(CONTROLLERS) - self.missing.keys()
        if found.keys() != self.missing.keys():
            drifted.append(f"the controllers are now {', '.join(sorted(self.controllers)) or 'none'}")
        if drifted:
            self.surroundings = Surroundings(self.missing, self._disks, self._no_disk_weight())
            self.close()
        drifted += [f"cpu.idle of {name} had been changed" for name in self._idle_class.set(self._idle)]
        if self._caps is not None:
            drifted += [
                f"{name} of all containers had been changed" for name in self._put_caps(self._caps, None).written
            ]
        yield drifted + self.groups.enable(sorted(self.controllers), self.surroundings)
        yield from self.groups.repairs()

    def _put_caps(self, caps: Confinement, since: Confinement | None) -> Applied:
        """Apply the caps: parent before child when they grow, child before parent when they shrink."""
        self._capped = None
        low_bytes, before = caps.memory_low_bytes, None if since is None else since.memory_low_bytes
        lowered = before is not None and low_bytes < before
        wrote = False
        if low_bytes != before and not lowered:
            wrote = self._protect_above(low_bytes, top_first=True, read=since is None)
        # Without ``since`` all is compared, and the class is none of the caps.
        all_of_it = caps if since is not None else structs.replace(caps, opportunistic=self._is_idle())
        applied = ConfinementChange(self._together, all_of_it, since, self.surroundings).apply()
        if lowered:
            wrote = self._protect_above(low_bytes, top_first=False, read=False)
        if not applied.failed:
            self._capped = caps
        return replace(applied, written=(*applied.written, "memory.low")) if wrote else applied

    def _is_idle(self) -> bool:
        with contextlib.suppress(OSError):
            return bool(self._together.cpu.idle)
        return False

    def _protect_above(self, low_bytes: int, *, top_first: bool, read: bool) -> bool:
        """Set memory.low of the directories that serve the containers alone. systemd writes it there only on request;
        :meth:`repair` notices. Returns whether any was written; without ``read``, all are.
        """
        wrote = False
        for memory in reversed(self._memory_above) if top_first else self._memory_above:
            if "memory" in self.controllers and memory.has("memory.low"):
                wrote |= bool(memory.put("low", low_bytes, read=read))
        return wrote

    def _serving_containers(self) -> list[Path]:
        """Return the directories above ``containers/`` that serve it alone, from the lowest: a root of our own, else
        the root and the slice above it if they are Penstock's by their name (``penstock-containers.service`` in
        ``penstock.slice``, or the scope of a launcher of `penstock up`).
        """
        if self._owns_root:
            return [self.root]
        return list(itertools.takewhile(lambda each: each.name.startswith("penstock"), (self.root, *self.root.parents)))

    def _unprotected(self, low_bytes: int) -> Reason | None:
        """Return the first ancestor with less protection than the containers need: it limits all below it."""
        for directory in (self.root, *self.root.parents):
            files = MemoryFiles(directory, self._filesystem)
            if not files.has("memory.low"):
                return None
            low = files.low
            if low is not None and low < low_bytes // PAGE_BYTES * PAGE_BYTES:
                return Reason(
                    f"{directory}/memory.low protects {format_bytes(low)} only",
                    f"systemctl set-property {directory.name} MemoryLow=infinity",
                )
        return None

    def memory_current(self) -> int | None:
        """Return the memory used by all containers, page cache included; None without a memory controller. A few µs."""
        return None if "memory" not in self.controllers else int(self._together.memory.current)

    def memory_working_set(self) -> int | None:
        """Return the same without the page cache that the kernel drops first."""
        if "memory" not in self.controllers:
            return None
        memory = self._together.memory
        return int(max(0, memory.current - memory.inactive_file))


def _crowded(directory: Path) -> Reason:
    return Reason(
        f"processes are in {directory} itself, and only a cgroup without any can have controllers for its children",
        f"move them into a leaf, for example: mkdir {directory}/leaf; "
        f"for p in $(cat {directory}/cgroup.procs); do echo $p > {directory}/leaf/cgroup.procs; done",
    )

"""A cgroup2 file system in memory that answers as the kernel does, for tests of reads and writes.

It has the files that Penstock uses, with their defaults and errors (EINVAL, ERANGE, EBUSY, ENODEV, ENOENT), after
Documentation/admin-guide/cgroup-v2.rst and Linux 6.1; the contract tests compare it with a real one. Its processes are
real: they enter through a descriptor of ``cgroup.procs`` as with a real cgroup, are stopped by ``cgroup.freeze`` and
killed by ``cgroup.kill``. It does not track their forks, and it counts nothing: a test sets the counters, and the used
memory (:meth:`FakeCgroups.use`), which the fake reclaims as the kernel would.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import socket
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from tests.fakes.fake_cgroup_files import CPUS, DEFAULTS, WRITERS, Refused, format_cpus, parse_cpus
from tests.fakes.fake_cgroup_memory import Memory, reclaim
from tests.fakes.fake_cgroup_process import OpenFile, Process

CONTROLLERS = ("cpu", "cpuset", "io", "memory", "pids")
#: These files exist with any set of controllers.
_PRESSURE = ("cpu.pressure", "io.pressure", "memory.pressure")
#: Controllers that can be enabled in a cgroup with processes; it becomes a threaded domain, which is not modelled.
_THREADED = {"cpu", "cpuset", "pids"}


@dataclass(slots=True)
class _Group:
    """One cgroup. ``doors`` are our ends of the opened descriptors of cgroup.procs."""

    files: dict[str, str]
    enabled: set[str] = field(default_factory=set)
    processes: list[Process] = field(default_factory=list)
    doors: list[socket.socket] = field(default_factory=list)
    memory: Memory = field(default_factory=Memory)
    attributes: dict[str, bytes] = field(default_factory=dict)


class FakeCgroups:
    """A fake of agent.cgroups.filesystem.Filesystem. ``root`` exists from the start, like a delegated directory.

    Args:
        root: its path; no real directory is made.
        controllers: the delegated controllers.
        disks: the numbers (``254:0``) that io.max accepts.
        without: files that the pretended kernel is too old for, e.g. ``cgroup.kill``.
        top: the root is the hierarchy's top, which may hold processes and cannot be frozen or killed.
    """

    def __init__(
        self,
        root: str = "/fake/cgroup",
        *,
        controllers: Iterable[str] = CONTROLLERS,
        disks: Iterable[str] = ("254:0",),
        without: Iterable[str] = (),
        top: bool = False,
    ) -> None:
        self.disks = frozenset(disks)
        self.writes: list[tuple[str, str]] = []  # path and text of each write, in order
        self.kept = 0  # the number of descriptors open for reading
        self._without = frozenset(without)
        self._delegated = frozenset(controllers)
        self._groups: dict[str, _Group] = {}
        self._groups[root] = _Group(self._initial(self._delegated))
        if top:
            for name in ("cgroup.events", "cgroup.freeze", "cgroup.kill"):
                self._groups[root].files.pop(name, None)

    # ------------------------------------------------------------ for tests

    def pretend(self, path: str, text: str) -> None:
        """Set the content of a file, e.g. of a counter."""
        directory, _, name = path.rpartition("/")
        self._groups[directory].files[name] = text

    def delegate(self, controllers: Iterable[str]) -> None:
        """Change the controllers that are delegated to the root."""
        self._delegated = frozenset(controllers)

    def use(self, directory: str, *, anon_bytes: int = 0, cache_bytes: int = 0) -> None:
        """Set the memory of a cgroup itself; its ancestors count it, too. Only page cache can be reclaimed."""
        self._groups[directory].memory = Memory(anon_bytes, cache_bytes)
        self._count_memory(directory)

    def vanish(self, directory: str) -> None:
        """Remove a cgroup and its descendants, as another process might."""
        for path in [path for path in self._groups if path == directory or path.startswith(f"{directory}/")]:
            self._forget(path)

    def close(self) -> None:
        """Close all descriptors; processes keep running."""
        for path in list(self._groups):
            self._forget(path)

    # ------------------------------------------------------------ the Filesystem interface

    def read(self, path: bytes) -> str:
        """See agent.cgroups.filesystem.Filesystem, like the following methods."""
        directory, group, name = self._find(path)
        self._let_in(group)
        match name:
            case "cgroup.procs":
                return "".join(f"{process.pid}\n" for process in group.processes if process.lives)
            case "cgroup.controllers":
                return f"{' '.join(sorted(self._controllers(directory)))}\n"
            case "cgroup.subtree_control":
                return f"{' '.join(sorted(group.enabled))}\n"
            case "cgroup.events":
                return f"populated {int(self._populated(directory))}\nfrozen {int(self._frozen(directory))}\n"
            case "cgroup.kill" | "memory.reclaim":
                raise _error(errno.EINVAL, path)
            case "cpuset.cpus.effective":
                return f"{format_cpus(self._cpus(directory))}\n"
            case "cpu.weight" if group.files.get("cpu.idle", "0").strip() == "1":
                return "0\n"
            case "pids.current":
                return f"{sum(process.lives for process in self._inside(directory))}\n"
        return group.files[name]

    def keep(self, path: bytes) -> OpenFile:
        """See agent.cgroups.filesystem.Filesystem. It belongs to one cgroup, not to a later one of the same name."""
        group = self._find(path)[1]
        self.kept += 1

        def read() -> str:
            if not any(group is each for each in self._groups.values()):
                raise _error(errno.ENODEV, path)
            return self.read(path)

        def close() -> None:
            self.kept -= 1

        return OpenFile(read, close)

    def write(self, path: bytes, text: str) -> None:
        """See agent.cgroups.filesystem.Filesystem."""
        directory, group, name = self._find(path)
        if not text:
            return  # write(2) of nothing does not reach the file system
        self._let_in(group)
        writers: dict[str, Callable[[], None]] = {
            "cgroup.procs": lambda: self._enter(directory, group, text),
            "cgroup.subtree_control": lambda: self._control(directory, group, text),
            "cgroup.freeze": lambda: self._freeze(directory, group, text),
            "cgroup.kill": lambda: self._kill(directory, text),
            "memory.reclaim": lambda: self._reclaim(directory, text),
        }
        try:
            if name in writers:
                writers[name]()
            elif name in WRITERS:
                if name == "cpuset.cpus" and not text.strip() and self._inside(directory) and group.files[name].strip():
                    raise Refused(errno.ENOSPC)  # validate_change, for cgroups with processes
                group.files[name] = WRITERS[name](text.strip(), group.files, self.disks)
                if name in {"memory.high", "memory.max"}:
                    self._squeeze(directory, group, name)
            else:
                raise Refused(errno.EINVAL)  # the file is read-only
        except Refused as refusal:
            raise _error(refusal.errno, path) from None
        self.writes.append((os.fsdecode(path), text))

    def exchange(self, path: bytes, text: str) -> str:
        """See agent.cgroups.filesystem.Filesystem."""
        self.write(path, text)
        return self.read(path)

    def open(self, path: bytes) -> int:
        """See agent.cgroups.filesystem.Filesystem. Opens a socket whose other end gets a writer's pid (SO_PASSCRED)."""
        _, group, name = self._find(path)
        assert name == "cgroup.procs", name
        inside, outside = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        inside.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        inside.setblocking(False)
        group.doors.append(inside)
        return outside.detach()

    def exists(self, path: bytes) -> bool:
        """See agent.cgroups.filesystem.Filesystem."""
        if os.fsdecode(path) in self._groups:
            return True
        try:
            self._find(path)
        except FileNotFoundError:
            return False
        return True

    def mkdir(self, path: bytes) -> None:
        """See agent.cgroups.filesystem.Filesystem."""
        name = os.fsdecode(path)
        if name in self._groups:
            raise _error(errno.EEXIST, path)
        parent = self._groups.get(name.rpartition("/")[0])
        if parent is None:
            raise _error(errno.ENOENT, path)
        self._groups[name] = _Group(self._initial(parent.enabled))

    def rmdir(self, path: bytes) -> None:
        """See agent.cgroups.filesystem.Filesystem."""
        self._group(path)
        name = os.fsdecode(path)
        if self._populated(name) or self.children(path):
            raise _error(errno.EBUSY, path)
        self._forget(name)

    def children(self, path: bytes) -> list[str]:
        """See agent.cgroups.filesystem.Filesystem."""
        self._group(path)
        name = os.fsdecode(path)
        return [other.rpartition("/")[2] for other in self._groups if other.rpartition("/")[0] == name]

    def attribute(self, path: bytes, name: str) -> bytes | None:
        """See agent.cgroups.filesystem.Filesystem."""
        return self._group(path).attributes.get(name)

    def set_attribute(self, path: bytes, name: str, value: bytes | None) -> None:
        """See agent.cgroups.filesystem.Filesystem."""
        attributes = self._group(path).attributes
        if value is None:
            attributes.pop(name, None)
        else:
            attributes[name] = value

    # ------------------------------------------------------------ inside

    def _group(self, path: bytes) -> _Group:
        group = self._groups.get(os.fsdecode(path))
        if group is None:
            raise _error(errno.ENOENT, path)
        return group

    def _initial(self, controllers: Iterable[str]) -> dict[str, str]:
        prefixes = ("cgroup.", "cpu.stat", *_PRESSURE, *(f"{controller}." for controller in controllers))
        return {n: text for n, text in DEFAULTS.items() if n.startswith(prefixes) and n not in self._without}

    def _find(self, path: bytes) -> tuple[str, _Group, str]:
        directory, _, name = os.fsdecode(path).rpartition("/")
        group = self._groups.get(directory)
        if group is None or name not in group.files:
            raise _error(errno.ENOENT, path)
        return directory, group, name

    def _controllers(self, directory: str) -> frozenset[str] | set[str]:
        parent = self._groups.get(directory.rpartition("/")[0])
        return self._delegated if parent is None else parent.enabled

    def _subtree(self, directory: str) -> list[tuple[str, _Group]]:
        """Return a cgroup and its descendants."""
        return [(p, g) for p, g in self._groups.items() if p == directory or p.startswith(f"{directory}/")]

    def _lineage(self, directory: str) -> list[tuple[str, _Group]]:
        """Return a cgroup and its ancestors, from the top."""
        return [(p, g) for p, g in sorted(self._groups.items()) if p == directory or directory.startswith(f"{p}/")]

    def _inside(self, directory: str) -> list[Process]:
        """Return the processes of a cgroup and of its descendants."""
        found = []
        for _, group in self._subtree(directory):
            self._let_in(group)
            found += group.processes
        return found

    def _frozen(self, directory: str) -> bool:
        return any(group.files.get("cgroup.freeze", "0").strip() == "1" for _, group in self._lineage(directory))

    def _cpus(self, directory: str) -> set[int]:
        """Return the effective processors: the intersection along the ancestors; an empty one gives the parent's."""
        cpus = parse_cpus(f"0-{CPUS - 1}")
        for _, group in self._lineage(directory):
            cpus = cpus & parse_cpus(group.files.get("cpuset.cpus", "")) or cpus
        return cpus

    def _populated(self, directory: str) -> bool:
        return any(process.lives for process in self._inside(directory))

    def _forget(self, directory: str) -> None:
        group = self._groups.pop(directory)
        for process in group.processes:
            os.close(process.pidfd)
        for door in group.doors:
            door.close()

    def _let_in(self, group: _Group) -> None:
        """Add the processes that wrote to a descriptor of cgroup.procs since the last call."""
        for door in list(group.doors):
            while True:
                try:
                    _, ancillary, _, _ = door.recvmsg(16, 64)
                except BlockingIOError:
                    break
                if not ancillary:  # every copy of the other end is closed
                    door.close()
                    group.doors.remove(door)
                    break
                with contextlib.suppress(Refused):  # the process has ended since
                    self._add(group, struct.unpack("3i", ancillary[0][2])[0])

    def _add(self, group: _Group, pid: int) -> None:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            raise Refused(errno.ESRCH) from None
        for other in self._groups.values():
            for process in [process for process in other.processes if process.pid == pid]:
                os.close(process.pidfd)
                other.processes.remove(process)
        group.processes.append(Process(pid, pidfd))
        if self._frozen(next(path for path, each in self._groups.items() if each is group)):
            group.processes[-1].signal(signal.SIGSTOP)

    def _enter(self, directory: str, group: _Group, text: str) -> None:
        if not text.strip().isdigit():
            raise Refused(errno.EINVAL)
        if group.enabled:
            raise Refused(errno.EBUSY)  # only leaves hold processes
        for other in self._groups.values():
            self._let_in(other)  # processes that used a descriptor entered earlier
        self._add(group, int(text) or os.getpid())

    def _control(self, directory: str, group: _Group, text: str) -> None:
        for word in text.split():
            sign, controller = word[0], word[1:]
            if sign not in "+-" or controller not in CONTROLLERS:
                raise Refused(errno.EINVAL)
            if sign == "+":
                if controller not in self._controllers(directory):
                    raise Refused(errno.ENOENT)
                if controller not in _THREADED and any(process.lives for process in group.processes):
                    raise Refused(errno.EBUSY)
                group.enabled.add(controller)
            else:
                names = self.children(directory.encode())
                if any(controller in self._groups[f"{directory}/{name}"].enabled for name in names):
                    raise Refused(errno.EBUSY)
                group.enabled.discard(controller)
        for name in self.children(directory.encode()):
            child = self._groups[f"{directory}/{name}"]
            initial = self._initial(group.enabled)
            child.files = {file: child.files.get(file, text) for file, text in initial.items()}

    def _freeze(self, directory: str, group: _Group, text: str) -> None:
        if text not in {"0", "1"}:
            raise Refused(errno.ERANGE if text.isdigit() else errno.EINVAL)
        group.files["cgroup.freeze"] = f"{text}\n"
        for path, below in self._subtree(directory):
            self._let_in(below)
            for process in below.processes:
                process.signal(signal.SIGSTOP if self._frozen(path) else signal.SIGCONT)

    def _kill(self, directory: str, text: str) -> None:
        if text != "1":
            raise Refused(errno.ERANGE if text.isdigit() else errno.EINVAL)
        for process in self._inside(directory):
            process.signal(signal.SIGKILL)

    # ------------------------------------------------------------ memory

    def _count_memory(self, directory: str) -> None:
        for path, group in self._lineage(directory):
            if "memory.current" in group.files:
                total = sum((below.memory for _, below in self._subtree(path)), Memory())
                total.count(group.files)

    def _reclaim(self, directory: str, text: str) -> None:
        """memory_reclaim: EAGAIN if less than the requested memory can be reclaimed."""
        if not text.strip().isdigit():
            raise Refused(errno.EINVAL)
        wanted = int(text)
        freed = reclaim([group.memory for _, group in self._subtree(directory)], wanted)
        self._count_memory(directory)
        if freed < wanted:
            raise Refused(errno.EAGAIN)

    def _squeeze(self, directory: str, group: _Group, name: str) -> None:
        """memory_high_write, memory_max_write: reclaim the excess; memory.max kills if that is not enough."""
        limit = group.files[name].strip()
        excess = 0 if limit == "max" else int(group.files["memory.current"]) - int(limit)
        if excess <= 0:
            return
        memories = [below.memory for _, below in self._subtree(directory)]
        if reclaim(memories, excess) < excess and name == "memory.max":
            self._kill(directory, "1")
            for memory in memories:
                memory.anon_bytes = 0
            events = group.files["memory.events"]
            group.files["memory.events"] = events.replace("oom_kill 0", "oom_kill 1")
        self._count_memory(directory)


def _error(number: int, path: bytes) -> OSError:
    return OSError(number, os.strerror(number), os.fsdecode(path))

"""The cgroup of one container."""

from __future__ import annotations

import contextlib
import errno
import functools
import os
import signal
from collections.abc import Callable
from pathlib import Path

from agent.cgroups import blk_throttle_workaround
from agent.cgroups.filesystem import KERNEL, FdBudget, FdCache, Filesystem, Gone, NotSupported, cgroups_below
from agent.cgroups.limits import Applied, ConfinementChange, Surroundings
from agent.cgroups.sample import COUNTERS, CgroupSample, Counters, Files, Total
from agent.cgroups.shrink import STEP_BYTES, Shrunk, reclaim, shrink_memory
from agent.core.confinement import MOST_WEIGHT, Confinement


class Cgroup:
    """A leaf of the containers' tree, created by :meth:`agent.cgroups.CgroupTree.get`.

    A container may create cgroups below its own; the limits hold for all of them.
    """

    def __init__(
        self,
        path: Path,
        controllers: frozenset[str],
        surroundings: Surroundings,
        filesystem: Filesystem = KERNEL,
        fd_budget: FdBudget | None = None,
        on_removed: Callable[[], object] = lambda: None,
    ) -> None:
        self.path = path
        self._controllers = controllers
        self._surroundings = surroundings
        self._filesystem = filesystem
        self._files = Files(os.fsencode(path), filesystem)  # keeps no descriptor open, so threads may use it
        self._fd_cache = FdCache(filesystem, COUNTERS, fd_budget or FdBudget(0))
        self._on_removed = on_removed

    @functools.cached_property
    def _counters(self) -> Counters:
        files = Files(os.fsencode(self.path), self._filesystem, self._fd_cache.read)
        return Counters(files, self._controllers)

    def confine(self, confinement: Confinement, since: Confinement | None = None) -> Applied:
        """Enforce a confinement, writing only the files that differ; ``network_…`` fields are not a cgroup's concern.

        ``memory.max`` is not lowered below the memory in use, which would kill: see :attr:`Applied.shrink_to_bytes`.
        Lowering ``memory.high`` below it blocks until the kernel has reclaimed: call this in a thread in that case.

        Args:
            since: the confinement known to be in force: only fields that differ from it are written, and nothing
                else is read or reported. Without it, every file is read first, to repair drift.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        files = self._files
        if since is None:
            # Several fields are in one file, which is read once: nothing depends on the text of a file after its write.
            files = Files(os.fsencode(self.path), self._filesystem, functools.cache(self._filesystem.read))
        return ConfinementChange(files, confinement, since, self._surroundings).apply()

    def disks_held(self, wanted: Confinement) -> contextlib.AbstractContextManager[None]:
        """Keep new I/O from starting meanwhile; see :func:`agent.cgroups.blk_throttle_workaround.held`."""
        return blk_throttle_workaround.held(self._files.io, self._surroundings.disks, wanted)

    def shrink_memory(self, target_bytes: int, *, step_bytes: int = STEP_BYTES, within_s: float = 2.0) -> Shrunk:
        """Lower ``memory.max`` towards a target without causing an OOM kill; blocks, so call it in a thread.

        Stops just above the unreclaimable memory if that exceeds the target, or when ``within_s`` is over; then call it
        again later. Restores ``memory.high`` to its former value.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        return shrink_memory(self._files.memory, target_bytes, step_bytes=step_bytes, within_s=within_s)

    def reclaim(self, wanted_bytes: int) -> int:
        """Reclaim page cache; return by how many bytes use fell. Blocks, so call it in a thread.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        return reclaim(self._files.memory, wanted_bytes)

    def sample(self) -> CgroupSample | None:
        """Read all counters; return None if the cgroup vanished. Raises as :meth:`use`."""
        use = self.use(CgroupSample())
        return None if use is None else self.rest(use, stalled=True, shown=True)

    def use(self, since: CgroupSample) -> CgroupSample | None:
        """Read the use alone; all other values are those of an earlier sample: see :meth:`Counters.use`.

        The files stay open for the next call, until :meth:`close` or :meth:`remove`. Not thread-safe.

        Raises:
            OSError: a file exists and cannot be read or parsed.
        """
        return self._counters.use(since)

    def rest(self, use: CgroupSample, *, stalled: bool, shown: bool) -> CgroupSample | None:
        """Complete what :meth:`use` has just read: see :meth:`Counters.rest`. Raises as :meth:`use`."""
        return self._counters.rest(use, stalled=stalled, shown=shown)

    def cpu_s(self) -> float | None:
        """Return the CPU time used until now, in seconds; None: the cgroup vanished.

        Raises:
            OSError: as :meth:`use`.
        """
        return self._counters.cpu_s()

    def total(self) -> Total | None:
        """Return what the cgroup has used until now, for the end of its container; None: it vanished.

        Raises:
            OSError: as :meth:`use`.
        """
        return self._counters.total()

    def close(self) -> None:
        """Close the kept descriptors; the next sample opens them again."""
        self._fd_cache.close()

    def open_procs(self) -> int:
        """Open ``cgroup.procs``. A process with this descriptor can enter the cgroup even after changing its user."""
        return self._files.core.open("cgroup.procs")

    def has(self, filename: str) -> bool:
        """Return whether this kernel and delegation provide a file, e.g. ``cgroup.kill``."""
        return self._files.core.has(filename)

    def freeze(self, frozen: bool) -> None:
        """Stop or resume every process, within milliseconds. A vanished cgroup is ignored."""
        try:
            self._files.core.freeze = frozen
        except Gone:
            return

    def let_end(self) -> None:
        """Give its processes all the processor time that they can use.

        A killed process has to run to its end, and its memory is not free before. One of the idle class, or with a
        small quota, would wait for all others.
        """
        for name, value in (("idle", False), ("weight", MOST_WEIGHT), ("max", None)):
            with contextlib.suppress(OSError):  # vanished, or the kernel lacks it
                setattr(self._files.cpu, name, value)

    def kill(self) -> None:
        """Send SIGKILL to every process in the cgroup, even while they fork. A vanished cgroup is ignored."""
        try:
            self._files.core.kill = True
        except Gone:
            return
        except NotSupported:
            self._kill_each()

    def end(self, lives: bool) -> Total | None:
        """Kill every process, if any ``lives``; return what the cgroup has used, or None: it vanished.

        Raises:
            OSError: as :meth:`use`.
        """
        used = self.total()
        if lives:
            self.kill()
        return used

    def _kill_each(self) -> None:
        """Kill without ``cgroup.kill``, before 5.14: frozen processes cannot fork. Includes the cgroups below."""
        self.freeze(True)
        for pid in self.members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.freeze(False)

    def send_signal(self, signum: int) -> None:
        """Send a signal to every process in the cgroup and below; processes that enter meanwhile may be missed.

        Raises:
            OSError: no descriptor is free.
        """
        with contextlib.ExitStack() as opened:
            pidfds = {}
            for pid in self.members():
                with contextlib.suppress(ProcessLookupError):
                    pidfds[pid] = os.pidfd_open(pid)  # Linux 5.3
                    opened.callback(os.close, pidfds[pid])
            for pid in pidfds.keys() & set(self.members()):  # the pid was not reused elsewhere before it was opened
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfds[pid], signum)

    def members(self) -> list[int]:
        """Return the processes in the cgroup and below it."""
        cgroups = (Cgroup(p, self._controllers, self._surroundings, self._filesystem) for p in self._below())
        return [pid for cgroup in (self, *cgroups) for pid in cgroup.pids()]

    def pids(self) -> list[int]:
        """Return the processes in the cgroup, without those below it."""
        try:
            return [int(pid) for pid in self._files.core.procs]
        except Gone:
            return []

    def populated(self) -> bool:
        """Return whether any process is in the cgroup or below; zombies do not count."""
        try:
            return bool(self._files.core.events.get("populated"))
        except Gone:
            return False

    def remove(self) -> bool:
        """Remove the cgroup and those below it; return False while dead processes are not reaped."""
        if not self._remove(self.path):  # mostly nothing was made below it
            for path in (*self._below(), self.path):
                if not self._remove(path):
                    return False
        self.close()
        self._on_removed()
        return True

    def _remove(self, path: Path) -> bool:
        """Remove one directory, which may be gone; return False while something is in it."""
        try:
            self._filesystem.rmdir(os.fsencode(path))
        except FileNotFoundError:
            return True
        except OSError as error:
            if error.errno == errno.EBUSY:
                return False
            raise
        return True

    def _below(self) -> list[Path]:
        """Return the cgroups below, children first."""
        below = cgroups_below(os.fsencode(self.path), self._filesystem)
        return [Path(os.fsdecode(path)) for path in reversed(below)]

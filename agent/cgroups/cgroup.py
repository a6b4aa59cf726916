"""One container's cgroup."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from collections.abc import Callable
from pathlib import Path

from agent.cgroups import holding
from agent.cgroups.filesystem import KERNEL, Allowance, Filesystem, Gone, Keeping, NotSupported, ReadingOnce
from agent.cgroups.limits import Applied, Surroundings, apply_confinement
from agent.cgroups.sample import COUNTERS, CgroupSample, Counters, Files, Total
from agent.cgroups.shrink import STEP_BYTES, Shrunk, reclaim, shrink_memory
from agent.core.confinement import Confinement


class Cgroup:
    """A leaf of the containers' tree; :meth:`agent.cgroups.CgroupTree.get` makes these.

    A container may make cgroups of its own below, and the limits hold for all of them.
    """

    def __init__(
        self,
        path: Path,
        controllers: frozenset[str],
        surroundings: Surroundings,
        filesystem: Filesystem = KERNEL,
        allowance: Allowance | None = None,
        on_removed: Callable[[], object] = lambda: None,
    ) -> None:
        self.path = path
        self._controllers = controllers
        self._surroundings = surroundings
        self._filesystem = filesystem
        self._files = Files(os.fsencode(path), filesystem)  # keeps nothing open, so that threads may use it
        self._keeping = Keeping(filesystem, COUNTERS, allowance or Allowance(0))
        self._counters = Counters(Files(os.fsencode(path), self._keeping), controllers)
        self._on_removed = on_removed

    def confine(self, confinement: Confinement, since: Confinement | None = None) -> Applied:
        """Put a confinement in force, writing only what is not; ``network_…`` is not a cgroup's business.

        ``memory.max`` is not lowered below what is in use, which would kill: see :attr:`Applied.shrink_to_bytes`.
        Lowering ``memory.high`` below it makes the kernel reclaim, and returns when it has: do that in a thread.

        Args:
            since: what is known to be in force: then only fields that differ from it are touched, and nothing else
                is read or told of. Without it everything is read first: the repair of drift.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        files = self._files
        if since is None:  # it reads what each of several fields has in one file
            files = Files(os.fsencode(self.path), ReadingOnce(self._filesystem))
        return apply_confinement(files, confinement, since, self._surroundings)

    def hold_disks(self) -> None:
        """No I/O of it begins until :meth:`let_go_of_disks`; see :mod:`agent.cgroups.holding`."""
        holding.hold(self._files.io, self._surroundings.disks)

    def let_go_of_disks(self, confinement: Confinement) -> None:
        """It goes on, as this confinement says."""
        holding.let_go(self._files.io, self._surroundings.disks, confinement)

    def shrink_memory(self, target_bytes: int, *, step_bytes: int = STEP_BYTES, within_s: float = 2.0) -> Shrunk:
        """Bring ``memory.max`` down to a target as far as nobody is killed; blocks, so call it in a thread.

        It ends just above what cannot be reclaimed if that is more than the target, and with what was not freed in
        time; then call again later. ``memory.high`` says in the end what it said before.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        return shrink_memory(self._files.memory, target_bytes, step_bytes=step_bytes, within_s=within_s)

    def reclaim(self, wanted_bytes: int) -> int:
        """Take page cache; how much less is in use then. Blocks, so call it in a thread.

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        return reclaim(self._files.memory, wanted_bytes)

    def sample(self, full: bool = True) -> CgroupSample | None:
        """All counters now; None: it vanished. Without ``full`` only use is read: see :class:`CgroupSample`.

        The files stay open for the next time (until :meth:`close` or :meth:`remove`): not for two threads.

        Raises:
            OSError: a file is there and cannot be read, or not be understood.
        """
        return self._counters.sample(full=full)

    def total(self) -> Total | None:
        """What it has used until now, for the end of its container; None: it vanished.

        Raises:
            OSError: as :meth:`sample`.
        """
        return self._counters.total()

    def close(self) -> None:
        """Let go of descriptors; the next sample opens them again."""
        self._keeping.close()

    def open_procs(self) -> int:
        """A descriptor of ``cgroup.procs``: whoever holds it can enter, also after becoming another user."""
        return self._files.core.open("cgroup.procs")

    def has(self, filename: str) -> bool:
        """Whether this kernel and delegation give it a file, e.g. ``cgroup.kill``."""
        return self._files.core.has(filename)

    def freeze(self, frozen: bool) -> None:
        """Stop or resume every process; a cgroup that vanished has none. It takes effect within milliseconds."""
        try:
            self._files.core.freeze = frozen
        except Gone:
            return

    def frozen(self) -> bool:
        """Whether every process in it has stopped."""
        try:
            return bool(self._files.core.events.get("frozen"))
        except Gone:
            return False

    def kill(self) -> None:
        """SIGKILL to every process in it, also while they fork; a cgroup that vanished has none."""
        try:
            self._files.core.kill = True
        except Gone:
            return
        except NotSupported:
            self._kill_each()

    def _kill_each(self) -> None:
        """Before 5.14: frozen, nobody forks between reading and killing; cgroups made below are killed too."""
        self.freeze(True)
        for pid in self._members():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.freeze(False)

    def send_signal(self, signum: int) -> None:
        """Send a signal to every process in it and below; what enters meanwhile may be missed.

        Raises:
            OSError: no descriptor is free.
        """
        with contextlib.ExitStack() as opened:
            pidfds = {}
            for pid in self._members():
                with contextlib.suppress(ProcessLookupError):
                    pidfds[pid] = os.pidfd_open(pid)  # Linux 5.3
                    opened.callback(os.close, pidfds[pid])
            for pid in pidfds.keys() & set(self._members()):  # not given to a process elsewhere before it was opened
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(pidfds[pid], signum)

    def _members(self) -> list[int]:
        cgroups = (Cgroup(p, self._controllers, self._surroundings, self._filesystem) for p in self._below())
        return [pid for cgroup in (self, *cgroups) for pid in cgroup.pids()]

    def pids(self) -> list[int]:
        """The processes in it, without those below."""
        try:
            return [int(pid) for pid in self._files.core.procs]
        except Gone:
            return []

    def populated(self) -> bool:
        """Whether any process is in it or below; zombies do not count."""
        try:
            return bool(self._files.core.events.get("populated"))
        except Gone:
            return False

    def remove(self) -> bool:
        """Remove it and what was made below it; False while its dead are not reaped."""
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
        """What was made below, the deepest first."""
        found: list[Path] = []
        pending = [self.path]
        while pending:
            path = pending.pop()
            try:
                pending += [path / name for name in self._filesystem.children(os.fsencode(path))]
            except OSError:
                continue  # it vanished meanwhile
            found.append(path)
        return found[:0:-1]

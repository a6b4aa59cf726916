"""One container's cgroup."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent.cgroups.devices import Disk
from agent.cgroups.files import KERNEL, Filesystem, Gone, NotSupported
from agent.cgroups.limits import apply_limits
from agent.cgroups.reason import Reason
from agent.cgroups.sample import CgroupSample, Files, read_sample
from penstock.model import Limits


class Cgroup:
    """A leaf of the containers' tree; :meth:`agent.cgroups.CgroupTree.get` makes these.

    A container may make cgroups of its own below, and the limits hold for all of them.
    """

    def __init__(
        self,
        path: Path,
        controllers: frozenset[str],
        missing: Mapping[str, Reason],
        disks: Sequence[Disk],
        filesystem: Filesystem = KERNEL,
    ) -> None:
        self.path = path
        self._controllers = controllers
        self._missing = missing
        self._disks = disks
        self._filesystem = filesystem
        self._files = Files(os.fsencode(path), filesystem)

    def apply(self, limits: Limits, *, opportunistic: bool) -> dict[str, str]:
        """Set limits and class, writing only what changes; what was asked for and is not enforced → why and remedy.

        Lowering ``memory_max_bytes`` below what is in use kills at once (docs/kernel.md).

        Raises:
            FileNotFoundError: the cgroup vanished.
        """
        return apply_limits(self._files, limits, opportunistic=opportunistic, missing=self._missing, disks=self._disks)

    def sample(self) -> CgroupSample | None:
        """All counters now; None: it vanished."""
        return read_sample(self._files, self._controllers)

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
        for cgroup in (self.path, *self._below()):
            for pid in Cgroup(cgroup, self._controllers, {}, (), self._filesystem).pids():
                try:
                    os.kill(pid, signal.SIGKILL)
                except ProcessLookupError:
                    continue
        self.freeze(False)

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
        for path in (*self._below(), self.path):
            try:
                self._filesystem.rmdir(os.fsencode(path))
            except FileNotFoundError:
                continue
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

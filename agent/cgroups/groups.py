"""The directories between ``containers/`` and the containers that share a group (:mod:`agent.core.groups`)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from agent.cgroup_root import is_group
from agent.cgroups.core import CoreFiles
from agent.cgroups.filesystem import Filesystem, Gone
from agent.cgroups.limits import ConfinementChange, Surroundings
from agent.cgroups.sample import Files
from agent.core.confinement import Confinement
from agent.core.groups import together

_PLAIN = Confinement()


@dataclass(slots=True)
class _Group:
    """``members``: container → its settings, None until they are known. ``applied``: None if it is to be compared.
    ``failed``: the settings that could not be applied → why.
    """

    files: Files
    applied: Confinement | None
    members: dict[str, Confinement | None] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)


class Groups:
    """Owns the groups: which exist, which containers are in them, and their settings."""

    def __init__(self, containers: Path, filesystem: Filesystem) -> None:
        self._containers = containers
        self._filesystem = filesystem
        self._controllers: tuple[str, ...] = ()
        self._surroundings = Surroundings({}, ())
        self._groups: dict[Path, _Group] = {}
        #: Container → the directory of its group; containers in no group are right below ``containers/``.
        self.parents: dict[str, Path] = {}
        #: The groups whose settings may have to change: see :meth:`settle`.
        self.due: set[Path] = set()

    # ------------------------------------------------------------ directories

    def prepare(self, controllers: Sequence[str], surroundings: Surroundings) -> None:
        """Use these controllers. Find the groups and containers of an earlier agent; remove groups without containers.

        Raises:
            OSError: ``containers/`` cannot be read.
        """
        self._controllers, self._surroundings = tuple(controllers), surroundings
        self._groups.clear()
        self.parents.clear()
        self.due.clear()
        self.remove_empty()
        for container, parent in self.found().items():
            for path in reversed([*self._above(parent)]):  # a controller is enabled from the top down
                if path not in self._groups:
                    self._groups[path] = _Group(Files(os.fsencode(path), self._filesystem), applied=None)
                    with contextlib.suppress(OSError):  # :meth:`repair` tries again
                        self._enable(path)
            self._add(container, parent)

    def found(self) -> dict[str, Path]:
        """Return each container that has a cgroup → the directory that it is in.

        Raises:
            OSError: ``containers/`` cannot be read.
        """
        return {
            name: directory
            for directory in (self._containers, *self._existing())
            for name in self._filesystem.children(os.fsencode(directory))
            if not is_group(name)
        }

    def enter(self, container: str, names: Sequence[str]) -> None:
        """Put a new container into the innermost of these groups, from the outermost on; make those that are missing.

        If the kernel refuses one, or has no cpu controller to divide by, the container is put one level higher.
        """
        if "cpu" not in self._controllers:
            return
        parent = self._containers
        for name in names:
            try:
                self._make(parent / name)
            except OSError:
                break
            parent /= name
        self._add(container, parent)

    def leave(self, container: str) -> None:
        """Take out a container whose cgroup is removed, and remove the groups in which it was the last."""
        for path in self._above(self.parents.pop(container, self._containers)):
            group = self._groups[path]
            del group.members[container]
            self.due.add(path)  # its weight stays until the next change: until then it is its job's
            if not group.members:
                del self._groups[path]
                self.due.discard(path)
                self._remove(path)

    def remove_empty(self) -> None:
        """Remove the groups that have no container."""
        for path in reversed(list(self._existing())):
            self._remove(path)

    def _existing(self) -> Iterator[Path]:
        """Yield the directories of all groups, parents first."""
        pending = [self._containers]
        for parent in pending:
            for name in self._filesystem.children(os.fsencode(parent)):
                if is_group(name):
                    pending.append(parent / name)
                    yield parent / name

    def _make(self, path: Path) -> None:
        if path in self._groups:
            return
        applied: Confinement | None = _PLAIN
        try:
            self._filesystem.mkdir(os.fsencode(path))
        except FileExistsError:  # it was not removed, as another program had a cgroup in it
            applied = None
        try:
            self._enable(path)
        except OSError:
            self._remove(path)
            raise
        self._groups[path] = _Group(Files(os.fsencode(path), self._filesystem), applied)

    def _enable(self, path: Path) -> list[str]:
        """Enable the controllers of ``containers/`` for a group's containers, in one write; return those it lacked."""
        files = CoreFiles(path, self._filesystem)
        lacking = sorted(set(self._controllers) - set(files.subtree_control))
        if lacking:
            files.subtree_control = [f"+{controller}" for controller in lacking]
        return lacking

    def _remove(self, path: Path) -> None:
        with contextlib.suppress(OSError):  # it has another program's cgroup, or is gone
            self._filesystem.rmdir(os.fsencode(path))

    def _add(self, container: str, parent: Path) -> None:
        if parent != self._containers:
            self.parents[container] = parent
        for path in self._above(parent):
            self._groups[path].members[container] = None

    def _above(self, parent: Path) -> Iterator[Path]:
        """Yield a directory and those above it that are groups."""
        while parent != self._containers:
            yield parent
            parent = parent.parent

    # ------------------------------------------------------------ settings

    def put(self, container: str, confinement: Confinement) -> None:
        """Record a container's settings; :meth:`settle` then changes those of its groups."""
        for path in self._above(self.parents.get(container, self._containers)):
            group = self._groups[path]
            if group.members[container] != confinement:
                group.members[container] = confinement
                self.due.add(path)

    def settle(self) -> dict[str, str]:
        """Apply what has changed to the groups, parents first; return the settings that could not be applied → why."""
        failed: dict[str, str] = {}
        due, self.due = sorted(self.due), set()
        for path in due:
            self._apply(path, self._groups[path].applied)
            failed |= self._groups[path].failed
        return failed

    def failed(self, container: str) -> dict[str, str]:
        """Return the settings of a container's groups that could not be applied → why."""
        parents = self._above(self.parents.get(container, self._containers))
        return {what: why for path in parents for what, why in self._groups[path].failed.items()}

    def enable(self, controllers: Sequence[str], surroundings: Surroundings) -> list[str]:
        """Use these controllers from now on; return a description of those that other programs had disabled."""
        self._controllers, self._surroundings = tuple(controllers), surroundings
        repaired: list[str] = []
        self.settle()
        for path in sorted(self._groups):
            with contextlib.suppress(OSError):  # it vanished, or another program is in it
                repaired += [f"{controller} was not enabled in {path}" for controller in self._enable(path)]
        return repaired

    def repairs(self) -> Iterator[list[str]]:
        """Undo changes by other programs, in one group after the other, which may come and go meanwhile; yield a
        description of them.
        """
        for path in sorted(self._groups):
            self.settle()  # what has changed since the group before is no other program's change
            if path in self._groups:
                yield [f"{name} of {path.name}" for name in self._apply(path, None)]

    def _apply(self, path: Path, since: Confinement | None) -> tuple[str, ...]:
        """Apply a group's settings; return the files written."""
        group = self._groups[path]
        members = [each for each in group.members.values() if each is not None]
        if not members:
            return ()
        wanted = together(members)
        try:
            done = ConfinementChange(group.files, wanted, since, self._surroundings).apply()
        except Gone:
            return ()
        # Each container reports that a controller is missing, and that weights have no effect on a disk.
        group.failed = {
            f"{name} of {path.name}": why
            for name, why in done.failed.items()
            if name != "disk_weight" and name.partition("_")[0] not in self._surroundings.missing
        }
        group.applied = None if group.failed else wanted
        return done.written

"""The containers' tree: a directory of ours, ``containers/`` in it, one leaf per container.

No process is ever in the root or in ``containers/`` (a cgroup with controllers for its children may hold none), and a
container never moves: classes are settings, not places.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from agent.cgroups.cgroup import Cgroup
from agent.cgroups.core import CoreFiles
from agent.cgroups.devices import Disk
from agent.cgroups.files import KERNEL, Filesystem, set_and_check
from agent.cgroups.memory import PAGE_BYTES, MemoryFiles
from agent.cgroups.reason import Reason, refused, unavailable

CONTROLLERS = ("cpu", "io", "memory", "pids")
_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")


class CgroupTree:
    """Owns ``root``: a cgroup2 directory that was delegated to us or that we made, with no process in it."""

    def __init__(self, root: Path, disks: Sequence[Disk], filesystem: Filesystem = KERNEL) -> None:
        self.root = root
        #: What is enabled for containers; empty until :meth:`prepare`.
        self.controllers: frozenset[str] = frozenset()
        #: Controller → why it is not.
        self.missing: dict[str, Reason] = {}
        self._disks = tuple(disks)
        self._filesystem = filesystem
        self._containers = root / "containers"
        self._enabled_above: list[str] = []

    def prepare(self) -> dict[str, str]:
        """Make ``containers/`` and enable controllers, top-down; controllers that are missing → why and remedy.

        Raises:
            OSError: not even a directory can be made here.
        """
        self.missing = {}
        self._make(self.root)
        self._enable_above()
        self._enable_in(self.root)
        self._make(self._containers)
        self._enable_in(self._containers)
        self.controllers = frozenset(CONTROLLERS) - self.missing.keys()
        return {controller: str(reason) for controller, reason in self.missing.items()}

    def _make(self, directory: Path) -> None:
        try:
            self._filesystem.mkdir(os.fsencode(directory))
        except FileExistsError:
            return

    def _enable_above(self) -> None:
        """Where the root is right below the hierarchy's top, which systemd leaves without most controllers.

        The top may hold processes all the same, and what our root has enabled systemd cannot take away again (EBUSY).
        Everything else above us belongs to whoever made it.
        """
        top = CoreFiles(self.root.parent, self._filesystem)
        if not top.has("cgroup.controllers") or top.has("cgroup.events"):  # only the top has no cgroup.events
            return
        for controller in set(CONTROLLERS) & set(top.available) - set(top.subtree_control):
            try:
                top.subtree_control = [f"+{controller}"]
            except OSError:
                continue  # said below, of our root
            self._enabled_above.append(controller)

    def dismantle(self) -> None:
        """Undo :meth:`prepare`, once no container is left.

        Raises:
            OSError: there is one, or somebody else's cgroup is in it.
        """
        for directory in (self._containers, self.root):
            self._filesystem.rmdir(os.fsencode(directory))
        top = CoreFiles(self.root.parent, self._filesystem)
        while self._enabled_above:
            try:
                top.subtree_control = [f"-{self._enabled_above.pop()}"]
            except OSError:
                continue  # somebody else uses it meanwhile

    def _enable_in(self, directory: Path) -> None:
        files = CoreFiles(directory, self._filesystem)
        available, enabled = set(files.available), set(files.subtree_control)
        # The kernel would let cpu and pids through all the same, and make a threaded domain of it: no place for ours.
        crowded = files.has("cgroup.events") and bool(files.procs)
        for controller in CONTROLLERS:
            if controller in self.missing or controller in enabled:
                continue
            if controller not in available:
                self.missing[controller] = unavailable(controller, str(directory))
                continue
            if crowded:
                self.missing[controller] = _crowded(directory)
                continue
            try:
                files.subtree_control = [f"+{controller}"]
            except OSError as error:
                self.missing[controller] = refused(error)

    def create(self, container: str) -> Cgroup:
        """Make a container's leaf.

        Raises:
            OSError: the kernel refuses (there is one already, too many, not ours).
        """
        cgroup = self.get(container)
        self._filesystem.mkdir(os.fsencode(cgroup.path))
        return cgroup

    def get(self, container: str) -> Cgroup:
        """A container's leaf, whether it is there or not. Ids are the agent's own; a client's name never comes here."""
        assert container and _SAFE.issuperset(container), container
        return Cgroup(self._containers / container, self.controllers, self.missing, self._disks, self._filesystem)

    def existing(self) -> list[str]:
        """The containers that have a leaf."""
        return sorted(self._filesystem.children(os.fsencode(self._containers)))

    def cap_all(self, memory_max_bytes: int | None) -> None:
        """A limit on all containers together; nothing where there is no memory controller.

        Raises:
            OSError: the kernel refuses.
        """
        if "memory" in self.controllers:
            files = MemoryFiles(self._containers, self._filesystem)
            set_and_check(files, "max", memory_max_bytes, granularity=PAGE_BYTES)


def _crowded(directory: Path) -> Reason:
    return Reason(
        f"processes are in {directory} itself, and only a cgroup without any can have controllers for its children",
        f"move them into a leaf, for example: mkdir {directory}/leaf; "
        f"for p in $(cat {directory}/cgroup.procs); do echo $p > {directory}/leaf/cgroup.procs; done",
    )

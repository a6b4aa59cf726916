"""The idle class of all containers together, for the time in which all of them are opportunistic.

``cpu.idle`` orders a cgroup among its siblings (kernel/sched/fair.c, sched_group_set_idle). So an idle container is
behind other containers, but ``containers/`` as a whole has its weight beside the host's other cgroups, whatever runs in
it. While only opportunistic work does, the directories that serve the containers alone are idle, too, so that
everything else on the host goes first. Beside a regular container that computes the kernel does this by itself: it
divides a cgroup's weight over the processors by the load there, and that of an idle container is next to nothing
(calc_group_shares).

Leaving the idle class resets ``cpu.weight`` to 100, and an operator may have set another (``CPUWeight=`` of the slice)
or the idle class itself. An extended attribute of the directory records that the agent made it idle, and its weight
before: the attribute outlives the agent as long as the cgroup.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from agent.cgroups.cpu import CpuFiles
from agent.cgroups.filesystem import Filesystem, NotSupported

#: The weight that a directory had before the agent made it idle.
WEIGHT_BEFORE = "user.penstock.cpu_weight"
_DEFAULT_WEIGHT = 100


class IdleClass:
    """Makes directories idle and regular again. One that another program made idle stays as it is.

    Args:
        directories: from the top down.
    """

    def __init__(self, directories: Sequence[Path], filesystem: Filesystem) -> None:
        self._each = tuple(_Directory(directory, filesystem) for directory in directories)

    def set(self, idle: bool) -> list[str]:
        """Set the class of all of them; return the names of those that had to be changed.

        A directory that the kernel or the delegation does not let become idle stays regular: it lacks the file (before
        Linux 5.15), the controller, or extended attributes.

        Raises:
            OSError: a directory cannot be made regular again.
        """
        if idle:
            return [each.name for each in self._each if each.make_idle()]
        changed, failed = [], []
        for each in self._each:
            try:
                if each.make_regular():
                    changed.append(each.name)
            except OSError as error:  # the others are made regular nevertheless
                failed.append(error)
        if failed:
            raise failed[0]
        return changed


class _Directory:
    def __init__(self, path: Path, filesystem: Filesystem) -> None:
        self.name = path.name
        self._path = bytes(path)
        self._filesystem = filesystem
        self._cpu = CpuFiles(path, filesystem)

    def make_idle(self) -> bool:
        try:
            if self._cpu.idle:
                return False
            self._filesystem.set_attribute(self._path, WEIGHT_BEFORE, b"%d" % self._cpu.weight)
        except OSError:
            return False
        try:
            self._cpu.idle = True
        except OSError:  # a delegated directory: its own files belong to its creator
            self._filesystem.set_attribute(self._path, WEIGHT_BEFORE, None)
            return False
        return True

    def make_regular(self) -> bool:
        try:
            weight = self._filesystem.attribute(self._path, WEIGHT_BEFORE)
            if weight is None:
                return False
            if self._cpu.idle:  # else another program has set a weight meanwhile
                self._cpu.idle = False
                if int(weight) != _DEFAULT_WEIGHT:
                    self._cpu.weight = int(weight)
            self._filesystem.set_attribute(self._path, WEIGHT_BEFORE, None)
        except (FileNotFoundError, NotSupported):
            return False
        return True

"""The settings of the cgroup above all containers: their limits together, their protected memory, their class."""

from __future__ import annotations

import structlog

from agent.cgroups import CgroupTree

log = structlog.get_logger()


class ContainersCgroup:
    """One per agent. ``tree`` None: nothing is enforced."""

    def __init__(self, tree: CgroupTree | None) -> None:
        self._tree = tree
        self._protected_bytes = 0
        self._idle = False

    def cap(self, *, memory_bytes: int, cores: float | None, pids: int | None) -> dict[str, str]:
        """Limit all containers together; return each limit that cannot be enforced → why."""
        if self._tree is None:
            return {}
        return self._tree.cap(
            memory_max_bytes=memory_bytes, cpu_cores=cores, memory_low_bytes=self._protected_bytes, pids_max=pids
        )

    def protect(self, protected_bytes: int, *, less: bool) -> None:
        """Protect the sum of the containers' promised memory here, too: memory.low is limited by that of the ancestors.

        It is lowered (``less``) once a sample only: often a container follows one that ended, and more does no harm.
        """
        missing = protected_bytes - self._protected_bytes
        if self._tree is not None and (missing > 0 or (less and missing)):
            self._protected_bytes = protected_bytes
            self._tree.protect(protected_bytes)

    def make_idle(self, idle: bool) -> None:
        """Put all containers together behind the host's other processes, or no longer."""
        if self._tree is None or idle == self._idle:
            return
        self._idle = idle
        try:
            self._tree.make_idle(idle)
        except OSError as error:  # the next repair tries again
            log.error("the class of all containers together could not be changed", idle=idle, why=str(error))

"""Remove an ended container from the kernel: its cgroup, then its network class."""

from __future__ import annotations

import asyncio

import structlog

from agent.cgroups import CgroupTree
from agent.fault_injection import Point, reach
from agent.limit_enforcer import LimitEnforcer

log = structlog.get_logger()
#: A killed cgroup is removable once its processes are reaped: within milliseconds, unless the disk hangs.
_WAITS_S = (0.0, 0.005, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0)


class Removals:
    """Removes the cgroups of ended containers, now or once their last process has died."""

    def __init__(self, tree: CgroupTree | None, limit_enforcer: LimitEnforcer) -> None:
        self._tree = tree
        self._limit_enforcer = limit_enforcer
        self._left: set[str] = set()  # their processes did not die in time

    async def remove(self, container: str) -> None:
        """Remove a container, or leave it to :meth:`remove_left` if its processes do not die."""
        await self._limit_enforcer.settled(container)
        for wait_s in _WAITS_S:
            await asyncio.sleep(wait_s)
            if await self._removed(container):
                return
        self._left.add(container)
        log.warning("an ended container's processes do not die; it is removed once they do", container=container)

    async def remove_left(self) -> None:
        """Remove the containers that have no process any more."""
        for container in sorted(self._left):
            if await self._removed(container):
                self._left.discard(container)

    async def _removed(self, container: str) -> bool:
        """Remove the cgroup, then the network class, which limits it until then; return False while it is populated."""
        if self._tree is not None and not self._tree.get(container).remove():
            return False
        reach(Point.REMOVE_CGROUP_DONE)
        await self._limit_enforcer.remove(container)
        reach(Point.REMOVE_NETWORK_DONE)
        return True

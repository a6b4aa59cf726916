"""What an earlier agent left behind: the limits of what runs, and the recorded containers that never began."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from agent.cgroups import CgroupTree
from agent.core.confinement import Confinement, confine
from agent.core.records import ContainerRecord, ContainerState


def never_began(
    containers: Iterable[ContainerRecord], known: AbstractSet[str], tree: CgroupTree | None, *, same_launcher: bool
) -> frozenset[str]:
    """Return the containers that can be started anew, because nothing of them has ever run.

    A container is journaled as ``starting`` before the launcher is asked for it, and as ``running`` afterwards. So one
    that is still ``starting`` never ran if the launcher that would have been asked has never heard of it. Another
    launcher cannot tell: the one before it may have started the container, and died.

    Args:
        containers: as the journal has them.
        known: containers that the launcher runs, or of which it has told the end.
        tree: None: there are no cgroups.
        same_launcher: whether the launcher is the one that the earlier agent was connected to.
    """
    if not same_launcher:
        return frozenset()
    return frozenset(
        record.container
        for record in containers
        if record.state in {ContainerState.STARTING, ContainerState.STOPPING}
        and not record.pid
        and record.container not in known
        and not (tree is not None and tree.get(record.container).populated())
    )


def confinements(containers: Iterable[ContainerRecord], running: Collection[str]) -> dict[str, Confinement]:
    """Return what the kernel was told of each container that runs; nothing of those without a record."""
    recorded = {
        record.container: confine(
            record.spec, record.limits, opportunistic=record.opportunistic, promise=record.promise
        )
        for record in containers
        if record.container in running
    }
    return dict.fromkeys(running, Confinement()) | recorded

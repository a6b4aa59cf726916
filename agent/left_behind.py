"""What an earlier agent left behind: which recorded containers never began, judged by the launcher and the cgroups."""

from __future__ import annotations

from collections.abc import Iterable
from collections.abc import Set as AbstractSet

from agent.cgroups import CgroupTree
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

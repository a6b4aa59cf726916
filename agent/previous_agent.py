"""The state that an earlier agent left, from its journal, the launcher and the cgroups."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable
from collections.abc import Set as AbstractSet

from agent import last_report
from agent.cgroups import CgroupTree
from agent.core import cancelled_jobs, draining, origin_journal, starvation
from agent.core import events as e
from agent.core.attained_service import LastCount
from agent.core.confinement import Confinement
from agent.core.records import CancelledJob, ContainerRecord, ContainerState, HeldTask, JobRecord, TaskEnd, Waits
from agent.journal import Journal
from agent.launcher import Running
from penstock.wire.cluster_api import Draining
from penstock.wire.master_api import AwaitedTask


def recovered_state(
    journal: Journal,
    runs: Collection[Running],
    exits: frozenset[str],
    tree: CgroupTree | None,
    *,
    same_launcher: bool,
) -> e.Recovered:
    """Return the state that the node has to take over.

    Args:
        journal: of the earlier agent.
        runs: the containers that the launcher runs.
        exits: containers whose exits the launcher has reported.
        tree: None: there are no cgroups, so containers of a dead launcher cannot be found.
        same_launcher: whether the launcher is the one that the earlier agent would have asked for containers.
    """
    last = last_report.read(journal)
    containers = journal.read("containers", ContainerRecord)
    live = [record for record in containers if record.ended is None]
    running = {run.container: run.pid for run in runs}
    orphans = _orphans(live, running.keys() | exits, tree)
    return e.Recovered(
        jobs=journal.read("jobs", JobRecord),
        tasks=journal.read("tasks", HeldTask),
        containers=containers,
        running=running | orphans,
        orphans=frozenset(orphans),
        never_began=_never_began(live, running.keys() | orphans.keys() | exits) if same_launcher else frozenset(),
        exits_to_come=exits,
        at=time.time(),
        draining=next(iter(journal.read(draining.ROOM, Draining)), None),
        waits=next(iter(journal.read(starvation.ROOM, Waits)), None),
        owners={run.container: run.user for run in runs},
        ends=journal.read(origin_journal.ENDS, TaskEnd),
        awaited=journal.read(origin_journal.AWAITED, AwaitedTask),
        cancelled=journal.read(cancelled_jobs.ROOM, CancelledJob),
        cpu_s=_counted_s(last, live, running.keys() | orphans.keys(), tree),
        service_s=last.service_s if last is not None else {},
        own=last.own if last is not None else [],
        ended_s=last.ended_s if last is not None else {},
    )


def _counted_s(
    last: LastCount | None, containers: Iterable[ContainerRecord], running: AbstractSet[str], tree: CgroupTree | None
) -> dict[str, float]:
    """Return the CPU time of each container that earlier agents have counted, in seconds. If none has recorded it, all
    until now is taken as counted, as far as it can be read.

    The record lacks containers that were started later; nothing of these is counted. What a container used for jobs
    that are over, or in earlier turns of others, is not counted again.
    """
    if last is None:
        return _cpu_times_s(running, tree)
    earlier_s = {record.container: record.cpu_told_apart_s for record in containers}
    names = running | last.cpu_s.keys()
    return {name: max(last.cpu_s.get(name, 0.0), earlier_s.get(name, 0.0)) for name in names}


def _orphans(containers: Iterable[ContainerRecord], known: AbstractSet[str], tree: CgroupTree | None) -> dict[str, int]:
    """Return container → pid for running containers that no launcher knows: theirs died."""
    found = {}
    for record in containers:
        if tree is not None and record.container not in known and (cgroup := tree.get(record.container)).populated():
            found[record.container] = record.pid or next(iter(cgroup.pids()), 0)
    return found


def _cpu_times_s(containers: Iterable[str], tree: CgroupTree | None) -> dict[str, float]:
    """Return the CPU time that each container has used, in seconds, as far as it can be read."""
    found: dict[str, float] = {}
    if tree is None:
        return found
    for container in containers:
        with contextlib.suppress(OSError):
            if (used_s := tree.get(container).cpu_s()) is not None:
                found[container] = used_s
    return found


def _never_began(containers: Iterable[ContainerRecord], known: AbstractSet[str]) -> frozenset[str]:
    """Return the containers that can be started anew, because none of their processes ever ran.

    A container is journaled as ``starting`` before the launcher is asked for it, and as ``running`` afterwards. So one
    that is still ``starting`` never ran if the launcher that would have been asked does not know it. Another launcher
    cannot tell: the former one may have started the container, and died.
    """
    return frozenset(
        record.container
        for record in containers
        if record.state in {ContainerState.STARTING, ContainerState.STOPPING}
        and not record.pid
        and record.container not in known
    )


def confinements(containers: Iterable[ContainerRecord], running: Collection[str]) -> dict[str, Confinement]:
    """Return the last confinement of each running container; an empty one without a record."""
    recorded = {record.container: record.confine().confinement for record in containers if record.container in running}
    return dict.fromkeys(running, Confinement()) | recorded

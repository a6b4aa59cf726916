"""The cgroups that containers share: one for each job that may have several containers on this node. Pure.

The kernel gives what a container leaves of its weight to its siblings first. So a job's containers are siblings in a
cgroup of their own, whose weight is the sum of theirs: what one of them leaves, because it waits, goes to the others.

A container's place is decided when it is created, and never changes. An opportunistic container is in no group, as
``cpu.idle`` orders it among its siblings only, and it has to be behind all ranks; nor is a container without a job.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from itertools import islice

from agent.core.confinement import MOST_WEIGHT, Confinement
from agent.core.membership import Membership
from agent.core.records import ContainerRecord

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST = 64


def group_of(job: str) -> str:
    """Return the name of a job's group: its id, or a hash of it if the name of its node makes it no safe file name."""
    safe = _SAFE.issuperset(job) and 0 < len(job) <= _LONGEST
    return job if safe else hashlib.sha256(job.encode()).hexdigest()


def has_group(record: ContainerRecord, members: Membership, *, has_others: bool) -> bool:
    """Return whether a container that starts for a job is in that job's group. ``has_others``: the job has others here.

    A group is made only for a job that may have several containers here, because making and removing one takes as long
    as it does for a container. Their number is unknown for lent processes (workers of a framework), for executors, and
    for jobs of other nodes, as the master names one task at a time: these have a group. A job of this node has one if
    the last two tasks that it asked for have not ended, or if one of its connections is from a container (its manager,
    its driver). If more tasks come later, the first container stays outside: the rule for weights (:func:`together`)
    holds for any mix.
    """
    job = members.jobs.get(record.job)
    if record.opportunistic or job is None:
        return False
    if has_others or record.borrowed or record.executor is not None or not job.record.here:
        return True
    last = [*islice(reversed(job.tasks.values()), 2)]
    if len(last) > 1 and last[0].ended is None and last[1].ended is None:
        return True
    return any(members.sessions[session].container for session in job.sessions)


def together(members: Collection[Confinement]) -> Confinement:
    """Return the settings of a group with these members: its weight is the sum of theirs, so that their shares beside
    all others stay the same as without it, and so do promises while all of them use theirs.

    Memory is protected only up to the protection of the group. Its containers take turns on a disk as one.
    """
    return Confinement(
        cpu_weight=min(MOST_WEIGHT, sum(member.cpu_weight for member in members)),
        memory_min_bytes=sum(member.memory_min_bytes for member in members),
        memory_low_bytes=sum(member.memory_low_bytes for member in members),
        disk_weight=max(member.disk_weight for member in members),
    )

"""The cgroups that containers share: one for each job that may have several containers on this node. Pure.

The kernel gives what a container leaves of its weight to its siblings first. So a job's containers are siblings in a
cgroup of their own, whose weight is the sum of theirs: what one of them leaves, because it waits, goes to the others.
Where the master serves tenants by shares, the cgroups of a tenant's jobs are siblings in one of the tenant.

A container's place is decided when it is created, and never changes. An opportunistic container is in no group, as
``cpu.idle`` orders it among its siblings only, and it has to be behind all ranks. Nodes of more than 100 cores have no
groups: their weights may exceed the kernel's largest, and a promise would be cut with them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from itertools import islice

from agent.core.confinement import MOST_WEIGHT, WEIGHT_PER_CORE, Confinement
from agent.core.containers import Containers
from agent.core.membership import Membership
from agent.core.records import ContainerRecord

_SAFE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
_LONGEST = 64
_OF_JOB = ".job"


def group_of(job: str) -> str:
    """Return the name of a job's group: its id, or a hash of it if the name of its node makes it no safe file name."""
    safe = _SAFE.issuperset(job) and 0 < len(job) <= _LONGEST
    return f"{job if safe else hashlib.sha256(job.encode()).hexdigest()}{_OF_JOB}"


def group_of_tenant(tenant: str) -> str:
    """Return the name of a tenant's group, a hash of the tenant's."""
    return f"{hashlib.sha256(tenant.encode()).hexdigest()[:32]}.tenant"


class GroupPlaces:
    """Decides in which groups a container starts; all of a job that are in its group are in the same place.

    A job's group is made only for one that may have several containers here, because making and removing one takes as
    long as it does for a container. Their number is unknown for lent processes (workers of a framework), for executors,
    and for jobs of other nodes, as the master names one task at a time: these have a group. A job of this node has one
    if it has other containers here, if the last two tasks that it asked for have not ended, or if one of its
    connections is from a container (its manager, its driver). If more tasks come later, the first container stays
    outside: the rule for weights (:func:`together`) holds for any mix.
    """

    def __init__(self, members: Membership, containers: Containers, cores: float) -> None:
        self._members = members
        self._containers = containers
        #: Beyond so many cores the sum of all weights may exceed what the kernel takes, so a group's would be cut.
        self._none = cores * WEIGHT_PER_CORE > MOST_WEIGHT

    def of(self, record: ContainerRecord, *, manages: str, has_others: bool) -> tuple[str, ...]:
        """Return the groups of a container that starts, its tenant's and its job's, without those that it is not in.

        Args:
            manages: the job that the container will manage; "": none.
            has_others: whether its job has other containers here.
        """
        if record.opportunistic or self._none:
            return ()
        job = self._members.jobs.get(record.job)
        tenant: tuple[str, ...] = ()
        tenants = self._members.tenants
        if tenants and (job is None or job.record.reserved_cores != 0):  # one ahead of its reservation's time has none
            if record.user in tenants:
                tenant = (group_of_tenant(tenants[record.user][0]),)
            elif self._members.all_tenants_known or not (record.job or manages):  # a tenant of its own
                tenant = (group_of_tenant(record.user),)
        if manages:
            return self._place(manages, tenant)
        if job is None:
            return tenant
        last = [*islice(reversed(job.tasks.values()), 2)]
        connected = job.sessions & self._members.sessions.keys()  # without one that closes, and leaves its jobs next
        if (
            (has_others or record.borrowed or record.executor is not None or not job.record.here)
            or (len(last) > 1 and last[0].ended is None and last[1].ended is None)
            or any(self._members.sessions[session].container for session in connected)
        ):
            return self._place(record.job, tenant)
        return tenant

    def _place(self, job: str, tenant: tuple[str, ...]) -> tuple[str, ...]:
        """Return the place of a job's group, or of one merged into it, where it is already, else in its tenant's."""
        group = group_of(job)
        for record in self._containers.live.values():
            if group in record.groups or (record.job == job and record.groups and record.groups[-1].endswith(_OF_JOB)):
                return record.groups
        return *tenant, group


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

"""The tenants of the jobs' users: a mapping that follows each change of a job, also of an earlier agent's."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as st

from agent.core.groups import group_of_tenant
from agent.core.membership import Membership
from agent.core.records import JobRecord
from penstock.wire.master_api import SetPriority
from tests.unit.agent.core.ranks_bed import TenantsBed

TENANTS = st.sampled_from(["", "research", "teaching"])
JOBS = [("ann", "a1"), ("ann", "a2"), ("ann", "a3"), ("bob", "b1")]


WEIGHTS = st.sampled_from([1.0, 3.0])
CONFIGURED = st.none() | st.dictionaries(
    st.sampled_from(["ann", "bob", "max"]), st.tuples(TENANTS.filter(bool), WEIGHTS), max_size=2
)


def expected(
    members: Membership, configured: Mapping[str, tuple[str, float]] | None = None
) -> dict[str, tuple[str, float]]:
    """The tenant of each user's latest job that has one, else as it is configured."""
    records = [job.record for job in members.jobs.values()]
    of_jobs = {record.user: (record.tenant, record.tenant_weight) for record in records if record.tenant}
    return {**(configured or {}), **of_jobs}


@given(st.lists(st.tuples(st.sampled_from(JOBS), st.booleans(), TENANTS, WEIGHTS) | CONFIGURED))
def test_they_are_those_of_each_user_s_latest_job_that_has_one_else_those_configured(
    steps: list[tuple[tuple[str, str], bool, str, float] | dict[str, tuple[str, float]] | None],
) -> None:
    """A step adds a job, as an earlier agent's record has it, ends it, sets its tenant, or is a master's word."""
    members = Membership()
    configured: Mapping[str, tuple[str, float]] | None = None
    for step in steps:
        if not isinstance(step, tuple):
            configured = step
            members.name_tenants(configured)
            assert members.tenants == expected(members, configured)
            continue
        (user, job), ends, tenant, weight = step
        known = members.jobs.get(job)
        if known is None:
            members.add(JobRecord(job=job, name="n", user=user, tenant=tenant, tenant_weight=weight))
        elif ends:
            members.remove(known)
        else:
            by = SetPriority(job=job, priority=0.0, tenant=tenant, tenant_weight=weight)
            assert members.set_priority(known.record, by) or (tenant, weight) == (
                known.record.tenant, known.record.tenant_weight,
            )  # fmt: skip
        assert members.tenants == expected(members, configured)


def test_the_next_agent_has_them_and_the_start_of_a_container_asks_no_job() -> None:
    bed = TenantsBed()
    before = bed.run("ann")
    bed.told(before, tenant="research", weight=3.0)
    bed.restart(before)
    bed.node.jobs[bed.job_of[before]].record.tenant = "another"  # without the method that changes it
    alone = bed.alone("ann")
    assert bed.node.containers.live[alone].groups == (group_of_tenant("research"),)

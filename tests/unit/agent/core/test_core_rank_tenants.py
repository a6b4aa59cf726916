"""The tenants' shares of a node: their parts of the weight, and ranks among the jobs of each."""

from __future__ import annotations

import pytest

from agent.core.confinement import WEIGHT_PER_CORE
from agent.core.rank_order import BY_MASTER, BY_TURN
from agent.core.rank_weights import NICE_LAST, apportion, nice_of, unpromised_weight
from penstock.model import Limits
from penstock.wire.cluster_api import NodeRanks
from tests.unit.agent.core.ranks_bed import TenantsBed

ALL = unpromised_weight(2.0, 0.0)


@pytest.fixture
def bed() -> TenantsBed:
    return TenantsBed()


def test_a_tenant_of_many_jobs_and_one_of_a_single_job_have_half_each(bed: TenantsBed) -> None:
    many, single = [bed.run("ann") for _ in range(5)], bed.run("bob")
    before = bed.weight(single)
    assert sum(bed.weight(each) for each in many) > 10 * before, "one order of all jobs, without tenants"
    bed.told(*many, tenant="ann")
    bed.told(single, tenant="bob")
    assert bed.weight(single) == sum(bed.weight(each) for each in many) == ALL // 2
    weights = [bed.weight(each) for each in many]
    assert weights == sorted(weights, reverse=True) and weights[0] > 10 * weights[1]
    assert [bed.said(each).rank for each in [*many, single]] == [1, 2, 3, 4, 5, 1]
    assert bed.said(single).of == 1
    assert bed.said(many[1]).why == f"{BY_MASTER}, 50 % of the node for ann"


def test_a_node_is_divided_by_the_weights_of_the_tenants(bed: TenantsBed) -> None:
    one, two = bed.run("ann"), bed.run("bob")
    bed.told(one, tenant="research", weight=3.0)
    bed.told(two, tenant="bob")
    assert bed.weight(one) / bed.weight(two) == pytest.approx(3.0, rel=0.05)
    assert bed.weight(one) + bed.weight(two) == ALL
    assert bed.nice == {one: nice_of(0, 2 * 0.75), two: nice_of(0, 2 * 0.25)}
    assert bed.nice[two] - bed.nice[one] == 5, "1.25 to the power of 5 is 3"


def test_the_first_job_of_each_tenant_is_the_first_on_disks_and_on_the_network(bed: TenantsBed) -> None:
    first, second, single = bed.run("ann"), bed.run("ann"), bed.run("bob")
    bed.told(first, second, tenant="ann")
    bed.told(single, tenant="bob")
    live = bed.node.containers.live
    assert [live[each].confine().confinement.rank for each in (first, second, single)] == [0, 1, 0]
    assert [live[each].confine().confinement.disk_weight for each in (first, second, single)] == [1000, 62, 1000]


def test_users_of_one_tenant_share(bed: TenantsBed) -> None:
    ann, max_, bob = bed.run("ann"), bed.run("max"), bed.run("bob")
    bed.told(ann, max_, tenant="research")
    bed.told(bob, tenant="bob")
    assert bed.weight(ann) + bed.weight(max_) == bed.weight(bob)
    assert bed.weight(ann) > 10 * bed.weight(max_)


def test_a_container_of_no_job_is_of_its_user_s_tenant_or_of_its_user(bed: TenantsBed) -> None:
    job, own, other = bed.run("ann"), bed.alone("ann"), bed.alone("bob")
    bed.told(job, tenant="research", weight=3.0)
    assert bed.weight(job) + bed.weight(own) == pytest.approx(3 * bed.weight(other), rel=0.05)
    assert bed.said(own).tenant == "research" and bed.said(other).tenant == "bob"
    bed.told(job, tenant="")
    assert bed.said(other).of == 3, "the master has no tenants any more"


def test_a_node_without_jobs_is_divided_among_the_configured_tenants_and_other_users(bed: TenantsBed) -> None:
    many, own, other = [bed.alone("ann") for _ in range(5)], bed.alone("max"), bed.alone("bob")
    bed.node.name_tenants({"ann": ("research", 3.0), "max": ("research", 3.0)})
    bed.sample()
    assert sum(map(bed.weight, [*many, own])) == pytest.approx(3 * bed.weight(other), rel=0.05)
    bed.node.name_tenants(None)
    bed.sample()
    assert bed.said(other).of == 7, "the master has no tenants any more"


def test_promised_cores_come_before_the_shares(bed: TenantsBed) -> None:
    promised, one, two = bed.run("ann", cpu_cores=1.0, limits=Limits(cpu_cores=1.0)), bed.run("ann"), bed.run("bob")
    bed.told(promised, one, tenant="ann")
    bed.told(two, tenant="bob")
    assert bed.weight(promised) == WEIGHT_PER_CORE
    assert bed.weight(one) + bed.weight(two) == unpromised_weight(2.0, 1.0)
    assert abs(bed.weight(one) - bed.weight(two)) <= 1


def test_a_job_ahead_of_its_reservation_takes_only_the_remainder_and_not_its_tenant_s_share(
    bed: TenantsBed,
) -> None:
    best, reserved = bed.run("ann"), bed.run("bob")
    bed.told(best, tenant="ann")
    bed.told(reserved, tenant="bob", reserved_cores=0.0)
    assert (bed.weight(best), bed.weight(reserved)) == (ALL, 1)
    assert bed.nice[reserved] == NICE_LAST
    bed.told(reserved, tenant="bob", reserved_cores=1.0)
    assert bed.weight(reserved) >= WEIGHT_PER_CORE


def test_each_tenant_s_jobs_have_turns_of_their_own() -> None:
    bed = TenantsBed(job_wait_max_s=30.0)
    first, second, single = bed.run("ann"), bed.run("ann"), bed.run("bob")
    bed.told(first, second, tenant="ann")
    bed.told(single, tenant="bob")
    turns = []
    for _ in range(45):
        bed.sample(**{each.replace("-", "_"): 0.3 for each in (first, second, single)})
        assert abs(bed.weight(first) + bed.weight(second) - bed.weight(single)) <= 1
        if bed.said(second).rank == 1:
            turns.append(bed.said(second).why)
    assert turns == [f"{BY_TURN}, 50 % of the node for ann"], turns


def test_the_tenants_survive_the_agent_while_the_master_is_away(bed: TenantsBed) -> None:
    container = bed.run("ann")
    bed.told(container, tenant="research", weight=3.0)
    bed.restart(container)
    record = bed.node.jobs[bed.job_of[container]].record
    assert (record.tenant, record.tenant_weight) == ("research", 3.0)


def test_the_master_gets_the_ranks_with_their_tenants(bed: TenantsBed) -> None:
    first, second, single = bed.run("ann"), bed.run("ann"), bed.run("bob")
    told = bed.node.rank_report
    flat = told.changed()
    assert flat is not None and flat.tenants == [], "an older master knows no such key"
    bed.told(first, second, tenant="ann")
    bed.told(single, tenant="bob")
    ranks = told.changed()
    assert ranks is not None and [*zip((name for name, _ in ranks.jobs), ranks.tenants, strict=True)] == [
        (bed.job_of[first], "ann"), (bed.job_of[single], "bob"), (bed.job_of[second], "ann"),
    ]  # fmt: skip
    beside = ranks.beside(bed.job_of[second])
    assert [name for name, _ in beside.jobs] == [bed.job_of[first], bed.job_of[second]] and beside.of == 2
    assert NodeRanks(jobs=[("a", 1)], of=5).beside("a").of == 5


def test_the_parts_of_tenants_sum_up() -> None:
    assert apportion(191, [1.0, 1.0, 1.0]) == [64, 63, 64]
    assert apportion(100, [3.0, 1.0, 0.0]) == [75, 25, 0]
    assert apportion(7, [0.0]) == [0] and apportion(7, []) == []

"""Tenants above an order: each has its share, with any jobs, and the order decides inside it."""

from __future__ import annotations

from copy import deepcopy
from itertools import groupby
from typing import Any

import pytest

from master.ordering import (
    NAMES,
    Guarantee,
    HandOrder,
    JobSizes,
    JobView,
    Ordering,
    OrderingSettings,
    Tenants,
    TenantTree,
    guarantees_first,
    ordering_of,
    placed_by_hand,
)
from penstock.model.resource_vector import SlotVector
from tests.unit.master.ordering.test_ordering_policies import TEN, filled

INSIDE = [name for name in NAMES if name not in {"drf", "fair"}]


def job(name: str, tenant: str = "", **values: Any) -> JobView:
    user = tenant.rsplit("/", maxsplit=1)[-1]
    return JobView(name, tenant, **{"user": user, "needs": 50.0, "wants": 50.0, **values})


def ordering(name: str = "gittins", sizes: JobSizes | None = None, **settings: Any) -> Ordering:
    return ordering_of(OrderingSettings(name, by_tenant=True, **settings), sizes)


def of_tenant(given: dict[str, int], *jobs: JobView) -> dict[str, int]:
    return {
        tenant: sum(given[each.job] for each in jobs if each.tenant == tenant)
        for tenant in dict.fromkeys(each.tenant for each in jobs)
    }


@pytest.mark.parametrize("name", INSIDE)
def test_under_every_order_one_user_with_many_jobs_gets_as_much_as_one_with_a_single_job(name: str) -> None:
    jobs = [job(f"a{at}", "ann", submitted_at=float(at)) for at in range(8)]
    jobs.append(job("b", "bob", submitted_at=50.0, service=500.0, remaining=(90.0, 0.0, 0.0)))
    alone = ordering_of(OrderingSettings(name)).rank(jobs, TEN)
    assert alone.order()[-1] == "b"
    assert of_tenant(filled(ordering(name).rank(jobs, TEN), *jobs, count=10), *jobs) == {"ann": 5, "bob": 5}


@pytest.mark.parametrize("name", INSIDE)
def test_inside_a_tenant_the_order_decides(name: str) -> None:
    """The tenants' jobs have the order, and the keys, that they would have without the others."""
    mine = [
        job("old", "ann", submitted_at=1.0, service=30.0, remaining=(9.0, 0.0, 0.0), needs=9.0),
        job("young", "ann", submitted_at=9.0, service=2.0, remaining=(1.0, 0.0, 0.0), needs=1.0),
        job("middle", "ann", submitted_at=5.0, service=9.0, remaining=(4.0, 0.0, 0.0), needs=4.0),
    ]
    others = [job(f"b{at}", "bob", submitted_at=float(at), service=float(at)) for at in range(5)]
    alone = ordering_of(OrderingSettings(name)).rank(mine, TEN)
    ranking = ordering(name).rank([*others, *mine], TEN)
    own = [each for each in ranking.order() if each in {"old", "young", "middle"}]
    assert own == alone.order()
    assert sorted(own, key=lambda each: ranking.key(each, 1.0), reverse=True) == sorted(
        own, key=lambda each: alone.key(each, 1.0), reverse=True
    )
    assert ranking.key("old", 2.0) > ranking.key("old", 1.0)
    assert [tenant for tenant, _ in groupby(ranking.order(), key=lambda each: each[0] == "b")] in (
        [True, False], [False, True],
    ), "tenants take turns"  # fmt: skip


def test_shares_are_by_weight_along_the_tree() -> None:
    jobs = [job("r1", "research/eve"), job("r2", "research/bob"), job("p", "production")]
    weighted = ordering(weights={"production": 3.0, "research/eve": 3.0}).rank(jobs, TEN)
    assert filled(weighted, *jobs, count=16) == {"r1": 3, "r2": 1, "p": 12}


def test_jobs_of_a_tenant_with_sub_tenants_are_one_sub_tenant() -> None:
    jobs = [job("own1", "research"), job("own2", "research"), job("eve", "research/eve"), job("p", "production")]
    given = filled(ordering("fifo").rank(jobs, TEN), *jobs, count=8)
    assert given["own1"] + given["own2"] == given["eve"] == 2 and given["p"] == 4


def test_what_is_held_counts_whatever_the_resource() -> None:
    memory = job("memory", "ann", holds=SlotVector(0.0, 0.0, 0.0, 500.0))
    cores = job("cores", "bob", holds=SlotVector(4.0))
    assert filled(ordering().rank([memory, cores], TEN), memory, cores, count=2) == {"memory": 1, "cores": 1}


def test_a_single_tenant_is_served_as_without_tenants() -> None:
    jobs = [job("a", "ann"), job("b", "ann")]
    assert ordering("gittins").rank(jobs, TEN).whole_stages
    assert not ordering("gittins").rank([*jobs, job("c", "bob")], TEN).whole_stages
    assert not ordering("las").rank(jobs, TEN).whole_stages


def test_drf_and_fair_have_their_own_shares() -> None:
    assert not any(isinstance(ordering(name), Tenants) for name in ("drf", "fair"))
    assert not any(isinstance(ordering_of(OrderingSettings(name)), Tenants) for name in NAMES)
    assert all(isinstance(ordering(name), Tenants) for name in INSIDE)


# ---------------------------------------------------------------- turns, where an order is all that is known


@pytest.mark.parametrize("weight", [1.0, 3.0])
def test_tenants_take_turns_by_their_service(weight: float) -> None:
    tenants = ordering(weights={"bob": weight})
    received, turns = {"a1": 0.0, "a2": 0.0, "b": 0.0}, []
    for _ in range(400):
        jobs = [job(name, "ann" if name[0] == "a" else "bob", service=done) for name, done in received.items()]
        turns.append(tenants.rank(jobs, TEN).order()[0])
        received[turns[-1]] += 1.0
    assert turns.count("b") / len(turns) == pytest.approx(weight / (1 + weight), abs=0.02)


def test_short_jobs_that_end_between_two_looks_count_for_their_tenant() -> None:
    tenants = ordering("fifo")
    long = {"submitted_at": 9.0}
    for at in range(20):
        jobs = [job(f"short{at}", "ann", submitted_at=1.0), job("long", "bob", **long, service=1.0)]
        tenants.rank(jobs, TEN)
        assert isinstance(tenants, Tenants)
        tenants.ended(f"short{at}", "ann", 2.0)
    jobs = [job("short", "ann", submitted_at=1.0), job("long", "bob", **long, service=1.0)]
    ranking = tenants.rank(jobs, TEN)
    assert ranking.order() == ["long", "short"]
    assert "and has received 40 s more service" in ranking.reason("short").said


def test_a_read_only_request_moves_no_turn_and_copies_no_sizes() -> None:
    sizes = JobSizes()
    tenants = ordering(sizes=sizes)
    tenants.rank([job("a", "ann"), job("b", "bob")], TEN)
    later = [job("a", "ann", service=5.0), job("b", "bob")]
    looked = deepcopy(tenants, {id(sizes): sizes}).rank(later, TEN).order()
    assert looked == tenants.rank(later, TEN).order() == ["b", "a"]


# ---------------------------------------------------------------- order and equal places


def test_guarantees_come_before_shares() -> None:
    jobs = [job("a", "ann"), job("b", "bob", holds=SlotVector(5.0))]
    ranking = guarantees_first(
        ordering().rank(jobs, TEN), {"b": "r"}, {"r": Guarantee(SlotVector(7.0), [5.0, 0, 0, 0])}
    )
    assert filled(ranking, *jobs, count=4) == {"a": 2, "b": 2}
    assert ranking.order()[0] == "a", "now that the promise is held"


def test_an_owner_s_order_by_hand_moves_none_of_another_tenant() -> None:
    jobs = [job("a1", "ann"), job("a2", "ann", submitted_at=1.0), job("b", "bob", submitted_at=2.0)]
    users = {each.job: each.user for each in jobs}
    ranking = placed_by_hand(ordering("fifo").rank(jobs, TEN), users, {"ann": HandOrder("ann", ("a2",))}, None)
    assert ranking.order() == ["a2", "a1", "b"]
    assert filled(ranking, *jobs, count=4) == {"a1": 0, "a2": 2, "b": 2}


# ---------------------------------------------------------------- messages


def test_the_reason_names_the_tenant_and_its_share() -> None:
    jobs = [job("r1", "research/eve"), job("r2", "research/eve", submitted_at=1.0), job("p", "production")]
    ranking = ordering("fifo", weights={"research": 2.0}).rank(jobs, TEN)
    said = ranking.reason("r2").said
    assert said.startswith(
        "second of research/eve's 2 jobs: submitted 1 min 39 s ago, and the earlier job goes first; "
    )
    assert "research/eve's share is 66.7 %; research holds 0 % of the cores, and no tenant beside it has" in said
    assert said.endswith(", for its weight of 2"), "its only sub-tenant has the same"
    both = ordering("fifo", weights={"research": 2.0}).rank([*jobs, job("b", "research/bob")], TEN)
    assert ", for its weight of 2; research/eve holds" in both.reason("r2").said
    assert ranking.reason("p").said.startswith("the only job of production: ")
    assert ranking.why("p").startswith("tenants: production 0 of cores; fifo: ")


def test_flat_weights_are_in_the_proportion_of_the_shares() -> None:
    weights = {"research": 2.0, "research/eve": 3.0, "ann": 0.5}
    tree = TenantTree(["research/eve", "research/bob", "ann", "bob"], weights)
    assert [tree.flat_weight(tenant) for tenant in tree.paths] == [1.5, 0.5, 0.5, 1.0]
    assert [tree.share(tenant) for tenant in tree.paths] == pytest.approx([1.5 / 3.5, 0.5 / 3.5, 0.5 / 3.5, 1 / 3.5])

"""Places by hand: the jobs that move, no loss for others, and all of a ranking agrees with its order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.ordering import ClusterView, HandOrder, JobView, Ranking, Reason, ordering_of, placed_by_hand
from master.ordering.choice import OrderingSettings
from master.ordering.policy import Strict
from master.ordering.sizes import JobSizes
from penstock.model.resource_vector import SlotVector

USERS = {"e1": "eve", "m1": "max", "e2": "eve", "m2": "max", "e3": "eve"}
POLICY = [*USERS]


def strict(order: list[str]) -> Ranking:
    why = {job: f"place {at}" for at, job in enumerate(order)}
    return Strict(order, why, lambda job: Reason(f"it is {job}", queue=2))


def policy() -> Ranking:
    return strict(POLICY)


def arranged(own: dict[str, HandOrder], of_all: HandOrder | None = None) -> Ranking:
    return placed_by_hand(policy(), USERS, own, of_all)


def test_a_user_s_jobs_change_places_among_themselves() -> None:
    made = arranged({"eve": HandOrder("eve", ("e3", "e2"))})
    assert made.order() == ["e3", "m1", "e2", "m2", "e1"]
    assert made.why("e3") == "put first by eve (penstock jobs --order); else place 4"
    assert made.why("e1") == "place 0"
    assert made.reason("e3") == Reason("put first by eve (penstock jobs --order); else it is e3", queue=2)
    assert made.reason("e1") == Reason("others were put before it by hand; else it is e1", queue=2)
    assert made.reason("m1") == Reason("it is m1", queue=2)


def test_an_operator_s_come_before_all() -> None:
    made = arranged({"eve": HandOrder("eve", ("e3",))}, HandOrder("root", ("m2", "e2")))
    assert made.order() == ["m2", "e2", "e3", "m1", "e1"]
    assert "by root" in made.why("m2")


def test_jobs_of_others_and_unknown_jobs_change_nothing() -> None:
    assert arranged({"eve": HandOrder("eve", ("m2", "gone"))}).order() == POLICY
    assert arranged({}, HandOrder("root", ("gone",))).order() == POLICY


def test_stages_are_placed_in_the_order_of_the_places() -> None:
    made = arranged({"eve": HandOrder("eve", ("e3",))})
    by_key = sorted(POLICY, key=lambda job: made.key(job, 0.0), reverse=True)
    assert by_key == made.order()


def test_a_place_of_a_fair_share_is_charged_to_its_holder() -> None:
    views = [JobView(job, user=user, sequence=at, wants=4.0, needs=4.0) for at, (job, user) in enumerate(USERS.items())]
    cluster = ClusterView(capacity=SlotVector(4.0, 4.0, 4.0, 4.0), containers=4.0)
    fair = ordering_of(OrderingSettings(name="fair"), JobSizes()).rank(views, cluster)
    first = fair.order()[-1]
    made = placed_by_hand(fair, USERS, {}, HandOrder("root", (first,)))
    assert made.order()[0] == first
    before = made.key(first, 1.0)
    made.charge(first, SlotVector(1.0))
    assert made.key(first, 1.0) < before, "it has something now"


@pytest.mark.parametrize("policy", ["fair", "las", "las_mq", "drf"])
def test_the_first_by_hand_is_placed_first_where_a_policy_queues_and_places_in_different_orders(policy: str) -> None:
    views = [
        JobView("a", user="eve", sequence=0, containers=5, holds=SlotVector(2.0), service=0.0, wants=9.0),
        JobView("b", user="eve", sequence=1, containers=0, service=9.0, wants=9.0),
        JobView("c", user="max", sequence=2, containers=1, holds=SlotVector(1.0), service=1.0, wants=9.0),
    ]
    cluster = ClusterView(capacity=SlotVector(6.0, 6.0, 6.0, 6.0), containers=6.0)
    ranking = ordering_of(OrderingSettings(name=policy), JobSizes()).rank(views, cluster)
    for job in "abc":
        made = placed_by_hand(ranking, {view.job: view.user for view in views}, {}, HandOrder("root", (job,)))
        assert made.order()[0] == job
        assert max("abc", key=lambda each: made.key(each, 0.0)) == job
        assert made.room(job) == max(ranking.room(each) for each in "abc")


@given(
    st.lists(st.sampled_from(["eve", "max", "ann"]), min_size=1, max_size=12),
    st.dictionaries(st.sampled_from(["eve", "max", "ann"]), st.lists(st.integers(0, 14), max_size=6)),
    st.none() | st.lists(st.integers(0, 14), max_size=6),
)
def test_it_is_an_order_of_the_same_jobs_and_users_keep_their_places(
    owners: list[str], own: dict[str, list[int]], of_all: list[int] | None
) -> None:
    jobs = [f"j{at}" for at in range(len(owners))]
    users = dict(zip(jobs, owners, strict=True))
    said = {user: HandOrder(user, tuple(f"j{at}" for at in named)) for user, named in own.items()}
    by_users = placed_by_hand(strict(jobs), users, said, None)
    assert sorted(by_users.order()) == sorted(jobs)
    assert [users[job] for job in by_users.order()] == owners
    if of_all is None:
        return
    named = [f"j{at}" for at in dict.fromkeys(of_all) if at < len(jobs)]
    made = placed_by_hand(strict(jobs), users, said, HandOrder("root", tuple(named)))
    assert made.order() == named + [job for job in by_users.order() if job not in named]

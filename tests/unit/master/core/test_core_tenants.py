"""Tenants in the cluster: each gets its share of the slots, and the agents get the tenant of each job."""

from __future__ import annotations

from collections import Counter

import pytest

from master.core import MasterSettings
from master.core import events as e
from master.explain.why import JobExplainer
from penstock.wire import master_api as api
from penstock.wire.cluster_api import NodeRanks
from penstock.wire.master_api import JobUse
from tests.unit.master.cluster_bed import EXIT, Bed, bed, command, job_state

TENANTS = {"max": "research", "eve": "research"}


def two_users(short: int = 8, **settings: object) -> Bed:
    """A user with many jobs of a short command each, and, after them, one with a job of many long commands."""
    b = bed("a", "b", **{"share_chunk_tasks": 1, **settings})
    for at in range(short):
        b.job("a", f"s{at}", at=float(at), user="eve")
        b.ready("a", command(f"s{at}-0", cpu=0), job=f"s{at}")
    b.job("a", "long", at=99.0, user="bob")
    b.ready("a", *[command(f"long-{at}", cpu=0) for at in range(8)], job="long")
    return b


def slots(assigned: list[tuple[str, str]]) -> dict[str, int]:
    return dict(Counter("bob" if task.startswith("long") else "eve" for task, _ in assigned))


def tenants_sent(b: Bed, job: str) -> dict[str, tuple[str, float]]:
    """Return node → the tenant that its agent received last."""
    return {
        node: (said.tenant, said.tenant_weight) for node, said in b.decisions_of(api.SetPriority) if said.job == job
    }


def test_a_node_learns_the_configured_tenants_before_it_has_a_job_of_them() -> None:
    weights = {"research": 3.0, "research/eve": 3.0, "bob": 2.0}
    settings = MasterSettings(
        ordering="gittins", tenants={"eve": "research/eve", "max": "research/max"}, weights=weights
    )
    assert settings.configured_tenants() == {
        "eve": ("research/eve", 2.25), "max": ("research/max", 0.75), "bob": ("bob", 2.0),
    }  # fmt: skip
    assert MasterSettings().configured_tenants() is None
    assert MasterSettings(ordering="fair", weights=weights).configured_tenants() is None


def beat(b: Bed, **jobs: float) -> None:
    b.now += 1.0
    b.heartbeat("a", jobs=[JobUse(job=job, service_s=service_s) for job, service_s in jobs.items()])
    b.round()


@pytest.mark.parametrize("ordering", ["gittins", "srjf", "fifo", "ejf", "las", "las_mq"])
def test_each_tenant_has_its_share_of_the_slots(ordering: str) -> None:
    assert slots(two_users(ordering=ordering, weights={"eve": 1.0}).round()) == {"eve": 4, "bob": 4}
    assert slots(two_users(ordering=ordering, weights={"bob": 3.0}).round()) == {"eve": 2, "bob": 6}


@pytest.mark.parametrize("ordering", ["gittins", "fifo", "ejf"])
def test_without_tenants_and_weights_one_user_may_have_all(ordering: str) -> None:
    b = two_users(ordering=ordering)
    assert slots(b.round()) == {"eve": 8}
    assert {said.tenant for _, said in b.decisions_of(api.SetPriority)} <= {""}


def test_inside_a_tenant_the_order_decides() -> None:
    b = two_users(ordering="gittins", weights={"eve": 1.0})
    b.heartbeat("a", jobs=[JobUse(job=f"s{at}", service_s=50.0) for at in range(4)])
    placed = {task for task, _ in b.round() if not task.startswith("long")}
    assert placed == {f"s{at}-0" for at in range(4, 8)}, "the user with the least service"


def test_a_freed_slot_goes_to_the_tenant_that_holds_less() -> None:
    b = two_users(ordering="fifo", weights={"eve": 1.0})
    placed = dict(b.round())
    gone = next(task for task in placed if task.startswith("long"))
    b.serve(e.Received(placed[gone], api.CommandEnded(job="long", task=gone, origin="a", ended=EXIT)))
    assert slots(b.round()) == {"bob": 1}


def test_tenants_take_turns_in_the_agents_queues() -> None:
    b = two_users(ordering="fifo", short=2, weights={"eve": 1.0})
    beat(b)
    assert b.cluster.order.rank(b.now).order() == ["s0", "s1", "long"]
    beat(b, s0=5.0)
    assert b.cluster.order.rank(b.now).order() == ["long", "s0", "s1"]
    said = {said.job: said.priority for _, said in b.decisions_of(api.SetPriority)}
    assert said["long"] > b.cluster.jobs["s0"].priority


def test_work_that_ended_between_two_heartbeats_counts_for_its_tenant() -> None:
    b = two_users(ordering="fifo", short=2, weights={"eve": 1.0})
    beat(b)
    b.serve(e.Received("a", api.JobEnded(job="s0", done=True, use=JobUse(job="s0", service_s=3.0, last=True))))
    assert b.cluster.order.rank(b.now).order() == ["long", "s1"]


def test_the_agents_get_the_tenant_and_its_weight_and_changes() -> None:
    b = two_users(ordering="fifo", short=1, tenants=TENANTS, weights={"research": 2.0, "bob": 0.5})
    beat(b)
    assert tenants_sent(b, "s0")["a"] == ("research", 2.0)
    assert tenants_sent(b, "long") == {"a": ("bob", 0.5), "b": ("bob", 0.5)}
    before = len(b.decisions_of(api.SetPriority))
    beat(b)
    beat(b)
    assert len(b.decisions_of(api.SetPriority)) == before, "nothing has changed"
    b.serve(e.Reconfigured(MasterSettings(gather_s=0.0, ordering="fifo", tenants=TENANTS, weights={"bob": 3.0})))
    assert tenants_sent(b, "s0")["a"] == ("research", 1.0) and tenants_sent(b, "long")["b"] == ("bob", 3.0)
    b.serve(e.Reconfigured(MasterSettings(gather_s=0.0, ordering="fifo")))
    assert tenants_sent(b, "s0")["a"] == tenants_sent(b, "long")["b"] == ("", 1.0)


def test_under_fair_the_shares_are_of_jobs_and_the_agents_get_no_tenant() -> None:
    b = two_users(ordering="fair", short=1, weights={"bob": 2.0})
    beat(b)
    assert {said.tenant for _, said in b.decisions_of(api.SetPriority)} <= {""}


def test_tenants_from_a_former_master_are_corrected() -> None:
    b = bed(ordering="fifo")
    b.node("a", jobs=[job_state("old", 0, 2.0, admitted=True, priority=-2.0)])
    beat(b)
    assert tenants_sent(b, "old") == {"a": ("", 1.0)}
    b.job("a", "new", at=3.0, priority=-3.0)
    beat(b)
    assert tenants_sent(b, "new") == {}, "nothing is to be corrected"


def test_the_reason_is_given() -> None:
    b = two_users(ordering="fifo", short=3, tenants=TENANTS)
    b.round()
    ranks = NodeRanks(jobs=[("s0", 88), ("long", 88), ("s1", 5)], of=3, tenants=["research", "bob", "research"])
    b.heartbeat("a", ranks=ranks)
    said = JobExplainer.of(b.cluster).document("s1", b.now)
    assert "second of research's 3 jobs: " in said.sentence and "research's share is 50 %" in said.sentence
    assert "on a it is" not in said.sentence, "the first of another tenant is not before it"
    (rank,) = said.ranks
    assert (rank.rank, rank.of, rank.before) == (2, 2, ["s0"])
    assert "research's 3 jobs" in b.listed("s1").reason


@pytest.mark.parametrize("early", [True, False])
def test_a_node_that_has_dropped_a_job_gets_its_tenant_again(early: bool) -> None:
    """It reports the last of the job's work; ``early``: it has been given more of it meanwhile."""
    b = bed("a", "b", weights={"eve": 2.0})
    b.job("a", user="eve")
    b.ready("a", command("one", cpu=0, nodes=("b",)))
    assert b.round() == [("one", "b")]
    b.now += 1.0
    b.round()
    assert tenants_sent(b, "j")["b"] == ("eve", 2.0)
    b.serve(e.Received("b", api.CommandEnded(job="j", task="one", origin="a", ended=EXIT)))
    b.sent.clear()
    last = JobUse(job="j", service_s=1.0, last=True)
    b.ready("a", command("two", cpu=0, nodes=("b",)))
    if early:
        b.round()
        b.heartbeat("b", jobs=[last])
    else:
        b.heartbeat("b", jobs=[last])
        b.round()
    for _ in range(3):
        b.now += 1.0
        b.round()
    assert tenants_sent(b, "j")["b"] == ("eve", 2.0)


def test_an_origin_that_was_away_while_tenants_lost_their_shares_gets_that() -> None:
    b = bed("a", "b", weights={"eve": 2.0})
    b.job("a", user="eve")
    b.ready("a", command("one", cpu=0, nodes=("b",)))
    b.round()
    b.serve(e.NodeAway("a"))
    b.serve(e.Reconfigured(MasterSettings()))
    b.now += 1.0
    b.round()
    b.sent.clear()
    b.node("a", jobs=[job_state("j", user="eve")])
    b.now += 1.0
    b.round()
    assert tenants_sent(b, "j")["a"] == ("", 1.0)


@pytest.mark.parametrize(("ordering", "each_round"), [("gittins", False), ("fifo", False), ("las_mq", True)])
def test_a_round_without_room_does_not_rank_the_jobs_for_the_turns_of_tenants(
    ordering: str, each_round: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    b = bed("a", ordering=ordering, weights={"eve": 1.0})
    b.job("a", "of-eve", at=1.0, user="eve")
    b.job("a", "of-bob", at=2.0, user="bob")
    for job in ("of-eve", "of-bob"):
        b.ready("a", *[command(f"{job}-{at}", 600) for at in range(3)], job=job)
    b.round()
    b.heartbeat("a")
    asked: list[float] = []
    rank = b.cluster.order.rank
    monkeypatch.setattr(b.cluster.order, "rank", lambda now: (asked.append(now), rank(now))[1])
    b.cluster.want_round()
    assert b.round(0.01) == []
    assert bool(asked) is each_round
    beat(b, **{"of-eve": 9.0})
    assert asked, "service has been received: the agents get a new order"
    assert b.cluster.order.rank(b.now).order() == ["of-bob", "of-eve"]

"""The gate's decisions: who waits, who goes on ungated, what the agent is told."""

from __future__ import annotations

import pytest

from penstock.client.gating import SETTLED_S, Complete, Gating, Go, Refuse, Submit, Warn, Withdraw

PATIENCE_S = 10.0


@pytest.fixture
def gating() -> Gating[str]:
    return Gating(PATIENCE_S, 0.0)


@pytest.fixture
def linked(gating: Gating[str]) -> Gating[str]:
    gating.back(1.0)
    return gating


def test_with_the_agent_there_it_is_asked_and_its_grant_is_passed_on(linked: Gating[str]) -> None:
    assert linked.ask("a", 2.0) == [Submit("a")]
    assert linked.deadline is None
    assert linked.granted("a") == [Go("a", gated=True)]
    assert linked.granted("a") == []
    assert linked.release("a", failed=True) == [Complete("a", failed=True)]
    assert linked.release("a", failed=True) == []
    assert linked.cancel("a") == []


def test_nobody_waits_longer_than_patience_from_the_beginning_of_the_outage(gating: Gating[str]) -> None:
    assert gating.ask("a", 1.0) == []
    assert gating.ask("b", 9.0) == []
    assert gating.deadline == PATIENCE_S
    assert gating.tick(9.9) == []
    assert gating.tick(10.0) == [Warn(), Go("a", gated=False), Go("b", gated=False)]
    assert gating.open
    assert gating.ask("c", 11.0) == [Go("c", gated=False)]
    assert gating.deadline is None


def test_the_outage_ends_when_the_agent_is_back_and_the_next_one_is_another(gating: Gating[str]) -> None:
    gating.tick(10.0)
    assert gating.ask("a", 10.0) == [Warn(), Go("a", gated=False)]
    assert gating.back(20.0) == []
    assert not gating.open
    assert gating.ask("b", 21.0) == [Submit("b")]
    gating.lost(30.0)
    assert gating.deadline == 40.0
    assert gating.tick(39.0) == []
    assert gating.tick(40.0) == [Warn(), Withdraw("b"), Go("b", gated=False)]
    assert gating.counts()["outages"] == 2


def test_an_agent_that_keeps_crashing_is_away_all_the_time(linked: Gating[str]) -> None:
    linked.ask("a", 2.0)
    linked.lost(100.0)
    for crash in range(1, 30):
        now = 100.0 + crash * (SETTLED_S / 2)
        if linked.waiting == 0:
            break
        linked.back(now)
        linked.lost(now + SETTLED_S / 4)
        linked.tick(now + SETTLED_S / 4)
    assert now <= 100.0 + PATIENCE_S + SETTLED_S
    assert linked.counts()["ungated"] == linked.counts()["outages"] == 1


def test_who_waits_is_queued_when_the_agent_comes_and_not_twice(gating: Gating[str]) -> None:
    gating.ask("a", 1.0)
    gating.ask("b", 1.0)
    assert gating.back(2.0) == [Submit("a"), Submit("b")]
    gating.lost(4.0)
    gating.ask("c", 4.5)
    assert gating.back(5.0) == [Submit("c")]  # the client announced a and b again itself


def test_what_the_agent_has_forgotten_is_asked_for_anew_and_what_is_held_is_nobodys(linked: Gating[str]) -> None:
    linked.ask("held", 2.0)
    linked.granted("held")
    linked.ask("waiting", 2.0)
    assert linked.forgotten(3.0) == []
    assert linked.back(4.0) == [Submit("waiting")]
    assert linked.release("held", failed=False) == []


@pytest.mark.parametrize("granted", [True, False])
def test_a_cancellation_is_told_to_the_agent(linked: Gating[str], granted: bool) -> None:
    linked.ask("a", 2.0)
    if granted:
        linked.granted("a")
    assert linked.cancel("a") == [Withdraw("a")]
    assert linked.granted("a") == []


def test_a_cancellation_before_the_agent_came_is_nobodys_business(gating: Gating[str]) -> None:
    gating.ask("a", 1.0)
    assert gating.cancel("a") == []
    assert gating.back(2.0) == []


def test_a_refusal_ends_it(linked: Gating[str]) -> None:
    error = ValueError("no")
    linked.ask("a", 2.0)
    assert linked.refused("a", error) == [Refuse("a", error)]
    assert linked.refused("a", error) == []


@pytest.mark.parametrize("error", [None, RuntimeError("closed")])
def test_closing_leaves_nobody_waiting(linked: Gating[str], error: Exception | None) -> None:
    linked.ask("a", 2.0)
    assert linked.close(error) == [Go("a", gated=False) if error is None else Refuse("a", error)]
    assert linked.counts()["waiting"] == 0

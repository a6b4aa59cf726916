"""Jobs that are first by hand: the messages to agents, the end of this place, and the next master's knowledge."""

from __future__ import annotations

from master.core import events as e
from master.core.order import OF_ALL
from master.ordering import HandOrder
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import Bed, bed, job_state


def three_jobs() -> Bed:
    made = bed("a")
    for name in ("one", "two", "three"):
        made.job("a", name)
    made.round()
    return made


def order(made: Bed) -> list[str]:
    return made.cluster.order.rank(made.now).order()


def test_agents_learn_it_at_the_next_round_with_the_user_s_name() -> None:
    made = three_jobs()
    made.serve(e.OrderRequested(("three",), "u", of_all=False))
    assert made.cluster.wants_round
    made.now += made.cluster.settings.interval_s
    made.round()
    said = {decision.job: decision for _, decision in made.decisions_of(api.SetPriority)}
    assert "put first by u" in said["three"].why
    jobs = made.cluster.jobs
    assert sorted(jobs, key=lambda job: -jobs[job].priority) == ["three", "one", "two"]


def test_it_is_over_with_the_job_and_written_down_until_then() -> None:
    made = three_jobs()
    made.serve(e.OrderRequested(("three", "two"), "u", of_all=False))
    made.serve(e.OrderRequested(("two",), "root", of_all=True))
    assert made.kept().orders == {"u": HandOrder("u", ("three", "two")), OF_ALL: HandOrder("root", ("two",))}
    assert order(made) == ["two", "three", "one"]
    made.serve(e.Received("a", api.JobEnded(job="two")))
    assert made.kept().orders == {"u": HandOrder("u", ("three",)), OF_ALL: None}
    assert order(made) == ["three", "one"]


def test_the_next_master_knows_it_before_the_jobs_are_back() -> None:
    made = Bed()
    made.serve(e.StateRestored({}, [], (), {"u": HandOrder("u", ("two",))}))
    made.node("a", jobs=[job_state("one"), job_state("two")])
    assert order(made)[0] == "two"


def test_a_job_whose_host_was_lost_keeps_its_place_for_its_return() -> None:
    made = three_jobs()
    made.serve(e.OrderRequested(("two",), "u", of_all=False))
    made.serve(e.NodeAway("a"))
    made.now += made.cluster.settings.node_timeout_s + 1
    made.round()
    assert "two" not in made.cluster.jobs
    made.node("a", jobs=[job_state("one"), job_state("two")])
    assert order(made)[0] == "two"

"""The jobs are ranked once for what happens together, and not where their order cannot have changed."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from master.core import events as e
from master.core.dues import BEHIND_S
from master.ordering import NAMES
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import Bed, bed, command


def use(b: Bed, node: str = "a", **service_s: float) -> None:
    b.heartbeat(node, jobs=[api.JobUse(job=job, service_s=each_s, running=1) for job, each_s in service_s.items()])


def in_place(b: Bed) -> list[str]:
    """The jobs as agents have them in their queues."""
    told = {job: priority for job, each in b.cluster.jobs.items() for priority in each.hosts.values()}
    return sorted(told, key=lambda job: -(told[job] or 0.0))


@pytest.fixture
def two_jobs(monkeypatch: pytest.MonkeyPatch) -> tuple[Bed, Counter[str]]:
    """A node with two jobs that run for long, and counts of the rankings from now on."""
    b, counts = bed("a", ordering="gittins", interval_s=0.1, heartbeat_s=1.0), Counter[str]()
    for name in ("x", "y"):
        b.job("a", name, at=1.0, name=name)
    b.round(1.0)
    use(b, x=9.0, y=5.0)
    b.round(10.0)
    rank = b.cluster.order.ordering.rank

    def counting(*args: Any) -> Any:
        counts["rank"] += 1
        return rank(*args)

    monkeypatch.setattr(b.cluster.order.ordering, "rank", counting)
    return b, counts


def test_one_ranking_gives_a_job_its_place_and_places_its_task(two_jobs: tuple[Bed, Counter[str]]) -> None:
    b, counts = two_jobs
    b.now += 3.0  # an order is due in any case
    b.job("a", "new", at=2.0, name="new")
    b.now += BEHIND_S / 4
    b.ready("a", command("t"), job="new")
    since = len(b.sent)
    assert b.round(0.0) == [("t", "a")]
    assert counts["rank"] == 1
    assert in_place(b) == ["new", "y", "x"]
    sent = [d for _, d in b.sent[since:] if isinstance(d, api.SetPriority | api.Assign) and d.job == "new"]
    assert [type(d) for d in sent] == [api.SetPriority, api.Assign], "the agent knows the place before it has the task"
    assert {d.priority for d in sent} == {b.cluster.jobs["new"].priority}


def test_a_job_whose_tasks_do_not_come_gets_its_place_a_moment_later(two_jobs: tuple[Bed, Counter[str]]) -> None:
    b, counts = two_jobs
    b.now += 0.3
    b.job("a", "new", at=2.0, name="new")
    assert b.cluster.wants_round
    assert b.cluster.dues.order_due == b.now + BEHIND_S
    assert not counts
    b.now += BEHIND_S
    b.heartbeat("a")  # any event will do
    assert in_place(b)[0] == "new"
    assert not b.cluster.wants_round


def test_a_report_that_says_nothing_new_makes_no_order_due(two_jobs: tuple[Bed, Counter[str]]) -> None:
    b, counts = two_jobs
    b.job("a", "new", at=2.0, name="new")
    b.round(0.1)
    use(b, x=9.5, new=0.1)
    b.round(0.1)
    counts.clear()
    for _ in range(3):
        b.now += 0.2
        use(b, x=9.5, new=0.1)
        assert not b.cluster.wants_round
    assert not counts
    use(b, x=9.5, new=0.2)
    assert counts["rank"] == 1


def test_an_only_job_that_has_its_place_makes_no_round_due() -> None:
    b = bed("a", ordering="gittins", interval_s=0.1, heartbeat_s=1.0)
    b.job("a", "only", at=1.0)
    assert b.cluster.wants_round, "its agent may have to be told its tenant"
    b.round(0.1)
    use(b, only=0.1)
    assert not b.cluster.wants_round
    b.job("a", "other", at=2.0)
    assert b.cluster.wants_round
    b.round(0.1)
    b.serve(e.Received("a", api.JobEnded(job="other")))
    assert not b.cluster.wants_round


_jobs = st.sampled_from(["j1", "j2", "j3", "j4"])


@pytest.mark.parametrize("ordering", [name for name in NAMES if name != "drf"])  # it ranks by what the round places
@given(events=st.lists(st.tuples(st.sampled_from(["comes", "with a task", "works", "ends"]), _jobs), max_size=25))
def test_agents_have_the_order_that_a_ranking_after_each_event_gives(
    ordering: str, events: list[tuple[str, str]]
) -> None:
    b, service_s = bed("a", ordering=ordering, interval_s=0.1, heartbeat_s=1.0), dict[str, float]()
    for what, job in events:
        b.now += 1.1  # no job was moved within the last heartbeat
        if what in ("comes", "with a task") and job not in service_s:
            service_s[job] = 0.0
            b.job("a", job, at=b.now, name=job)
            if what == "with a task":
                b.ready("a", command("t"), job=job)
        elif what == "works" and job in service_s:
            service_s[job] += 3.0
            use(b, **service_s)
        elif what == "ends" and service_s.pop(job, None) is not None:
            b.serve(e.Received("a", api.JobEnded(job=job, done=True)))
        while b.cluster.wants_round:
            b.round(0.1)
        assert in_place(b) == b.cluster.order.look(b.now).order()

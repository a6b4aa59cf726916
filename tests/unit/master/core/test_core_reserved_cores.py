"""The cores that a reservation promises a job on a node: the agents get them when they change."""

from __future__ import annotations

from penstock.wire import master_api as api
from penstock.wire.master_api import JobUse
from tests.unit.master.cluster_bed import Bed, bed, command, job_state
from tests.unit.master.core.test_core_plan_follower import Plan


def reserved_cores_sent(b: Bed, job: str = "prod") -> dict[str, float | None]:
    """Return node → the reserved cores that its agent received last."""
    return {node: said.reserved_cores for node, said in b.decisions_of(api.SetPriority) if said.job == job}


def beat(b: Bed, *nodes: str, seconds: float = 1.0) -> None:
    """Time passes, and the agents report."""
    b.now += seconds
    for node in nodes:
        b.heartbeat(node)
    b.round()


def reserved(plan: Plan, *nodes: str, tasks: int = 1) -> Bed:
    """Return a job with a reservation and running commands."""
    b = bed(*nodes, ordering="fifo")
    b.cluster.guarantees.plan = plan
    b.job("a", "best", at=1.0)
    b.job("a", "prod", at=2.0, reservation="r")
    b.job("a", "last", at=3.0)
    b.ready("a", *[command(f"p{i}", nodes=(nodes[i % len(nodes)],)) for i in range(tasks)], job="prod")
    b.round()
    return b


def test_the_agent_is_notified_when_the_time_of_a_reservation_comes_and_when_it_is_over() -> None:
    b = reserved(Plan(1.0, begins=5.0, ends=9.0), "a")
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 0.0}, "its time has not come"
    assert b.cluster.order.rank(b.now).order() == ["best", "last", "prod"]
    assert reserved_cores_sent(b, "best") == {"a": None}
    beat(b, "a", seconds=4.0)
    assert reserved_cores_sent(b) == {"a": 1.0}
    beat(b, "a", seconds=4.0)
    assert reserved_cores_sent(b) == {"a": None}, "it is over: the job is like others"
    assert b.cluster.order.rank(b.now).order() == ["best", "prod", "last"]


def test_nothing_is_repeated_while_nothing_changes() -> None:
    b = reserved(Plan(1.0), "a")
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 1.0}
    before = len(b.decisions_of(api.SetPriority))
    beat(b, "a")
    beat(b, "a")
    assert len(b.decisions_of(api.SetPriority)) == before


def test_the_promise_is_divided_among_the_nodes_as_the_jobs_hold_them() -> None:
    b = reserved(Plan(2.0), "a", "b", tasks=4)
    beat(b, "a", "b")
    assert reserved_cores_sent(b) == {"a": 1.0, "b": 1.0}, "two of the four cores that its commands hold"


def test_no_more_is_promised_on_a_node_than_its_jobs_hold_there() -> None:
    b = reserved(Plan(3.0), "a", tasks=1)
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 1.0}


def test_the_slots_of_a_framework_count_as_its_cores() -> None:
    b = reserved(Plan(2.0), "a", tasks=0)
    b.heartbeat("a", jobs=[JobUse(job="prod", service_s=1.0, running=3)])
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 2.0}


def test_a_reservation_of_memory_alone_concerns_no_cores() -> None:
    b = reserved(Plan(0.0), "a")
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": None}


def test_where_its_jobs_hold_nothing_yet_the_stated_cores_are_promised_from_the_start() -> None:
    b = reserved(Plan(1.0, begins=2.0), "a", tasks=0)
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 0.0}
    beat(b, "a", seconds=2.0)
    assert reserved_cores_sent(b) == {"a": None}


def test_an_agent_that_comes_back_gets_it_again() -> None:
    b = reserved(Plan(1.0, begins=1e6), "a", tasks=0)
    beat(b, "a")
    before = len(b.decisions_of(api.SetPriority))
    b.node("a", jobs=[job_state("prod", 0, 2.0, reservation="r", priority=b.cluster.jobs["prod"].priority)])
    beat(b, "a")
    assert [said.reserved_cores for _, said in b.decisions_of(api.SetPriority)[before:] if said.job == "prod"] == [0.0]


def test_an_agent_that_was_away_at_the_end_of_the_reservation_learns_that_it_is_over() -> None:
    b = reserved(Plan(1.0, ends=3.0), "a", tasks=0)
    b.heartbeat("a", jobs=[JobUse(job="prod", service_s=1.0, running=1)])
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": 1.0}
    b.now = 5.0
    b.node("a", jobs=[job_state("prod", 0, 2.0, reservation="r", priority=b.cluster.jobs["prod"].priority)])
    beat(b, "a")
    assert reserved_cores_sent(b) == {"a": None}

"""Commands are placed beyond the slots, those of jobs ahead before all others."""

from __future__ import annotations

from typing import Any

import pytest

from master.ordering import Ranking
from penstock.model import KindAmounts, ResourceKind
from tests.unit.master.cluster_bed import MB, Bed, command, task

#: No slot of the CPU is free, and far more work waits than EPT.
FULL: dict[str, Any] = {"idle": (0, 1, 2), "pending": KindAmounts(cpu=1e12), "most_commands": 64}


def busy(*nodes: str, most: int = 64) -> Bed:
    """Of four cores each, all held by commands of the job ``long``; ``short`` is ahead of it."""
    b = Bed(ordering="ejf")
    for name in nodes:
        b.node(name)
    b.job(nodes[0], "long", at=2.0)
    b.ready(nodes[0], *[command(f"l{name}{n}", nodes=(name,)) for name in nodes for n in range(4)], job="long")
    assert len(b.round()) == 4 * len(nodes)
    b.job(nodes[0], "short", at=1.0)
    heartbeats(b, *nodes, most_commands=most)
    return b


def heartbeats(b: Bed, *nodes: str, **more: Any) -> None:
    for name in nodes:
        b.heartbeat(name, **{**FULL, **more})


def test_it_goes_where_those_behind_hold_the_slots_and_no_further_than_the_slots() -> None:
    b = busy("a", "b")
    b.ready("a", *[command(f"s{n}") for n in range(10)], job="short")
    placed = b.round()
    assert sorted(node for _, node in placed) == ["a"] * 4 + ["b"] * 4
    assert b.round() == [], "now the job itself holds them"
    view = b.cluster.jobs["short"]
    assert view.waits.startswith("2 tasks of stage s wait for a node")
    assert "ahead: of 4 slots the jobs up to this one's have 0" in view.tasks[placed[0][0]].why


def test_jobs_behind_go_beyond_the_slots_up_to_a_bound_and_one_ahead_further() -> None:
    b = busy("a")
    for number in range(4):
        b.job("a", f"late{number}", at=3.0 + number)
        b.ready("a", *[command(f"x{number}-{each}") for each in range(5)], job=f"late{number}")
    placed = [task for task, _ in b.round()]
    assert placed == [f"x{number}-{each}" for number in range(3) for each in range(4)], "16 run on 4 slots"
    assert (
        b.cluster.jobs["late0"]
        .tasks["x0-0"]
        .why.startswith("beyond: on 4 slots the jobs up to this one's have 4 commands;")
    )
    heartbeats(b, "a")
    b.ready("a", command("s"), job="short")
    assert [task for task, _ in b.round()] == ["s"]


def test_processors_that_the_first_job_leaves_go_to_the_next_and_not_to_running_jobs_behind_it() -> None:
    """As many commands as may go beyond the slots run already, but only four of them are of jobs before this one."""
    b = busy("a")
    for number in range(3):
        b.job("a", f"late{number}", at=3.0 + number)
        b.ready("a", *[command(f"x{number}-{each}") for each in range(4)], job=f"late{number}")
    assert len(b.round()) == 12
    heartbeats(b, "a")
    b.job("a", "next", at=2.5)
    b.ready("a", command("n"), job="next")
    assert [task for task, _ in b.round()] == ["n"]
    assert b.cluster.jobs["next"].tasks["n"].why.startswith("beyond: on 4 slots the jobs up to this one's have 4 ")


def test_of_nodes_with_as_many_ahead_that_with_the_fewest_commands_is_taken() -> None:
    b = busy("a", "b")
    b.job("a", "late", at=3.0)
    b.ready("a", command("x0", nodes=("a",)), command("x1"), command("x2"), job="late")
    assert dict(b.round()) == {"x0": "a", "x1": "b", "x2": "a"}


@pytest.mark.parametrize("most", [0, 4])
def test_a_node_whose_kernel_does_not_know_the_order_or_that_has_enough_takes_none(most: int) -> None:
    b = busy("a", most=most)
    b.ready("a", command("s"), job="short")
    assert b.round() == []


def test_memory_is_not_given_twice() -> None:
    b = busy("a")
    heartbeats(b, "a", promised_memory_bytes=500 * MB)
    b.ready("a", command("s0", 300), command("s1", 300), job="short")
    assert [task for task, _ in b.round()] == ["s0"]


def test_cores_that_are_promised_are_not_given_twice() -> None:
    b = busy("a")
    heartbeats(b, "a", promised_cores=3.5)
    b.ready("a", command("s0", cores=1.0), command("s1", cores=0.5), job="short")
    assert [task for task, _ in b.round()] == ["s1"]


def test_a_task_without_cpu_work_or_without_a_command_waits_for_its_slot() -> None:
    b = busy("a")
    heartbeats(b, "a", idle=(0, 0, 2), pending=KindAmounts(1e12, 1e12, 0.0))
    b.ready("a", command("disk", command_kind=ResourceKind.DISK), task("framework"), job="short")
    assert b.round() == []


def test_it_goes_only_where_it_may() -> None:
    b = busy("a", "b")
    b.ready("a", *[command(f"s{n}", nodes=("b",)) for n in range(5)], job="short")
    assert [node for _, node in b.round()] == ["b"] * 4


def test_a_user_holds_no_more_than_the_limit() -> None:
    b = Bed(ordering="ejf", user_max_cores=6.0)
    b.node("a")
    b.job("a", "long", at=2.0)
    b.ready("a", *[command(f"l{n}") for n in range(4)], job="long")
    assert len(b.round()) == 4
    b.job("a", "short", at=1.0)
    heartbeats(b, "a")
    b.ready("a", *[command(f"s{n}") for n in range(4)], job="short")
    assert len(b.round()) == 2


def test_the_jobs_are_not_ranked_for_it_where_no_command_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    b = busy("a")
    full: dict[str, Any] = {"promised_memory_bytes": 1000 * MB}
    heartbeats(b, "a", **full)
    b.ready("a", task("framework", 10), job="short")
    b.round()
    asked: list[float] = []
    rank = b.cluster.order.rank

    def noted(now: float) -> Ranking:
        asked.append(now)
        return rank(now)

    monkeypatch.setattr(b.cluster.order, "rank", noted)
    b.ready("a", task("another", 10), job="short")
    b.round()
    assert asked == []
    b.ready("a", command("c", 10), job="short")
    b.round()
    assert len(asked) == 1

"""The plan follower: promises become guarantees, and work in the way leaves when they are due."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from master.core import events as e
from master.core.guarantees import Promised
from penstock.model import Ended, EndedBy, KindAmounts, TaskRequest
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, MB, Bed, bed, command, task
from tests.unit.master.core.executor_bed import ExecutorBed, executor, profile


class Plan:
    """One reservation of some cores and memory, from ``begins`` to ``ends`` (Unix time, which the bed begins at 0)."""

    def __init__(self, cores: float, memory: int = 0, begins: float = 0.0, ends: float = 1e9) -> None:
        self._promised = Promised(cores, memory * MB, max(1, int(cores)))
        self._begins, self._ends = begins, ends
        self.waiting: list[set[str]] = []

    def promised(self, at: float) -> Mapping[str, Promised]:
        return {"r": self._promised} if self._begins <= at < self._ends else {}

    def later(self, at: float) -> Collection[str]:
        return {"r"} if at < self._begins else ()

    def saw(self, at: float, waiting: Collection[str]) -> None:
        """Return its instructions without repetitions."""
        if self.waiting[-1:] != [set(waiting)]:
            self.waiting.append(set(waiting))


def two_jobs(plan: Plan, *nodes: str) -> Bed:
    b = bed(*(nodes or ("a",)), ordering="fifo")
    b.cluster.guarantees.plan = plan
    b.job("a", "best", at=1.0)
    b.job("a", "prod", at=2.0, reservation="r")
    return b


def stopped(b: Bed) -> list[str]:
    return [decision.task for _, decision in b.decisions_of(api.Withdraw)]


def end(b: Bed, *tasks: str, job: str = "best", ended: Ended = EXIT, node: str = "a") -> None:
    """Let commands end, as their agent reports."""
    for name in tasks:
        b.serve(e.Received(node, api.CommandEnded(job=job, task=name, origin="a", ended=ended)))


STOPPED = Ended(by=EndedBy.CANCELLED)


def test_due_promises_take_the_place_of_the_newest_best_effort_commands() -> None:
    b = two_jobs(Plan(2.0, begins=5.0))
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)], job="best")
    b.round()
    b.ready("a", *[command(f"p{i}", cores=1.0) for i in range(3)], job="prod")
    b.round()
    assert stopped(b) == [], "its time has not come"
    b.now = 5.0
    b.round()
    assert stopped(b) == ["b3", "b2"], "as few as will do for two cores: the third task is not promised its place"
    b.round()
    assert len(stopped(b)) == 2, "they are leaving already"
    end(b, "b3", "b2", ended=STOPPED)
    assert b.round() == [("p0", "a"), ("p1", "a")], "not those that were stopped, which wait again"
    assert {task.name for task in b.cluster.jobs["best"].tasks.values() if not task.node} == {"b2", "b3"}


@pytest.mark.parametrize("limits", [{}, {"max_running_jobs": 1}])
def test_a_promise_of_the_moment_waits_for_no_admission(limits: dict[str, int]) -> None:
    b = bed("a", ordering="fifo", **limits)
    b.cluster.guarantees.plan = Plan(2.0, memory=500, begins=5.0)
    b.job("a", "best", 900 * MB, at=1.0)
    b.ready("a", *[command(f"b{i}", 300) for i in range(3)], job="best")
    b.round()
    for job in ("prod", "more"):
        b.job("a", job, 500 * MB, at=2.0, reservation="r")
        b.ready("a", command(job, 300), job=job)
    b.round()
    assert not b.cluster.jobs["prod"].admitted, "its time has not come"
    b.now = 5.0
    b.round()
    assert b.cluster.jobs["prod"].admitted and stopped(b) == ["b2"]
    assert not b.cluster.jobs["more"].admitted, "it would be more than is promised"


def test_the_plan_gets_the_jobs_whose_tasks_wait_for_their_promises() -> None:
    plan = Plan(2.0, begins=5.0)
    b = two_jobs(plan)
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)], job="best")
    b.round()
    b.ready("a", *[command(f"p{i}", cores=1.0) for i in range(3)], job="prod")
    b.round()
    assert plan.waiting == [set()], "nothing is promised yet"
    b.now = 5.0
    b.round()
    assert plan.waiting == [set(), {"r"}]
    end(b, "b3", "b2", ended=STOPPED)
    b.round()
    assert plan.waiting == [set(), {"r"}, set()], "they have their places; the third task is promised none"


def test_a_stopped_command_goes_on_elsewhere_at_once() -> None:
    b = two_jobs(Plan(4.0), "a", "b")
    b.ready("a", *[command(f"b{i}", cores=1.0, nodes=("a",)) for i in range(2)], job="best")
    b.ready("a", *[command(f"c{i}", cores=1.0) for i in range(2)], job="best")
    b.round()
    b.ready("a", *[command(f"p{i}", cores=4.0, nodes=("a",)) for i in range(1)], job="prod")
    b.round()
    on_a = {held.task for held in b.cluster.nodes["a"].held.values()}
    assert set(stopped(b)) == on_a
    moved = b.round()
    assert all(node == "b" for name, node in moved if name.startswith("c"))


def test_a_slot_is_freed_for_a_promised_task_that_is_placed() -> None:
    """Commands that state no cores are placed behind others, and would wait for their slot."""
    b = two_jobs(Plan(2.0))
    b.ready("a", *[command(f"b{i}", memory=10) for i in range(4)], job="best")
    b.round()
    assert len(b.cluster.nodes["a"].held) == 4
    b.ready("a", *[command(f"p{i}", memory=10) for i in range(2)], job="prod")
    b.round()
    b.round()
    assert len(stopped(b)) == 2
    assert set(stopped(b)) <= {f"b{i}" for i in range(4)}


def test_no_more_slots_are_freed_than_are_promised() -> None:
    b = two_jobs(Plan(0.0, 10))
    b.ready("a", *[command(f"b{i}", memory=10) for i in range(4)], job="best")
    b.round()
    b.ready("a", *[command(f"p{i}", memory=10) for i in range(2)], job="prod")
    b.round()
    b.round()
    assert stopped(b) == ["b3"]


def test_memory_is_made_room_for_too_and_stops_without_effect_are_not_made() -> None:
    b = two_jobs(Plan(1.0, 500))
    b.ready("a", command("large", memory=600), command("small", memory=0), job="best")
    b.round()
    b.ready("a", command("p", memory=500), job="prod")
    b.round()
    assert stopped(b) == ["large"]


@pytest.mark.parametrize("large", ["a", "b"])
def test_room_is_made_on_the_node_where_the_fewest_are_stopped(large: str) -> None:
    small = "b" if large == "a" else "a"
    b = two_jobs(Plan(4.0), "a", "b")
    b.ready("a", command("large", cores=4.0, nodes=(large,)), job="best")
    b.ready("a", *[command(f"b{i}", cores=1.0, nodes=(small,)) for i in range(4)], job="best")
    b.round()
    b.ready("a", command("p", cores=4.0), job="prod")
    b.round()
    assert stopped(b) == ["large"]


class TwoReservations(Plan):
    def promised(self, at: float) -> Mapping[str, Promised]:
        return {name: Promised(2.0, 0.0, 2) for name in ("r", "s")}


def test_room_is_made_for_every_reservation() -> None:
    b = two_jobs(TwoReservations(2.0))
    b.job("a", "second", at=3.0, reservation="s")
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)], job="best")
    b.round()
    for job in ("prod", "second"):
        b.ready("a", *[command(f"{job}{i}", cores=1.0) for i in range(3)], job=job)
    b.round()
    assert stopped(b) == ["b3", "b2", "b1", "b0"], "two cores for each of them"


def test_frameworks_tasks_are_not_stopped_and_a_task_that_fits_nowhere_stops_none() -> None:
    b = two_jobs(Plan(9.0, 2000))
    b.ready("a", *[task(f"t{i}", 400) for i in range(2)], job="best")
    b.ready("a", command("c", memory=100), job="best")
    b.round()
    b.ready("a", command("p", memory=900), job="prod")
    b.round()
    assert stopped(b) == []


def test_work_of_another_promise_is_not_in_the_way() -> None:
    b = two_jobs(Plan(8.0))
    b.job("a", "also", at=3.0, reservation="r")
    b.ready("a", *[command(f"p{i}", cores=1.0) for i in range(4)], job="prod")
    b.round()
    b.ready("a", command("q", cores=1.0), job="also")
    b.round()
    assert stopped(b) == []


def test_a_task_that_ends_is_not_stopped_again() -> None:
    b = two_jobs(Plan(1.0))
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)], job="best")
    b.round()
    b.ready("a", command("p", cores=1.0), job="prod")
    b.round()
    assert stopped(b) == ["b3"]
    end(b, "b0")
    b.heartbeat("a")
    assert b.round() == [("p", "a")]
    end(b, "b3", ended=STOPPED)
    b.round()
    assert stopped(b) == ["b3"]


def test_an_executor_without_a_promise_is_in_the_way_like_any_command() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((4, 100))})
    b.cluster.guarantees.plan = Plan(4.0)
    b.executors(executor("e", cores=4.0))
    assert b.round() == [("e", "a")]
    b.job("a", "prod", at=2.0, reservation="r")
    b.ready("a", command("p", cores=4.0), job="prod")
    b.round()
    assert stopped(b) == ["e"]


def test_room_is_made_for_an_executor_that_is_promised_its_place() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((1, 100), (3, 100))})
    b.cluster.guarantees.plan = Plan(3.0)
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)])
    b.round()
    b.job("a", "prod", at=2.0, reservation="r")
    b.ready("a", executor("e"), executor("e2"), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1"], "for its largest demand; the second is promised none"
    b.round()
    assert len(stopped(b)) == 3
    end(b, "b3", "b2", "b1", job="j", ended=STOPPED)
    b.beats("a")
    assert ("e", "a") in b.round()


def test_an_executor_does_not_take_the_room_that_was_made() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((2, 100))})
    b.cluster.guarantees.plan = Plan(2.0, begins=5.0)
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)])
    b.round()
    b.executors(executor("e", cores=2.0))
    b.job("a", "prod", at=2.0, reservation="r")
    b.ready("a", *[command(f"p{i}", cores=1.0) for i in range(2)], job="prod")
    b.now = 5.0
    b.round()
    assert stopped(b) == ["b3", "b2"]
    end(b, "b3", "b2", job="j", ended=STOPPED)
    b.beats("a")
    assert b.round() == [("p0", "a"), ("p1", "a")]
    assert len(stopped(b)) == 2, "nothing is in the way again"


def test_where_no_room_was_made_none_is_kept() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((2, 100))})
    b.cluster.guarantees.plan = Plan(2.0)
    b.job("a", "prod", reservation="r")
    b.beats("a", idle=(4, 0, 2), pending=KindAmounts(disk=1e15))
    b.ready("a", TaskRequest(task="p", usage=KindAmounts(disk=40 * MB), memory_bytes=0), job="prod")
    assert b.round() == [], "the disks are busy for long"
    b.executors(executor("e", cores=2.0))
    assert b.round() == [("e", "a")]


def test_a_promotion_does_not_take_the_room_that_was_made() -> None:
    b = two_jobs(Plan(4.0, memory=800, begins=5.0))
    b.ready("a", *[command(f"b{i}", 250) for i in range(4)], job="best")
    b.round()
    b.heartbeat("a", promised_memory_bytes=1000 * MB, used_memory_bytes=100 * MB)
    b.ready("a", command("o", 300), job="best", opportunistic=True)
    assert b.round() == [("o", "a")]
    b.ready("a", command("p", 800), job="prod")
    b.now = 5.0
    b.round()
    assert len(stopped(b)) == 4
    end(b, *stopped(b), ended=STOPPED)
    b.heartbeat("a")
    assert ("p", "a") in b.round()
    assert b.decisions_of(api.Promote) == []

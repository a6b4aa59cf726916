"""Room that is made for promised tasks is kept until they are placed there, although it becomes free bit by bit."""

from __future__ import annotations

import pytest

from master.core import events as e
from master.status import status_document
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import Bed, command
from tests.unit.master.core.executor_bed import MIB, ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import STOPPED, Plan, end, stopped, two_jobs

APP = "u/app"


def full_node(plan: Plan, **forecasts: float) -> ExecutorBed:
    """A node with four commands of a core each, and a job with a reservation; ``forecasts`` are cores for 100 MiB."""
    b = ExecutorBed("a", ordering="fifo", forecasts={f"u/{app}": profile((c, 100)) for app, c in forecasts.items()})
    b.cluster.guarantees.plan = plan
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)])
    b.round()
    b.job("a", "prod", at=2.0, reservation="r")
    return b


def ends(b: Bed, *tasks: str, job: str = "j") -> None:
    end(b, *tasks, job=job, ended=STOPPED)
    b.heartbeat("a")


def test_parts_of_the_room_for_a_command_are_not_taken_by_stopped_commands_that_wait_again() -> None:
    b = full_node(Plan(4.0))
    b.ready("a", command("p", cores=4.0), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1", "b0"]
    for name in ("b3", "b2", "b1"):
        ends(b, name)
        assert b.round() == []
    ends(b, "b0")
    assert b.round() == [("p", "a")]
    assert len(stopped(b)) == 4, "each once"


def test_parts_of_the_room_for_an_executor_are_not_taken_by_commands() -> None:
    b = full_node(Plan(3.0), app=3)
    b.ready("a", executor("e"), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1"]
    ends(b, "b3", "b2")
    assert b.round() == []
    ends(b, "b1")
    assert b.round() == [("e", "a")]
    assert len(stopped(b)) == 3


def test_parts_of_the_room_for_an_executor_are_not_taken_by_promotions() -> None:
    b = full_node(Plan(3.0), app=3)
    b.heartbeat("a", promised_cores=4.0, used_cores=1.0)
    b.ready("a", command("o", cores=1.0), opportunistic=True)
    assert b.round() == [("o", "a")]
    b.ready("a", executor("e"), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1"]
    ends(b, "b3")
    b.round()
    assert b.decisions_of(api.Promote) == []
    ends(b, "b2", "b1")
    b.heartbeat("a")
    assert ("e", "a") in b.round()


def test_executors_of_the_same_reservation_do_not_wait_for_its_other_tasks() -> None:
    b = full_node(Plan(4.0), app=1)
    b.ready("a", command("p", cores=3.0), executor("e"), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1", "b0"]
    ends(b, "b3")
    assert b.round() == [("e", "a")], "the command has to wait for two more"
    ends(b, "b2", "b1", "b0")
    assert b.round() == [("p", "a")]


@pytest.mark.parametrize(("cores", "fits"), [(1, True), (2, False)])
def test_executors_of_others_get_the_rest_of_the_node(cores: float, fits: bool) -> None:
    b = full_node(Plan(3.0), app=cores)
    b.ready("a", command("p", cores=3.0), job="prod")
    b.round()
    assert stopped(b) == ["b3", "b2", "b1"]
    ends(b, "b0", "b3")
    b.executors(executor("x"))
    assert (("x", "a") in b.round()) is fits, "one core is left beside the three of which two are yet to become free"


def test_nothing_more_is_stopped_before_a_node_has_reported_what_it_promises_now() -> None:
    b = two_jobs(Plan(2.0))
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)], job="best")
    b.round()
    b.heartbeat("a", promised_cores=4.0)
    b.ready("a", command("p", cores=2.0), job="prod")
    b.round()
    end(b, "b3", "b2", ended=STOPPED)
    assert b.round() == [], "by its last report the node promises all its cores"
    assert stopped(b) == ["b3", "b2"]
    b.heartbeat("a", promised_cores=2.0)
    assert b.round() == [("p", "a")]


def test_no_room_is_kept_for_a_task_that_is_cancelled() -> None:
    b = full_node(Plan(4.0))
    b.ready("a", command("p", cores=4.0), job="prod")
    b.round()
    b.serve(e.Received("a", api.TasksCancelled(job="prod", tasks=["p"])))
    ends(b, "b3", "b2", "b1", "b0")
    assert len(b.round()) == 4


def turnover(b: ExecutorBed, seconds: float, *, on: str = "a") -> list[tuple[str, str]]:
    """A command ends each second on a node where more of them wait; return what was placed meanwhile."""
    placed = []
    for _ in range(round(seconds)):
        mine = [held.task for held in b.cluster.nodes[on].held.values() if held.task.startswith("b")]
        end(b, *mine[:1], job="j")
        b.heartbeat(on)
        placed += b.round(1.0)
    return placed


def test_an_executor_of_several_cores_does_not_wait_for_ever_behind_commands_of_one() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.ready("a", *[command(f"b{i:03}", cores=1.0) for i in range(100)])
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), job="late")
    placed = turnover(b, 25)
    assert len(placed) == 25 and ("e", "a") not in placed, "it has not waited long"
    placed = turnover(b, 12)
    assert ("e", "a") in placed
    assert len(placed) >= 1 + 5, "cores idle only while the last four commands end"


def test_an_executor_does_not_wait_for_ever_behind_promotions() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(4)])
    b.round()
    b.heartbeat("a", promised_cores=4.0, used_cores=0.0)
    b.ready("a", *[command(f"bo{i:02}", cores=1.0) for i in range(60)], opportunistic=True)
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), job="late")
    placed = turnover(b, 50)
    assert b.decisions_of(api.Promote)
    assert ("e", "a") in placed


def test_room_is_kept_where_the_least_is_lacking_and_never_for_what_is_no_job_of_the_master() -> None:
    b = ExecutorBed("a", "b", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.heartbeat("b", promised_cores=2.0)
    b.ready("a", *[command(f"b{i:03}", cores=1.0) for i in range(100)])
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), job="late")
    for _ in range(40):
        b.heartbeat("b", promised_cores=4.0)
        turnover(b, 1)
    assert b.cluster.nodes["a"].held.keys() >= {("late", "e")}
    assert b.cluster.nodes["b"].kept_tasks == 0


def test_no_room_is_kept_for_an_executor_that_waits_for_something_else() -> None:
    b = ExecutorBed("a", forecasts={APP: profile((1, 100), (4, 100))})
    b.beats("a", [(4, 900), (2, 900)])
    b.executors(executor("e"))
    for _ in range(40):
        b.beats("a", [(4, 900), (2, 900)])
        assert b.round(1.0) == []
    assert b.cluster.nodes["a"].kept_tasks == 0
    b.ready("a", command("b", cores=4.0))
    assert b.round() == [("b", "a")]


def late_on_a_full_node(*nodes: str, **settings: float) -> ExecutorBed:
    """A node with four commands of a core each, more that wait, and an executor of four cores in a job of user v. A
    second node is full.
    """
    b = ExecutorBed(
        "a", "c", ordering="fifo", forecasts={f"v/{app}": profile((4, 100)) for app in ("app", "other")}, **settings
    )
    b.heartbeat("c", promised_cores=4.0)
    b.ready("a", *[command(f"b{i:03}", cores=1.0) for i in range(100)])
    b.round()
    b.job("a", "late", at=2.0, user="v")
    b.ready("a", executor("e", cores=4.0, nodes=nodes), job="late")
    return b


def seconds(b: ExecutorBed, number: int) -> list[tuple[str, str]]:
    """A command ends each second on the first node; the second one stays full."""
    placed = []
    for _ in range(number):
        b.heartbeat("c", promised_cores=4.0)
        placed += turnover(b, 1)
    return placed


def kept_cores(b: Bed) -> float:
    return b.cluster.nodes["a"].kept_cores


def test_an_executor_waits_on_while_its_forecast_is_fetched_anew() -> None:
    b = late_on_a_full_node()
    b.ready("a", executor("x", "other", cores=4.0), job="late")
    placed: list[tuple[str, str]] = []
    for _ in range(4):
        placed += seconds(b, 8)
        forecasts = b.forecasts
        b.forecasts = {}
        b.serve(e.ForecastsOutdated("v/app"))
        placed += seconds(b, 1)
        b.forecasts = forecasts
        asked = b.predicted[-1]
        b.serve(e.Forecasted(asked.application, asked.settings, profile((4, 100)), "a test", 0.1, asked.sizing))
    assert ("e", "a") in placed


def test_executors_that_their_user_has_in_turn_wait_no_longer_than_one_alone() -> None:
    b = late_on_a_full_node(user_max_cores=5.0)
    b.ready("a", *[executor(f"f{i}", cores=4.0) for i in range(20)], job="late")
    assert [name for name, _ in seconds(b, 36) if name[0] in "ef"]


def test_no_room_is_kept_for_an_executor_that_its_user_may_not_have() -> None:
    b = late_on_a_full_node("a", user_max_cores=5.0)
    seconds(b, 31)
    assert kept_cores(b) > 0
    b.heartbeat("c")
    b.job("a", "more", at=3.0, user="v")
    b.ready("a", *[command(f"v{i}", cores=1.0, nodes=("c",)) for i in range(4)], job="more")
    b.round()
    seconds(b, 2)
    assert kept_cores(b) == 0


def test_an_executor_that_was_placed_waits_anew_when_it_waits_again() -> None:
    b = late_on_a_full_node()
    b.serve(e.OrderRequested(("late",), "v", of_all=True))  # no commands go before it
    seconds(b, 29)
    b.heartbeat("c")
    b.answering = False
    assert b.round() == [("e", "c")]
    b.serve(e.Answered("c", b.numbers["c"], [api.Refusal(index=0, reason="full")]))
    b.answering = True
    seconds(b, 3)
    assert kept_cores(b) == 0


def test_room_that_does_not_grow_is_given_up_and_its_node_takes_work_for_as_long() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.ready("a", command("endless", cores=1.0))
    b.round()
    for job in ("late", "later"):  # the second one does not take over the room
        b.job("a", job, at=2.0)
        b.ready("a", executor("e", cores=4.0), executor("f", cores=4.0), job=job)
    kept = []
    for _ in range(240):
        b.heartbeat("a")
        b.round(1.0)
        kept.append(kept_cores(b) > 0)
    assert 0 < sum(kept) <= 120, "at most half of the time"
    assert kept.index(True) + 31 > kept.index(False, kept.index(True))
    b.job("a", "short", at=3.0)
    b.ready("a", *[command(f"s{i}", cores=1.0) for i in range(3)], job="short")
    placed: list[tuple[str, str]] = []
    for _ in range(35):
        b.heartbeat("a")
        placed += b.round(1.0)
    assert [name for name, _ in placed] == ["s0", "s1", "s2"]


def test_room_that_still_grows_is_kept() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.ready("a", *[command(f"b{i}", cores=1.0) for i in range(100)])
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), job="late")
    placed = []
    for second in range(31 + 4 * 20):
        if second > 31 and second % 20 == 0:
            mine = [held.task for held in b.cluster.nodes["a"].held.values()]
            end(b, mine[0], job="j")
        b.heartbeat("a")
        placed += b.round(1.0)
    assert placed == [("e", "a")]


def test_an_executor_that_used_room_leaves_the_next_turn_to_other_jobs() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((2, 100))})
    b.ready("a", *[command(f"b{i:03}", cores=1.0) for i in range(100)])
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=2.0), executor("f", cores=2.0), job="late")
    assert len([name for name, _ in turnover(b, 35) if name in {"e", "f"}]) == 1
    placed = turnover(b, 25)
    assert len(placed) == 25 and not {"e", "f"} & {name for name, _ in placed}, "the other one waits anew"
    assert len({"e", "f"} & {name for name, _ in turnover(b, 12)}) == 1


def test_nothing_is_stopped_twice_for_a_promised_executor_whose_forecast_is_fetched_anew() -> None:
    b = full_node(Plan(3.0), app=3)
    b.ready("a", executor("e"), job="prod")
    b.round()
    ends(b, "b3", "b2")
    b.round()
    forecasts = b.forecasts
    b.forecasts = {}
    b.serve(e.ForecastsOutdated(APP))
    assert b.round() + b.round() == [], "the room stays kept"
    b.forecasts = forecasts
    asked = b.predicted[-1]
    b.serve(e.Forecasted(asked.application, asked.settings, profile((3, 100)), "a test", 0.1, asked.sizing))
    ends(b, "b1")
    assert b.round() == [("e", "a")]
    assert stopped(b) == ["b3", "b2", "b1"], "each once"


def test_kept_room_is_shown_beside_what_is_free_and_in_the_reasons_of_what_waits() -> None:
    b = late_on_a_full_node()
    seconds(b, 33)
    node = status_document(b.cluster, b.now).nodes["a"]
    assert (node.kept_cores, node.kept_memory_bytes) == (4.0, 100 * MIB)
    note = "(room kept for a reservation or a late executor: a)"
    assert b.waits("j").endswith(f"lack unpromised cores {note}")
    assert b.waits("late").endswith(note)
    seconds(b, 3)
    assert b.cluster.nodes["a"].held.keys() == {("late", "e")}
    node = status_document(b.cluster, b.now).nodes["a"]
    assert (node.kept_cores, node.kept_memory_bytes) == (0.0, 0)
    assert "kept" not in b.waits("j")


def test_an_executor_that_found_a_place_elsewhere_leaves_the_others_their_wait() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={APP: profile((4, 100))})
    b.ready("a", command("endless", cores=1.0))
    b.round()
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), executor("f", cores=4.0), job="late")
    for _ in range(70):
        b.heartbeat("a")
        b.round(1.0)
    assert kept_cores(b) == 0, "it did not grow"
    b.node("c")
    placed = []
    for _ in range(25):
        b.heartbeat("a")
        b.heartbeat("c")
        placed += b.round(1.0)
    assert placed == [("e", "c")]
    assert b.cluster.nodes["c"].kept_tasks == 1, "room on the other one was given up"

"""The order of jobs between executors and other tasks: in a round, each job's executors and tasks have its turn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from master.core import events as e
from master.placement import turns
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import command
from tests.unit.master.core.executor_bed import MIB, ExecutorBed, executor, profile
from tests.unit.master.core.test_core_ahead import FULL
from tests.unit.master.core.test_core_plan_follower import Plan, end

ORDERINGS = ("fifo", "ejf", "gittins", "las", "las_mq", "fair", "drf")  # srjf: nothing is known of executors
PLACEMENTS = ("ursa", "tetris", "tetris2", "capacity")


def behind_an_executor(**settings: Any) -> ExecutorBed:
    """A node on which an executor of four cores runs; more like it wait, and commands of an earlier job."""
    b = ExecutorBed("a", forecasts={"u/app": profile((4, 100)), "v/app": profile((4, 100))}, **settings)
    b.job("a", "many", at=20.0, user="v")
    b.ready("a", *[executor(f"e{i}", cores=4.0) for i in range(20)], job="many")
    assert b.round() == [("e0", "a")]
    b.ready("a", *[command(f"c{i:02}", cores=1.0) for i in range(9)])
    assert b.round() == []
    return b


def ends(b: ExecutorBed, task: str, job: str = "many") -> list[tuple[str, str]]:
    end(b, task, job=job)
    b.heartbeat("a")
    return b.round(1.0)


def names(placed: list[tuple[str, str]]) -> list[str]:
    return sorted(name for name, _ in placed)


@pytest.mark.parametrize("ordering", ORDERINGS)
def test_commands_of_an_earlier_job_get_the_cores_of_an_executor_that_ends(ordering: str) -> None:
    b = behind_an_executor(ordering=ordering)
    assert names(ends(b, "e0")) == ["c00", "c01", "c02", "c03"]


@pytest.mark.parametrize("settings", [{"placement": name} for name in PLACEMENTS] + [{"stage_aware": False}])
def test_every_placement_of_tasks_holds_the_order(settings: dict[str, Any]) -> None:
    b = behind_an_executor(ordering="fifo", **settings)
    assert names(ends(b, "e0")) == ["c00", "c01", "c02", "c03"]


@pytest.mark.parametrize("ordering", ("fifo", "ejf"))
def test_an_earlier_executor_goes_before_commands_of_a_later_job(ordering: str) -> None:
    b = ExecutorBed("a", ordering=ordering, forecasts={"u/app": profile((4, 100))})
    b.job("a", "late", at=20.0, user="v")
    b.ready("a", *[command(f"c{i}", cores=1.0) for i in range(4)], job="late")
    b.executors(executor("e", cores=4.0))
    assert b.round() == [("e", "a")], "although the four commands are a stage that fits as a whole"


@pytest.mark.parametrize("ordering", ("fifo", "ejf"))
def test_executors_and_commands_of_several_jobs_take_turns(ordering: str) -> None:
    b = ExecutorBed("a", "b", ordering=ordering, forecasts={"u/app": profile((3, 100))})
    for at, job in enumerate(("second", "third", "fourth"), start=1):
        b.job("a", job, at=20.0 * at)
    b.ready("a", command("c1", cores=3.0))
    b.ready("a", executor("e2", cores=3.0), job="second")
    b.ready("a", *[command(f"c3{i}", cores=1.0) for i in range(3)], job="third")
    b.ready("a", executor("e4", cores=3.0), job="fourth")
    assert names(b.round()) == ["c1", "c30", "c31", "e2"]


def test_an_executor_gets_in_the_same_round_what_earlier_commands_leave() -> None:
    b = ExecutorBed("a", "b", ordering="fifo", forecasts={"u/app": profile((4, 100))})
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", cores=4.0), job="late")
    b.ready("a", *[command(f"c{i}", cores=1.0, nodes=("b",)) for i in range(9)])
    assert names(b.round()) == ["c0", "c1", "c2", "c3", "e"]
    assert ("e", "a") in [(held.task, name) for name in "ab" for held in b.cluster.nodes[name].held.values()]


def test_an_executor_behind_an_endless_earlier_job_has_its_turn_when_it_has_waited_long() -> None:
    b = behind_an_executor(ordering="fifo")
    b.ready("a", *[command(f"d{i:03}", cores=1.0) for i in range(100)])
    placed = ends(b, "e0")
    for _ in range(40):
        mine = [held.task for held in b.cluster.nodes["a"].held.values() if held.job == "j"]
        placed += ends(b, mine[0], job="j") if mine else b.round(1.0)
    assert len(placed) > 25
    assert ("e1", "a") in placed


def test_executors_of_several_jobs_are_packed_together_where_no_task_is_between_them() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/small": profile((1, 100)), "u/large": profile((4, 900))})
    b.job("a", "late", at=2.0)
    b.ready("a", executor("large", "large", cores=4.0), job="late")
    b.executors(executor("small", "small"))
    assert b.round() == [("large", "a")], "MinFrag: it leaves less idle"


@pytest.mark.parametrize("limit", [{"user_max_cores": 4.0}, {"user_max_memory_bytes": 500 * MIB}])
def test_the_order_holds_for_users_with_limits(limit: dict[str, Any]) -> None:
    b = behind_an_executor(ordering="fifo", **limit)
    placed = names(ends(b, "e0"))
    assert len(placed) == 4 and {name[0] for name in placed} == {"c"}


def test_an_executor_that_fits_nowhere_keeps_none_of_its_user_s_limit_from_other_tasks() -> None:
    b = ExecutorBed("a", ordering="fifo", user_max_cores=4.0, forecasts={"v/app": profile((4, 100))})
    b.ready("a", command("other", cores=1.0))
    b.round()
    b.job("a", "of-v", at=2.0, user="v")
    b.ready("a", executor("e", cores=4.0), *[command(f"c{i}", cores=1.0) for i in range(5)], job="of-v")
    assert names(b.round()) == ["c0", "c1", "c2"]


def test_an_executor_has_its_user_s_limit_before_that_user_s_other_tasks() -> None:
    b = ExecutorBed("a", "b", ordering="fifo", user_max_cores=4.0, forecasts={"u/app": profile((4, 100))})
    b.job("a", "late", at=2.0)
    b.executors(executor("e", cores=4.0))
    b.ready("a", *[command(f"c{i}", cores=1.0) for i in range(5)], job="late")
    assert names(b.round()) == ["e"]


def test_an_executor_over_its_user_s_limit_holds_it_for_itself_while_another_one_is_placed() -> None:
    forecasts = {"u/app": profile((4, 100)), "u/small": profile((1, 100))}
    b = ExecutorBed("a", "b", ordering="fifo", user_max_cores=4.0, forecasts=forecasts)
    b.job("a", "late", at=2.0)
    b.executors(executor("e1", "small"), executor("e2", cores=4.0))
    b.ready("a", *[command(f"c{i}", cores=1.0) for i in range(5)], job="late")
    assert names(b.round()) == ["e1"]


def forestalled(**settings: Any) -> ExecutorBed:
    """Commands of user u that take node a each second; an executor of user v that may go only there, and v's commands,
    which may also go to the empty node b.
    """
    b = ExecutorBed("a", "b", ordering="fifo", forecasts={"v/app": profile((4, 100))}, **settings)
    b.job("a", "late", at=2.0, user="v")
    b.job("a", "later", at=3.0, user="v")
    b.ready("a", *[command(f"b{i:03}", cores=1.0, nodes=("a",)) for i in range(400)])
    b.ready("a", executor("e", cores=4.0, nodes=("a",)), job="late")
    b.ready("a", *[command(f"c{i}", cores=1.0) for i in range(4)], job="later")
    return b


def second(b: ExecutorBed) -> list[str]:
    for held in [*b.cluster.nodes["a"].held.values()]:
        end(b, held.task, job=held.job)
    b.heartbeat("a")
    b.heartbeat("b")
    return [name for name in names(b.round(1.0)) if name[0] != "b"]


def test_an_executor_that_earlier_tasks_forestall_leaves_its_user_s_limit_to_other_tasks_in_the_next_round() -> None:
    b = forestalled(user_max_cores=4.0)
    assert second(b) == []
    reason = b.waits("late")
    assert "1 lacks cpu" in reason
    assert b.waits("later") == "4 tasks wait: it is the turn of other tasks of user v", "who holds nothing"
    assert second(b) == ["c0", "c1", "c2", "c3"]
    assert b.waits("late") == reason


def test_an_executor_that_earlier_tasks_forestall_gets_its_node_once_they_leave_it() -> None:
    b = forestalled(user_max_cores=4.0)
    b.serve(e.Received("a", api.TasksCancelled(job="later", tasks=["c0", "c1", "c2", "c3"])))
    second(b)
    b.serve(e.Received("a", api.TasksCancelled(job="j", tasks=[f"b{i:03}" for i in range(400)])))
    assert second(b) == ["e"], "no other task waits for the limit"


def test_tasks_placed_before_an_executor_are_no_longer_free_in_any_slot_of_its_node_s_report() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((3, 100), (3, 100))})
    b.beats("a", [(4, 900)])
    b.job("a", "late", at=2.0)
    b.ready("a", *[command(f"c{i}", cores=1.0, nodes=("a",)) for i in range(2)])
    b.ready("a", executor("e", cores=3.0, nodes=("a",)), job="late")
    assert names(b.round()) == ["c0", "c1"]
    assert "1 lacks cpu" in b.waits("late")


def test_executors_of_more_jobs_than_a_round_has_turns_share_the_last_one() -> None:
    b = ExecutorBed("a", ordering="fifo", forecasts={"u/app": profile((0.04, 1))})
    for number in range(40):
        b.job("a", f"c{number}", at=2.0 * number)
        b.ready("a", command(f"c{number}", cores=0.04), job=f"c{number}")
        b.job("a", f"e{number}", at=2.0 * number + 1)
        b.ready("a", executor(f"e{number}", cores=0.04), job=f"e{number}")
    assert names(b.round()) == sorted(f"{kind}{number}" for kind in "ce" for number in range(40))


@pytest.mark.parametrize("ordering", ("fifo", "ejf"))
def test_a_reservation_s_job_goes_first_only_until_its_promise_is_met(ordering: str) -> None:
    b = ExecutorBed("a", "b", "c", ordering=ordering, forecasts={"u/app": profile((4, 100)), "u/p": profile((1, 100))})
    b.cluster.guarantees.plan = Plan(1.0)
    b.job("a", "first", at=2.0)
    b.job("a", "second", at=3.0)
    b.job("a", "prod", at=4.0, reservation="r")
    b.ready("a", executor("e1", cores=4.0), job="first")
    b.ready("a", executor("e2", cores=4.0), job="second")
    b.ready("a", executor("p", "p"), *[command(f"c{i:02}", cores=1.0) for i in range(20)], job="prod")
    assert names(b.round()) == ["c00", "c01", "c02", "e1", "e2", "p"]


@pytest.mark.parametrize("ordering", ORDERINGS)
@pytest.mark.parametrize("cores", [0.0, 0.5])
def test_commands_of_an_earlier_job_that_start_ahead_of_others_go_before_executors(ordering: str, cores: float) -> None:
    b = ExecutorBed("a", ordering=ordering, forecasts={"u/app": profile((0.5, 600))})
    b.job("a", "long", at=5.0)
    b.ready("a", *[command(f"l{n}") for n in range(4)], job="long")
    assert len(b.round()) == 4
    b.heartbeat("a", **FULL)
    b.job("a", "late", at=2.0)
    b.ready("a", executor("e", mib=600), job="late")
    b.ready("a", command("c", 600, cores=cores))
    assert b.round() == [("c", "a")]
    assert b.cluster.jobs["j"].tasks["c"].why.startswith("ahead: ")


@pytest.mark.parametrize("ordering", ("fifo", "drf"))
def test_commands_of_a_later_job_that_start_ahead_of_others_come_after_executors(ordering: str) -> None:
    b = ExecutorBed("a", ordering=ordering, forecasts={"u/app": profile((0.5, 600))})
    b.job("a", "late", at=5.0)
    b.ready("a", *[command(f"l{n}") for n in range(4)], job="late")
    assert len(b.round()) == 4
    b.heartbeat("a", **FULL)
    b.ready("a", command("c", 600), job="late")
    b.executors(executor("e", mib=600))
    assert b.round() == [("e", "a")]


def of_two_users(*, executors: int, **settings: Any) -> ExecutorBed:
    """Two nodes; user u has an earlier job of executors of a core each, and one more."""
    b = ExecutorBed(*"ab", forecasts={f"{user}/app": profile((1, 100)) for user in "uv"}, **settings)
    b.job("a", "more", at=1.0)
    b.executors(*[executor(f"u{i}") for i in range(executors)])
    b.ready("a", executor("m"), job="more")
    b.job("a", "of-v", at=2.0, user="v")
    return b


SHARES: list[dict[str, Any]] = [
    {"ordering": "fifo", "weights": {"u": 1.0}},
    {"ordering": "gittins", "tenants": {"u": "research"}},
    {"ordering": "drf"},
]


@pytest.mark.parametrize("settings", SHARES)
def test_a_tenant_s_tasks_go_before_executors_of_one_that_has_more_than_its_share(settings: dict[str, Any]) -> None:
    b = of_two_users(executors=8, share_chunk_tasks=1, **settings)
    b.ready("a", *[command(f"v{i}", cores=1.0) for i in range(8)], job="of-v")
    placed = names(b.round())
    assert len([name for name in placed if name[0] == "v"]) == 4
    assert len(placed) == 8


@pytest.mark.parametrize("settings", SHARES)
def test_a_tenant_s_executors_go_before_those_of_one_that_has_more_than_its_share(settings: dict[str, Any]) -> None:
    b = of_two_users(executors=8, **settings)
    b.ready("a", *[executor(f"v{i}") for i in range(8)], job="of-v")
    placed = names(b.round())
    assert len([name for name in placed if name[0] == "v"]) == 4
    assert len(placed) == 8


@pytest.mark.parametrize("settings", SHARES)
def test_an_executor_placed_by_shares_compares_only_the_first_jobs_of_the_tenants(
    settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: Counter[int] = Counter()
    for jobs in (10, 40):
        b = ExecutorBed("a", forecasts={f"{user}/app": profile((0.01, 1)) for user in "uv"}, **settings)
        for number in range(jobs):
            b.job("a", f"e{number}", at=float(number), user="uv"[number % 2])
            b.ready("a", executor(f"e{number}", cores=0.01), job=f"e{number}")
        key = turns._Turns._key

        def counted(self: Any, job: str, jobs: int = jobs, key: Any = key) -> Any:
            asked[jobs] += 1
            return key(self, job)

        with monkeypatch.context() as patched:
            patched.setattr(turns._Turns, "_key", counted)
            assert len(b.round()) == jobs
    assert asked[40] < 5 * asked[10], "four times as many executors"


def test_executors_are_placed_by_the_weights_of_their_tenants() -> None:
    b = of_two_users(executors=8, ordering="fifo", weights={"v": 3.0})
    b.ready("a", *[executor(f"v{i}") for i in range(8)], job="of-v")
    assert len([name for name in names(b.round()) if name[0] == "v"]) == 6


def test_what_one_tenant_s_executors_cannot_use_goes_to_the_other_s() -> None:
    b = of_two_users(executors=8, ordering="fifo", weights={"u": 1.0})
    b.ready("a", executor("v0"), executor("v1", nodes=("a",)), job="of-v")
    assert names(b.round()) == ["u0", "u1", "u2", "u3", "u4", "u5", "v0", "v1"]


def test_what_a_turn_gives_a_tenant_counts_for_the_tasks_placed_after_it() -> None:
    b = ExecutorBed(*"abc", ordering="fifo", weights={"u": 1.0}, forecasts={"u/app": profile((4, 100))})
    for at, (job, user) in enumerate((("between", "u"), ("late", "u"), ("of-v", "v")), start=2):
        b.job("a", job, at=float(at), user=user)
    b.executors(executor("e1", cores=4.0))
    b.ready("a", command("c", cores=1.0), job="between")
    b.ready("a", executor("e2", cores=4.0), job="late")
    b.ready("a", *[command(f"v{i}", cores=1.0) for i in range(8)], job="of-v")
    assert names(b.round()) == ["c", "e1", *(f"v{i}" for i in range(7))]

"""The limits of one user in the cluster: cores and memory of placed tasks, and admitted jobs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from master.core import events as e
from master.core.job import Task
from master.core.node import Held
from master.core.snapshot import holds
from master.explain.why import JobExplainer
from penstock.model import Capacity, ContainerSpec, KindAmounts, ResourceKind, TaskRequest
from penstock.wire import master_api as api
from tests.unit.master.cluster_bed import EXIT, MB, Bed, bed, command, job_state, load, placed_task, task
from tests.unit.master.core.executor_bed import ExecutorBed, executor, profile
from tests.unit.master.core.test_core_plan_follower import Plan


def users(*names: str, nodes: tuple[str, ...] = ("a",), cores: int = 8, **settings: Any) -> Bed:
    """Return a job of each user, in this order, on nodes with room for more than any user may hold."""
    made = Bed(**settings)
    for node in nodes:
        made.node(node, capacity=Capacity(cores=cores, memory_bytes=1000 * MB), load=load((cores, 1, 2)))
    for at, name in enumerate(names):
        made.job("a", name, at=float(at), user=name)
    return made


def ends(made: Bed, name: str, job: str, node: str = "a") -> None:
    made.serve(e.Received(node, api.CommandEnded(job=job, task=name, origin="a", ended=EXIT)))


def waits(made: Bed, job: str) -> str:
    return made.cluster.jobs[job].waits


def change(made: Bed, **settings: Any) -> None:
    made.serve(e.Reconfigured(replace(made.cluster.settings, **settings)))


def test_no_user_holds_more_cores_than_the_limit_and_others_do() -> None:
    made = users("eve", "bob", user_max_cores=3.0)
    made.ready("a", *[command(f"e{i}", 1, 1.0) for i in range(5)], job="eve")
    made.ready("a", *[command(f"b{i}", 1, 1.0) for i in range(2)], job="bob")
    assert [name for name, _ in made.round()] == ["e0", "e1", "e2", "b0", "b1"]
    assert waits(made, "eve") == "2 tasks wait: user eve holds 3 of 3 cores (user_max_cores)"
    assert waits(made, "bob") == ""
    (stage,) = JobExplainer.of(made.cluster).document("eve", made.now).stages
    assert stage.waits.endswith("holds 3 of 3 cores (user_max_cores)")
    ends(made, "e1", "eve")
    assert [name for name, _ in made.round()] == ["e3"]


def test_all_jobs_of_a_user_count_together_and_those_that_come_first_have_it() -> None:
    made = users("eve", user_max_memory_bytes=300 * MB)
    made.job("a", "later", at=9.0, user="eve")
    made.ready("a", *[task(f"l{i}", 100) for i in range(3)], job="later")
    made.ready("a", *[task(f"e{i}", 100) for i in range(2)], job="eve")
    assert sorted(name for name, _ in made.round()) == ["e0", "e1", "l0"]
    assert waits(made, "later") == ("2 tasks wait: user eve holds 286 MiB of 286 MiB of memory (user_max_memory_bytes)")


def test_a_task_that_has_to_leave_counts_until_it_has_left_even_when_its_job_is_over() -> None:
    made = users("eve", user_max_cores=2.0)
    made.ready("a", *[command(f"e{i}", 1, 1.0) for i in range(2)], job="eve")
    made.round()
    made.serve(e.Received("a", api.JobEnded(job="eve")))
    made.cluster.past.drop("eve")
    made.job("a", "next", at=5.0, user="eve")
    made.ready("a", command("n", 1, 1.0), job="next")
    assert made.round() == []
    ends(made, "e0", "eve")
    assert [name for name, _ in made.round()] == ["n"]


def test_a_large_task_is_waited_for_and_one_that_is_larger_than_the_limit_is_not() -> None:
    made = users("eve", user_max_cores=4.0)
    made.ready("a", command("one", 1, 1.0), job="eve")
    made.round()
    made.ready("a", command("huge", 1, 5.0), command("large", 1, 4.0), command("small", 1, 1.0), job="eve")
    assert made.round() == []
    assert waits(made, "eve") == "3 tasks wait: it wants 5 cores, a user may hold 4 cores (user_max_cores)"
    ends(made, "one", "eve")
    assert [name for name, _ in made.round()] == ["large"]


def test_a_task_without_limited_resources_does_not_wait() -> None:
    made = users("eve", user_max_cores=1.0)
    made.ready("a", task("c0", 1), task("c1", 1), task("d", 1, cpu=0), job="eve")
    assert sorted(name for name, _ in made.round()) == ["c0", "d"]


@pytest.mark.parametrize("where", ["b", "gone"])
def test_a_task_that_has_no_node_does_not_keep_the_others_waiting(where: str) -> None:
    made = users("eve", "bob", nodes=("a", "b"), user_max_cores=2.0)
    made.ready("a", task("fills", 1000, nodes=("b",)), job="bob")
    made.round()
    pinned = [command(f"p{i}", 100, 1.0, nodes=(where,)) for i in range(2)]
    made.ready("a", *pinned, *[command(f"e{i}", 1, 1.0) for i in range(2)], job="eve")
    in_vain = made.round() if where == "b" else []  # of a node that is away it is known before
    assert in_vain == []
    assert [name for name, _ in made.round()] == ["e0", "e1"]
    if where == "b":
        ends(made, "e0", "eve")
        made.serve(e.Received("a", api.TasksDone(job="bob", tasks=["fills"])))
        assert [name for name, _ in made.round()] == ["p0"], "it was offered in vain, and is again"


def test_executors_hold_their_largest_demands() -> None:
    made = ExecutorBed("a", "b", forecasts={"u/app": profile((2.0, 100), (1.0, 50))}, user_max_cores=4.0)
    made.executors(*[executor(f"x{i}") for i in range(3)])
    made.ready("a", command("c", 1, 1.0))
    assert sorted(name for name, _ in made.round()) == ["x0", "x1"]
    assert made.waits() == "1 task waits: user u holds 4 of 4 cores (user_max_cores)"
    assert made.cluster.executors.waits["j"]() == "1 executor waits: user u holds 4 of 4 cores (user_max_cores)"
    ends(made, "x0", "j", made.cluster.jobs["j"].tasks["x0"].node)
    assert [name for name, _ in made.round(1.0)] == ["x2"]


def test_an_executor_holds_no_more_than_the_largest_node_has() -> None:
    made = ExecutorBed("a", "b", forecasts={"u/app": profile((9.0, 100), (1.0, 50))}, user_max_cores=4.0)
    made.executors(*[executor(f"x{i}") for i in range(2)])
    assert len(made.round()) == 1


def test_an_executor_that_fits_nowhere_does_not_keep_the_others_waiting() -> None:
    forecasts = {"u/app": profile((1.0, 900), (1.0, 50))}
    made = ExecutorBed("a", "b", forecasts=forecasts, user_max_cores=1.0)
    made.job("a", "other", user="bob")
    made.ready("a", task("fills", 900, nodes=("b",)), job="other")
    made.round()
    made.executors(executor("x0", nodes=("b",)), executor("x1"))
    assert [name for _ in range(3) for name, _ in made.round(1.0)] == ["x1"]


def test_executors_that_fit_nowhere_do_not_keep_commands_waiting() -> None:
    made = ExecutorBed("a", forecasts={"u/app": profile((3.0, 100), (3.0, 50))}, user_max_cores=4.0)
    made.job("a", "other", user="bob")
    made.ready("a", command("fills", 1, 3.0), job="other")
    made.round()
    made.executors(executor("x0"), executor("x1"))
    made.ready("a", command("c", 1, 1.0))
    assert ("c", "a") in [placed for _ in range(3) for placed in made.round(1.0)]


def test_opportunistic_work_is_not_limited_and_is_promoted_as_far_as_its_user_may() -> None:
    made = users("eve", user_max_cores=2.0)
    tasks = [command(f"e{i}", 1, 1.0) for i in range(3)]
    made.ready("a", *tasks, job="eve", opportunistic=True)
    assert len(made.round()) == 3
    regular = [d.request.task for _, d in made.decisions_of(api.Assign) if not d.opportunistic]
    assert regular == ["e0", "e1"]
    made.round()
    assert made.decisions_of(api.Promote) == []
    ends(made, "e0", "eve")
    made.round()
    assert [decision.task for _, decision in made.decisions_of(api.Promote)] == ["e2"]


def test_no_room_is_made_for_promises_beyond_the_limit() -> None:
    for most, stopped in ((0.0, 2), (3.0, 1)):
        made = bed("a", ordering="fifo", user_max_cores=most)
        made.cluster.guarantees.plan = Plan(4.0)
        made.job("a", "best", at=1.0, user="bob")
        made.job("a", "mine", at=2.0, user="eve")
        made.job("a", "prod", at=3.0, user="eve", reservation="r")
        made.ready("a", *[command(f"b{i}", 1, 1.0) for i in range(2)], job="best")
        made.ready("a", *[command(f"m{i}", 1, 1.0) for i in range(2)], job="mine")
        made.round()
        made.ready("a", *[command(f"p{i}", 1, 1.0) for i in range(2)], job="prod")
        made.round()
        victims = [decision.task for _, decision in made.decisions_of(api.Withdraw)]
        assert len(victims) == stopped, victims


def test_of_one_user_so_many_jobs_are_admitted_and_the_next_when_one_ends() -> None:
    made = users("eve", user_max_jobs=2, admission_wait_max_s=5.0)
    made.job("a", "e2", at=2.0, user="eve", memory=10 * MB)
    made.job("a", "e3", at=3.0, user="eve", memory=900 * MB)
    made.job("a", "bob", at=4.0, user="bob", memory=100 * MB)
    assert [name for name, job in made.cluster.jobs.items() if job.admitted] == ["eve", "e2", "bob"]
    assert waits(made, "e3") == "eve runs 2 jobs, which is user_max_jobs"
    assert [d.why for _, d in made.decisions_of(api.TellWaiting)] == [waits(made, "e3")]
    made.round(9.0)
    made.serve(e.Received("a", api.JobEnded(job="eve")))
    made.job("a", "late", at=8.0, user="bob", memory=800 * MB)
    assert made.cluster.jobs["late"].admitted is False, "e3, which is before it, may have the memory now"
    made.serve(e.Received("a", api.JobEnded(job="bob")))
    assert made.cluster.jobs["e3"].admitted


def test_time_that_a_job_waited_for_others_of_its_user_puts_it_before_no_other() -> None:
    made = users("eve", user_max_jobs=1, admission_wait_max_s=5.0, ordering="fifo")
    made.job("a", "e2", at=7.0, user="eve", memory=900 * MB)
    made.job("a", "bob", at=1.0, user="bob", memory=200 * MB)
    made.round(9.0)
    made.job("a", "first", at=2.0, user="bob2", memory=900 * MB)
    made.serve(e.Received("a", api.JobEnded(job="eve")))
    made.serve(e.Received("a", api.JobEnded(job="bob")))
    assert made.cluster.jobs["first"].admitted
    assert not made.cluster.jobs["e2"].admitted


def test_a_limit_that_falls_stops_no_task_and_one_that_rises_is_used_at_once() -> None:
    made = users("eve")
    made.ready("a", *[command(f"e{i}", 1, 1.0) for i in range(4)], job="eve")
    made.round()
    assert made.cluster.user_quotas.in_round() is None
    change(made, user_max_cores=2.0)
    made.ready("a", command("more", 1, 1.0), job="eve")
    assert made.round() == []
    assert made.decisions_of(api.Withdraw) == []
    assert waits(made, "eve") == "1 task waits: user eve holds 4 of 2 cores (user_max_cores)"
    change(made, user_max_cores=5.0)
    assert [name for name, _ in made.round()] == ["more"]


def test_a_master_that_restarted_counts_adopted_tasks() -> None:
    made = Bed(user_max_cores=1.0)
    placed = placed_task("t0", memory=1, remaining=task("t0").usage)
    awaited = api.AwaitedTask(job="j", stage="s", request=command("t0", 1, 1.0), node="a")
    state = job_state("j", user="eve", admitted=True)
    ready = api.ReadyTasks(job="j", stage="s", tasks=[command("t1", 1, 1.0)])
    made.node("a", jobs=[state], placed=[placed], awaited=[awaited], ready=[ready])
    assert made.round() == []
    ends(made, "t0", "j")
    assert [name for name, _ in made.round()] == ["t1"]


@pytest.mark.parametrize("kind", list(ResourceKind))
@pytest.mark.parametrize("runs", [True, False], ids=["command", "task"])
@pytest.mark.parametrize(
    "usage", [KindAmounts(), KindAmounts(cpu=9.0), KindAmounts(disk=9.0, network=9.0)], ids=["unknown", "cpu", "io"]
)
@pytest.mark.parametrize("cores", [0.0, 0.5])
def test_a_task_counts_for_its_users_limits_before_it_is_placed_as_it_does_afterwards(
    kind: ResourceKind, runs: bool, usage: KindAmounts, cores: float
) -> None:
    spec = ContainerSpec(argv=("x",), cpu_cores=cores) if runs else None
    request = TaskRequest(task="t", usage=usage, memory_bytes=7, command=spec, command_kind=kind)
    placed = Held.of(Task("j", "t", "s", opportunistic=False, request=request), request, "eve")
    assert holds(request) == placed.holds()

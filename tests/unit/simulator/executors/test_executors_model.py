"""The model of executors on small cases that can be worked out by hand, and its invariants on a mixture."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from master.placement.executors_named import EXECUTOR_POLICIES, executor_policy
from simulator.executors import Spec, run
from simulator.executors.engine import Engine
from simulator.executors.workload import applications_of
from simulator.report import Report

GB, MB = 1e9, 1e6


def spec(applications: list[dict[str, Any]], policy: str = "minfrag", **tables: Any) -> Spec:
    document = {
        "cluster": {"machines": 1, "phases": 1, "slot_s": 1.0} | tables.pop("cluster", {}),
        "policy": {"name": policy} | tables.pop("settings", {}),
        "workload": {"applications": applications} | tables.pop("workload", {}),
    }
    return msgspec.convert(document | tables, Spec)


def simulate(*args: Any, **kwargs: Any) -> Report:
    return run(spec(*args, **kwargs), seed=0)


def ends_s(report: Report) -> dict[str, float]:
    return {job.name: round(job.ended_at_s, 6) for job in report.jobs}


def test_one_executor_takes_as_long_as_its_profile() -> None:
    report = simulate([{"name": "a", "at_s": 2.5, "cpu_cores": [4, 8, 16, 4]}])
    assert ends_s(report) == {"a": 7.0}  # at the boundary at 3
    assert report.jobs[0].started_at_s == 3.0
    assert report.makespan_s == 4.5
    cpu = report.resources["cpu"]
    assert cpu.utilization == pytest.approx(32 / (16 * 4.5)) == cpu.scheduling_efficiency
    assert cpu.utilization_efficiency == pytest.approx(1)


def test_peaks_wait_where_profiles_interlock() -> None:
    work = [{"name": "a", "cpu_cores": [12, 12, 4, 4]}, {"name": "b", "cpu_cores": [4, 4, 12, 12]}]
    assert simulate(work).makespan_s == 4
    for policy in ("static", "tetris", "capacity", "random_fit"):
        report = simulate(work, policy)
        assert report.makespan_s == 8
        assert report.resources["cpu"].utilization_efficiency == pytest.approx(2 / 3)


def test_dynamic_holds_stage_by_stage() -> None:
    """a's second stage leaves room for b's, which static would keep out until a ends."""
    work = [
        {"name": "a", "cpu_cores": [12, 12, 4, 4], "stages": [2, 2]},
        {"name": "b", "cpu_cores": [4, 4, 12, 12], "stages": [2, 2]},
    ]
    assert simulate(work, "dynamic").makespan_s == 4
    assert simulate(work, "dynamic").measures["launches"] == 4


def test_executors_that_share_an_unreserved_disk_are_slowed_down() -> None:
    work = [{"name": name, "cpu_cores": [2] * 4, "disk_bytes_per_s": [400 * MB] * 4} for name in "ab"]
    report = simulate(work, "static")
    assert ends_s(report) == {"a": 6.4, "b": 6.4}  # 800 wanted of 500: 1.6 times as long
    assert report.resources["disk"].utilization == pytest.approx(1.0, abs=0.001)
    assert report.resources["disk"].scheduling_efficiency is None
    # As §V.C shows it: the demand, which is more than the capacity in all slots but the last.
    assert report.measures["disk_over_100_percent"] == pytest.approx(6 / 6.4)
    # With contention the disk delivers 500 ÷ 1.6 of the 800: 2.56 times as long.
    assert simulate(work, "static", cluster={"disk_contention": 1.0}).makespan_s == pytest.approx(4 * 1.6 * 1.6)
    assert simulate(work, "tetris").makespan_s == 8  # one after the other, at full speed


def test_work_that_was_underestimated_takes_longer_and_reprovisioning_helps() -> None:
    """A stage of 20 slots is overdue after 22; one more is watched, and from then on it has its demand."""
    asked = spec([{"name": "a", "cpu_cores": [4] * 60, "stages": [20, 20, 20]}], settings={"reprovisioning": False})
    seed = next(each for each in range(100) if _factor(asked, each) > 1.15)
    factor = _factor(asked, seed)
    wrong = msgspec.structs.replace(asked, prediction=_prediction())
    late = run(wrong, seed)
    assert late.makespan_s == pytest.approx(60 * factor, rel=0.02)
    on = msgspec.structs.replace(wrong, policy=msgspec.structs.replace(wrong.policy, reprovisioning=True))
    helped = run(on, seed)
    assert helped.measures["reprovisioned"] == 1
    assert 60 < helped.makespan_s < 60 + 22 * (1 - 1 / factor) + 2


def test_tasks_of_one_that_is_stuck_run_where_its_application_has_room() -> None:
    """a's executors are on two machines; on the one that they share with b no core is left for a's lack."""
    work = [
        {"name": "a", "executors": 2, "cpu_cores": [9] * 60, "stages": [20, 20, 20]},
        {"name": "b", "cpu_cores": [7] * 60},
    ]
    asked = spec(work, cluster={"machines": 2}, settings={"rescheduling": False})
    seed = next(each for each in range(1000) if 1.15 < _factor(asked, each) < 1.4)
    wrong = msgspec.structs.replace(asked, prediction=_prediction())
    alone = run(wrong, seed)
    assert alone.jobs[0].response_s == pytest.approx(60 * _factor(asked, seed), rel=0.02)
    assert alone.measures["rescheduled_slots"] == 0
    on = msgspec.structs.replace(wrong, policy=msgspec.structs.replace(wrong.policy, rescheduling=True))
    helped = run(on, seed)
    assert helped.measures["rescheduled_slots"] > 1
    assert 60 <= helped.jobs[0].response_s < alone.jobs[0].response_s - 2
    work_of = [report.resources["cpu"].utilization * report.makespan_s for report in (alone, helped)]
    assert work_of[1] == pytest.approx(work_of[0], rel=0.001), "the same work, elsewhere"


def test_time_that_was_underestimated_is_taken_all_the_same() -> None:
    asked = spec([{"name": "a", "cpu_cores": [4] * 60}], prediction={"time": 0.2})
    [application] = applications_of(asked, 7)
    assert application.stretch != 1
    assert run(asked, 7).makespan_s == pytest.approx(60 * application.stretch)


def test_slowdown_is_against_the_time_alone() -> None:
    work = [{"name": name, "cpu_cores": [2] * 4, "disk_bytes_per_s": [400 * MB] * 4} for name in "ab"]
    report = simulate(work, "static", measure={"alone": True})
    assert [job.alone_s for job in report.jobs] == [4.0, 4.0]
    assert report.mean_slowdown == pytest.approx(1.6)
    assert simulate(work, "static").mean_slowdown is None


def _prediction() -> Any:
    return msgspec.convert({"cpu": 0.2}, type(spec([{"name": "a", "cpu_cores": [1]}]).prediction))


def _factor(asked: Spec, seed: int) -> float:
    return float(applications_of(msgspec.structs.replace(asked, prediction=_prediction()), seed)[0].factor[0])


def test_a_launch_takes_its_time_to_start() -> None:
    work = [{"name": "a", "cpu_cores": [4, 4], "memory_bytes": [GB, GB], "stages": [1, 1]}]
    assert simulate(work, workload={"startup_s": 3.0}).makespan_s == 5
    assert simulate(work, "dynamic", workload={"startup_s": 3.0}).makespan_s == 8


def test_latency_delays_knowledge() -> None:
    work = [{"name": "a", "cpu_cores": [4, 4]}]
    assert simulate(work, cluster={"latency_s": 0.5}).jobs[0].started_at_s == 1.0


def test_an_executor_that_fits_no_machine() -> None:
    with pytest.raises(ValueError, match=r"'a': an executor holds up to 17 where cluster.cpu_cores is 16"):
        simulate([{"name": "a", "cpu_cores": [17]}])


@pytest.mark.parametrize(
    ("application", "what"),
    [
        ({"name": "a"}, "equally many values"),
        ({"name": "a", "cpu_cores": [1, 2], "memory_bytes": [1]}, "equally many values"),
        ({"name": "a", "cpu_cores": [1, 2], "stages": [1]}, "1 slot, not 2"),
        ({"name": "a", "cpu_cores": [-1]}, ">= 0"),
        ({"name": "a", "cpu": [1]}, "unknown field `cpu`"),
    ],
)
def test_a_wrong_application_has_its_error_named(application: dict[str, Any], what: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=what):
        spec([application])


def test_a_workload_is_one_of_three() -> None:
    with pytest.raises(msgspec.ValidationError, match="give one of applications, hibench, trace"):
        msgspec.convert({"workload": {}}, Spec)


MIXTURE = {
    "workload": {
        "startup_s": 3.0,
        "hibench": {"applications": 8, "new_applications": 2, "executors": 4, "runtimes_s": [60.0, 150.0]},
    },
    "cluster": {"machines": 2},
    "prediction": {"cpu": 0.05, "disk": 0.05, "network": 0.05, "memory": 0.05, "new": 0.2},
}


@pytest.mark.parametrize("policy", EXECUTOR_POLICIES)
def test_a_mixture_ends_the_same_each_time_within_the_capacity_of_machines(policy: str) -> None:
    asked = msgspec.convert(MIXTURE | {"policy": {"name": policy}}, Spec)
    report = run(asked, seed=3)
    assert msgspec.json.encode(report) == msgspec.json.encode(run(asked, seed=3))
    assert len(report.jobs) == 10
    assert all(job.ended_at_s > (job.started_at_s or 0) >= job.submitted_at_s for job in report.jobs)
    for resource in report.resources.values():
        assert 0 < resource.utilization <= 1
        if resource.scheduling_efficiency is not None:
            assert resource.utilization <= resource.scheduling_efficiency + 1e-9 <= 1 + 2e-9
    assert report.timeline is not None
    assert max(max(series) for series in report.timeline.used.values()) <= 1 + 1e-9


def test_another_seed_gives_another_mixture() -> None:
    asked = msgspec.convert(MIXTURE | {"policy": {"name": "minfrag"}}, Spec)
    assert msgspec.json.encode(run(asked, seed=3)) != msgspec.json.encode(run(asked, seed=4))


def test_no_promise_is_ever_broken_while_plans_are_wrong() -> None:
    """At every boundary: holdings sum up to the unavailable part, and nothing is negative."""
    asked = msgspec.convert(MIXTURE | {"policy": {"name": "minfrag"}}, Spec)
    engine = Engine(asked, applications_of(asked, 5), executor_policy("minfrag", lambda: 0.0))
    machines, boundary, seen = engine._machines, engine._boundary, 0

    def checked(phase: int, now_s: float) -> int:
        nonlocal seen
        ended = boundary(phase, now_s)
        for machine in engine._groups[phase].tolist():
            available = machines.available(machine)
            promised = np.zeros_like(available)
            for executor in machines.executors(machine):
                held = machines.held(machine, executor)
                promised[:, : held.shape[1]] += held
            capacity = machines.capacity[machine][:, None]
            assert (available >= -1e-6 * capacity).all()
            assert np.allclose((available + promised) / capacity, 1.0)
            seen += 1
        return ended

    engine._boundary = checked  # type: ignore[method-assign]
    engine.run()
    assert seen > 100 and engine.reprovisioned > 0

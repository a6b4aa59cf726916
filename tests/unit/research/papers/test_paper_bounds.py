"""The bounds of a scenario: the work, the jobs by themselves, and no run that is below them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from research.papers.bounds import bounds_of
from simulator.tasks import Spec, run

NODE = {"count": 2, "cores": 2, "memory_bytes": 8e9}


def scenario(*jobs: dict[str, Any], **tables: Any) -> Spec:
    return msgspec.convert({"cluster": {"nodes": [NODE], "start_s": 1.0}, "jobs": list(jobs)} | tables, Spec)


def job(name: str, *stages: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"name": name, "stages": list(stages)} | keys


def compute(tasks: int, seconds: float, memory_bytes: float = 0.0) -> dict[str, Any]:
    return {"tasks": tasks, "memory_bytes": memory_bytes, "monotasks": [{"kind": "cpu", "seconds": seconds}]}


def command(tasks: int, *phases: dict[str, float]) -> dict[str, Any]:
    return {"tasks": tasks, "opportunistic": True, "command": {"memory_bytes": 2e9, "phases": list(phases)}}


def test_the_work_takes_as_long_as_the_whole_cluster_needs_for_it() -> None:
    found = bounds_of(scenario(job("a", compute(40, 10))), 0)
    assert found.makespan_s == pytest.approx(100)
    assert "all of the cpu" in found.limit
    memory = bounds_of(scenario(job("a", compute(40, 10, 8e9))), 0)
    assert memory.makespan_s == pytest.approx(200)
    assert "all of the memory" in memory.limit


def test_work_that_comes_late_leaves_its_resource_idle_until_then() -> None:
    found = bounds_of(scenario(job("a", compute(4, 10)), job("b", compute(8, 10), submitted_at_s=50)), 0)
    assert found.makespan_s == pytest.approx(70)


def test_a_job_by_itself_takes_the_longest_task_of_each_of_its_stages() -> None:
    stages = [compute(1, 5), command(2, {"seconds": 20, "cpu_cores": 0.5}), compute(1, 10) | {"after": ["s0"]}]
    found = bounds_of(scenario(job("a", compute(1, 7)), job("b", *stages, submitted_at_s=30)), 0)
    assert found.makespan_s == pytest.approx(30 + 5 + 1 + 20)  # a command needs a second to start
    assert found.limit.startswith("b takes until then")
    assert found.mean_response_s == pytest.approx((7 + 26) / 2)


def test_the_mean_is_that_of_the_shortest_remaining_work_on_one_fast_machine() -> None:
    # The cluster needs 100 s for the long job. Each short one needs 10 s, and comes while it is under way.
    short = [job(f"s{number}", compute(4, 10), submitted_at_s=20 * number) for number in (1, 2)]
    found = bounds_of(scenario(job("long", compute(40, 10)), *short), 0)
    assert found.mean_response_s == pytest.approx((120 + 10 + 10) / 3)


def test_memory_that_shrinks_counts_at_its_larger_end() -> None:
    shrinks = [{"seconds": 1, "memory_bytes": 2e9}, {"seconds": 10}]
    found = bounds_of(scenario(job("a", command(80, *shrinks)), cluster={"nodes": [NODE]}), 0)
    assert found.makespan_s == pytest.approx(80 * (1 + 10) * 1e9 / 16e9, rel=0.01)


@pytest.mark.parametrize("ordering", ["fair", "gittins", "srjf"])
def test_no_run_is_below_the_bounds(ordering: str) -> None:
    phases = [{"seconds": 4, "cpu_cores": 0.9, "memory_bytes": 1e9}, {"seconds": 6, "disk_bytes_per_s": 20e6}]
    jobs = [
        job("big", command(12, *phases), command(4, *phases)),
        job("small", command(3, *phases), submitted_at_s=3, count=3, every_s=5),
        job("slots", compute(6, 4), submitted_at_s=2),
    ]
    spec = scenario(*jobs, policy={"ordering": ordering})
    found, report = bounds_of(spec, 0), run(spec, 0)
    assert 0.3 * report.makespan_s < found.makespan_s <= report.makespan_s
    assert 0.1 * report.mean_response_s < found.mean_response_s <= report.mean_response_s

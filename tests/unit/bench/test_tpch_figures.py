"""Makespan, SE and UE of runs with figures known beforehand (Ursa §5), and the static split."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bench.tpch import compare, shares
from bench.tpch.compare import Plan
from bench.tpch.records import Figures, JobResult, JobSpec, Run
from bench.tpch.shares import Share, split


def jobs() -> list[JobResult]:
    """Two jobs of 10 and 20 s, which used 15 core-seconds, 12 of them in tasks."""
    return [
        JobResult("job-0", 100.0, 110.0, 6.0, 5.0, {"q01": 10.0}, {"q01": 4}),
        JobResult("job-1", 100.0, 120.0, 9.0, 7.0, {"q01": 20.0}, {"q01": 4}),
    ]


def test_static_shares_are_allocated_for_as_long_as_the_job_runs() -> None:
    made = Figures.of(Run("static", 2, 1, jobs(), busy_s=18.5))
    assert (made.makespan_s, made.mean_job_s) == (20.0, 15.0)
    assert (made.x, made.y, made.z) == (30.0, 40.0, 15.0)
    assert (made.se, made.ue, made.others) == (0.75, 0.5, 3.5)


def test_oversubscription_allocates_more_than_there_is() -> None:
    made = Figures.of(Run("oversubscribed", 2, 2, jobs()))
    assert (made.x, made.se, made.ue) == (60.0, 1.5, 0.25)


def test_penstock_allocates_slots_and_counts_the_use_of_tasks_in_them() -> None:
    made = Figures.of(Run("gated", 2, 2, jobs(), slot_s=16.0))
    assert (made.x, made.z, made.used) == (16.0, 12.0, 15.0)
    assert (made.se, made.ue, made.utilization) == (0.4, 0.75, 0.375)
    assert Figures.of(Run("gated", 2, 2, jobs())).ue == 0.0  # nothing was gated: nothing was allocated


def test_records_come_back_from_json_as_they_were(tmp_path: Path) -> None:
    spec = JobSpec("job-0", "/data", 0.1, (1, 6), 2, 1, 2**30, "/out", cores=(0, 1))
    spec.save(tmp_path / "spec.json")
    assert JobSpec.load(tmp_path / "spec.json") == spec
    result = jobs()[0]
    result.save(tmp_path / "result.json")
    assert JobResult.load(tmp_path / "result.json") == result


def a_plan(directory: Path, **others: Any) -> Plan:
    fields: dict[str, Any] = {"scale": 1.0, "jobs": 4, "cores": 2, "queries": (1, 2, 3, 4, 5, 6), "ordering": ""}
    fields |= {"memory_bytes": 8 * 2**30, "timeout_s": 60.0, "data": directory, "directory": directory}
    return Plan(**fields | others)


def test_every_job_runs_every_query_and_begins_with_another(tmp_path: Path) -> None:
    plan = a_plan(tmp_path)
    whole, split_up = (plan.specs(way, [shares.WHOLE] * 4) for way in ("penstock", "static"))
    assert not any(spec.at_once for spec in whole)
    assert a_plan(tmp_path, at_once=True).specs("penstock", [shares.WHOLE] * 4)[0].at_once
    assert plan.specs("static-workers", [shares.WHOLE] * 4)[0].workers == 2  # the same as without a split
    assert [sorted(spec.queries) for spec in whole] == [[1, 2, 3, 4, 5, 6]] * 4
    assert len({spec.queries[0] for spec in whole}) == 4
    assert {(spec.workers, spec.memory_bytes) for spec in whole} == {(2, 2**30)}
    assert {(spec.workers, spec.memory_bytes) for spec in split_up} == {(1, 2 * 2**30)}


def test_unequal_jobs_run_the_first_queries_the_longest_job_first(tmp_path: Path) -> None:
    assert a_plan(tmp_path, unequal=True, jobs=3).work() == [(1, 2, 3, 4, 5, 6), (1, 2, 3, 4), (1, 2)]
    assert a_plan(tmp_path, unequal=True, jobs=2, queries=(3,)).work() == [(3,), (3,)]


def test_jobs_that_come_one_by_one(tmp_path: Path) -> None:
    specs = a_plan(tmp_path, every_s=2.5).specs("penstock", [shares.WHOLE] * 4)
    assert [spec.arrives_s for spec in specs] == [0.0, 2.5, 5.0, 7.5]


def test_a_way_may_name_its_ordering(tmp_path: Path) -> None:
    plan = a_plan(tmp_path, ordering="ejf")
    assert [plan.order_of(way) for way in ("penstock", "penstock:srjf")] == ["ejf", "srjf"]
    assert Figures.of(Run("gated:srjf", 2, 2, jobs(), slot_s=16.0)).ue == 0.75
    assert Figures.of(Run("static-workers", 2, 2, jobs())).x == 30.0


def test_the_order_of_jobs_is_read_from_the_agent_s_status(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"jobs": [{"name": name, "priority": at} for name, at in (("job-0", -1), ("job-2", 3), ("job-1", -1))]}
    monkeypatch.setattr(compare.Node, "_status", lambda _: told)
    assert compare.Node("", "").order() == ["job-2", "job-0=job-1"]


def test_a_share_binds_its_members() -> None:
    """On a host where quotas can be set: the half core is set, and the members are in it; else whole cores."""
    look = (
        "import os, sys; from bench.tpch.shares import Share;"
        "Share('', sys.argv[1], tuple(map(int, sys.argv[2:]))).join();"
        "print(sorted(os.sched_getaffinity(0))); print(open('/proc/self/cgroup').read())"
    )
    with split(4, 2) as made:
        (first, *_) = made
        assert len(made) == 4 and len(set(made)) in (4, 2, 1)
        command = [sys.executable, "-c", look, first.directory, *map(str, first.cores)]
        said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout
        if first.how == "quota":
            directory = Path(first.directory)
            assert directory.name in said
            assert any(
                (directory / name).exists() and (directory / name).read_text().split()[0] == "50000"
                for name in ("cpu.cfs_quota_us", "cpu.max")
            )
        else:
            assert said.startswith(f"{list(first.cores)}")
    assert not first.directory or not Path(first.directory).exists()


def test_without_cgroups_the_split_is_by_whole_cores(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(shares, "_V1", tmp_path / "no" / "v1")
    monkeypatch.setattr(shares, "_V2", tmp_path / "no" / "v2")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5, 7, 9})
    with split(2, 4) as made:
        assert made == [Share("affinity", cores=(3, 5)), Share("affinity", cores=(7, 9))]
    with split(8, 4) as made:
        assert [share.cores for share in made] == [(3,), (5,), (7,), (9,)] * 2

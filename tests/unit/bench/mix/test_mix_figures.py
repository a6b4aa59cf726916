"""Figures of a round, and the commands of each way."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bench.mix.figures import figures, mean_of, p95, table
from bench.mix.plan import Cost, Job, Plan, Series, first_pass
from bench.mix.round import Done
from bench.mix.ways import exists, master_settings, penstock, plain, slices


def job(number: int = 0, arrival_s: float = 0.0, cpu_s: float = 1.0) -> Job:
    return Job(number, "alice", "sort", "sort-series-0", True, 1.0, cpu_s, arrival_s)


def test_a_job_is_timed_from_its_arrival() -> None:
    done = [Done(job(0, 1.0, 2.0), 4.0, 0, True), Done(job(1, 5.0, 1.0), 6.0, 0, True)]
    made = figures(done)
    assert made["mean_s"] == pytest.approx(2.0)
    assert made["mean_slowdown"] == pytest.approx((1.5 + 1.0) / 2)
    assert made["makespan_s"] == 6.0
    assert made["failed"] == 0


def test_a_job_without_its_result_has_failed_as_one_with_a_bad_status_has() -> None:
    assert figures([Done(job(), 1.0, 0, False), Done(job(), 1.0, 1, True), Done(job(), 1.0, 0, True)])["failed"] == 2


def test_the_p95_is_that_of_the_jobs_that_need_least() -> None:
    done = [Done(job(n, 0.0, cpu_s=1.0 + n), took_s, 0, True) for n, took_s in enumerate((3.0, 2.0, 50.0, 60.0))]
    assert figures(done)["p95_of_smaller_half_s"] == 3.0
    assert p95([float(n) for n in range(1, 101)]) == 95.0
    assert p95([7.0]) == 7.0


def test_rounds_of_a_way_are_averaged_and_their_spread_is_told() -> None:
    made = mean_of([{"mean_s": 1.0, "failed": 0}, {"mean_s": 3.0, "failed": 1}])
    assert made == {"mean_s": 2.0, "failed": 0.5, "mean_s from": 1.0, "to": 3.0}


def test_in_the_first_pass_each_series_runs_once_from_the_beginning() -> None:
    series = (Series("sort-series-0", "bob", "sort", 2.0), Series("copy-series-1", "eve", "copy", 3.0))
    costs = {"sort": Cost(0.5, 1.0), "copy": Cost(0.0, 0.1)}
    jobs = first_pass(Plan(1, 60.0, 2.0, series, ()), costs).jobs
    assert [(each.application, each.user, each.units, each.arrival_s) for each in jobs] == [
        ("sort-series-0", "bob", 2.0, 0.0),
        ("copy-series-1", "eve", 3.0, 0.0),
    ]
    assert [each.cpu_s for each in jobs] == pytest.approx([2.5, 0.3])


@pytest.mark.parametrize(
    ("way", "settings"),
    [
        ("penstock", {}),
        ("penstock-known", {}),
        ("penstock-las_mq", {"ordering": "las_mq"}),
        ("penstock-las_mq-known", {"ordering": "las_mq"}),
    ],
)
def test_an_order_is_a_way_of_its_own(way: str, settings: dict[str, str]) -> None:
    assert exists(way) and master_settings(way) == settings


def test_the_table_has_a_row_for_each_way() -> None:
    rows = table({"plain": {"mean_s": 1.0}, "penstock": {"mean_s": 0.5}}).splitlines()
    assert rows == ["| way | mean_s |", "|---|---|", "| plain | 1 |", "| penstock | 0.5 |"]


def test_each_way_runs_the_command_as_the_job_s_user(tmp_path: Path) -> None:
    for argv in (plain(job(), tmp_path, "true"), slices(job(), tmp_path, "true")):
        assert argv[-1] == "true"
        assert any(each.endswith("uid=alice") for each in argv)


def test_penstock_is_told_the_application_and_the_command(tmp_path: Path) -> None:
    penstock(Path("/run/agent.sock"))(job(), tmp_path, 'echo "a \\n b" >c')
    written = tomllib.loads((tmp_path / "job.toml").read_text())
    assert written["name"] == "sort-series-0"
    assert written["task"][0]["command"] == 'echo "a \\n b" >c'

"""Figures of a round, and the commands of each way."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from bench.mix.figures import figures, table
from bench.mix.plan import Job
from bench.mix.round import Done
from bench.mix.ways import penstock, plain, slices


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

"""Figures of a round, and tables of the records of several."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.mix import report
from bench.mix.figures import figures, p95
from bench.mix.jobs import Job
from bench.mix.records import Origin, Record, jobs_of, load
from bench.mix.round import Done
from bench.mix.singles import HOG

ORIGIN = Origin("abc", "python -m bench.mix", "a machine", "2026-11-26 04:00 UTC", {"Linux": "7.2"})


def job(
    number: int = 0, arrival_s: float = 0.0, cpu_s: float = 1.0, *, kind: str = "sort", deadline_s: float = 0.0
) -> Job:
    return Job(number, "alice", kind, "sort-series-0", True, 1.0, cpu_s, cpu_s, arrival_s, deadline_s=deadline_s)


def record(way: str, mean_s: float, *, seed: int = 1, with_archive: bool = True, failed: int = 0) -> Record:
    made = {"mean_s": mean_s, "kept_promise_and_failed": failed}
    return Record(way, seed, 78.0, 0.8, with_archive, ORIGIN, made, jobs_of([Done(job(), mean_s, 0, True)]))


def test_a_job_is_timed_from_its_arrival() -> None:
    done = [Done(job(0, 1.0, 2.0), 4.0, 0, True), Done(job(1, 5.0, 1.0), 6.0, 0, True)]
    made = figures(done)
    assert made["mean_s"] == pytest.approx(2.0)
    assert made["mean_slowdown"] == pytest.approx((1.5 + 1.0) / 2)
    assert made["makespan_s"] == 6.0
    assert made["kept_promise_and_failed"] == 0


def test_a_job_without_its_result_has_failed_as_one_with_a_bad_status_has() -> None:
    made = figures([Done(job(), 1.0, 0, False), Done(job(), 1.0, 1, True), Done(job(), 1.0, 0, True)])
    assert made["kept_promise_and_failed"] == 2


def test_a_hog_is_counted_by_itself() -> None:
    done = [Done(job(), 1.0, 0, True), Done(job(1, kind=HOG), 50.0, 1, False)]
    made = figures(done)
    assert (made["jobs"], made["mean_s"], made["makespan_s"]) == (1, 1.0, 1.0)
    assert (made["hogs_stopped"], made["kept_promise_and_failed"]) == (1, 0)
    assert figures([done[0], Done(job(1, kind=HOG), 50.0, 0, True)])["hogs_stopped"] == 0


@pytest.mark.parametrize(
    ("ended_s", "status", "kept"), [(9.0, 0, 1), (11.0, 0, 0), (9.0, 1, 0)], ids=["in time", "late", "failed"]
)
def test_a_deadline_is_kept_by_a_job_that_ended_well_before_it(ended_s: float, status: int, kept: int) -> None:
    made = figures([Done(job(deadline_s=10.0), ended_s, status, True), Done(job(1), 99.0, 0, True)])
    assert (made["deadlines"], made["deadlines_kept"]) == (1, kept)


def test_the_p95_is_that_of_the_jobs_that_need_least() -> None:
    done = [Done(job(n, 0.0, cpu_s=1.0 + n), took_s, 0, True) for n, took_s in enumerate((3.0, 2.0, 50.0, 60.0))]
    assert figures(done)["p95_of_smaller_half_s"] == 3.0
    assert p95([float(n) for n in range(1, 101)]) == 95.0
    assert p95([7.0]) == 7.0


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    kept = record("plain", 2.0)
    kept.save(tmp_path / "records")
    [file] = (tmp_path / "records").iterdir()
    assert load(file) == kept


def test_rounds_of_a_way_are_averaged_and_their_spread_is_printed() -> None:
    made = report.by_way([record("plain", 1.0), record("plain", 3.0, seed=2, failed=1)])["plain"]
    assert (made["rounds"], made["mean_s"], made["mean_s from"], made["to"]) == (2, 2.0, 1.0, 3.0)
    assert made["kept_promise_and_failed"] == 1


def test_the_archive_s_delay_compares_rounds_of_the_same_plan() -> None:
    beside = [record("plain", 3.0), record("plain", 2.0, seed=2)]
    alone = [record("plain", 2.0, with_archive=False), record("plain", 9.0, seed=3, with_archive=False)]
    made = report.by_way([*beside, *alone])["plain"]
    assert made["delay_by_archive"] == pytest.approx(0.5)
    assert made["mean_s"] == 2.5


def test_without_both_rounds_there_is_no_delay_to_print() -> None:
    assert "delay_by_archive" not in report.by_way([record("plain", 3.0)])["plain"]


def test_the_table_has_a_column_for_each_way_in_the_order_of_the_ways() -> None:
    ways = report.by_way([record("penstock", 0.5), record("penstock-las_mq", 0.7), record("plain", 1.0)])
    rows = report.table(ways).splitlines()
    assert rows[0] == "| figure | plain | penstock | penstock-las_mq |"
    assert "| mean_s | 1 | 0.5 | 0.7 |" in rows


def test_a_report_merges_files_and_fails_for_work_that_was_lost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    record("plain", 1.0).save(tmp_path)
    record("plain", 3.0, seed=2).save(tmp_path)
    files = [str(file) for file in tmp_path.iterdir()]
    assert report.main(files) == 0
    said = capsys.readouterr().out
    assert "| rounds | 2 |" in said and "seed 2: 78 s of arrivals, load 0.80" in said and "abc, a machine" in said
    record("plain", 3.0, seed=2, failed=1).save(tmp_path)
    assert report.main(files) == 1


def test_a_file_that_is_no_record_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(SystemExit):
        report.main([str(tmp_path / "x.json")])
    assert "x.json: no record of a round" in capsys.readouterr().err

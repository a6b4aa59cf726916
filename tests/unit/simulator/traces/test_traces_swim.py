"""SWIM rows: their values, the size of a job, and the errors of a bad one."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.traces import SwimJob, TraceError, swim, text_of

_ROW = "job3\t22\t2\t600\t20\t7"


def test_a_size_is_input_and_d_over_n_times_shuffle_and_output() -> None:
    assert swim([_ROW + "\n"], 5.0) == [
        SwimJob(
            name="job3",
            submitted_at_s=22.0,
            input_bytes=600,
            shuffle_bytes=20,
            output_bytes=7,
            size_bytes=600 + 100 + 7,
        )
    ]
    assert swim([_ROW], 0.0)[0].size_bytes == 607


def test_rows_of_size_zero_are_kept_and_empty_lines_are_not() -> None:
    jobs = swim([_ROW, "", "job4\t23\t1\t0\t0\t0"], 1.0)
    assert [(job.name, job.size_bytes) for job in jobs] == [("job3", 627.0), ("job4", 0.0)]


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ("job4\t23\t1\t0\t0", "day.tsv:2: 5 columns instead of six separated by tabs"),
        ("job4 23 1 0 0 0", "day.tsv:2: 1 column instead of six"),
        ("job4\tsoon\t1\t0\t0\t0", "day.tsv:2: submit time s: 'soon' is not a number from 0 on"),
        ("job4\t23\t1\t0\t-5\t0", "day.tsv:2: shuffle bytes: '-5' is not a number"),
        ("job4\t23\t1\t0\t0\tnan", "day.tsv:2: reduce output bytes: 'nan' is not a number"),
        ("job4\t23\t1\tinf\t0\t0", "day.tsv:2: map input bytes: 'inf' is not a number"),
    ],
)
def test_a_bad_row_is_named_by_file_line_and_column(row: str, complaint: str) -> None:
    with pytest.raises(TraceError) as caught:
        swim([_ROW, row], 1.0, where="day.tsv")
    assert str(caught.value).startswith(complaint)


def test_a_file_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"absent\.tsv: No such file"):
        text_of(tmp_path / "absent.tsv")
    (tmp_path / "binary").write_bytes(b"abc\xff")
    with pytest.raises(TraceError, match=r"binary: is not text \(byte 3\)"):
        text_of(tmp_path / "binary")

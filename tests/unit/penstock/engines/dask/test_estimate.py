"""The bytes that root tasks read."""

from __future__ import annotations

from pathlib import Path

from penstock.engines.dask.estimate import ReadEstimates, thread_read_bytes


def test_a_thread_knows_its_read_bytes(tmp_path: Path) -> None:
    path = tmp_path / "input"
    path.write_bytes(b"x" * 300_000)
    before = thread_read_bytes()
    path.read_bytes()
    assert 300_000 <= thread_read_bytes() - before < 400_000


def test_nothing_is_expected_of_an_unknown_prefix() -> None:
    assert ReadEstimates().expect("read-parquet") == (0, True)


def test_the_mean_of_a_prefix_speaks_for_its_next_task() -> None:
    estimates = ReadEstimates()
    estimates.learn("read-parquet", 1000)
    estimates.learn("read-parquet", 3000)
    estimates.learn("other", 7)
    assert estimates.expect("read-parquet") == (2000, True)


def test_after_the_first_tasks_only_some_are_measured() -> None:
    estimates = ReadEstimates()
    measured = [estimates.expect("inc")[1] for _ in range(80)]
    assert all(measured[:8])
    assert 5 < sum(measured[8:]) < 15

"""Executors that name one run are one run to every reader; an older database is brought up to date."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from master.prediction import Run, Settings
from master.store import Bounds, Database, Depository

SETTINGS = Settings(1, 2.0, 8)


def flat(slots: int, level: float, settings: Settings = SETTINGS) -> Run:
    mean = np.full((4, slots), level)
    return Run(settings, mean, mean + 1)


def test_executors_of_one_run_are_their_mean_and_their_highest_peak() -> None:
    depository = Depository(Database("sqlite://"))
    for name, slots, level, ended_at in (("r1", 4, 1.0, 1.0), ("r2", 4, 9.0, 2.0), ("r1", 6, 3.0, 3.0)):
        depository.add("sort", flat(slots, level), ended_at=ended_at, slot_s=3.0, name=name)
    other, merged = depository.runs("sort")
    assert (other.name, other.executors) == ("r2", 1)
    assert (merged.name, merged.executors, merged.ended_at, merged.id) == ("r1", 2, 3.0, 3)
    assert merged.run.mean == pytest.approx(np.full((4, 5), 2.0))
    assert merged.run.peak == pytest.approx(np.full((4, 5), 4.0))
    assert depository.applications() == {"sort": 3}


def test_executors_in_longer_slots_are_brought_together() -> None:
    depository = Depository(Database("sqlite://"))
    depository.add("sort", flat(4, 1.0), ended_at=1.0, slot_s=3.0, name="r")
    depository.add("sort", flat(2, 3.0), ended_at=2.0, slot_s=6.0, name="r")
    (merged,) = depository.runs("sort")
    assert merged.slot_s == 6.0
    assert np.array_equal(merged.run.mean, np.full((4, 2), 2.0))


def test_a_slot_that_was_not_measured_comes_back_so_and_counts_in_no_mean() -> None:
    depository = Depository(Database("sqlite://"))
    run = flat(3, 1.0)
    run.mean[:, 1:], run.peak[:, 1:] = np.nan, np.nan
    depository.add("sort", run, ended_at=1.0, slot_s=3.0, name="r")
    (alone,) = depository.runs("sort")
    assert np.array_equal(alone.run.mean, run.mean, equal_nan=True)
    assert np.array_equal(alone.run.peak, run.peak, equal_nan=True)
    other = flat(3, 3.0)
    other.mean[:, 2], other.peak[:, 2] = np.nan, np.nan
    depository.add("sort", other, ended_at=2.0, slot_s=3.0, name="r")
    (merged,) = depository.runs("sort")
    assert np.array_equal(merged.run.mean[0], [2.0, 3.0, np.nan], equal_nan=True)


def test_those_with_other_settings_and_those_without_a_run_are_separate() -> None:
    depository = Depository(Database("sqlite://"))
    for name, settings in (("", SETTINGS), ("", SETTINGS), ("r", SETTINGS), ("r", Settings(2, 2.0, 8))):
        depository.add("sort", flat(2, 1.0, settings), ended_at=1.0, slot_s=3.0, name=name)
    assert [each.executors for each in depository.runs("sort")] == [1, 1, 1, 1]
    assert [each.name for each in depository.runs("sort", settings=Settings(2, 2.0, 8))] == ["r"]


def test_bounds_count_runs_and_executors_of_each() -> None:
    depository = Depository(Database("sqlite://"), Bounds(runs_per_settings=2, executors_per_run=3))
    for run in range(3):
        for executor in range(5):
            depository.add("sort", flat(2, executor), ended_at=10.0 * run + executor, slot_s=3.0, name=f"r{run}")
    assert [(each.name, each.executors) for each in depository.runs("sort")] == [("r1", 3), ("r2", 3)]
    assert depository.runs("sort")[-1].run.mean[0, 0] == 3.0  # of the latest three


def test_the_overview_counts_runs_the_last_settings_first() -> None:
    depository = Depository(Database("sqlite://"))
    later = Settings(2, 2.0, 8)
    for name, settings, ended_at in (("a", SETTINGS, 1.0), ("a", SETTINGS, 2.0), ("b", later, 3.0), ("c", later, 4.0)):
        depository.add("u/sort", flat(2, 1.0, settings), ended_at=ended_at, slot_s=3.0, name=name)
    (one,) = depository.overview()
    assert (one.application, one.runs, one.settings, one.last_ended_at) == ("u/sort", 3, (later, SETTINGS), 4.0)


def test_a_database_from_before_runs_had_names_is_brought_up_to_date(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = Database(str(path))
    Depository(database).add("sort", flat(2, 1.0), ended_at=1.0, slot_s=3.0)
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE profile_runs DROP COLUMN run")
        connection.execute("ALTER TABLE profile_runs DROP COLUMN last_part")
        connection.execute("UPDATE penstock_schema SET version = 1")
        connection.commit()
    for _ in range(2):
        database = Database(str(path))
        Depository(database).add("sort", flat(2, 1.0), ended_at=2.0, slot_s=3.0, name="r")
        database.close()
    database = Database(str(path))
    assert [(each.name, each.executors) for each in Depository(database).runs("sort")] == [("", 1), ("r", 2)]
    database.close()


def test_the_part_of_the_last_slot_is_kept_and_of_older_rows_is_the_whole(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    database = Database(str(path))
    Depository(database).add("sort", flat(2, 1.0), ended_at=1.0, slot_s=3.0)
    database.close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE profile_runs DROP COLUMN last_part")
        connection.execute("UPDATE penstock_schema SET version = 2")
        connection.commit()
    database = Database(str(path))
    depository = Depository(database)
    depository.add("sort", replace(flat(2, 1.0), last_part=0.25), ended_at=2.0, slot_s=3.0)
    assert [each.run.last_part for each in depository.runs("sort")] == [1.0, 0.25]
    database.close()


def test_executors_of_one_run_that_ended_within_a_slot_are_a_run_that_does(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "store.db"))
    depository = Depository(database)
    for part in (0.25, 0.75):
        depository.add("sort", replace(flat(2, 1.0), last_part=part), ended_at=1.0, slot_s=3.0, name="r")
    (one,) = depository.runs("sort")
    assert (one.executors, one.run.duration_slots) == (2, 1.5)
    database.close()

"""The depository: its records, their lifetime, and the survivors of a restart."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from master.prediction import Run, Settings
from master.store import Bounds, Database, Depository, StoreError
from master.store.database import METADATA

MB = 10**6


def run(input_bytes: int = MB, slots: int = 4, level: float = 1.0, stages: tuple[int, ...] = ()) -> Run:
    mean = np.arange(4 * slots, dtype=float).reshape(4, slots) * level
    return Run(Settings(input_bytes, 2.0, 8 * MB), mean, mean + 1, stages)


def test_a_run_comes_back_as_it_was_also_after_a_restart(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "store.db"))
    Depository(database).add("sort", run(stages=(1, 4)), ended_at=100.5, slot_s=3.0)
    database.close()
    database = Database(str(tmp_path / "store.db"))
    (kept,) = Depository(database).runs("sort")
    assert (kept.application, kept.ended_at, kept.slot_s) == ("sort", 100.5, 3.0)
    assert kept.run.settings == run().settings
    assert kept.run.stages == (1, 4)
    assert np.array_equal(kept.run.mean, run().mean)
    assert np.array_equal(kept.run.peak, run().peak)
    database.close()


def test_runs_come_in_the_order_in_which_they_ended() -> None:
    depository = Depository(Database("sqlite://"))
    for ended_at, slot_s in ((3.0, 3.0), (1.0, 3.0), (2.0, 1.0)):
        depository.add("sort", run(), ended_at=ended_at, slot_s=slot_s)
    depository.add("count", run(), ended_at=9.0, slot_s=3.0)
    assert [each.ended_at for each in depository.runs("sort")] == [1.0, 2.0, 3.0]
    assert depository.applications() == {"count": 1, "sort": 3}


def test_the_oldest_with_the_same_settings_are_dropped() -> None:
    depository = Depository(Database("sqlite://"), Bounds(runs_per_settings=2))
    for ended_at in range(5):
        depository.add("sort", run(), ended_at=float(ended_at), slot_s=3.0)
    depository.add("sort", run(input_bytes=7), ended_at=0.0, slot_s=3.0)
    depository.add("count", run(), ended_at=0.0, slot_s=3.0)
    assert [each.ended_at for each in depository.runs("sort")] == [0.0, 3.0, 4.0]
    assert len(depository.runs("count")) == 1


def test_settings_are_counted_once_for_any_number_of_their_runs() -> None:
    depository = Depository(Database("sqlite://"))
    for number, input_bytes in enumerate((1, 2, 1, 2, 2)):
        depository.add("sort", run(input_bytes=input_bytes), ended_at=float(number), slot_s=3.0)
    depository.add("count", run(input_bytes=3), ended_at=9.0, slot_s=3.0)
    assert [depository.count_settings(name) for name in ("sort", "count", "other")] == [2, 1, 0]


def test_the_oldest_of_an_application_are_dropped() -> None:
    depository = Depository(Database("sqlite://"), Bounds(runs_per_application=3))
    for number in range(6):
        depository.add("sort", run(input_bytes=number + 1), ended_at=float(number), slot_s=3.0)
    assert [each.ended_at for each in depository.runs("sort")] == [3.0, 4.0, 5.0]


def test_all_of_them_stay_below_a_size_the_newest_stay() -> None:
    depository = Depository(Database("sqlite://"), Bounds(bytes_in_all=1000))
    noise = np.random.default_rng(1)
    for number in range(20):
        usage = noise.uniform(0, 1e9, (4, 10))
        made = Run(Settings(number + 1, 1.0, MB), usage, usage)
        depository.add(f"app-{number}", made, ended_at=float(number), slot_s=3.0)
    left = depository.applications()
    assert 0 < len(left) < 20
    assert set(left) == {f"app-{number}" for number in range(20 - len(left), 20)}


def test_an_hour_of_slots_takes_little(tmp_path: Path) -> None:
    noise = np.random.default_rng(1)
    usage = np.round(noise.uniform(0, 8, (4, 1200)), 2)
    path = tmp_path / "store.db"
    database = Database(str(path))
    for each in range(10):
        Depository(database).add("sort", Run(Settings(1, 1, 1), usage, usage), ended_at=float(each), slot_s=3.0)
    database.close()
    assert path.stat().st_size < 10 * 40_000


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense://", "nonsense"),
        ("/nowhere/at/all/store.db", "unable to open"),
        ("postgresql+nosuch://you:secret@host/db", "host/db"),
    ],
)
def test_a_store_that_cannot_be_opened_is_one_line_without_the_password(url: str, said: str) -> None:
    with pytest.raises(StoreError) as caught:
        Database(url)
    line = str(caught.value)
    assert said in line
    assert "secret" not in line
    assert "\n" not in line


def test_a_file_that_is_no_database_is_named(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    path.write_text("This is not a database, but long enough to look at it as if it were one.\n" * 20)
    with pytest.raises(StoreError, match="is it a database"):
        Database(str(path))


def test_records_of_another_version_are_left_alone(tmp_path: Path) -> None:
    path = str(tmp_path / "store.db")
    database = Database(path)
    with database.transaction() as connection:
        connection.execute(sa.update(METADATA.tables["penstock_schema"]).values(version=99))
    database.close()
    with pytest.raises(StoreError, match="schema 99"):
        Database(path)

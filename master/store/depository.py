"""The resource usage depository (Elasecutor §III.A): measured use of executors, by application and settings.

A row is an executor; executors that name the same run of an application are read as one run. Usage is stored as
resources × slots in single precision, compressed: an hour in slots of 3 s takes at most 38 KB. An unmeasured slot is
NaN; ``last_part`` is the elapsed fraction of the last slot when the executor ended.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass
from typing import Any

import numpy as np
import sqlalchemy as sa

from master.prediction import Run, Settings
from master.prediction.align import in_slots_of
from master.prediction.recent import merged
from master.prediction.runs import RESOURCES
from master.store.database import METADATA, Database

_RUNS = sa.Table(
    "profile_runs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("application", sa.Text, nullable=False),
    sa.Column("run", sa.Text, nullable=False, server_default=""),
    sa.Column("input_bytes", sa.BigInteger, nullable=False),
    sa.Column("cores", sa.Float, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.Float, nullable=False),
    sa.Column("slot_s", sa.Float, nullable=False),
    sa.Column("last_part", sa.Float, nullable=False, server_default=sa.text("1.0")),
    sa.Column("stages", sa.Text, nullable=False),
    sa.Column("usage", sa.LargeBinary, nullable=False),
    sa.Column("usage_bytes", sa.Integer, nullable=False),
    sa.Index("profile_runs_by_application", "application", "ended_at"),
)
_SETTINGS = (_RUNS.c.application, _RUNS.c.input_bytes, _RUNS.c.cores, _RUNS.c.memory_bytes)
#: The columns that identify a run; an executor without a run's name is a run of its own.
_ONE_RUN = (*_SETTINGS, _RUNS.c.run, sa.case((_RUNS.c.run == "", _RUNS.c.id), else_=0))


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds: the latest runs with equal settings, runs of an application, executors of a run, and bytes in all."""

    runs_per_settings: int = 10
    runs_per_application: int = 500
    executors_per_run: int = 16
    bytes_in_all: int = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A run that ended at ``ended_at`` (Unix time), in slots of ``slot_s`` seconds; ``id`` increases.

    ``name`` is the run's name (empty: none), ``executors`` the number of its stored executors.
    """

    id: int
    application: str
    ended_at: float
    slot_s: float
    run: Run
    name: str = ""
    executors: int = 1


@dataclass(frozen=True, slots=True)
class Overview:
    """An application's stored runs: their number, their settings (the last run's first), and the end of the last
    run.
    """

    application: str
    runs: int
    settings: tuple[Settings, ...]
    last_ended_at: float


class Depository:
    """Access to the stored runs; blocking, like the database."""

    def __init__(self, database: Database, bounds: Bounds | None = None) -> None:
        self._database = database
        self._bounds = bounds or Bounds()

    def add(self, application: str, run: Run, *, ended_at: float, slot_s: float, name: str = "") -> None:
        """Store an executor of the run ``name``, and delete what exceeds the bounds.

        Raises: StoreError: the database failed.
        """
        usage = zlib.compress(np.concatenate((run.mean, run.peak)).astype("<f4").tobytes())
        settings = run.settings
        values = {
            "application": application,
            "run": name,
            "input_bytes": settings.input_bytes,
            "cores": settings.cores,
            "memory_bytes": settings.memory_bytes,
            "ended_at": ended_at,
            "slot_s": slot_s,
            "last_part": run.last_part,
            "stages": json.dumps(run.stages),
            "usage": usage,
            "usage_bytes": len(usage),
        }
        with self._database.transaction() as connection:
            connection.execute(sa.insert(_RUNS).values(values))
            self._delete_oldest(connection, application)

    def runs(self, application: str, *, settings: Settings | None = None) -> list[Recorded]:
        """Return the stored runs of an application in the order of their ends, or those with some settings.

        Raises: StoreError: the database failed.
        """
        query = sa.select(_RUNS).where(_RUNS.c.application == application).order_by(_RUNS.c.ended_at, _RUNS.c.id)
        if settings is not None:
            query = query.where(
                _RUNS.c.input_bytes == settings.input_bytes,
                _RUNS.c.cores == settings.cores,
                _RUNS.c.memory_bytes == settings.memory_bytes,
            )
        with self._database.transaction() as connection:
            return _whole_runs([_recorded(row) for row in connection.execute(query)])

    def count_settings(self, application: str) -> int:
        """Return the number of different settings among an application's stored runs.

        Raises: StoreError: the database failed.
        """
        different = sa.select(*_SETTINGS).where(_RUNS.c.application == application).distinct().subquery()
        with self._database.transaction() as connection:
            return int(connection.scalar(sa.select(sa.func.count()).select_from(different)) or 0)

    def overview(self) -> list[Overview]:
        """Return an overview of every application, by name.

        Raises: StoreError: the database failed.
        """
        ended = sa.func.max(_RUNS.c.ended_at).label("ended_at")
        query = sa.select(*_SETTINGS, ended).group_by(*_ONE_RUN).order_by(_RUNS.c.application, ended.desc())
        with self._database.transaction() as connection:
            rows = list(connection.execute(query))
        of: dict[str, list[Any]] = {}
        for row in rows:
            of.setdefault(row.application, []).append(row)
        return [
            Overview(name, len(runs), tuple(dict.fromkeys(map(_settings, runs))), runs[0].ended_at)
            for name, runs in of.items()
        ]

    def applications(self) -> dict[str, int]:
        """Return application → number of stored executors."""
        query = sa.select(_RUNS.c.application, sa.func.count()).group_by(_RUNS.c.application)
        with self._database.transaction() as connection:
            return {name: int(count) for name, count in connection.execute(query.order_by(_RUNS.c.application))}

    def _delete_oldest(self, connection: sa.Connection, application: str) -> None:
        """Delete the oldest rows that exceed the bounds."""
        bounds = self._bounds
        newest_first = (_RUNS.c.ended_at.desc(), _RUNS.c.id.desc())
        last = sa.func.max(_RUNS.c.id).over(partition_by=_ONE_RUN).label("last")
        ended = sa.func.max(_RUNS.c.ended_at).over(partition_by=_ONE_RUN).label("ended")
        within = sa.func.row_number().over(partition_by=_ONE_RUN, order_by=newest_first).label("within")
        here = sa.select(*_SETTINGS, _RUNS.c.id, last, ended, within).where(_RUNS.c.application == application)
        run = here.subquery().c
        by_run = (run.ended.desc(), run.last.desc())
        of_settings = (run.input_bytes, run.cores, run.memory_bytes)
        same = sa.func.dense_rank().over(partition_by=of_settings, order_by=by_run).label("same")
        of_it = sa.func.dense_rank().over(order_by=by_run).label("of_it")
        ranked = sa.select(run.id, run.within, same, of_it).subquery()
        too_many = sa.or_(
            ranked.c.same > bounds.runs_per_settings,
            ranked.c.of_it > bounds.runs_per_application,
            ranked.c.within > bounds.executors_per_run,
        )
        connection.execute(sa.delete(_RUNS).where(_RUNS.c.id.in_(sa.select(ranked.c.id).where(too_many))))
        total = connection.scalar(sa.select(sa.func.sum(_RUNS.c.usage_bytes))) or 0
        if total > bounds.bytes_in_all:
            so_far = sa.func.sum(_RUNS.c.usage_bytes).over(order_by=newest_first, rows=(None, 0))
            sums = sa.select(_RUNS.c.id, so_far.label("so_far")).subquery()
            beyond = sa.select(sums.c.id).where(sums.c.so_far > bounds.bytes_in_all)
            connection.execute(sa.delete(_RUNS).where(_RUNS.c.id.in_(beyond)))


def _recorded(row: sa.Row[Any]) -> Recorded:
    usage = np.frombuffer(zlib.decompress(row.usage), dtype="<f4").astype(float).reshape(2 * len(RESOURCES), -1)
    mean, peak = usage[: len(RESOURCES)], usage[len(RESOURCES) :]
    run = Run(_settings(row), mean, peak, tuple(json.loads(row.stages)), row.last_part)
    return Recorded(row.id, row.application, row.ended_at, row.slot_s, run, row.run)


def _settings(row: sa.Row[Any]) -> Settings:
    return Settings(row.input_bytes, row.cores, row.memory_bytes)


def _whole_runs(executors: list[Recorded]) -> list[Recorded]:
    """Merge the executors of each run, in the longest of their slots; order the runs by the end of their last
    executor.
    """
    runs: dict[tuple[Settings, str, int], list[Recorded]] = {}
    for each in executors:
        key = (each.run.settings, each.name, 0 if each.name else each.id)
        runs[key] = [*runs.pop(key, ()), each]
    return [_as_one(parts) for parts in runs.values()]


def _as_one(parts: list[Recorded]) -> Recorded:
    if len(parts) == 1:
        return parts[0]
    last, slot_s = parts[-1], max(each.slot_s for each in parts)
    run = merged([in_slots_of(each.run, each.slot_s, slot_s) for each in parts])
    return Recorded(last.id, last.application, last.ended_at, slot_s, run, last.name, len(parts))

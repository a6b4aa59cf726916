"""The resource usage depository (Elasecutor §III.A): what executors have used, by application and settings.

Kept as resources × slots in single precision, compressed: an hour in slots of 3 s takes 38 KB at most.
"""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from master.prediction import Run, Settings
from master.prediction.runs import RESOURCES
from master.store.database import METADATA, Database

_RUNS = sa.Table(
    "profile_runs",
    METADATA,
    sa.Column("id", sa.Integer, primary_key=True),
    sa.Column("application", sa.Text, nullable=False),
    sa.Column("input_bytes", sa.BigInteger, nullable=False),
    sa.Column("cores", sa.Float, nullable=False),
    sa.Column("memory_bytes", sa.BigInteger, nullable=False),
    sa.Column("ended_at", sa.Float, nullable=False),
    sa.Column("slot_s", sa.Float, nullable=False),
    sa.Column("stages", sa.Text, nullable=False),
    sa.Column("usage", sa.LargeBinary, nullable=False),
    sa.Column("usage_bytes", sa.Integer, nullable=False),
    sa.Index("profile_runs_by_application", "application", "ended_at"),
)
_SETTINGS = (_RUNS.c.application, _RUNS.c.input_bytes, _RUNS.c.cores, _RUNS.c.memory_bytes)


@dataclass(frozen=True, slots=True)
class Bounds:
    """How much is kept: the latest runs with the same settings, the latest of an application, and all of them."""

    runs_per_settings: int = 10
    runs_per_application: int = 500
    bytes_in_all: int = 256 * 2**20


@dataclass(frozen=True, slots=True, eq=False)
class Recorded:
    """A run that ended at ``ended_at`` (Unix time), in slots of ``slot_s`` seconds; ``id`` rises."""

    id: int
    application: str
    ended_at: float
    slot_s: float
    run: Run


class Depository:
    """Blocking, as its database is."""

    def __init__(self, database: Database, bounds: Bounds | None = None) -> None:
        self._database = database
        self._bounds = bounds or Bounds()

    def add(self, application: str, run: Run, *, ended_at: float, slot_s: float) -> int:
        """Keep a run, and forget what is too much; its id.

        Raises:
            StoreError: the database does not take it.
        """
        usage = _packed(run)
        settings = run.settings
        values = {
            "application": application,
            "input_bytes": settings.input_bytes,
            "cores": settings.cores,
            "memory_bytes": settings.memory_bytes,
            "ended_at": ended_at,
            "slot_s": slot_s,
            "stages": json.dumps(run.stages),
            "usage": usage,
            "usage_bytes": len(usage),
        }
        with self._database.transaction() as connection:
            key = connection.execute(sa.insert(_RUNS).values(values)).inserted_primary_key
            self._forget(connection, application)
        assert key is not None
        return int(key[0])

    def runs(self, application: str, *, slot_s: float | None = None) -> list[Recorded]:
        """Those of an application that are kept, in the order in which they ended; in slots of one length only."""
        query = sa.select(_RUNS).where(_RUNS.c.application == application).order_by(_RUNS.c.ended_at, _RUNS.c.id)
        if slot_s is not None:
            query = query.where(_RUNS.c.slot_s == slot_s)
        with self._database.transaction() as connection:
            return [_recorded(row) for row in connection.execute(query)]

    def applications(self) -> dict[str, int]:
        """Application → how many runs of it are kept."""
        query = sa.select(_RUNS.c.application, sa.func.count()).group_by(_RUNS.c.application)
        with self._database.transaction() as connection:
            return {name: int(count) for name, count in connection.execute(query.order_by(_RUNS.c.application))}

    def forget(self, application: str) -> int:
        """All runs of an application; how many there were."""
        with self._database.transaction() as connection:
            return connection.execute(sa.delete(_RUNS).where(_RUNS.c.application == application)).rowcount

    def _forget(self, connection: sa.Connection, application: str) -> None:
        """What exceeds the bounds, oldest first."""
        bounds = self._bounds
        newest_first = (_RUNS.c.ended_at.desc(), _RUNS.c.id.desc())
        same = sa.func.row_number().over(partition_by=_SETTINGS, order_by=newest_first)
        of_it = sa.func.row_number().over(partition_by=_RUNS.c.application, order_by=newest_first)
        here = sa.select(_RUNS.c.id, same.label("same"), of_it.label("of_it")).where(_RUNS.c.application == application)
        ranked = here.subquery()
        too_many = sa.or_(ranked.c.same > bounds.runs_per_settings, ranked.c.of_it > bounds.runs_per_application)
        connection.execute(sa.delete(_RUNS).where(_RUNS.c.id.in_(sa.select(ranked.c.id).where(too_many))))
        total = connection.scalar(sa.select(sa.func.sum(_RUNS.c.usage_bytes))) or 0
        if total > bounds.bytes_in_all:
            so_far = sa.func.sum(_RUNS.c.usage_bytes).over(order_by=newest_first, rows=(None, 0))
            sums = sa.select(_RUNS.c.id, so_far.label("so_far")).subquery()
            beyond = sa.select(sums.c.id).where(sums.c.so_far > bounds.bytes_in_all)
            connection.execute(sa.delete(_RUNS).where(_RUNS.c.id.in_(beyond)))


def _packed(run: Run) -> bytes:
    return zlib.compress(np.concatenate((run.mean, run.peak)).astype("<f4").tobytes())


def _recorded(row: sa.Row[tuple[object, ...]]) -> Recorded:
    usage = np.frombuffer(zlib.decompress(row.usage), dtype="<f4").astype(float).reshape(2 * len(RESOURCES), -1)
    settings = Settings(row.input_bytes, row.cores, row.memory_bytes)
    run = Run(settings, usage[: len(RESOURCES)], usage[len(RESOURCES) :], tuple(json.loads(row.stages)))
    return Recorded(row.id, row.application, row.ended_at, row.slot_s, run)

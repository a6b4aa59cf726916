"""What a master that is restarted is to know again: which nodes operators have drained, and how jobs ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa

from master.core.drains import DrainSaid
from master.core.past import Past
from master.store.database import METADATA, Database, StoreError

T = TypeVar("T")
_DRAINS = sa.Table(
    "node_drains",
    METADATA,
    sa.Column("node", sa.Text, primary_key=True),
    sa.Column("said", sa.LargeBinary, nullable=False),
)
_JOBS = sa.Table(
    "ended_jobs",
    METADATA,
    sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True),
    sa.Column("job", sa.Text, nullable=False, unique=True),
    sa.Column("past", sa.LargeBinary, nullable=False),
)


class RememberedStore:
    """Blocking, as its database is. What is too much for the core is too much here: it says what to forget."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(self, drains: Mapping[str, DrainSaid | None], jobs: Mapping[str, Past | None]) -> None:
        """Write down what changed, None: forget it; all of it or nothing.

        Raises:
            StoreError: the database does not do it.
        """
        with self._database.transaction() as connection:
            _replace(connection, _DRAINS.c.node, "said", drains)
            _replace(connection, _JOBS.c.job, "past", jobs)

    def all(self) -> tuple[dict[str, DrainSaid], list[Past]]:
        """What is kept; the jobs in the order in which they ended.

        Raises:
            StoreError: the database does not tell, or what it tells cannot be read.
        """
        with self._database.transaction() as connection:
            drains = connection.execute(sa.select(_DRAINS.c.node, _DRAINS.c.said)).all()
            jobs = connection.execute(sa.select(_JOBS.c.past).order_by(_JOBS.c.sequence)).all()
        return {row.node: self._read(row.said, DrainSaid) for row in drains}, [
            self._read(row.past, Past) for row in jobs
        ]

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()

    def _read(self, kept: bytes, as_type: type[T]) -> T:
        try:
            return msgspec.json.decode(kept, type=as_type)
        except msgspec.DecodeError as error:
            raise StoreError(f"store: {self._database.shown}: what it remembers cannot be read: {error}") from None


def _replace(connection: sa.Connection, key: sa.Column[Any], value: str, changed: Mapping[str, object | None]) -> None:
    if not changed:
        return
    connection.execute(sa.delete(key.table).where(key == sa.bindparam("gone")), [{"gone": name} for name in changed])
    rows = [{key.name: name, value: msgspec.json.encode(one)} for name, one in changed.items() if one is not None]
    if rows:
        connection.execute(sa.insert(key.table), rows)

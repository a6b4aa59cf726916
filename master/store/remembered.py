"""What a master that is restarted is to know again: which nodes operators have drained, how jobs ended, what was
learnt of their sizes, and which jobs are first by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
import structlog

from master.core.drains import DrainSaid
from master.core.past import Past
from master.ordering.by_hand import HandOrder
from master.ordering.sizes import Kind, KnownSizes
from master.store.database import METADATA, Database

log = structlog.get_logger()

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
_SIZES = sa.Table(
    "job_sizes",
    METADATA,
    sa.Column("kind", sa.Text, primary_key=True),
    sa.Column("known", sa.LargeBinary, nullable=False),
)
_ORDERS = sa.Table(
    "hand_orders",
    METADATA,
    sa.Column("whose", sa.Text, primary_key=True),
    sa.Column("said", sa.LargeBinary, nullable=False),
)


class RememberedStore:
    """Blocking, as its database is. What is too much for the core is too much here: it says what to forget."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def keep(
        self,
        drains: Mapping[str, DrainSaid | None],
        jobs: Mapping[str, Past | None],
        sizes: Mapping[Kind, KnownSizes | None] | None = None,
        orders: Mapping[str, HandOrder | None] | None = None,
    ) -> None:
        """Write down what changed, None: forget it; all of it or nothing.

        Raises:
            StoreError: the database does not do it.
        """
        with self._database.transaction() as connection:
            _replace(connection, _DRAINS.c.node, "said", drains)
            _replace(connection, _JOBS.c.job, "past", jobs)
            by_name = {msgspec.json.encode(kind).decode(): known for kind, known in (sizes or {}).items()}
            _replace(connection, _SIZES.c.kind, "known", by_name)
            _replace(connection, _ORDERS.c.whose, "said", orders or {})

    def all(self) -> tuple[dict[str, DrainSaid], list[Past]]:
        """What is kept; the jobs in the order in which they ended. What cannot be read, as another version wrote it, is
        left out.

        Raises:
            StoreError: the database does not tell.
        """
        with self._database.transaction() as connection:
            drains = connection.execute(sa.select(_DRAINS.c.node, _DRAINS.c.said)).all()
            jobs = connection.execute(sa.select(_JOBS.c.past).order_by(_JOBS.c.sequence)).all()
        said = {row.node: _read(row.said, DrainSaid) for row in drains}
        past = [_read(row.past, Past) for row in jobs]
        return (
            {node: each for node, each in said.items() if each is not None},
            [each for each in past if each is not None],
        )

    def sizes(self) -> list[KnownSizes]:
        """What was learnt of the sizes of jobs; what another version wrote is left out.

        Raises:
            StoreError: the database does not tell.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(_SIZES.c.known).order_by(_SIZES.c.kind)).all()
        return [known for row in rows if (known := _read(row.known, KnownSizes)) is not None]

    def orders(self) -> dict[str, HandOrder]:
        """Which jobs are first by hand; what another version wrote is left out.

        Raises:
            StoreError: the database does not tell.
        """
        with self._database.transaction() as connection:
            rows = connection.execute(sa.select(_ORDERS.c.whose, _ORDERS.c.said)).all()
        return {row.whose: said for row in rows if (said := _read(row.said, HandOrder)) is not None}

    def close(self) -> None:
        """Give the connections back."""
        self._database.close()


def _read(kept: bytes, as_type: type[T]) -> T | None:
    try:
        return msgspec.json.decode(kept, type=as_type)
    except msgspec.DecodeError as error:
        log.warning("what the store remembers cannot be read; it is forgotten", what=as_type.__name__, why=str(error))
        return None


def _replace(connection: sa.Connection, key: sa.Column[Any], value: str, changed: Mapping[str, object | None]) -> None:
    if not changed:
        return
    connection.execute(sa.delete(key.table).where(key == sa.bindparam("gone")), [{"gone": name} for name in changed])
    rows = [{key.name: name, value: msgspec.json.encode(one)} for name, one in changed.items() if one is not None]
    if rows:
        connection.execute(sa.insert(key.table), rows)

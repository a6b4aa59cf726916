"""State restored after a restart of the master: drained nodes, how jobs ended, learnt sizes of jobs, lengths of jobs
and tasks, and orders by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
import structlog
from sqlalchemy.sql.compiler import SQLCompiler

from master.core.drains import DrainRequest
from master.core.events import StateRestored
from master.core.finished_jobs import FinishedJob
from master.core.history import Name, Needed
from master.core.instructions import Keep
from master.ordering.by_hand import HandOrder
from master.ordering.sizes import KnownSizes
from master.placement.lengths import KnownLengths
from master.store.database import METADATA, Database

log = structlog.get_logger()

T = TypeVar("T")
N = TypeVar("N", bound=tuple[str, ...])


def _table(name: str, key: str, value: str, *, ordered: bool = False) -> sa.Table:
    """Return a table of JSON values by key; ``ordered``: its rows keep the order in which they were stored."""
    sequence = [sa.Column("sequence", sa.Integer, primary_key=True, autoincrement=True)] if ordered else []
    by = sa.Column(key, sa.Text, nullable=False, unique=True) if ordered else sa.Column(key, sa.Text, primary_key=True)
    return sa.Table(name, METADATA, *sequence, by, sa.Column(value, sa.LargeBinary, nullable=False))


_DRAINS = _table("node_drains", "node", "said")
_JOBS = _table("ended_jobs", "job", "past", ordered=True)
_SIZES = _table("job_sizes", "kind", "known")
_ORDERS = _table("hand_orders", "whose", "said")
_NEEDED = _table("jobs_needed", "name", "needed", ordered=True)
_LENGTHS = _table("task_lengths", "tasks", "known")
#: Key of the single row of tasks' lengths.
_ALL_TASKS = "all"


class RememberedStore:
    """The stored state; blocking, like the database. The core bounds its size by reporting removals."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._drains = _Replacement(_DRAINS.c.node, "said", database.dialect)
        self._jobs = _Replacement(_JOBS.c.job, "past", database.dialect)
        self._sizes = _Replacement(_SIZES.c.kind, "known", database.dialect)
        self._orders = _Replacement(_ORDERS.c.whose, "said", database.dialect)
        self._needed = _Replacement(_NEEDED.c.name, "needed", database.dialect)
        self._lengths = _Replacement(_LENGTHS.c.tasks, "known", database.dialect)

    def keep(self, changed: Keep) -> None:
        """Store the changes in one transaction; None: delete the entry.

        Raises: StoreError: the database failed.
        """
        lengths = {} if changed.lengths is None else {_ALL_TASKS: changed.lengths}
        with self._database.transaction() as connection:
            self._drains.run(connection, changed.drains)
            self._jobs.run(connection, changed.jobs)
            self._sizes.run(connection, _by_text(changed.sizes))
            self._orders.run(connection, changed.orders)
            self._needed.run(connection, _by_text(changed.needed))
            self._lengths.run(connection, lengths)

    def all(self) -> StateRestored:
        """Return the stored state; jobs in the order of their ends. Entries that cannot be read, because another
        version wrote them, are left out.

        Raises: StoreError: the database failed.
        """
        with self._database.transaction() as connection:
            drains = _read(connection, _DRAINS.c.node, _DRAINS.c.said, DrainRequest)
            jobs = _read(connection, _JOBS.c.sequence, _JOBS.c.past, FinishedJob)
            sizes = _read(connection, _SIZES.c.kind, _SIZES.c.known, KnownSizes)
            orders = _read(connection, _ORDERS.c.whose, _ORDERS.c.said, HandOrder)
            needed = _read(connection, _NEEDED.c.sequence, _NEEDED.c.needed, Needed, _NEEDED.c.name)
            lengths = _read(connection, _LENGTHS.c.tasks, _LENGTHS.c.known, KnownLengths)
        by_name = [(_name(text), each) for text, each in needed.items()]
        return StateRestored(
            drains, list(jobs.values()), list(sizes.values()), orders, by_name, lengths.get(_ALL_TASKS)
        )

    def close(self) -> None:
        """Close the connections."""
        self._database.close()


def _by_text(changed: Mapping[N, T | None]) -> dict[str, T | None]:
    return {msgspec.json.encode(names).decode(): one for names, one in changed.items()}


def _name(text: str) -> Name:
    user, name = msgspec.json.decode(text, type=Name)
    return user, name


def _read(
    connection: sa.Connection, order: sa.Column[Any], value: sa.Column[Any], as_type: type[T], key: Any = None
) -> dict[Any, T]:
    """Return the rows of a table in the order of a column, keyed by that column or by ``key``."""
    rows = connection.execute(sa.select(order if key is None else key, value).order_by(order)).all()
    found: dict[Any, T] = {}
    for name, kept in rows:
        try:
            found[name] = msgspec.json.decode(kept, type=as_type)
        except msgspec.DecodeError as error:
            log.warning("a stored entry cannot be read and is ignored", what=as_type.__name__, why=str(error))
    return found


class _Replacement:
    """Replaces values of a table by their keys.

    Its two statements are compiled once: to prepare one anew takes SQLAlchemy longer than the database to execute it.
    """

    def __init__(self, key: sa.Column[Any], value: str, dialect: sa.Dialect) -> None:
        named: sa.BindParameter[str] = sa.bindparam("named")
        said: sa.BindParameter[bytes] = sa.bindparam("said")
        self._delete = sa.delete(key.table).where(key == named).compile(dialect=dialect)
        self._insert = sa.insert(key.table).values({key.name: named, value: said}).inline().compile(dialect=dialect)

    def run(self, connection: sa.Connection, changed: Mapping[str, object | None]) -> None:
        """Store the values in their order; None: delete the entry."""
        rows = [(name, msgspec.json.encode(one)) for name, one in changed.items() if one is not None]
        _execute(connection, self._delete, [{"named": name} for name in changed])
        _execute(connection, self._insert, [{"named": name, "said": one} for name, one in rows])


def _execute(connection: sa.Connection, compiled: SQLCompiler, rows: list[dict[str, object]]) -> None:
    if not rows:
        return
    names = compiled.positiontup
    if names is None:  # the driver takes parameters by their names
        connection.exec_driver_sql(compiled.string, rows)
    else:
        connection.exec_driver_sql(compiled.string, [tuple(row[name] for name in names) for row in rows])

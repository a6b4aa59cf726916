"""State restored after a restart of the master: drained nodes, how jobs ended, learnt sizes of jobs, lengths of jobs
and tasks, and orders by hand.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec
import sqlalchemy as sa
import structlog

from master.core.drains import DrainSaid
from master.core.events import Remembered
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

    def keep(self, changed: Keep) -> None:
        """Store the changes in one transaction; None: delete the entry.

        Raises: StoreError: the database failed.
        """
        lengths = {} if changed.lengths is None else {_ALL_TASKS: changed.lengths}
        with self._database.transaction() as connection:
            _replace(connection, _DRAINS.c.node, "said", changed.drains)
            _replace(connection, _JOBS.c.job, "past", changed.jobs)
            _replace(connection, _SIZES.c.kind, "known", _by_text(changed.sizes))
            _replace(connection, _ORDERS.c.whose, "said", changed.orders)
            _replace(connection, _NEEDED.c.name, "needed", _by_text(changed.needed))
            _replace(connection, _LENGTHS.c.tasks, "known", lengths)

    def all(self) -> Remembered:
        """Return the stored state; jobs in the order of their ends. Entries that cannot be read, because another
        version wrote them, are left out.

        Raises: StoreError: the database failed.
        """
        with self._database.transaction() as connection:
            drains = _read(connection, _DRAINS.c.node, _DRAINS.c.said, DrainSaid)
            jobs = _read(connection, _JOBS.c.sequence, _JOBS.c.past, FinishedJob)
            sizes = _read(connection, _SIZES.c.kind, _SIZES.c.known, KnownSizes)
            orders = _read(connection, _ORDERS.c.whose, _ORDERS.c.said, HandOrder)
            needed = _read(connection, _NEEDED.c.sequence, _NEEDED.c.needed, Needed, _NEEDED.c.name)
            lengths = _read(connection, _LENGTHS.c.tasks, _LENGTHS.c.known, KnownLengths)
        by_name = [(_name(text), each) for text, each in needed.items()]
        return Remembered(drains, list(jobs.values()), list(sizes.values()), orders, by_name, lengths.get(_ALL_TASKS))

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


def _replace(connection: sa.Connection, key: sa.Column[Any], value: str, changed: Mapping[str, object | None]) -> None:
    if not changed:
        return
    connection.execute(sa.delete(key.table).where(key == sa.bindparam("gone")), [{"gone": name} for name in changed])
    rows = [{key.name: name, value: msgspec.json.encode(one)} for name, one in changed.items() if one is not None]
    if rows:
        connection.execute(sa.insert(key.table), rows)

"""The connection to the master's database, and the version of its schema."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import sqlalchemy as sa

#: All tables of all packages that store data.
METADATA = sa.MetaData()
#: Version of the schema. A database with a lower version is upgraded; one with a higher version is refused.
VERSION = 3
#: The statements that upgrade a version to the next one.
_STEPS = {
    1: ("ALTER TABLE profile_runs ADD COLUMN run TEXT NOT NULL DEFAULT ''",),
    2: ("ALTER TABLE profile_runs ADD COLUMN last_part FLOAT NOT NULL DEFAULT 1.0",),
}

_VERSION = sa.Table("penstock_schema", METADATA, sa.Column("version", sa.Integer, nullable=False))


class StoreError(Exception):
    """One line: the problem with the database, and the remedy."""


class Database:
    """A blocking connection, usable from any thread. Missing tables are created."""

    def __init__(self, url: str) -> None:
        """``url`` is an SQLAlchemy URL, or the path of an SQLite file.

        Raises: StoreError: the database cannot be opened, its driver is missing, or another version of Penstock wrote
        it.
        """
        self.url = _as_url(url)
        if (file := file_of(url)) is not None:
            _close_to_others(file)
        self._engine = self._open()
        try:
            METADATA.create_all(self._engine)
            with self.transaction() as connection:
                self._look_at_version(connection)
        except StoreError:
            self.close()
            raise
        except sa.exc.SQLAlchemyError as error:
            self.close()
            raise StoreError(f"store: {self.shown}: {_line(error)}; is it a database, and may we write it?") from None

    @property
    def shown(self) -> str:
        """Return the URL for display, without the password."""
        return sa.engine.make_url(self.url).render_as_string(hide_password=True)

    @property
    def dialect(self) -> sa.Dialect:
        """Return the database's dialect of SQL."""
        return self._engine.dialect

    @contextmanager
    def transaction(self) -> Iterator[sa.Connection]:
        """Run a transaction: all changes within are made, or none.

        Raises: StoreError: the database failed.
        """
        try:
            with self._engine.begin() as connection:
                yield connection
        except (sa.exc.SQLAlchemyError, OSError) as error:  # OSError: its libraries load modules at their first use
            raise StoreError(f"store: {self.shown}: {_line(error)}") from error

    def close(self) -> None:
        """Close the connections."""
        self._engine.dispose()

    def _open(self) -> sa.Engine:
        try:
            engine = sa.create_engine(self.url)
        except (sa.exc.ArgumentError, ModuleNotFoundError) as error:
            raise StoreError(
                f"store: {self.url.split('@')[-1]!r}: {_line(error)}; a path of a file, or such as "
                "postgresql+psycopg://USER@HOST/NAME with its driver installed"
            ) from None
        if engine.dialect.name == "sqlite":
            sa.event.listen(engine, "connect", _sqlite)
        return engine

    def _look_at_version(self, connection: sa.Connection) -> None:
        found = connection.scalar(sa.select(_VERSION.c.version))
        if found is None:
            connection.execute(sa.insert(_VERSION).values(version=VERSION))
            return
        for version in range(found, VERSION):
            for statement in _STEPS.get(version, ()):
                connection.execute(sa.text(statement))
            connection.execute(sa.update(_VERSION).values(version=version + 1))
        if found > VERSION:
            raise StoreError(
                f"store: {self.shown}: was written by another version of Penstock (schema {found}, here {VERSION}); "
                "upgrade the master, or name another database"
            )


def file_of(url: str) -> Path | None:
    """Return the SQLite file that a store's ``url`` names; None for any other database and for one in memory."""
    try:
        parsed = sa.engine.make_url(_as_url(url))
    except sa.exc.ArgumentError:
        return None
    name = parsed.database
    if parsed.get_backend_name() != "sqlite" or not name or name == ":memory:" or name.startswith("file:"):
        return None
    return Path(name)


def _as_url(url: str) -> str:
    return url if "://" in url else f"sqlite:///{Path(url)}"


def _close_to_others(file: Path) -> None:
    """Let only the master's user read the file and the files that SQLite keeps beside it.

    SQLite gives those files the mode of the database. The file is never opened here: closing it would release the
    locks that other connections of this process hold on it. What fails is reported when SQLite opens the file.
    """
    with suppress(OSError):
        os.mknod(file, 0o600 | stat.S_IFREG)
    for suffix in ("", "-wal", "-shm", "-journal"):
        with suppress(OSError):
            os.chmod(f"{file}{suffix}", 0o600)  # noqa: PTH101


def _sqlite(connection: Any, _: object) -> None:
    """Let readers proceed beside the writer; a power cut loses at most the last transaction, never the file."""
    cursor = connection.cursor()
    for pragma in ("journal_mode=WAL", "synchronous=NORMAL", "busy_timeout=5000", "foreign_keys=ON"):
        cursor.execute(f"PRAGMA {pragma}")
    cursor.close()


def _line(error: Exception) -> str:
    cause = getattr(error, "orig", None) or error
    return " ".join(str(cause).split())

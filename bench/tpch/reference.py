"""The correct answers: the queries as SQL (``sql/q01.sql`` to ``q22.sql``), run by DuckDB on the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from bench.tpch.data import TABLES

_SQL = Path(__file__).parent / "sql"
_MEMORY = "2GB"


class Reference:
    """A database in memory whose tables are the parquet files in ``directory``."""

    def __init__(self, directory: Path, scale: float) -> None:
        import duckdb

        self._scale = scale
        self._database: Any = duckdb.connect(config={"memory_limit": _MEMORY})
        for table in TABLES:
            files = str(directory / table / "*.parquet").replace("'", "''")
            self._database.execute(f"create view {table} as select * from read_parquet('{files}')")

    def answer(self, number: int) -> Any:
        """The answer of a query, as a pandas dataframe."""
        text = (_SQL / f"q{number:02}.sql").read_text(encoding="utf-8")
        named = {"scale": self._scale} if "$scale" in text else {}
        return self._database.execute(text, named).df()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

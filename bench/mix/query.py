"""A program of analysts: ``query.py DIRECTORY RESULT NUMBER…`` asks DuckDB these queries of TPC-H.

It is run as a file, by users without a checkout; so it imports nothing of the project.
"""

from __future__ import annotations

import sys
from pathlib import Path

_SQL = Path(__file__).parents[1] / "tpch" / "sql"


def main(directory: str, result: str, numbers: list[str]) -> None:
    """Answer them one after the other, on one core."""
    import duckdb

    database = duckdb.connect(config={"threads": 1, "memory_limit": "512MB"})
    for table in sorted(Path(directory).iterdir()):
        files = str(table / "*.parquet").replace("'", "''")
        database.execute(f"create view {table.name} as select * from read_parquet('{files}')")
    with Path(result).open("w", encoding="utf-8") as file:
        for number in numbers:
            rows = database.execute((_SQL / f"q{int(number):02}.sql").read_text(encoding="utf-8")).fetchall()
            file.writelines(f"{number}\t{row}\n" for row in rows)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3:])

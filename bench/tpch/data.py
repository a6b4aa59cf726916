"""The data: made by ``tpchgen-cli``, kept as parquet in a cache, never committed.

Money and quantities are doubles and dates are timestamps there, because Dask's dataframe computes with neither decimals
nor dates at speed. DuckDB reads the same files.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

#: Tables that are cut into as many files as was asked for; the others are one file each.
_LARGE = ("customer", "part", "partsupp", "orders", "lineitem")
_SMALL = ("region", "nation", "supplier")
TABLES = (*_SMALL, *_LARGE)


def cache() -> Path:
    """``$XDG_CACHE_HOME/penstock/tpch``, or in ``~/.cache``."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "penstock" / "tpch"


def prepare(scale: float, parts: int, root: Path | None = None) -> Path:
    """Return the directory of these data, with a directory of parquet files for each table; make it if the cache has
    none.

    Raises:
        FileNotFoundError: ``tpchgen-cli`` is not installed.
        subprocess.CalledProcessError: it failed; its message is on standard error.
    """
    made = (root or cache()) / f"sf{scale:g}-{parts}"
    if made.exists():
        return made
    made.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=made.parent, prefix="making-") as scratch:
        raw, plain = Path(scratch, "raw"), Path(scratch, "plain")
        _generate(scale, raw / "large", _LARGE, ["--parts", str(parts)])
        _generate(scale, raw / "small", _SMALL, [])
        for table in TABLES:
            _convert(raw / ("large" if table in _LARGE else "small"), table, plain / table)
        plain.rename(made)
    return made


def _generate(scale: float, directory: Path, tables: tuple[str, ...], more: list[str]) -> None:
    beside = Path(sys.executable).with_name("tpchgen-cli")
    program = str(beside) if beside.exists() else shutil.which("tpchgen-cli")
    if program is None:
        raise FileNotFoundError("there is no tpchgen-cli; pip install tpchgen-cli")
    directory.mkdir(parents=True)
    command = [program, "parquet", "--scale-factor", f"{scale:g}", "--output-dir", str(directory)]
    subprocess.run([*command, "--tables", ",".join(tables), *more], check=True, stdout=subprocess.DEVNULL)


def _convert(raw: Path, table: str, directory: Path) -> None:
    """Each file of the table, alone or one of several in a directory, with types that Dask is quick with."""
    from pyarrow import parquet

    directory.mkdir(parents=True)
    found = sorted((raw / table).glob("*.parquet")) or [raw / f"{table}.parquet"]
    for number, path in enumerate(found):
        parquet.write_table(_plain(parquet.read_table(path)), directory / f"{number:04}.parquet")


def _plain(table: Any) -> Any:
    import pyarrow as pa

    def kind(of: Any) -> Any:
        if pa.types.is_decimal(of):
            return pa.float64()
        if pa.types.is_date(of):
            return pa.timestamp("us")
        return pa.string() if pa.types.is_string_view(of) else of

    return table.cast(pa.schema([field.with_type(kind(field.type)) for field in table.schema]))

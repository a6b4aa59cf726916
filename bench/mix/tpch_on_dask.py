"""A client program of Dask: ``python tpch_on_dask.py DIRECTORY SCALE RESULT NUMBER…``: TPC-H.

It answers these queries on a cluster of its own, which has two worker processes. It knows nothing of Penstock.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from bench.tpch.frames import Tables
from bench.tpch.queries import QUERIES


def main(directory: str, scale: float, result: str, numbers: list[str]) -> None:
    """Answer them one after the other."""
    import distributed

    dask: Any = distributed  # its classes have no types for their constructors
    cluster = dask.LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0")
    with cluster, dask.Client(cluster), Path(result).open("w", encoding="utf-8") as file:
        tables = Tables.open(Path(directory), scale)
        for number in numbers:
            query = QUERIES[int(number)]
            answer = query.answer(query.plan(tables).compute())
            file.writelines(f"{number}\t{row}\n" for row in answer.itertuples(index=False, name=None))


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), sys.argv[3], sys.argv[4:])

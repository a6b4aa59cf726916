"""TPC-H on Dask's dataframe: all 22 queries, held to DuckDB's answers, and several such jobs at once on this host.

``python -m bench.tpch check`` compares the answers; ``python -m bench.tpch compare`` runs jobs through a static split
of the cores, through plain oversubscription and through Penstock. ``tpchgen-cli`` makes the data; a cache keeps them.
"""

from __future__ import annotations


def main() -> int:
    """The answers at a small scale; the exit status."""
    from bench.tpch.command import main as command

    return command(["check"])

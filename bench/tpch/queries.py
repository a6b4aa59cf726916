"""All 22 queries, by number."""

from __future__ import annotations

from bench.tpch import queries_01_08, queries_09_16, queries_17_22
from bench.tpch.frames import Query

QUERIES: dict[int, Query] = {
    each.number: each for each in (*queries_01_08.QUERIES, *queries_09_16.QUERIES, *queries_17_22.QUERIES)
}

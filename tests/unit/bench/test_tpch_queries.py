"""The queries' answers are DuckDB's, on data as small as they come."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import dask
import pytest

from bench.tpch.answers import differences
from bench.tpch.data import TABLES, prepare
from bench.tpch.frames import Tables
from bench.tpch.queries import QUERIES
from bench.tpch.reference import Reference
from tests.unit.bench.conftest import TPCH_SCALE

#: Dask's uses of pandas that pandas is about to remove are Dask's to change.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")


class Small(NamedTuple):
    directory: Path
    tables: Tables
    reference: Reference


@pytest.fixture(scope="module")
def small(tpch: Path) -> Iterator[Small]:
    reference = Reference(tpch, TPCH_SCALE)
    yield Small(tpch, Tables.open(tpch, TPCH_SCALE), reference)
    reference.close()


def test_the_data_are_made_once_and_cut_into_files(small: Small) -> None:
    files = {table: len(list((small.directory / table).iterdir())) for table in TABLES}
    assert files == {
        table: 2 if table in ("customer", "part", "partsupp", "orders", "lineitem") else 1 for table in files
    }
    before = (small.directory / "lineitem").stat().st_mtime_ns
    assert prepare(TPCH_SCALE, 2, small.directory.parent) == small.directory
    assert (small.directory / "lineitem").stat().st_mtime_ns == before


def test_money_is_double_and_dates_are_timestamps(small: Small) -> None:
    kinds = small.tables.lineitem.dtypes
    assert kinds["l_extendedprice"] == "float64" and kinds["l_quantity"] == "float64"
    assert kinds["l_shipdate"].kind == "M"


#: Their contents: 1 aggregates, 2 joins and LIMIT, 4 EXISTS, 6 a scalar, 11 a scalar in HAVING, 13 an outer join, 15 a
#: maximum, 16 NOT IN and DISTINCT, 18 a large GROUP BY, 21 EXISTS and NOT EXISTS, 22 NOT EXISTS and a mean.
@pytest.mark.parametrize("number", [1, 2, 4, 6, 11, 13, 15, 16, 18, 21, 22])
def test_the_answer_is_duckdbs(small: Small, number: int) -> None:
    query = QUERIES[number]
    with dask.config.set(scheduler="threads"):
        answer = query.answer(query.plan(small.tables).compute())
    assert len(answer) > 0
    assert differences(answer, small.reference.answer(number), query.order) == []

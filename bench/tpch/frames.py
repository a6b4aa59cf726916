"""The common parts of the queries: the tables, and the few relational steps that Dask's dataframe has no name for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, TypeAlias

#: A Dask dataframe, or a Dask scalar; Dask has no types that a checker could use.
Frame: TypeAlias = Any


@dataclass(frozen=True, slots=True)
class Tables:
    """The eight tables of TPC-H §1.4, and the scale factor that they were made with."""

    region: Frame
    nation: Frame
    supplier: Frame
    customer: Frame
    part: Frame
    partsupp: Frame
    orders: Frame
    lineitem: Frame
    scale: float

    @classmethod
    def open(cls, directory: Path, scale: float) -> Tables:
        """The parquet files that :mod:`bench.tpch.data` made, one partition of the table for each file."""
        import dask.dataframe

        read: Callable[..., Frame] = dask.dataframe.read_parquet
        names = [each.name for each in fields(cls) if each.name != "scale"]
        return cls(**{name: read(str(directory / name), split_row_groups=False) for name in names}, scale=scale)


@dataclass(frozen=True, slots=True)
class Query:
    """One of the 22. ``order`` is its ORDER BY, descending where a name begins with ``-``; ``limit`` its LIMIT.

    ``scalar`` names the one value of a query whose answer is a single number.
    """

    number: int
    title: str
    build: Callable[[Tables], Frame]
    order: tuple[str, ...] = ()
    limit: int | None = None
    scalar: str = ""

    @property
    def name(self) -> str:
        """``q01`` to ``q22``."""
        return f"q{self.number:02}"

    def plan(self, tables: Tables) -> Frame:
        """Return the computation, sorted and cut off as the query wants it."""
        built = self.build(tables)
        return ordered(built, self.order, self.limit) if self.order else built

    def answer(self, computed: Any) -> Any:
        """Return a pandas dataframe for any result of the plan."""
        import pandas as pd

        return pd.DataFrame({self.scalar: [float(computed)]}) if self.scalar else computed.reset_index(drop=True)


def query(
    number: int, title: str, *, order: Sequence[str] = (), limit: int | None = None, scalar: str = ""
) -> Callable[[Callable[[Tables], Frame]], Query]:
    """Make a query of the function that defines its rows."""
    return lambda build: Query(number, title, build, tuple(order), limit, scalar)


def ordered(frame: Frame, order: Sequence[str], limit: int | None) -> Frame:
    """Sorted, in one partition. Every partition keeps only its first ``limit`` rows before they come together."""
    names = [each.removeprefix("-") for each in order]
    ascending = [not each.startswith("-") for each in order]

    def first(part: Any) -> Any:
        part = part.sort_values(names, ascending=ascending)
        return part if limit is None else part.head(limit)

    if limit is not None:
        frame = frame.map_partitions(first)
    return frame.repartition(npartitions=1).map_partitions(first)


def among(left: Frame, key: str, right: Frame, right_key: str) -> Frame:
    """Return the rows of ``left`` whose key is in ``right`` (EXISTS, IN)."""
    return left.merge(right[[right_key]], how="leftsemi", left_on=key, right_on=right_key)


def not_among(left: Frame, key: str, right: Frame, right_key: str) -> Frame:
    """Return the rows of ``left`` whose key is not in ``right`` (NOT EXISTS, NOT IN)."""
    columns = list(left.columns)
    known = right[[right_key]].assign(known=1)
    joined = left.merge(known, how="left", left_on=key, right_on=right_key)
    return joined[joined.known.isna()][columns]


def revenue(lines: Frame) -> Frame:
    """Return the price of the sold lines: extended price less discount."""
    return lines.l_extendedprice * (1 - lines.l_discount)

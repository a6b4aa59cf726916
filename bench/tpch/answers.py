"""Are two answers the same: columns, rows as a multiset, and the order as far as the query determines it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

#: Sums of doubles depend on the order in which they are added up.
RELATIVE = 1e-9


def differences(ours: Any, expected: Any, order: Sequence[str] = ()) -> list[str]:
    """Return the differences of two pandas dataframes, one line each; ``order`` is the query's.

    Columns of text, dates and whole numbers must be equal, doubles to :data:`RELATIVE`.
    """
    if list(ours.columns) != list(expected.columns):
        return [f"columns {', '.join(ours.columns)} instead of {', '.join(expected.columns)}"]
    if len(ours) != len(expected):
        return [f"{len(ours)} rows instead of {len(expected)}"]
    keys = [name.removeprefix("-") for name in order]
    # Rows with equal keys may come in any order, but the keys themselves then are the same row by row.
    found = [f"not in the order of {name}" for name in keys if not _same(ours[name], expected[name])]
    inexact = [name for name in expected.columns if _is_float(ours[name]) or _is_float(expected[name])]
    exact = [name for name in expected.columns if name not in inexact]
    ours, expected = (each.sort_values([*exact, *inexact], ignore_index=True) for each in (ours, expected))
    return found + [
        f"{name}: {_first_difference(ours[name], expected[name])}"
        for name in expected.columns
        if not _same(ours[name], expected[name])
    ]


def _is_float(column: Any) -> bool:
    return bool(column.dtype.kind == "f")


def _same(ours: Any, expected: Any) -> bool:
    return bool(_matches(ours, expected).all())


def _first_difference(ours: Any, expected: Any) -> str:
    row = int(_matches(ours, expected).argmin())
    return f"{ours.iloc[row]} instead of {expected.iloc[row]} (row {row + 1} of the sorted answers)"


def _matches(ours: Any, expected: Any) -> Any:
    """Row by row."""
    import numpy as np

    kinds = {column.dtype.kind for column in (ours, expected)}
    if kinds <= set("iuf"):
        a, b = (column.to_numpy(dtype=float) for column in (ours, expected))
        return np.isclose(a, b, rtol=RELATIVE, atol=0.0, equal_nan=True)
    kind = "datetime64[us]" if kinds == {"M"} else object
    a, b = (column.to_numpy(dtype=kind) for column in (ours, expected))
    return a == b

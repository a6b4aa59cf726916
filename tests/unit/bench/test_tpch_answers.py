"""The comparison of answers serves its purpose: a wrong answer must not pass."""

from __future__ import annotations

import pandas as pd
import pytest

from bench.tpch.answers import differences

_DAYS = pd.to_datetime(["1995-03-01", "1995-03-02", "1995-03-03"])


def answer() -> pd.DataFrame:
    return pd.DataFrame({"name": ["a", "b", "c"], "many": [3, 2, 2], "sum": [0.1 + 0.2, 1e9, -7.5], "day": _DAYS})


def test_equal_answers_have_no_differences() -> None:
    assert differences(answer(), answer(), ("-many",)) == []


def test_the_last_digits_of_doubles_may_differ_and_no_more() -> None:
    near, far = answer(), answer()
    near.loc[1, "sum"] = 1e9 * (1 + 1e-12)
    far.loc[1, "sum"] = 1e9 + 10.0
    assert differences(near, answer()) == []
    assert differences(far, answer()) == ["sum: 1000000010.0 instead of 1000000000.0 (row 2 of the sorted answers)"]


def test_whole_numbers_as_doubles_are_the_same_numbers() -> None:
    as_doubles = answer().astype({"many": float})
    assert differences(answer(), as_doubles, ("-many",)) == []


def test_dates_of_another_unit_are_the_same_dates() -> None:
    assert differences(answer(), answer().astype({"day": "datetime64[ns]"})) == []
    later = answer()
    later["day"] += pd.Timedelta(days=1)
    assert len(differences(later, answer())) == 1


def test_rows_with_equal_keys_may_come_in_any_order() -> None:
    turned = answer().iloc[[0, 2, 1]].reset_index(drop=True)
    assert differences(turned, answer(), ("-many",)) == []
    assert differences(turned, answer(), ("name",)) == ["not in the order of name"]


@pytest.mark.parametrize("column", ["name", "many", "sum"])
def test_a_wrong_value_is_found_in_every_column(column: str) -> None:
    wrong = answer()
    wrong.loc[2, column] = {"name": "x", "many": 9, "sum": 8.5}[column]
    assert any(line.startswith(f"{column}: ") for line in differences(wrong, answer()))


def test_values_that_changed_places_between_rows_are_found() -> None:
    swapped = answer()
    swapped["sum"] = swapped["sum"].iloc[[1, 0, 2]].to_numpy()
    assert differences(swapped, answer()) != []


def test_missing_rows_and_columns_are_found() -> None:
    assert differences(answer().iloc[:2], answer()) == ["2 rows instead of 3"]
    assert differences(answer().drop(columns="day"), answer()) == [
        "columns name, many, sum instead of name, many, sum, day"
    ]


def test_no_number_is_equal_to_no_number_only() -> None:
    missing = answer()
    missing.loc[0, "sum"] = float("nan")
    assert differences(missing, missing.copy()) == []
    assert differences(missing, answer()) != []

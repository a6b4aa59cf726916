"""How far forecasts of executors were off: the arithmetic behind `penstock profile compare`."""

from __future__ import annotations

import math

import pytest

from penstock.cli.profile_view import amount
from penstock.cli.profiles import Application, Forecast, Run, Series, compare, stretched


def run(name: str, mean: Series) -> Run:
    peak = [[2 * value for value in row] for row in mean]
    return Run(run=name, mean=mean, peak=peak)


def application(runs: list[Run]) -> Application:
    return Application(application="sort", user="ann", slot_s=3.0, resources=["cpu", "memory"], runs=runs)


@pytest.mark.parametrize(
    ("values", "slots", "stretched_to"),
    [
        ([1.0, 3.0], 2, [1.0, 3.0]),
        ([1.0, 3.0], 4, [1.0, 1.0, 3.0, 3.0]),
        ([1.0, 3.0], 1, [2.0]),
        ([1.0, 2.0, 6.0], 2, [4 / 3, 14 / 3]),
        ([5.0], 3, [5.0, 5.0, 5.0]),
        ([1.0, math.nan], 4, [1.0, 1.0, math.nan, math.nan]),
        ([1.0, math.nan, math.nan, math.nan], 2, [1.0, math.nan]),
    ],
)
def test_a_series_over_another_length_keeps_its_mean(
    values: list[float], slots: int, stretched_to: list[float]
) -> None:
    assert stretched(values, len(values), slots) == pytest.approx(stretched_to, nan_ok=True)


def test_errors_are_relative_to_the_use_and_carry_their_sign() -> None:
    came = run("b", [[1.0, 1.0, 2.0, 0.0], [8.0, 8.0, 8.0, 8.0]])
    said = Forecast(
        mean=[[1.0, 1.0], [10.0, 10.0]],
        peak=[[1.0, 3.0], [20.0, 20.0]],
        low=[[0.5, 0.5], [9.0, 9.0]],
        high=[[1.0, 1.5], [11.0, 11.0]],
        by="2 runs",
    )
    compared = compare(application([came]), came, said)
    assert (compared.run, compared.by, compared.length) == ("b", "2 runs", -0.5)
    cpu, memory = compared.errors["cpu"], compared.errors["memory"]
    assert (cpu.total, cpu.peak, cpu.within) == (pytest.approx(-0.5), pytest.approx(-0.25), 0.5)
    assert (memory.total, memory.peak, memory.within) == (pytest.approx(-0.375), pytest.approx(0.25), 0.0)


def test_a_run_that_ended_within_a_slot_is_compared_by_its_true_end() -> None:
    came = Run(run="b", mean=[[2.0, 2.0], [8.0, 8.0]], peak=[[2.0, 2.0], [8.0, 8.0]], last_part=0.5)
    said = Forecast(mean=[[2.0], [8.0]], peak=[[2.0], [8.0]], low=[[2.0], [8.0]], high=[[2.0], [8.0]], last_part=0.75)
    compared = compare(application([came]), came, said)
    assert compared.length == pytest.approx(0.75 / 1.5 - 1)
    for one in compared.errors.values():
        assert (one.total, one.within) == (pytest.approx(-0.5), 1.0)


@pytest.mark.parametrize(
    "mean", [[[1.0]], [[1.0], [1.0, 2.0]], [[], []]], ids=["a resource is missing", "of different length", "no slots"]
)
def test_series_that_do_not_fit_are_refused(mean: Series) -> None:
    with pytest.raises(ValueError, match="series"):
        application([run("a", mean)])


@pytest.mark.parametrize(
    ("resource", "value", "shown"),
    [
        ("cpu", 0.0, "0.00"), ("cpu", 0.0041, "0.0041"), ("cores", 0.01, "0.01"), ("cpu", 2.5, "2.50"),
        ("memory", 64 << 20, "64 MiB"), ("disk", 1 << 20, "1 MiB/s"),
    ],
)  # fmt: skip
def test_use_is_never_shown_as_nothing(resource: str, value: float, shown: str) -> None:
    assert amount(resource, value) == shown

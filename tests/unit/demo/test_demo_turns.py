"""The table of the demonstration's jobs by turns, and its bad input."""

from __future__ import annotations

import pytest

from demo import turns


def run(makespan_s: float, mean_s: float, cpu_s: float) -> dict[str, float]:
    return {
        "makespan": makespan_s, "mean job completion time": mean_s, "CPU time of the jobs": cpu_s,
        "CPU time of the jobs / of all cores": 90.0, "CPU time of Penstock itself": 0.5, "a fixed piece of work": 0.3,
    }  # fmt: skip


def test_changes_are_those_within_each_turn() -> None:
    plain = [run(10.0, 6.0, 18.0), run(20.0, 12.0, 36.0)]  # the host was half as fast in the second turn
    penstock = [run(11.0, 4.0, 18.0), run(22.0, 8.0, 36.0)]
    lines = turns.table({"plain Linux": plain, "Penstock": penstock})
    assert lines[0].split() == ["plain", "Linux", "Penstock"]
    assert lines[1].split() == ["makespan", "15.00", "±", "5.00", "s", "16.50", "±", "5.50", "s"]
    assert lines[-3:] == [
        "Penstock beside plain Linux: makespan +10.0 ± 0.0 %",
        "Penstock beside plain Linux: mean job completion time -33.3 ± 0.0 %",
        "Penstock beside plain Linux: CPU time of the jobs +0.0 ± 0.0 %",
    ]


def test_a_single_turn_has_no_error() -> None:
    assert "makespan -50.0 ± nan %" in turns.table({"a": [run(2.0, 1.0, 1.0)], "b": [run(1.0, 1.0, 1.0)]})[-3]


@pytest.mark.parametrize("argument", ["--turns", "--megabytes"])
def test_a_number_that_is_too_small_is_refused_in_one_line(argument: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        turns.main([argument, "0"])
    assert caught.value.code == 2
    assert f"{argument}: must be at least 1" in capsys.readouterr().err

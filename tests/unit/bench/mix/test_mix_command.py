"""What the command refuses, before a machine is started."""

from __future__ import annotations

import pytest

from bench.mix.__main__ import main


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--ways", "plain,nonsense"], "--ways: 'nonsense' is none of plain, slices, static"),
        (["--ways", "las_mq"], "--ways: 'las_mq' is none of plain, slices, static"),
        (["--ways", "penstock-fast"], "or penstock-ORDER[-known] with an order of fifo, ejf"),
        (["--seeds", "0"], "--seeds: '0' is no whole number from 1 to 100"),
        (["--minutes", "0"], "--minutes: '0' is no number from 1 to 600"),
        (["--minutes", "nan"], "--minutes: 'nan' is no number from 1 to 600"),
        (["--minutes", "long"], "--minutes: 'long' is no number from 1 to 600"),
        (["--seed", "x"], "--seed: invalid int value: 'x'"),
    ],
)
def test_bad_input_is_refused_in_one_line(given: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(given)
    assert caught.value.code == 2
    assert said in capsys.readouterr().err

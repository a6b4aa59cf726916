"""The command's refusals, before a machine is started."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from bench.mix.__main__ import main
from bench.mix.calibration import costs_of
from bench.mix.jobs import Cost
from bench.mix.kinds import KINDS


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["--ways", "plain,nonsense"], "--ways: 'nonsense' is none of plain, slices, static"),
        (["--ways", "las_mq"], "--ways: 'las_mq' is none of plain, slices, static"),
        (["--ways", "penstock-fast"], "or penstock[-ORDER][-known][-unreserved] with an order of fifo, ejf"),
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


@pytest.mark.parametrize(
    ("kept", "said"),
    [
        (None, ": No such file or directory"),
        ("nonsense", " is no file `calibration` of a run: JSON is malformed"),
        ('{"sort": 1}', " is no file `calibration` of a run: Expected `object`"),
        ('{"sort": {"base_cpu_s": 1, "unit_cpu_s": 1}}', "no cost of analytics, compile"),
    ],
)
def test_a_setting_that_no_run_has_kept_is_refused(
    kept: str | None, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "calibration"
    if kept is not None:
        file.write_text(kept)
    with pytest.raises(SystemExit) as caught:
        main(["--costs", str(file)])
    assert caught.value.code == 2
    assert f"--costs: '{file}'" in (told := capsys.readouterr().err) and said in told


def test_costs_are_kept_as_they_were() -> None:
    kept = {kind.name: Cost(0.5, 2.0, 0.25, 1.5) for kind in KINDS}
    assert costs_of(msgspec.json.encode(kept)) == kept

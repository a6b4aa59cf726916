"""Reservations in a simulated cluster: the master's own objects keep promises that fair shares would break."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.report import Report
from simulator.scenario import ScenarioError, load, run, shipped

_SCENARIO = """
model = "tasks"
[cluster]
nodes = [{ count = 4, cores = 4, memory_bytes = 16e9 }]
sample_s = 10
look_s = 0
progress_s = 0
start_s = 0.05
[policy]
ordering = "fair"
[mixed]
count = 40
every_s = 3
production = 0.4
load = 1.5
containers = 4
most_containers = 16
spread = 0.8
[reservations]
share = 0.8
"""


def simulated(directory: Path, **changes: Any) -> Report:
    file = directory / "scenario.toml"
    file.write_text(_SCENARIO)
    [made] = run(load(file, {key.replace("__", "."): value for key, value in changes.items()}).points())
    return made.report


@pytest.fixture(scope="module")
def promised(tmp_path_factory: pytest.TempPathFactory) -> Report:
    """The run of the scenario as it is; no test changes it."""
    return simulated(tmp_path_factory.mktemp("promised"))


def test_every_accepted_deadline_is_met_and_fair_shares_miss_some(promised: Report, tmp_path: Path) -> None:
    without = simulated(tmp_path, reservations__taken=False)
    found = promised.measures
    assert found["deadlines"] == found["deadlines_met"] == found["reservations_accepted"] > 5
    assert found["longest_lack_s"] <= 5.0
    assert found["preempted_for_promises"] > 0, "there was something in the way"
    assert len(promised.jobs) == 40 - found["reservations_rejected"]
    assert without.measures["deadlines_met"] < without.measures["deadlines"]
    assert len(without.jobs) == 40
    assert "reservations_accepted" not in without.measures


def test_the_promise_of_a_user_who_reserves_too_much_is_kept_too(promised: Report, tmp_path: Path) -> None:
    usual, over = promised.measures, simulated(tmp_path, mixed__over_reservation=0.5).measures
    assert over["deadlines"] == over["deadlines_met"] > 5
    assert over["reservations_rejected"] >= usual["reservations_rejected"]


def test_the_same_seed_gives_the_same_run(tmp_path: Path) -> None:
    first, again = (simulated(tmp_path, seed=7, mixed__count=15) for _ in range(2))
    assert first.measures["reservations_accepted"] > 1
    assert first == again


def test_bad_rdl_names_the_job(tmp_path: Path) -> None:
    file = tmp_path / "scenario.toml"
    table = '[[jobs]]\nname = "j"\nrdl = "atom("\n[[jobs.stages]]\n[jobs.stages.command]\nphases = [{ seconds = 1 }]\n'
    file.write_text(_SCENARIO + table)
    with pytest.raises(ValueError, match="job 'j': rdl: "):
        run(load(file).points())


def test_the_shipped_scenario_is_one() -> None:
    [point] = load(shipped("rayon/sla"), {"mixed.count": 5}).points()
    assert point.spec.mixed.count == 5


def test_when_every_reservation_is_declined_that_is_reported(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="reservations: that of every job was declined"):
        simulated(tmp_path, mixed__production=0.99, mixed__count=1, reservations__share=0.01)

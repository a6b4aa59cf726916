"""Elasecutor's worked examples, as `python -m research` tries them; the model accepts its scenarios."""

from __future__ import annotations

import pytest

from research.papers.claims import Inputs
from research.papers.elasecutor import CLAIMS
from research.papers.scenarios import FOLDER, scenario_file
from simulator.executors import Spec
from simulator.scenario import load, shipped

EXACT = ("elasecutor/fig01", "elasecutor/fig05", "elasecutor/fig06")


@pytest.mark.parametrize("name", EXACT)
def test_the_worked_examples_come_out_exactly(name: str) -> None:
    (claim,) = (claim for claim in CLAIMS if claim.name == name)
    rows = claim.run(Inputs())
    assert rows and all(row.holds for row in rows)


@pytest.mark.parametrize("name", ["fig01", "lumos", "makespan", "drr-trc", "reprovisioning", "mixtures"])
def test_scenarios_are_ones_of_this_model(name: str) -> None:
    points = load(scenario_file(f"elasecutor/{name}")).points()
    assert points and all(isinstance(point.spec, Spec) for point in points)


def test_no_scenario_is_left_out() -> None:
    folders = [FOLDER / "elasecutor", shipped("elasecutor/fig01").parent]
    assert {path.stem for folder in folders for path in folder.glob("*.toml")} == {
        "fig01",
        "makespan",
        "drr-trc",
        "reprovisioning",
        "mixtures",
        "lumos",
    }

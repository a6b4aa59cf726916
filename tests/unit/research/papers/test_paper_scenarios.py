"""The scenarios of claims: those of research/ and those that are shipped; no two have the same name."""

from __future__ import annotations

import pytest

from research.papers.scenarios import FOLDER, scenario_file
from simulator.scenario import ScenarioError, load, shipped, shipped_names

OWN = sorted(path.relative_to(FOLDER).with_suffix("").as_posix() for path in FOLDER.rglob("*.toml"))


@pytest.mark.parametrize("name", OWN)
def test_a_model_knows_every_key(name: str) -> None:
    scenario = load(scenario_file(name))
    assert scenario.title, f"{name} has no title"
    assert scenario.points()


def test_a_name_is_that_of_one_scenario() -> None:
    assert OWN
    assert not set(OWN) & set(shipped_names())


def test_a_shipped_scenario_is_found_too() -> None:
    assert scenario_file("las_mq/fig01") == shipped("las_mq/fig01")
    with pytest.raises(ScenarioError, match="no such file"):
        scenario_file("las_mq/fig1")

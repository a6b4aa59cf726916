"""Scenarios: the values read, the points of a sweep, and one clear line for everything that is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simulator.scenario import ScenarioError, load, shipped, shipped_names

_SCENARIO = """\
model = "fluid"
title = "a few"
seed = 7

[[workload.jobs]]
size = 4

[[workload.jobs]]
size = 2
at_s = 1

[policy]
name = "las"
"""


def _write(tmp_path: Path, text: str = _SCENARIO) -> Path:
    path = tmp_path / "few.toml"
    path.write_text(text, encoding="utf-8")
    return path


def _complaint(path: Path, settings: dict[str, Any] | None = None) -> str:
    with pytest.raises(ScenarioError) as caught:
        load(path, settings).points()
    return str(caught.value).removeprefix(f"{path}: ")


def test_a_scenario_without_a_sweep_is_one_point(tmp_path: Path) -> None:
    scenario = load(_write(tmp_path))
    (point,) = scenario.points()
    assert (scenario.title, scenario.model, point.seed, point.settings) == ("a few", "fluid", 7, {})
    assert [job.size for job in point.spec.workload.jobs] == [4.0, 2.0]
    assert point.spec.policy.name == "las"


def test_a_sweep_is_every_combination_the_last_key_fastest(tmp_path: Path) -> None:
    text = _SCENARIO + '[sweep]\n"policy.name" = ["las", "fair"]\nseed = [1, 2]\n'
    points = load(_write(tmp_path, text)).points()
    assert [tuple(point.settings.values()) for point in points] == [("las", 1), ("las", 2), ("fair", 1), ("fair", 2)]
    assert [(point.spec.policy.name, point.seed) for point in points] == [
        ("las", 1), ("las", 2), ("fair", 1), ("fair", 2),
    ]  # fmt: skip


def test_settings_replace_values_and_sweeps(tmp_path: Path) -> None:
    path = _write(tmp_path, _SCENARIO + '[sweep]\n"policy.name" = ["las", "fair"]\n')
    (point,) = load(
        path, {"policy.name": "fifo", "workload.jobs.1.size": 9, "server.rate_per_s": 2, "seed": 3}
    ).points()
    assert (point.spec.policy.name, point.spec.workload.jobs[1].size) == ("fifo", 9.0)
    assert (point.spec.server.rate_per_s, point.seed) == (2.0, 3)
    assert len(load(path, {"policy.name": ["fifo", "srpt", "fair"]}).points()) == 3


def test_quantities_may_be_written_with_units(tmp_path: Path) -> None:
    (point,) = load(_write(tmp_path), {"workload.jobs.0.at_s": "2min"}).points()
    assert point.spec.workload.jobs[0].at_s == 120.0


@pytest.mark.parametrize(
    ("written", "instead", "complaint"),
    [
        ('name = "las"', "names = 1", "policy: unknown key 'names'; did you mean 'name'?"),
        ('name = "las"', "x = 1", "policy: unknown key 'x'; known keys: name, queues, first_threshold,"),
        ("at_s = 1", "at = 1", "workload.jobs[1]: unknown key 'at'; did you mean 'at_s'?"),
        ("seed = 7", "sead = 7", "unknown key 'sead'; did you mean 'seed'?"),
        ("seed = 7", "seed = -1", "seed: a whole number of at least 0 expected"),
        ("size = 2", "size = -2", "workload.jobs[1].size: a number of more than 0 expected"),
        ('name = "las"', 'name = "lass"', "policy.name: unknown value 'lass'; did you mean 'las'?"),
        (
            'name = "las"',
            'name = "?"',
            "policy.name: unknown value '?'; known values: fair, fifo, gittins, las, las_mq,",
        ),
        ('name = "las"', "step = 0.5", "policy: step: 0.5 is not above 1"),
        ("at_s = 1", 'at_s = "soon"', "workload.jobs[1].at_s: 'soon'"),
        ("size = 2", "size = inf", "workload.jobs[1].size: a finite number below 2^63 expected"),
        ('model = "fluid"', 'model = "fluids"', "model: unknown model 'fluids'; one of fluid, executors, tasks"),
        ('model = "fluid"', "", "the key 'model' is missing"),
        ("seed = 7", "sweep = 3", "sweep: a table expected, and a whole number found"),
        ("seed = 7", 'sweep = { "policy.name" = [] }', "sweep: 'policy.name': no value is given"),
        ("seed = 7", 'sweep = { model = ["fluid"] }', "sweep: 'model' cannot be varied"),
        ("seed = 7", 'sweep = { "policy.nam" = ["las"] }', "policy: unknown key 'nam'; did you mean 'name'?"),
    ],
)
def test_an_error_is_named_by_its_key(tmp_path: Path, written: str, instead: str, complaint: str) -> None:
    assert written in _SCENARIO
    said = _complaint(_write(tmp_path, _SCENARIO.replace(written, instead)))
    assert said.startswith(complaint)
    assert "\n" not in said


@pytest.mark.parametrize(
    ("key", "complaint"),
    [
        ("workload.jobs.2.size", "workload.jobs.2.size: '2' is none of the list's entries 0 to 1"),
        ("workload.jobs.first.size", "workload.jobs.first.size: 'first' is none of the list's entries"),
        ("policy.name.x", "policy.name.x: policy.name is a value, not a table"),
        ("polcy.name", "unknown key 'polcy'; did you mean 'policy'?"),
    ],
)
def test_a_setting_that_leads_nowhere_is_named(tmp_path: Path, key: str, complaint: str) -> None:
    assert _complaint(_write(tmp_path), {key: 1}).startswith(complaint)


def test_a_fault_of_syntax_has_its_line_and_column(tmp_path: Path) -> None:
    path = _write(tmp_path, "seed = 7\nmodel = ?\n")
    assert _complaint(path) == f"{path}:2: Invalid value (column 9)"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    assert _complaint(tmp_path / "absent.toml") == "No such file or directory"


@pytest.mark.parametrize("name", shipped_names())
def test_every_shipped_scenario_has_keys_that_the_model_knows(name: str) -> None:
    scenario = load(shipped(name))
    assert scenario.title, f"{name} has no title"
    assert scenario.points()


def test_a_shipped_scenario_that_is_not_there_names_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"las_mq/fig1: .* did you mean 'las_mq/fig01'\?"):
        shipped("las_mq/fig1")
    with pytest.raises(ScenarioError, match=r"penstock simulate --list"):
        shipped("nothing-like-it.toml")
    with pytest.raises(ScenarioError, match=r"ursa/setting1: .* in research/scenarios of a checkout"):
        shipped("ursa/setting1")

"""Running points, and the figures of a report."""

from __future__ import annotations

from pathlib import Path

import pytest

from simulator.report import JobReport, Report, ResourceReport
from simulator.scenario import ScenarioError, load, run, shipped
from simulator.scenario.summary import quantile, summary


def test_points_are_run_in_their_order() -> None:
    heard = []
    runs = run(load(shipped("las_mq/fig01")).points(), done=lambda: heard.append(1))
    assert [(each.settings["policy.name"], each.report.jobs[0].response_s) for each in runs] == [
        ("las", 9.0),
        ("las_mq", 6.0),
    ]
    assert len(heard) == 2


def test_processes_change_nothing() -> None:
    points = load(shipped("las_mq/fig01")).points()
    assert run(points, processes=2) == run(points)


def test_a_refusal_of_a_model_is_one_line_with_the_scenario_s_name(tmp_path: Path) -> None:
    settings = {"workload.trace.file": str(tmp_path / "absent.tsv")}
    with pytest.raises(
        ScenarioError, match=r"swim\.toml: .*workload\.trace\.file: .*absent\.tsv: no such file; give it with"
    ):
        run(load(shipped("order/swim"), settings).points())


@pytest.mark.parametrize(("fraction", "value"), [(0.0, 1.0), (0.5, 2.0), (0.51, 3.0), (0.99, 4.0), (1.0, 4.0)])
def test_a_quantile_is_one_of_the_values(fraction: float, value: float) -> None:
    assert quantile([4.0, 1.0, 3.0, 2.0], fraction) == value


def _report(**more: object) -> Report:
    jobs = [
        JobReport(name="a", submitted_at_s=0.0, ended_at_s=4.0, alone_s=2.0),
        JobReport(name="b", submitted_at_s=1.0, ended_at_s=9.0),
    ]
    return Report(model="m", makespan_s=9.0, jobs=jobs, **more)  # type: ignore[arg-type]


def test_a_summary_has_the_measures_of_the_model_and_no_others() -> None:
    assert summary(_report()) == {
        "jobs": 2,
        "makespan_s": 9.0,
        "response_mean_s": 6.0,
        "response_median_s": 4.0,
        "response_p99_s": 8.0,
        "slowdown_mean": 2.0,
        "slowdown_median": 2.0,
    }


def test_a_summary_of_a_model_that_knows_more() -> None:
    cpu = ResourceReport(utilization=0.6, scheduling_efficiency=0.8, utilization_efficiency=0.75)
    figures = summary(
        _report(resources={"cpu": cpu}, opportunistic_share=0.2, preemptions=0, stragglers=3, measures={"drr": 0.25})
    )
    assert {key: figures[key] for key in list(figures)[7:]} == {
        "cpu_utilization": 0.6,
        "cpu_scheduling_efficiency": 0.8,
        "cpu_utilization_efficiency": 0.75,
        "opportunistic_share": 0.2,
        "preemptions": 0,
        "stragglers": 3,
        "drr": 0.25,
    }


def test_a_summary_of_nothing() -> None:
    assert summary(Report(model="m", makespan_s=0.0, jobs=[])) == {"jobs": 0, "makespan_s": 0.0}

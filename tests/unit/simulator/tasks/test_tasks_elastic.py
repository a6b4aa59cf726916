"""Executors in the simulator: their promises and limits follow forecasts made from earlier runs (Elasecutor §III)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from penstock.model import Sizing
from simulator.tasks import Spec
from simulator.tasks.build import jobs_of
from simulator.tasks.cluster import SimulatedCluster
from simulator.tasks.measure import report

CORES = 4
PHASES = [{"seconds": 6, "cpu_cores": 2.5}, {"seconds": 18, "cpu_cores": 1}]
RUN_S = 24.0
#: Executors run with their forecast and this much more (master/prediction/reserved_slots.py).
HEADROOM = 1.05


def simulated(*more: dict[str, Any], runs: int = 5, sizing: str = "hard", **tables: Any) -> SimulatedCluster:
    """Run an application five times, one run after the other; its executors ask for all cores."""
    executor = {"application": "app", "input_bytes": 1e9, "sizing": sizing}
    command = {"cpu_cores": CORES, "memory_bytes": 1e9, "executor": executor, "phases": PHASES}
    learnt = {"name": "run", "count": runs, "every_s": 30.0, "stages": [{"command": command}]}
    document = {"cluster": {"nodes": [{"cores": CORES, "memory_bytes": 8e9}]}, "jobs": [learnt, *more]} | tables
    spec = msgspec.convert(document, Spec)
    cluster = SimulatedCluster(spec.nodes(), spec.master(), spec.surroundings())
    cluster.run(jobs_of(spec, 0), limit_s=1000.0)
    return cluster


def responses_s(cluster: SimulatedCluster) -> dict[str, float]:
    return {job.name: job.response_s for job in report(cluster, {}).jobs}


def promised(at_s: float) -> dict[str, Any]:
    """A command that needs a core for 10 s, and waits until that can be promised."""
    command = {"cpu_cores": 1, "phases": [{"seconds": 10, "cpu_cores": 1}]}
    return {"name": "promised", "submitted_at_s": at_s, "stages": [{"command": command}]}


def test_three_runs_are_reserved_their_bounds_and_the_others_follow_what_these_used() -> None:
    cluster = simulated()
    assert cluster.forecasts.made == 2
    assert cluster.acts["executor placed"] == 5
    assert all(took_s == pytest.approx(RUN_S, rel=0.1) for took_s in responses_s(cluster).values())
    whole = CORES * RUN_S * 3
    used = 2 * HEADROOM * (6 * 2.5 + 18)
    assert cluster.usage.allocated["cpu"].integral == pytest.approx(whole + used, rel=0.1)


@pytest.mark.parametrize("sizing", list(Sizing))
def test_what_an_executor_is_not_predicted_to_use_can_be_promised_to_others(sizing: Sizing) -> None:
    """All cores are reserved for the first run; the fourth leaves more than one."""
    first, fourth = (simulated(promised(at_s), sizing=sizing) for at_s in (1.0, 91.0))
    assert responses_s(first)["promised"] > RUN_S
    assert responses_s(fourth)["promised"] == pytest.approx(10, abs=0.5)
    assert responses_s(fourth)["run-4"] == pytest.approx(RUN_S, rel=0.1)


def test_without_elasticity_executors_are_commands_that_hold_what_they_ask_for() -> None:
    cluster = simulated(elastic=False)
    assert not cluster.acts["executor placed"]
    assert cluster.usage.allocated["cpu"].integral == pytest.approx(5 * CORES * RUN_S, rel=0.05)
    assert "forecasts" not in report(cluster, {}).measures


def test_a_run_that_takes_longer_than_forecast_is_late_and_gets_more() -> None:
    """Its first phase takes twice the forecast time, so that its plan falls to a core too early."""
    executor = {"application": "app", "input_bytes": 1e9}
    phases = [PHASES[0] | {"seconds": 12}, PHASES[1]]
    command = {"cpu_cores": CORES, "memory_bytes": 1e9, "executor": executor, "phases": phases}
    cluster = simulated({"name": "late", "submitted_at_s": 95.0, "stages": [{"command": command}]}, runs=3)
    by_its_plan_s = 6 + 6 * 2.5 / HEADROOM + 18
    assert cluster.acts["reprovisioned"] >= 1
    assert responses_s(cluster)["late"] < 0.95 * by_its_plan_s


def test_an_executor_s_memory_is_held_back_only_until_the_next_sample() -> None:
    """It grows by a gigabyte more than forecast: without swap a limit stalls it, and the agent raises that."""
    executor = {"application": "app", "input_bytes": 1e9}
    phases = [{"seconds": 24, "cpu_cores": 1, "memory_bytes": 1e9}]
    command = {"cpu_cores": 1, "memory_bytes": 4e9, "executor": executor, "phases": phases}
    learnt = {"name": "small", "count": 3, "every_s": 30.0, "stages": [{"command": command}]}
    grown = [{"seconds": 24, "cpu_cores": 1, "memory_bytes": 2e9}]
    large = {"name": "large", "submitted_at_s": 100.0, "stages": [{"command": command | {"phases": grown}}]}
    cluster = simulated(learnt, large, runs=0)
    assert cluster.forecasts.made == 1
    assert RUN_S < responses_s(cluster)["large"] < 1.5 * RUN_S

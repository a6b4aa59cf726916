"""The claims of Ursa, and of all papers together: every scenario that they ask for loads, and every line has its part.

The runs themselves take minutes; here their reports are made up.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from agent.core.settings import Thresholds
from research.papers import runs, together, ursa
from research.papers.claims import TRACES, Claim, Inputs, Row
from simulator.report import JobReport, Report, ResourceReport
from simulator.scenario import Run
from simulator.scenario.loader import Point

CLAIMS = [*ursa.CLAIMS, *together.CLAIMS]


def report(makespan_s: float, response_s: float = 0.0, *, se: float = 0.9, network: float = 0.2) -> Report:
    """Forty jobs that took as long."""
    cpu = ResourceReport(utilization=se, scheduling_efficiency=se, utilization_efficiency=1.0)
    return Report(
        model="tasks",
        makespan_s=makespan_s,
        jobs=[JobReport(name=f"j{n}", submitted_at_s=0.0, ended_at_s=response_s or makespan_s) for n in range(40)],
        resources={"cpu": cpu, "memory": cpu, "network": ResourceReport(utilization=network)},
        measures={"straggler_time_ratio": 0.01},
    )


@contextmanager
def answered(answer: Callable[[Point], Report]) -> Iterator[list[Point]]:
    """All runs are made up so; gives the points that were asked for."""
    asked: list[Point] = []

    def runner(points: Sequence[Point]) -> list[Run]:
        asked.extend(points)
        return [Run(settings=point.settings, seed=point.seed, report=answer(point)) for point in points]

    token = runs._RUNNER.set(runner)
    try:
        yield asked
    finally:
        runs._RUNNER.reset(token)


@pytest.fixture
def inputs(tmp_path: Path) -> Inputs:
    """A folder with a file of DAGs: a query of each scale."""
    file = tmp_path / TRACES["tpch_dags"]
    file.parent.mkdir()
    query = {"edges": [], "stages": [{"num_tasks": 1, "mean_task_ms": 1000.0}]}
    file.write_text(json.dumps({f"{scale}/q1": query for scale in ("20g", "50g", "100g")}), encoding="utf-8")
    return Inputs(traces=tmp_path)


def rows_of(name: str, inputs: Inputs, answer: Callable[[Point], Report]) -> dict[str, Row]:
    (claim,) = (claim for claim in CLAIMS if claim.name == name)
    with answered(answer):
        return {row.what: row for row in claim.run(inputs)}


@pytest.mark.parametrize("claim", CLAIMS, ids=lambda claim: claim.name)
def test_every_point_of_a_claim_can_be_run_and_every_line_is_whole(claim: Claim, inputs: Inputs) -> None:
    with answered(lambda point: report(100.0)) as asked:
        rows = claim.run(inputs)
    assert asked
    for point in asked:
        point.spec.master()  # raises for a setting that there is not
        point.spec.surroundings()
    assert all(row.what and row.paper and row.ours for row in rows)
    assert len({row.what for row in rows}) == len(rows)


def test_table_4_holds_in_the_paper_s_order_and_in_no_other(inputs: Inputs) -> None:
    figures = {"ursa": 464.0, "tetris2": 506.0, "capacity": 511.0, "tetris": 562.33}

    def paper(point: Point) -> Report:
        settings = point.spec.master()
        if settings.ordering == "srjf":
            return report(473.5, 170.64, se=0.8608)
        makespan_s = figures[settings.placement]
        return report(makespan_s, makespan_s / 2, se=400 / makespan_s)

    assert all(row.holds for row in rows_of("ursa/placements", inputs, paper).values())
    figures["tetris"] = 505.0
    rows = rows_of("ursa/placements", inputs, paper)
    assert not rows["makespan: Algorithm 1 (EJF and SRJF) < Tetris2 < Capacity < Tetris"].holds
    assert rows["makespan: EJF < SRJF"].holds
    figures["ursa"] = 474.0
    assert not rows_of("ursa/placements", inputs, paper)["makespan: EJF < SRJF"].holds


def test_table_6_separates_job_order_monotask_order_and_both(inputs: Inputs) -> None:
    def paper(point: Point) -> Report:
        settings = point.spec.master()
        weight = settings.ejf_weight if settings.ordering == "ejf" else settings.srjf_weight
        assert settings.ept_s in (1.0, 20.0)
        if point.spec.cluster.fifo_queues:
            return report(630.0, 373.0)
        return report(613.0, 338.0) if weight else report(615.0, 351.0)

    rows = rows_of("ursa/orderings", inputs, paper)
    assert all(row.holds for row in rows.values())
    assert {row.ours for what, row in rows.items() if "MO does more" in what} == {"373.0, 351.0, 338.0 s"}


def test_stage_awareness_is_switched_off(inputs: Inputs) -> None:
    rows = rows_of("ursa/designs", inputs, lambda point: report(100.0 if point.spec.master().stage_aware else 106.0))
    assert [row.ours for row in rows.values()] == ["+6.0 %"] * 4
    assert all(row.holds for row in rows.values())


def test_together_holds_where_it_is_no_worse_than_the_best_alone(inputs: Inputs) -> None:
    figures = {"las_mq": 1200.0, "srjf": 1000.0, "gittins": 900.0}

    def answer(point: Point) -> Report:
        settings, thresholds = point.spec.master(), point.spec.surroundings().agent.preemption.thresholds
        ubis = settings.ordering == "fair"
        assert thresholds == (Thresholds(cpu=0.99, memory=0.95, disk=1.0) if ubis else Thresholds())
        if settings.placement == "ursa" and point.spec.opportunistic:
            return report(figures[settings.ordering])
        return report(1010.0 if settings.ordering == "fair" else 1300.0, se=0.8)

    rows = rows_of("together/containers", inputs, answer)
    assert all(row.holds for row in rows.values())
    makespan = rows["makespan: together at most 2 % above the best alone"]
    assert makespan.paper == "Ursa (EJF) 1300 s, LAS_MQ 1300 s, UBIS 1010 s"
    assert makespan.ours == "with LAS_MQ 1200 s, with SRJF 1000 s"
    gain = rows["makespan: as installed, at least 10 % below the best alone"]
    assert (gain.paper, gain.ours) == ("UBIS 1010 s", "900 s (−10.9 %)")
    figures |= {"srjf": 1100.0, "gittins": 950.0}
    worse = rows_of("together/containers", inputs, answer)
    assert [row.holds for row in worse.values()] == [False, False, True, False, False]
    assert worse[makespan.what].why.startswith("UBIS alone is best.")
    assert worse[gain.what].why.startswith("Nearly all tasks run on slack")
    assert worse[gain.what].why.endswith(
        "Told the length of every task, SRJF takes 1100 s (+8.9 %). No order takes less than 360 s: "
        "hive-10 takes until then even if it has the cluster to itself."
    )


def test_a_gain_that_the_work_itself_rules_out_has_that_reason(inputs: Inputs) -> None:
    rows = rows_of("together/containers", inputs, lambda _: report(380.0, 100.0))
    least = "No order takes less than 360 s: hive-10 takes until then even if it has the cluster to itself."
    assert rows["makespan: as installed, at least 10 % below the best alone"].why == least
    assert (
        rows["mean response: as installed, at least 10 % below the best alone"].why == "No order takes less than 95 s."
    )

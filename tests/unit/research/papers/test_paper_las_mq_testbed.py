"""Table 1 as a scenario, and the lines that are made of the testbed's reports."""

from __future__ import annotations

from collections import Counter

import pytest

from research.papers import las_mq_testbed
from research.papers.scenarios import scenario_file
from simulator.report import JobReport, Report
from simulator.scenario import load
from simulator.tasks import Spec

#: LAS_MQ, Table 1: name → maps, reduces, jobs.
_TABLE_1 = {
    "TeraGen": (100, 10, 3),
    "SelfJoin": (102, 10, 15),
    "Classification": (102, 20, 17),
    "HistogramMovies": (102, 20, 12),
    "HistogramRatings": (102, 20, 8),
    "SequenceCount": (234, 60, 16),
    "InvertedIndex": (234, 60, 19),
    "WordCount": (721, 80, 10),
}


def _spec(name: str) -> Spec:
    spec = load(scenario_file(name), {"policy.ordering": "las_mq"}).points()[0].spec
    assert isinstance(spec, Spec)
    return spec


def test_the_scenario_is_a_third_of_table_1() -> None:
    spec = _spec("las_mq/testbed-80s")
    assert Counter(job.name.partition("-")[0] for job in spec.jobs) == {name: row[2] for name, row in _TABLE_1.items()}
    for job in spec.jobs:
        maps, reduces, _ = _TABLE_1[job.name.partition("-")[0]]
        assert [stage.tasks for stage in job.stages] == [round(maps / 3), round(reduces / 3)]
    assert sum(node.capacity.cores for node in spec.nodes()) == 40


def test_both_scenarios_have_the_same_jobs_at_another_pace() -> None:
    slow, fast = _spec("las_mq/testbed-80s").jobs, _spec("las_mq/testbed-50s").jobs
    assert [(job.name, job.stages) for job in slow] == [(job.name, job.stages) for job in fast]
    assert [job.submitted_at_s * 50 / 80 for job in slow] == pytest.approx(
        [job.submitted_at_s for job in fast], abs=0.1
    )


def _report(*responses_s: float, makespan_s: float = 100.0) -> Report:
    """A job of each bin."""
    names = ("SelfJoin-1", "Classification-1", "InvertedIndex-1", "WordCount-1")
    jobs = [
        JobReport(name=name, submitted_at_s=1.0, ended_at_s=1.0 + response_s, alone_s=2.0)
        for name, response_s in zip(names, responses_s, strict=True)
    ]
    return Report(model="tasks", makespan_s=makespan_s, jobs=jobs)


_REPORTS = {
    "las_mq": _report(2, 4, 8, 26),
    "las": _report(3, 5, 22, 50),
    "fair": _report(6, 8, 26, 40, makespan_s=99.0),
    "fifo": _report(60, 60, 60, 20, makespan_s=125.0),
}


def test_gains_hold_within_ten_points_and_have_a_reason_where_they_do_not() -> None:
    near, far = las_mq_testbed._gains(_REPORTS, {"fair": (45, "45 %"), "las": (30, "30 %")}, "Load.")
    assert (near.ours, near.holds) == ("50.0 % (10 s against 20 s)", True)
    assert (far.ours, far.holds) == ("50.0 % (10 s against 20 s)", False)
    assert (near.why, far.why) == ("", "Load.")


def test_jobs_that_end_soon_are_counted() -> None:
    row = las_mq_testbed._soon(_REPORTS, limit_s=25.0)
    assert (row.ours, row.holds) == ("75 %, 75 %, 50 %", False)


def test_bins_in_which_others_are_better_are_named() -> None:
    shared, fifo = las_mq_testbed._bins(_REPORTS)
    assert (shared.ours, shared.holds, fifo.ours, fifo.holds) == ("none", True, "4", True)
    shared, fifo = las_mq_testbed._bins(_REPORTS | {"las": _report(1, 5, 22, 50), "fifo": _report(60, 3, 60, 20)})
    assert (shared.ours, shared.holds, fifo.ours, fifo.holds) == ("las in bin 1", False, "2, 4", False)


def test_slowdowns_and_makespans() -> None:
    slowdowns = las_mq_testbed._slowdowns(_REPORTS)
    assert slowdowns.ours.startswith("las_mq (5.0) < ")
    makespans = las_mq_testbed._makespans(_REPORTS)
    assert (makespans.ours, makespans.holds) == ("fair 0.99, las 1.00, fifo 1.25", False)


def test_the_cases_of_figure_3_are_judged_against_each_other() -> None:
    rows = las_mq_testbed._cases([1.2, 1.3, 1.5, 1.7])
    assert [row.holds for row in rows] == [True] * 4
    assert rows[1].ours == "+8.3 % (1.30 against 1.20)"
    assert [row.holds for row in las_mq_testbed._cases([1.0, 1.3, 1.1, 1.0])] == [False] * 4


def test_weights() -> None:
    assert las_mq_testbed.weights(0.5, queues=3) == [1.0, 0.5, 0.25]

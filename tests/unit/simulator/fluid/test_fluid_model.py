"""Workloads, the load, and the report of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from simulator.fluid import Spec, run
from simulator.fluid.spec import Arrivals, Sizes, Synthetic, Workload
from simulator.fluid.workload import jobs_of


def _spec(**tables: Any) -> Spec:
    return msgspec.convert(tables, Spec)


def _synthetic(**more: Any) -> Workload:
    return Workload(synthetic=msgspec.convert({"jobs": 4000} | more, Synthetic))


@pytest.mark.parametrize("distribution", ["constant", "exponential", "pareto", "uniform"])
def test_drawn_sizes_have_the_mean_that_was_asked_for(distribution: Any) -> None:
    workload = Workload(synthetic=Synthetic(jobs=20_000, sizes=Sizes(distribution=distribution, mean=7.0, shape=3.0)))
    jobs, _ = jobs_of(workload, seed=3)
    assert sum(job.size for job in jobs) / len(jobs) == pytest.approx(7.0, rel=0.05)
    assert min(job.size for job in jobs) > 0


def test_arrivals() -> None:
    def times(process: Any) -> list[float]:
        workload = Workload(synthetic=Synthetic(jobs=4000, arrivals=Arrivals(process=process, interval_s=5.0)))
        return [job.at_s for job in jobs_of(workload, seed=1)[0]]

    assert times("together") == [0.0] * 4000
    assert times("fixed")[:3] == [0.0, 5.0, 10.0]
    poisson = times("poisson")
    assert poisson == sorted(poisson)
    assert poisson[-1] / 4000 == pytest.approx(5.0, rel=0.1)


def test_the_seed_alone_decides_and_each_draw_has_its_own_stream() -> None:
    first, _ = jobs_of(_synthetic(), seed=1)
    assert jobs_of(_synthetic(), seed=1)[0] == first
    assert jobs_of(_synthetic(), seed=2)[0] != first
    uniform, _ = jobs_of(_synthetic(sizes={"distribution": "uniform"}), seed=1)
    assert [job.at_s for job in uniform] == [job.at_s for job in first]


def test_weights_are_drawn_from_the_list() -> None:
    jobs, _ = jobs_of(_synthetic(weights=[1, 2, 3]), seed=1)
    assert {job.weight for job in jobs} == {1.0, 2.0, 3.0}


def test_the_load_scales_the_sizes() -> None:
    jobs = [{"at_s": 0, "size": 5}, {"at_s": 10, "size": 15}]
    report = run(_spec(workload={"jobs": jobs}, server={"load": 0.8, "rate_per_s": 2.0}, policy={"name": "fifo"}), 0)
    assert report.measures["size_factor"] == pytest.approx(0.8 * 10 * 2 / 20)
    assert report.measures["mean_size"] == pytest.approx(8.0)
    assert [job.alone_s for job in report.jobs] == pytest.approx([2.0, 6.0])
    assert [job.response_s for job in report.jobs] == pytest.approx([2.0, 6.0])


def test_no_load_without_time_between_arrivals() -> None:
    with pytest.raises(ValueError, match=r"server\.load: all jobs arrive at the same time"):
        run(_spec(workload={"jobs": [{"size": 1}]}, server={"load": 0.9}), 0)


def test_a_trace_is_read_and_rows_of_size_zero_are_counted(tmp_path: Path) -> None:
    trace = tmp_path / "day.tsv"
    trace.write_text("a\t5\t0\t3\t1\t0\nb\t6\t1\t0\t0\t0\nc\t7\t1\t1\t0\t1\n")
    report = run(_spec(workload={"trace": {"file": str(trace), "d_over_n": 2}}, policy={"name": "fifo"}), 0)
    assert [(job.name, job.response_s) for job in report.jobs] == [("a", 5.0), ("c", 5.0)]
    assert report.measures["jobs_left_out"] == 1
    assert report.makespan_s == 7.0
    assert report.resources["server"].utilization == 1.0
    trace.write_text("b\t6\t1\t0\t0\t0\n")
    with pytest.raises(ValueError, match=r"day\.tsv: no job has a size above zero"):
        run(_spec(workload={"trace": {"file": str(trace)}}), 0)


@pytest.mark.parametrize(
    ("tables", "complaint"),
    [
        ({"workload": {}}, "give one of jobs, synthetic, trace"),
        ({"workload": {"jobs": [{"size": 1}], "trace": {"file": "x"}}}, "give one of jobs, synthetic, trace"),
        ({"workload": {"jobs": [{"size": 0}]}}, "Expected `float` > 0.0"),
        ({"workload": {"jobs": [{"size": 1}]}, "policy": {"step": 1}}, "step: 1 is not above 1"),
    ],
)
def test_a_scenario_that_makes_no_sense_is_refused(tables: dict[str, Any], complaint: str) -> None:
    with pytest.raises(msgspec.ValidationError) as caught:
        _spec(**tables)
    assert complaint in str(caught.value)

"""Jobs in ranks on a node's cores: the share of each, and that the master's own ordering learns there."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from simulator.fluid import Job, Spec, run, serve
from simulator.fluid.ranked import LearntOrder, Present, Ranked, by_arrival, by_left, share
from simulator.fluid.spec import Workload
from simulator.fluid.workload import jobs_of


def _present(*most: float) -> list[Present]:
    return [Present(n, Job(name="", at_s=0.0, size=1.0), part, 1.0) for n, part in enumerate(most)]


def _rates(most: list[float], weights: list[float]) -> list[float]:
    order = _present(*most)
    share(order, weights)
    return [one.rate for one in order]


def _spec(policy: dict[str, Any], jobs: list[dict[str, Any]], cores: int = 2) -> Spec:
    server = {"rate_per_s": float(cores), "cores": cores}
    return msgspec.convert({"workload": {"jobs": jobs}, "server": server, "policy": policy | {"ranked": True}}, Spec)


def _ends(policy: dict[str, Any], jobs: list[dict[str, Any]], cores: int = 2) -> list[float]:
    return [job.ended_at_s for job in run(_spec(policy, jobs, cores), 0).jobs]


def test_neighbours_are_a_factor_apart_and_those_behind_share_the_last_weight() -> None:
    assert _rates([1.0] * 3, [256.0, 16.0, 1.0]) == pytest.approx([256 / 273, 16 / 273, 1 / 273])
    discipline = Ranked([Job(name="", at_s=0.0, size=1.0)] * 6, by_arrival, ratio=16.0, places=3)
    for number in range(6):
        discipline.arrive(number, 1.0, 1.0, 0.0)
    rates = [one.rate for one in discipline._present.values()]
    assert rates == pytest.approx([256 / 276, 16 / 276, *[1 / 276] * 4])


def test_the_remainder_of_the_first_goes_to_the_next() -> None:
    assert _rates([0.5, 1.0, 1.0], [256.0, 16.0, 1.0]) == pytest.approx([0.5, 0.5 * 16 / 17, 0.5 / 17])
    assert _rates([0.5, 0.25, 1.0], [256.0, 16.0, 1.0]) == pytest.approx([0.5, 0.25, 0.25])
    assert _rates([0.25, 0.25], [1.0, 1.0]) == [0.25, 0.25]


@given(st.lists(st.tuples(st.sampled_from([0.25, 0.5, 1.0]), st.sampled_from([1.0, 16.0, 256.0])), min_size=1))
def test_the_server_is_shared_out_as_far_as_processes_can_use_it(jobs: list[tuple[float, float]]) -> None:
    most, weights = [part for part, _ in jobs], [weight for _, weight in jobs]
    rates = _rates(most, weights)
    assert sum(rates) == pytest.approx(min(1.0, sum(most)), abs=1e-6)
    assert all(0 < rate <= limit for rate, limit in zip(rates, most, strict=True))
    for mine, limit, weight in zip(rates, most, weights, strict=True):
        if mine < limit * (1 - 1e-9):
            assert all(rate / other <= mine / weight * (1 + 1e-6) for rate, other in zip(rates, weights, strict=True))


def test_a_job_takes_as_long_as_its_processes_need() -> None:
    report = run(_spec({"name": "fifo"}, [{"size": 4, "processes": 1}]), 0)
    assert [job.ended_at_s for job in report.jobs] == [4.0]
    assert report.jobs[0].alone_s == 4.0
    assert run(_spec({"name": "fifo"}, [{"size": 4}]), 0).jobs[0].alone_s == 2.0
    assert _ends({"name": "srpt"}, [{"size": 4, "processes": 1}, {"size": 6, "processes": 1}]) == [4.0, 6.0]


def test_fair_is_processor_sharing() -> None:
    assert _ends({"name": "fair"}, [{"size": 2}, {"size": 2}]) == pytest.approx([2.0, 2.0])


def test_with_a_steep_ratio_the_order_is_strict() -> None:
    steep = {"ratio": 1e12, "places": 2}
    jobs = [{"size": 4}, {"at_s": 1, "size": 4}, {"at_s": 2, "size": 1}]
    assert _ends({"name": "srpt"} | steep, jobs, cores=1) == pytest.approx([5.0, 9.0, 3.0])
    assert _ends({"name": "fifo"} | steep, jobs, cores=1) == pytest.approx([4.0, 8.0, 9.0])


@given(
    st.lists(st.tuples(st.integers(0, 20), st.integers(1, 20), st.integers(0, 2)), min_size=1, max_size=10),
    st.sampled_from(["fifo", "fair", "las", "las_mq", "srpt", "gittins"]),
)
def test_every_job_ends_and_receives_its_size(jobs: list[tuple[int, int, int]], name: str) -> None:
    given_jobs = [{"at_s": at, "size": size, "processes": most} for at, size, most in jobs]
    ends = _ends({"name": name}, given_jobs)
    assert all(end >= at + size / 2 - 1e-6 for end, (at, size, _) in zip(ends, jobs, strict=True))
    assert max(ends) <= max(at for at, _, _ in jobs) + sum(size for _, size, _ in jobs) + 1e-6


def test_gittins_learns_from_jobs_that_end() -> None:
    """Two applications of ten runs each; then one of each comes, the large one first."""
    before = [
        {"at_s": 1000 * n, "size": size, "application": name, "user": "eve"}
        for n in range(10)
        for name, size in (("large", 100), ("small", 5))
    ]
    last = [
        {"at_s": 20_000, "size": 100, "application": "large", "user": "eve"},
        {"at_s": 20_000, "size": 5, "application": "small", "user": "eve"},
    ]
    large, small = _ends({"name": "gittins"}, before + last)[-2:]
    assert small - 20_000 < 3 < large - 20_000
    large, small = _ends({"name": "gittins"}, [job | {"application": ""} for job in last])
    assert small - 20_000 > 3, "nothing is known of them, so they share"


def test_gittins_is_the_masters_own() -> None:
    learning = LearntOrder()
    jobs = [Job(name=str(n), at_s=0.0, size=size, application=str(size)) for n, size in enumerate([9.0, 1.0])]
    for job in jobs * 3:
        learning.ended(job)
    order = learning.order([Present(n, job, 1.0, job.size) for n, job in enumerate(jobs)])
    assert [one.number for one in order] == [1, 0]


def test_as_if_sizes_were_known_where_they_recur_exactly() -> None:
    jobs = [Job(name="", at_s=50.0 * n, size=size, application=str(size)) for n in range(5) for size in (4.0, 64.0)]
    jobs += [Job(name="", at_s=1000.0, size=size, application=str(size)) for size in (64.0, 4.0)]
    learning = LearntOrder()
    learnt = serve(jobs, Ranked(jobs, learning.order, ended=learning.ended))
    assert learnt[-2:] == pytest.approx(serve(jobs, Ranked(jobs, by_left))[-2:])


def test_gittins_is_refused_where_jobs_are_not_ranked() -> None:
    with pytest.raises(msgspec.ValidationError, match="ranked: gittins is simulated in ranks only; set it to true"):
        msgspec.convert({"workload": {"jobs": [{"size": 1}]}, "policy": {"name": "gittins"}}, Spec)


def _workload(**synthetic: Any) -> list[Job]:
    return jobs_of(msgspec.convert({"synthetic": {"jobs": 2000} | synthetic}, Workload), seed=1)[0]


def test_applications_have_users_and_sizes_of_their_own() -> None:
    sizes = {"distribution": "constant", "mean": 10.0}
    jobs = _workload(sizes=sizes, applications={"count": 5, "users": 2, "spread": 1.0})
    kinds = {(job.user, job.application, job.size) for job in jobs}
    assert len(kinds) == 5
    assert {user for user, _, _ in kinds} <= {"user-0", "user-1"}
    often = [sum(job.application == f"app-{n}" for job in jobs) for n in range(5)]
    assert often == sorted(often, reverse=True)
    assert {job.size for job in _workload(sizes=sizes, applications={"count": 5})} == {10.0}
    once = _workload(sizes=sizes, applications={"count": 5, "spread": 1.0, "once": 1.0})
    assert len({job.application for job in once}) == 2000
    assert {job.size for job in once} == {10.0}


_SMALL = {"name": "small", "smallest": 1.0, "largest": 4.0, "share": 3.0, "users": ["ann", "bob"], "processes": [1, 2]}
_LARGE = {"name": "large", "smallest": 100.0, "largest": 100.0}


def test_each_job_is_of_a_kind_and_has_its_sizes_users_and_processes() -> None:
    jobs = _workload(kinds=[_SMALL, _LARGE])
    small = [job for job in jobs if job.application == "small"]
    assert len(small) == pytest.approx(1500, rel=0.1)
    assert all(1.0 <= job.size <= 4.0 for job in small)
    assert sum(job.size < 2.0 for job in small) == pytest.approx(len(small) / 2, rel=0.1), "its logarithm is uniform"
    assert {(job.user, job.processes) for job in small} == {(user, n) for user in ("ann", "bob") for n in (1, 2)}
    large = [job for job in jobs if job.application == "large"]
    assert {(job.size, job.user, job.processes) for job in large} == {(100.0, "", 0)}
    assert len(small) + len(large) == 2000
    assert jobs == _workload(kinds=[_SMALL, _LARGE])


@pytest.mark.parametrize(
    ("synthetic", "message"),
    [
        ({"kinds": [_SMALL], "processes": [2]}, "kinds: leave out sizes, applications and processes"),
        ({"kinds": [_SMALL, _SMALL]}, "kinds: give each kind a name of its own"),
        ({"kinds": [_SMALL | {"largest": 0.5}]}, "largest: 0.5 is below smallest, 1"),
        ({"kinds": [_SMALL | {"users": []}]}, "users"),
    ],
)
def test_kinds_that_contradict_themselves_are_refused(synthetic: dict[str, Any], message: str) -> None:
    with pytest.raises(msgspec.ValidationError, match=message):
        _workload(**synthetic)


def test_labels_leave_times_and_sizes_as_they_were() -> None:
    plain, labelled = _workload(), _workload(applications={"count": 3}, processes=[1, 2])
    assert [(job.at_s, job.size) for job in plain] == [(job.at_s, job.size) for job in labelled]
    assert {job.processes for job in labelled} == {1, 2}


def test_a_part_of_a_swim_trace_is_drawn(tmp_path: Path) -> None:
    trace = tmp_path / "day.tsv"
    trace.write_text("".join(f"job{n}\t{n}\t1\t1\t0\t0\n" for n in range(50)))

    def drawn(seed: int, jobs: int) -> list[str]:
        workload = msgspec.convert({"trace": {"file": str(trace), "jobs": jobs}}, Workload)
        return [job.name for job in jobs_of(workload, seed)[0]]

    first = int(drawn(1, 10)[0].removeprefix("job"))
    assert drawn(1, 10) == [f"job{first + n}" for n in range(10)]
    assert len({drawn(seed, 10)[0] for seed in range(5)}) > 1
    assert len(drawn(1, 80)) == 50


def test_runs_of_a_lumos_trace_are_drawn(tmp_path: Path) -> None:
    trace = tmp_path / "series.csv"
    columns = "interval_s,workload,run,t_s,cpu_pct_of_8,mem_used_kb_excl_cache,disk_rd_kb_s,disk_wr_kb_s,net_rx_kb_s"
    rows = [("spark_sort_tiny", 25), ("spark_sort_tiny", 25), ("spark_sort_huge", 100), ("spark_idle_tiny", 0)]
    lines = [f"2,{name},1,{2 * n},{cpu},0,0,0,0,0" for n, (name, cpu) in enumerate(rows)]
    trace.write_text("\n".join([columns + ",net_tx_kb_s", *lines]))

    def drawn(**more: Any) -> tuple[list[Job], int]:
        table = {"file": str(trace), "format": "lumos", "jobs": 50} | more
        return jobs_of(msgspec.convert({"trace": table}, Workload), seed=1)

    jobs, left_out = drawn()
    assert left_out == 1
    assert {(job.application, job.size) for job in jobs} == {("spark_sort_tiny", 8.0), ("spark_sort_huge", 16.0)}
    assert {job.application for job in drawn(application="program")[0]} == {"spark_sort"}
    with pytest.raises(msgspec.ValidationError, match="jobs: say how many runs are to be drawn from a lumos trace"):
        drawn(jobs=0)


def test_lognormal_sizes_have_the_mean_that_was_asked_for() -> None:
    jobs = _workload(jobs=20_000, sizes={"distribution": "lognormal", "mean": 7, "shape": 0.5})
    assert sum(job.size for job in jobs) / len(jobs) == pytest.approx(7.0, rel=0.03)


def test_pareto_without_a_mean_is_refused() -> None:
    with pytest.raises(msgspec.ValidationError, match="shape: 1 of pareto is not above 1: there is no mean"):
        _workload(sizes={"distribution": "pareto", "shape": 1})

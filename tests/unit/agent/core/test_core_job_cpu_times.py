"""The processor time of jobs that have a container in turn, or beside each other, also after a restart of the agent."""

from __future__ import annotations

import pytest

from agent.core import events as e
from tests.unit.agent.core.ranks_bed import Bed, end_job


def test_what_ended_counts_for_its_job(bed: Bed) -> None:
    one, two = bed.launch(), bed.launch()
    job = bed.register(bed.connect(one))
    bed.register(bed.connect(two), job=job)
    bed.used_s |= {one: 7.0, two: 1.0}
    bed.sample()
    bed.end(one)
    bed.sample()
    assert bed.node.cpu_times.cpu_s[job] == 8.0


def test_the_next_job_in_a_container_does_not_count_what_the_last_one_used(bed: Bed) -> None:
    container = bed.launch()
    for _ in range(2):
        session = bed.connect(container)
        job = bed.register(session)
        bed.sample()
        bed.sample(**{container.replace("-", "_"): 7.0})
        assert bed.node.cpu_times.cpu_s[job] == pytest.approx(7.0)
        end_job(bed, session, job)


def test_all_that_jobs_in_turn_in_a_container_use_is_counted_once(bed: Bed) -> None:
    """Each ends a moment after a sample: what it used since then counts for the next one."""
    container, told_s = bed.launch(), list[float]()
    session = bed.connect(container)
    for _ in range(3):
        job = bed.register(session)
        bed.sample(**{container.replace("-", "_"): 7.0})
        bed.used_s[container] += 1.0
        told_s.append(bed.node.cpu_times.cpu_s[job])
        end_job(bed, session, job)
    assert told_s == [7.0, 8.0, 8.0]


def test_a_short_job_beside_a_long_one_in_a_container_does_not_take_its_time(bed: Bed) -> None:
    container = bed.launch()
    of_long, of_short = bed.connect(container), bed.connect(container)
    long = bed.register(of_long)
    bed.sample(**{container.replace("-", "_"): 1000.0})
    short = bed.register(of_short)
    bed.sample(**{container.replace("-", "_"): 1.0})
    assert bed.node.cpu_times.cpu_s[short] == pytest.approx(1.0)
    end_job(bed, of_short, short)
    bed.sample(**{container.replace("-", "_"): 2.0})
    assert bed.node.cpu_times.cpu_s[long] == pytest.approx(1002.0)


@pytest.mark.parametrize("then", ["nothing", "the next job", "no job"])
def test_what_ended_jobs_used_in_a_container_is_left_out_after_a_restart_of_the_agent(then: str) -> None:
    bed = Bed()
    container = bed.launch()
    name = container.replace("-", "_")
    session = bed.connect(container)
    job = bed.register(session)
    bed.sample(**{name: 7.0})
    if then != "nothing":
        bed.used_s[container] += 1.0  # since the sample
        end_job(bed, session, job)
    if then == "no job":
        bed.sample()
        bed.sample(**{name: 0.25})
    if then == "the next job":
        job = bed.register(session)
        bed.sample(**{name: 2.0})
    bed.restart(container)
    bed.sample(**{name: 0.5})
    expected_s = {"nothing": 7.5, "the next job": 3.5, "no job": 0.75}[then]
    counted_for = container if then == "no job" else job
    assert bed.node.cpu_times.cpu_s[counted_for] == pytest.approx(expected_s), "also before its job is joined again"
    if then != "no job":
        bed.register(bed.connect(container), job=job)
        bed.sample()
        assert bed.node.cpu_times.cpu_s[job] == pytest.approx(expected_s)
        bed.end(container)
        assert bed.node.cpu_times.cpu_s[job] == pytest.approx(expected_s)


def test_after_a_restart_a_long_job_has_used_all_but_what_a_short_one_beside_it_used(bed: Bed) -> None:
    container = bed.launch()
    name = container.replace("-", "_")
    long = bed.register(bed.connect(container))
    bed.sample(**{name: 1000.0})
    short = bed.register(of_short := bed.connect(container))
    bed.sample(**{name: 1.0})
    end_job(bed, of_short, short)
    bed.sample(**{name: 2.0})
    bed.restart(container)
    bed.register(bed.connect(container), job=long)
    bed.sample()
    assert bed.node.cpu_times.cpu_s[long] == pytest.approx(1002.0)


@pytest.mark.parametrize("first_to_end", ["long", "short"])
def test_each_of_two_jobs_in_a_container_leaves_out_what_it_used(bed: Bed, first_to_end: str) -> None:
    container = bed.launch()
    name = container.replace("-", "_")
    long = bed.register(of_long := bed.connect(container))
    bed.sample(**{name: 1000.0})
    short = bed.register(of_short := bed.connect(container))
    bed.sample(**{name: 1.0})
    bed.register(again := bed.connect(container), job=long)
    bed.sample(**{name: 2.0})
    if first_to_end == "long":
        end_job(bed, of_long, long)
        bed.send(e.SessionClosed(again))
        bed.sample(**{name: 4.0})
        bed.restart(container)
        bed.sample()
        assert bed.node.cpu_times.cpu_s[short] == pytest.approx(5.0)
        bed.register(of_short := bed.connect(container), job=short)
    else:
        end_job(bed, of_short, short)
        bed.sample(**{name: 4.0})
        bed.restart(container)
        bed.sample()
        assert bed.node.cpu_times.cpu_s[long] == pytest.approx(1006.0)
        bed.register(of_long := bed.connect(container), job=long)
    end_job(bed, *((of_short, short) if first_to_end == "long" else (of_long, long)))
    bed.sample()
    bed.restart(container)
    following = bed.register(bed.connect(container))
    bed.sample(**{name: 1.0})
    assert bed.node.cpu_times.cpu_s[following] == pytest.approx(1.0)


@pytest.mark.parametrize("then", ["both go on", "long has ended meanwhile", "short has ended meanwhile"])
def test_after_a_restart_each_of_two_jobs_in_a_container_has_what_it_used(bed: Bed, then: str) -> None:
    container = bed.launch()
    name = container.replace("-", "_")
    long = bed.register(bed.connect(container))
    bed.sample(**{name: 1000.0})
    short = bed.register(bed.connect(container))
    bed.sample(**{name: 1.0})
    over = {"long has ended meanwhile": long, "short has ended meanwhile": short}.get(then)
    if over is not None:
        del bed.journal["jobs", over]
    bed.restart(container)
    bed.sample(**{name: 2.0})
    used_s = {job: bed.node.cpu_times.cpu_s[job] for job in (long, short) if job != over}
    assert used_s == {job: pytest.approx(s) for job, s in ((long, 1000.0), (short, 3.0)) if job != over}
    bed.restart(container)
    following = bed.register(bed.connect(container))
    bed.sample()
    bed.sample(**{name: 1.0})
    assert bed.node.cpu_times.cpu_s[following] == pytest.approx(1.0)
    for job, before_s in used_s.items():
        assert bed.node.cpu_times.cpu_s[job] == pytest.approx(before_s)


@pytest.mark.parametrize("read", [True, False], ids=["its CPU time is read at the start", "it is not"])
def test_after_two_restarts_without_a_sample_each_of_two_jobs_in_a_container_has_what_it_used(
    bed: Bed, *, read: bool
) -> None:
    container = bed.launch()
    name = container.replace("-", "_")
    short = bed.register(bed.connect(container))
    bed.sample(**{name: 1.0})
    long = bed.register(bed.connect(container))
    bed.sample(**{name: 1000.0})
    for _ in range(2):
        bed.restart(container, cpu_s=dict(bed.used_s) if read else {})
        bed.register(bed.connect(container), job=long)
        bed.register(bed.connect(container), job=short)
    bed.sample()
    expected_s = {short: pytest.approx(1.0), long: pytest.approx(1000.0)}
    assert {job: bed.node.cpu_times.cpu_s[job] for job in (short, long)} == expected_s
    bed.restart(container)
    bed.sample(**{name: 2.0})
    assert bed.node.cpu_times.cpu_s[short] == pytest.approx(3.0), "it has the turn since the sample"


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("ends", ["while no agent runs", "as an orphan", "beside the next one"])
def test_a_job_that_is_not_joined_again_leaves_nothing_to_the_next_one(bed: Bed, ends: str, sampled: bool) -> None:
    container = bed.launch()
    name = container.replace("-", "_")
    job = bed.register(bed.connect(container))
    bed.sample(**{name: 1000.0})
    if ends == "while no agent runs":
        del bed.journal["jobs", job]
    bed.restart(container)
    if sampled:
        bed.sample()
    if ends == "as an orphan":
        bed.sample(bed.settings.rejoin_s + 1.0)
        assert job not in bed.node.jobs
    following = bed.register(bed.connect(container))
    bed.sample()
    if ends == "beside the next one":
        assert bed.node.cpu_times.cpu_s[job] == pytest.approx(1000.0)
        bed.sample(bed.settings.rejoin_s + 1.0)
        assert job not in bed.node.jobs
    bed.sample(**{name: 1.0})
    assert bed.node.cpu_times.cpu_s[following] == pytest.approx(1.0)
    bed.restart(container)
    bed.sample()
    assert bed.node.cpu_times.cpu_s[following] == pytest.approx(1.0)


def test_of_several_jobs_of_a_connection_the_first_has_the_container(bed: Bed) -> None:
    container = bed.launch()
    session = bed.connect(container)
    first = bed.register(session)
    later = [bed.register(session) for _ in range(12)]
    assert min([first, *later]) != first, "by text, n-x-10 comes before n-x-2"
    bed.sample(**{container.replace("-", "_"): 3.0})
    assert bed.node.cpu_times.cpu_s[first] == pytest.approx(3.0)

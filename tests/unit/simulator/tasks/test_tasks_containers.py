"""Commands in the simulator: UBIS on the agents' own preemption and the master's own slack (§V)."""

from __future__ import annotations

from typing import Any

import pytest

from simulator.report import Report
from simulator.scenario.loader import load
from simulator.scenario.shipped import shipped
from simulator.tasks import run

T_S = 60.0


def simulated(name: str, **settings: Any) -> Report:
    (point,) = load(shipped(name), {key.replace("__", "."): value for key, value in settings.items()}).points()
    return run(point.spec, point.seed)


def test_a_job_of_three_tasks_ends_half_a_t_earlier_with_slack() -> None:
    """UBIS Fig. 3: 4t without opportunistic containers, 3.5t with them."""
    without = simulated("ubis/fig3", jobs__2__stages__0__opportunistic=False)
    with_slack = simulated("ubis/fig3")
    assert without.makespan_s / T_S == pytest.approx(4.0, abs=0.1)
    assert with_slack.makespan_s / T_S == pytest.approx(3.5, abs=0.1)
    assert with_slack.preemptions == 0
    assert without.opportunistic_share == 0


def sleep(memory_bytes: float, **settings: Any) -> Report:
    key = "jobs__0__stages__0__command__phases__1__memory_bytes"
    return simulated("ubis/sensitivity", jobs__0__stages__0__tasks=100, **{key: memory_bytes}, **settings)


def test_a_container_that_uses_little_is_never_preempted_and_one_that_grows_is() -> None:
    assert sleep(0.2e9).preemptions == 0
    assert sleep(1.98e9, agent__t_alloc=0.9).preemptions > 0


def test_every_preempted_container_is_started_again_until_its_task_has_ended() -> None:
    report = sleep(1.98e9, agent__t_alloc=0.9)
    assert report.measures["containers"] == 100 + report.preemptions
    assert report.measures["tasks"] == 100


def test_backing_off_after_a_preemption_loses_less_work_and_takes_no_longer() -> None:
    at_once, backing_off = (
        simulated("ubis/sensitivity", agent__t_alloc=0.9, policy__preemption_backoff_s=seconds) for seconds in (0, 10)
    )
    assert backing_off.preemptions < at_once.preemptions / 2
    assert backing_off.makespan_s <= at_once.makespan_s


def test_more_slack_is_given_out_with_a_higher_t_alloc_and_less_is_taken_back_with_a_higher_t_preempt() -> None:
    shares = [sleep(1.98e9, agent__t_alloc=t_alloc).opportunistic_share for t_alloc in (0.5, 0.9)]
    assert None not in shares
    assert shares == sorted(shares, key=float)
    taken = [sleep(1.5e9, agent__preemption__thresholds__memory=threshold).preemptions for threshold in (0.75, 0.97)]
    assert taken[0] > taken[1]


def test_a_frozen_container_goes_on_when_the_cpu_has_room_again() -> None:
    """Preemption of CPU preserves work: a regular job comes, the opportunistic one waits frozen and then ends."""
    report = simulated("ubis/contention")
    assert report.measures["paused"] >= 1
    assert report.preemptions == 0
    by_name = {job.name: job for job in report.jobs}
    assert by_name["holds"].response_s == pytest.approx(120, abs=1), "it has all that it was promised"
    assert by_name["slack"].response_s == pytest.approx(30 + 30, abs=15), "its work was not lost"

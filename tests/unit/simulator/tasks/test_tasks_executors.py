"""The baseline of Ursa §5.1.1: long-lived executors, FIFO, dynamic allocation."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from simulator.report import Report
from simulator.tasks import Spec, run

NODE = {"cores": 8, "memory_bytes": 64e9, "cpu_bytes_per_s": 1e6, "disk_bytes_per_s": 1e6, "link_bytes_per_s": 1e6}


def simulated(*jobs: dict[str, Any], nodes: int = 1, **executors: Any) -> Report:
    document = {"cluster": {"nodes": [NODE | {"count": nodes}]}, "executors": executors, "jobs": list(jobs)}
    return run(msgspec.convert(document, Spec), 0)


def stage(tasks: int, *monotasks: tuple[str, float]) -> dict[str, Any]:
    return {"tasks": tasks, "monotasks": [{"kind": kind, "seconds": seconds} for kind, seconds in monotasks]}


def test_a_job_gets_its_first_executor_with_a_heartbeat_and_twice_as_many_with_each_that_follows() -> None:
    """Eight tasks of 10 s: one executor (4 cores) after 1 s; the second, asked for then, after 2 s."""
    report = simulated({"name": "j", "stages": [stage(8, ("cpu", 10))]})
    assert report.makespan_s == pytest.approx(12.0)
    assert report.measures["executors"] == 2


def test_a_core_that_waits_for_the_network_is_allocated_and_not_used() -> None:
    """Four tasks read 1 s each over one link, together 4 s, and then compute 4 s: half of the held cores is used."""
    report = simulated({"name": "j", "stages": [stage(4, ("network", 1), ("cpu", 4))]})
    assert report.makespan_s == pytest.approx(1 + 4 + 4)
    cpu = report.resources["cpu"]
    assert cpu.utilization_efficiency == pytest.approx(16 / (4 * 8))
    assert cpu.scheduling_efficiency == pytest.approx(4 * 8 / (8 * 9))
    assert report.resources["network"].utilization == pytest.approx(4 / 9)


def test_an_idle_executor_is_given_back_after_its_timeout() -> None:
    """The second stage has one task, which keeps one of the two executors; the other goes after 2 s."""
    report = simulated({"name": "j", "stages": [stage(8, ("cpu", 10)), stage(1, ("cpu", 20))]})
    assert report.makespan_s == pytest.approx(1 + 1 + 10 + 20)
    held = (report.resources["cpu"].scheduling_efficiency or 0) * 8 * report.makespan_s
    # The first is idle from 11 s on, before the second stage is ready, and takes its task; the second is idle at 12 s.
    assert held == pytest.approx(4 * (31 + 12))


def test_the_earlier_job_keeps_its_slots_and_the_later_one_waits() -> None:
    first, second = ({"name": name, "stages": [stage(8, ("cpu", 10))]} for name in ("first", "second"))
    report = simulated(first, second | {"submitted_at_s": 1.5})
    assert [job.ended_at_s for job in report.jobs] == pytest.approx([12.0, 23.5], abs=1.0)


def test_commands_are_refused() -> None:
    command = {"command": {"phases": [{"seconds": 1}]}}
    with pytest.raises(ValueError, match="run monotasks, not commands"):
        simulated({"name": "j", "stages": [command]})


def test_the_same_jobs_use_more_of_their_allocation_without_executors() -> None:
    """Ursa §5.1.1, small: cores that wait for data are given to others; the whole is sooner done."""
    jobs = [{"name": "j", "count": 6, "every_s": 1, "stages": [stage(16, ("network", 0.3), ("cpu", 3))] * 2}]
    document = {"cluster": {"nodes": [NODE | {"count": 2}]}, "policy": {"ept_s": 10}, "jobs": jobs}
    ours = run(msgspec.convert(document, Spec), 0)
    theirs = run(msgspec.convert(document | {"executors": {}}, Spec), 0)
    assert ours.makespan_s < theirs.makespan_s
    mine, other = ours.resources["cpu"].utilization_efficiency, theirs.resources["cpu"].utilization_efficiency
    assert mine == pytest.approx(1.0)
    assert other is not None
    assert other < 0.9


def test_oversubscribed_cores_are_shared() -> None:
    """Sixteen tasks of 10 s on eight cores: executors after 1, 2 and 3 s, and from then on half a core for each."""
    job = {"name": "j", "stages": [stage(16, ("cpu", 10))]}
    twice = simulated(job, oversubscription=2)
    assert twice.measures["executors"] == 4
    assert twice.resources["cpu"].utilization <= 1
    assert twice.makespan_s < simulated(job).makespan_s

"""Ranks by nice values, on a host without a cpu controller."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.test_ranked_processes import WEIGHED
from tests.kernel.ranked_bed import BURN, Process, RankedBed

LIMIT_S = 60.0
#: The script of a ranked job that uses nothing.
STILL = """
import sys
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def one_core(tmp_path: Path) -> Iterator[RankedBed]:
    if os.geteuid() != 0:
        pytest.skip("only root lowers nice values")
    if WEIGHED:
        pytest.skip("elsewhere: cgroups are weighed here: tests/kernel/test_rank_traps.py")
    with RankedBed(tmp_path, cores=1) as bed:
        yield bed


def nice_of(process: Process) -> int:
    return os.getpriority(os.PRIO_PROCESS, process.container.pid)


def used_s(bed: RankedBed, processes: list[Process]) -> list[float]:
    """CPU seconds of each, in a time in which one of them has used some on the processor that they share."""
    before = [each.cpu_s() for each in processes]
    used = [0.0] * len(processes)
    deadline = time.monotonic() + LIMIT_S
    while sum(used) < 1.5:
        assert time.monotonic() < deadline, used
        time.sleep(0.2)  # no event marks the end of this time
        used = [each.cpu_s() - had for each, had in zip(processes, before, strict=True)]
    return used


def test_opportunistic_work_is_below_every_nice_value(one_core: RankedBed) -> None:
    """This holds for children that it had started before, too."""
    slack = one_core.begin("import os\nos.fork()\n" + BURN, opportunistic=True)
    # Only the last burns: beside the first it would get one or two slices of the kernel, and so would slack.
    jobs = [one_core.begin_job(script, priority) for script, priority in ((STILL, 3.0), (STILL, 2.0), (BURN, 1.0))]
    assert [each.line() for each in (slack, *jobs)] == ["up"] * 4
    one_core.until(lambda: os.sched_getscheduler(slack.container.pid) == os.SCHED_IDLE, LIMIT_S)
    one_core.until(lambda: [nice_of(each) for each in jobs] == [-5, 7, 15], LIMIT_S)
    last_s, idle_s = used_s(one_core, [jobs[-1], slack])
    assert idle_s < last_s, (last_s, idle_s)
    assert all(os.sched_getscheduler(each.container.pid) == os.SCHED_OTHER for each in jobs)


def test_a_promise_is_not_outranked_by_a_nice_value(one_core: RankedBed) -> None:
    promised = one_core.begin(BURN, cpu_cores=0.5)
    jobs = [one_core.begin_job(BURN, priority) for priority in (5.0, 4.0, 3.0, 2.0, 1.0)]
    assert [each.line() for each in (promised, *jobs)] == ["up"] * 6
    one_core.until(lambda: nice_of(jobs[0]) == nice_of(promised) < nice_of(jobs[1]), LIMIT_S)
    own_s, first_s, *_ = used_s(one_core, [promised, *jobs])
    assert own_s > 0.8 * first_s, (own_s, first_s)

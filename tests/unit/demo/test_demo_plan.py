"""Sizes: that the memory comes out so that the archive fits at first and not when the table has come."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from agent.config import AgentConfig
from demo.dispatch import machine_command
from demo.plan import PLANNED_JOBS, USERS, Plan
from demo.show import Options, ShowFailed, make_plan
from master.config import MasterConfig
from penstock.config.settings import load

T_PREEMPT = 0.9
T_ALLOC = 0.9


def plan(megabytes: int, cores: float) -> Plan:
    return Plan.of(Path("/d"), Path("/p"), megabytes * 1_000_000, cores)


SIZES = [(10, 2.0), (120, 2.0), (120, 1.0), (500, 64.0), (1, 4.0)]


@pytest.mark.parametrize(("megabytes", "cores"), SIZES)
def test_the_archive_fits_at_first_and_not_when_the_table_has_come(megabytes: int, cores: float) -> None:
    made = plan(megabytes, cores)
    assert made.archive_bytes <= T_ALLOC * made.capacity_bytes
    # Nothing is over-allocated until the table comes, however much of their promises the jobs use.
    assert made.jobs_bytes + made.archive_bytes <= made.capacity_bytes
    assert made.jobs_bytes + made.table_bytes <= made.capacity_bytes
    assert made.jobs_bytes + made.table_bytes + made.archive_bytes > made.capacity_bytes
    # Already when the jobs use a quarter of their promises.
    assert made.jobs_bytes / 4 + made.table_bytes + made.archive_bytes > T_PREEMPT * made.capacity_bytes
    assert made.share * len(USERS) == pytest.approx(min(cores, 8.0))
    assert {planned.operation for planned in PLANNED_JOBS} == set(USERS), "each job is one user's"
    assert made.slots >= made.share
    assert {job.slots for job in made.jobs("plain")} == {2 * made.workers}, (
        "one computes while the other reads or writes"
    )
    assert {job.cores for job in made.jobs("plain")} == {()}
    assert len({job.name for job in made.jobs("plain")}) == len(PLANNED_JOBS), "a job's name is its directory's"


def test_shares_that_cannot_be_enforced_become_cores_that_overlap(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {3, 5})
    jobs = plan(10, 2.0).jobs("static")
    of_user = {planned.operation: job.cores for planned, job in zip(PLANNED_JOBS, jobs, strict=True)}
    assert of_user == {"inverted-index": (3,), "sort": (3, 5), "word-count": (5,)}
    assert {job.cores for job in plan(10, 2.0).jobs("penstock")} == {()}


def test_less_text_where_memory_is_short_unless_asked_for(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    class Little:
        available = 2 * 1024**3

    monkeypatch.setattr("psutil.virtual_memory", lambda: Little)
    made = make_plan(Options(None, None, tmp_path), tmp_path)
    assert 10_000_000 <= made.text_bytes < 120_000_000
    with pytest.raises(ShowFailed, match="--megabytes"):
        make_plan(Options(None, 500, tmp_path), tmp_path)


def test_the_daemons_take_the_settings_of_the_demo() -> None:
    made, command = plan(10, 2.0), machine_command("", user_mode=True)
    socket = "/run/master.sock"  # the value that `penstock up` sets
    load(MasterConfig, overrides={"listen": socket, **made.master_settings}).check()
    for http in (command[command.index("--http") + 1], Options(None, None, Path()).http):
        load(AgentConfig, overrides={"master": socket, **made.agent_settings, "http": http}).check()

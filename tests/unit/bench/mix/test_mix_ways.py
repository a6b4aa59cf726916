"""What starts a job in each way, and what each is configured with."""

from __future__ import annotations

import dataclasses
import subprocess
from pathlib import Path

import pytest

from bench.mix import slurm
from bench.mix.guest import _BY_THE_KERNEL
from bench.mix.plan import USERS, Job
from bench.mix.ways import WAYS, exists, make_slices, master_settings

JOB = Job(1, USERS[0], "sort", "nightly", recurring=True, units=1.0, cpu_s=1.0, arrival_s=0.0)
COMMAND = "sort in >out; mv out result"


def test_each_way_is_started_by_somebody() -> None:
    known = {*_BY_THE_KERNEL, *slurm.OVERSUBSCRIBE, "penstock", "penstock-known"}
    assert set(WAYS) == known and all(map(exists, WAYS))


@pytest.mark.parametrize("way", sorted(_BY_THE_KERNEL))
def test_by_the_kernel_a_job_runs_as_its_user_in_a_shell(way: str) -> None:
    argv = _BY_THE_KERNEL[way](JOB, Path("/nowhere"), COMMAND)
    assert argv[-3:] == ["sh", "-euc", COMMAND]
    assert any(USERS[0] in word for word in argv)


def test_a_static_split_is_a_part_of_the_cores_for_each_user(monkeypatch: pytest.MonkeyPatch) -> None:
    set_: list[list[str]] = []
    monkeypatch.setattr(subprocess, "run", lambda argv, check: set_.append(argv))
    make_slices(2)
    quotas = [argv[-1] for argv in set_ if argv[-2].startswith("static-")]
    assert quotas == ["CPUQuota=67%"] * len(USERS) and len(USERS) == 3
    [scope] = [word for word in _BY_THE_KERNEL["static"](JOB, Path("/nowhere"), COMMAND) if "--slice" in word]
    assert scope == f"--slice={set_[1][-2]}"


def test_slurm_is_asked_for_the_cores_that_a_job_can_use() -> None:
    argv = slurm.slurm(JOB, Path("/nowhere"), COMMAND)
    assert "srun" in argv and "--cpus-per-task=1" in argv and argv[-3:] == ["sh", "-euc", COMMAND]
    both = slurm.slurm(dataclasses.replace(JOB, kind="compile"), Path("/nowhere"), COMMAND)
    assert "--cpus-per-task=2" in both


def test_a_way_of_penstock_names_its_order_or_none() -> None:
    assert master_settings("penstock") == master_settings("penstock-known") == {}
    assert master_settings("penstock-las_mq-known") == {"ordering": "las_mq"}

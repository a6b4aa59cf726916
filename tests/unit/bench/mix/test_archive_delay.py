"""The delay by an archive: jobs run by turns beside it and without it, and the report on the pairs."""

from __future__ import annotations

import dataclasses
import getpass
import os
from pathlib import Path

import pytest

from bench.mix import archive_delay
from bench.mix.jobs import Job
from bench.mix.plan import Plan
from bench.mix.singles import ARCHIVE


@pytest.fixture
def plan() -> Plan:
    """A round in which each core has a job, of a user that exists here; all jobs come at once."""
    drawn = archive_delay.plan_of("all")
    jobs = tuple(dataclasses.replace(each, user=getpass.getuser(), arrival_s=0.0) for each in drawn.jobs)
    return dataclasses.replace(drawn, jobs=jobs, archive=dataclasses.replace(drawn.archive, user=getpass.getuser()))


def test_each_pair_has_a_round_beside_the_archive_which_has_ended_a_piece(plan: Plan, tmp_path: Path) -> None:
    saw: list[str] = []

    def start(job: Job, directory: Path, command: str) -> list[str]:
        if job.kind == ARCHIVE:
            return ["sh", "-c", "touch 0.xz; exec sleep 600"]
        saw.append("beside" if (directory.parent / str(plan.archive.number) / "0.xz").exists() else "alone")
        return ["sh", "-c", "echo done > result"]

    spent_s = iter(range(0, 80, 10))
    made = list(archive_delay.pairs(plan, start, tmp_path, 2, daemons_s=lambda: float(next(spent_s))))
    rounds = [saw[at : at + len(plan.jobs)] for at in range(0, len(saw), len(plan.jobs))]
    assert rounds == [[way] * len(plan.jobs) for way in ("beside", "alone", "alone", "beside")]
    assert len(made) == 2
    assert all(time_s > 0 for pair in made for time_s in pair)
    assert [(pair.daemons_alone_s, pair.daemons_beside_s) for pair in made] == [(10.0, 10.0)] * 2


def test_a_job_that_failed_ends_the_measurement(plan: Plan, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="failed: query, query"):
        list(archive_delay.pairs(plan, lambda job, _directory, _command: _all_but_queries(job), tmp_path, 1))


def _all_but_queries(job: Job) -> list[str]:
    kinds = {ARCHIVE: "touch 0.xz; exec sleep 600", "query": "exit 1"}
    return ["sh", "-c", kinds.get(job.kind, "echo done > result")]


def test_the_delay_is_printed_with_its_standard_error() -> None:
    line = archive_delay.told("plain", "one", [archive_delay.Pair(2.0, 2.1), archive_delay.Pair(2.0, 2.3)])
    assert line == (
        "plain     one of the cores busy: mean job 2.000 s, beside the archive 2.200 s, delay +10.00 % ± 5.00 (2 pairs)"
    )
    assert archive_delay.told("penstock", "one", [archive_delay.Pair(2.0, 2.1, 0.1, 0.2)] * 2).endswith(
        "; daemons 0.100 s of CPU a round, beside it 0.200 s"
    )


def test_fewer_than_two_pairs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        archive_delay.main(["--pairs", "1"])
    assert "--pairs 1: a standard error needs 2 or more" in capsys.readouterr().err


def test_a_host_with_other_processors_than_its_rounds_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    with pytest.raises(SystemExit):
        archive_delay.main(["--host"])
    assert "--host: its rounds keep 2 processors busy, and here are 8" in capsys.readouterr().err

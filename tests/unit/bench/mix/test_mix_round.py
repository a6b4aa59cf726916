"""A round: the ends of jobs and of the archive, and the speed of the machine."""

from __future__ import annotations

import asyncio
import getpass
from pathlib import Path

import pytest

from bench.mix.jobs import Job
from bench.mix.kinds import ARCHIVED_BYTES
from bench.mix.plan import Plan
from bench.mix.round import run
from demo import speed

#: By kind, the command of a job in its directory, where its result is a file.
RUNS = {"sort": "echo done > result", "compile": "echo half > result; exit 3", "copy": "true"}
ARCHIVE = "touch 1.xz 2.xz; echo ready > ready; exec sleep 600"


def job(number: int, kind: str) -> Job:
    return Job(number, getpass.getuser(), kind, kind, False, 1.0, 1.0, 1.0, 0.0)


def start(job: Job, directory: Path, command: str) -> list[str]:
    beside = directory.parent / "3" / "ready"
    return ["sh", "-c", f"while [ -d {beside.parent} ] && ! [ -e {beside} ]; do :; done; {RUNS[job.kind]}"]


def start_with_archive(job: Job, directory: Path, command: str) -> list[str]:
    return ["sh", "-c", ARCHIVE] if job.kind == "archive" else start(job, directory, command)


@pytest.mark.parametrize("with_archive", [False, True])
def test_jobs_are_done_where_they_end_well_with_a_result(tmp_path: Path, with_archive: bool) -> None:
    jobs = tuple(job(number, kind) for number, kind in enumerate(RUNS))
    plan = Plan(1, 1.0, 1.0, (), jobs, job(3, "archive"))
    made = asyncio.run(run(plan, start_with_archive, tmp_path, with_archive=with_archive))
    assert [(each.job.kind, each.succeeded, each.exit_status, each.failures) for each in made.done] == [
        ("sort", True, 0, 0),
        ("compile", False, 3, 3),
        ("copy", False, 0, 3),
    ]
    assert made.archived_bytes == (2 * ARCHIVED_BYTES if with_archive else 0)
    assert made.look_s > 0
    assert list(tmp_path.iterdir()) == [], "nothing stays"


def test_a_job_that_failed_is_started_again_and_the_hog_is_not(tmp_path: Path) -> None:
    tries = tmp_path / "tries"

    def start_again(job: Job, directory: Path, command: str) -> list[str]:
        counted = f"echo {job.kind} >>{tries}; [ $(grep -c {job.kind} {tries}) -gt 2 ] && echo done >result"
        return ["sh", "-c", counted]

    (tmp_path / "round").mkdir()
    plan = Plan(1, 1.0, 1.0, (), (job(0, "sort"), job(1, "hog")), job(2, "archive"))
    made = asyncio.run(run(plan, start_again, tmp_path / "round"))
    assert [(each.job.kind, each.succeeded, each.failures) for each in made.done] == [
        ("sort", True, 2),
        ("hog", False, 0),
    ]
    assert tries.read_text().split().count("sort") == 3


def test_the_speed_is_looked_at_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(speed, "_EVERY_S", 0.0)

    async def see_some() -> list[float]:
        async with speed.looks() as taken_s:
            for _ in range(8):
                await asyncio.sleep(0)
        return list(taken_s)

    seen_s = asyncio.run(see_some())
    assert len(seen_s) > 2
    assert min(seen_s) > 0

"""One round in the machine: start each job at its arrival, and note when it ended and whether its result is there."""

from __future__ import annotations

import asyncio
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from bench.mix.kinds import command
from bench.mix.layer import INPUT
from bench.mix.plan import Job, Plan
from bench.mix.ways import Start


class Done(NamedTuple):
    """A job of a round; times in seconds from the round's beginning."""

    job: Job
    ended_s: float
    exit_status: int
    has_result: bool

    @property
    def took_s(self) -> float:
        """Return the time from the job's arrival to its end."""
        return self.ended_s - self.job.arrival_s


async def run(plan: Plan, start: Start, directory: Path) -> list[Done]:
    """Run all jobs of the plan; return them in the order of their arrival."""
    began_s = time.monotonic()

    async def one(job: Job) -> Done:
        await asyncio.sleep(began_s + job.arrival_s - time.monotonic())
        own = directory / str(job.number)
        own.mkdir()
        shutil.chown(own, job.user, job.user)
        argv = start(job, own, command(job.kind, job.units, INPUT, own))
        process = await asyncio.create_subprocess_exec(*argv, cwd=own)
        status = await process.wait()
        ended_s = time.monotonic() - began_s
        result = own / "result"
        has_result = result.exists() and result.stat().st_size > 0
        shutil.rmtree(own)
        return Done(job, ended_s, status, has_result)

    return await asyncio.gather(*map(one, plan.jobs))

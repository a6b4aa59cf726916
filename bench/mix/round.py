"""One round in the machine: start each job at its arrival, and note when it ended and whether its result is there."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.mix.jobs import Job
from bench.mix.kinds import ARCHIVED_BYTES, command
from bench.mix.layer import INPUT
from bench.mix.plan import Plan
from bench.mix.singles import HOG
from bench.mix.ways import Start
from demo import speed

_STOP_TIMEOUT_S = 30.0
#: How often a job that kept its promise and failed is started again, as its user would.
_MOST_RESTARTS = 3


class Done(NamedTuple):
    """A job of a round; times in seconds from the round's beginning. ``failures``: the starts before that failed."""

    job: Job
    ended_s: float
    exit_status: int
    has_result: bool
    failures: int = 0

    @property
    def took_s(self) -> float:
        """Return the time from the job's arrival to its end."""
        return self.ended_s - self.job.arrival_s

    @property
    def succeeded(self) -> bool:
        """Return whether it ended well and its result is there."""
        return self.exit_status == 0 and self.has_result


class Round(NamedTuple):
    """The outcome of a round; ``archived_bytes`` is how much of the text the archive had compressed at its end,
    ``look_s`` the median time that a fixed piece of work took during the round.
    """

    done: list[Done]
    archived_bytes: int
    look_s: float


async def run(plan: Plan, start: Start, directory: Path, *, with_archive: bool = False, inputs: Path = INPUT) -> Round:
    """Run all jobs of the plan; they are returned in the order of their arrival.

    A job that kept its promise and failed is started again at once: its time lasts until it has succeeded.
    """
    began_s = time.monotonic()

    async def one(job: Job) -> Done:
        await asyncio.sleep(began_s + job.arrival_s - time.monotonic())
        done = await once(job, 0)
        # Else a job that dies early would shorten the mean, and leave its processors to the others.
        while not done.succeeded and job.kind != HOG and done.failures < _MOST_RESTARTS:
            done = await once(job, done.failures + 1)
        return done

    async def once(job: Job, failures: int) -> Done:
        process = await _started(job, start, directory, inputs)
        status = await process.wait()
        ended_s = time.monotonic() - began_s
        result = directory / str(job.number) / "result"
        has_result = result.exists() and result.stat().st_size > 0
        shutil.rmtree(result.parent)
        return Done(job, ended_s, status, has_result, failures)

    async with contextlib.AsyncExitStack() as beside:
        looks_s = await beside.enter_async_context(speed.looks())
        pieces = None
        if with_archive:
            pieces = await beside.enter_async_context(archiving(plan.archive, start, directory, inputs))
        done = await asyncio.gather(*map(one, plan.jobs))
        archived_bytes = ARCHIVED_BYTES * len(list(pieces.glob("*.xz"))) if pieces else 0
    return Round(done, archived_bytes, median(looks_s))


@contextlib.asynccontextmanager
async def archiving(job: Job, start: Start, directory: Path, inputs: Path = INPUT) -> AsyncIterator[Path]:
    """The archive runs inside the block, which has the directory of its pieces; it is stopped at the end."""
    process = await _started(job, start, directory, inputs)
    own = directory / str(job.number)
    try:
        yield own
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            await asyncio.wait_for(process.wait(), _STOP_TIMEOUT_S)
        except TimeoutError:
            os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        shutil.rmtree(own)


async def _started(job: Job, start: Start, directory: Path, inputs: Path) -> asyncio.subprocess.Process:
    """Start a job in a directory of its own, in a process group of its own."""
    own = directory / str(job.number)
    own.mkdir()
    shutil.chown(own, job.user, job.user)
    argv = start(job, own, command(job.kind, job.units, inputs, own, job.application))
    return await asyncio.create_subprocess_exec(*argv, cwd=own, start_new_session=True)

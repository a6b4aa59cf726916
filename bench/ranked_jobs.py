"""Jobs that come while others run, through ``penstock up`` and ``penstock submit`` as installed, on two cores.

Ten jobs of ``sleep 3`` that come together: those behind start while those ahead sleep. Then a job of four commands of
5 s of a processor, after 2 s one of two commands of 2 s, after 3 s one of a single second. Each kind has run once.
The peer is plain Linux, which starts all commands of a job when it comes.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from demo import node

CORES = 2
SLEEPERS, SLEEP_S = 10, 3
_BURN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass"


class Job(NamedTuple):
    """When it comes, and its commands, which do not wait for each other."""

    name: str
    at_s: float
    commands: tuple[tuple[str, ...], ...]


Run = Callable[[Job], Coroutine[Any, Any, None]]


def burning(name: str, at_s: float, count: int, seconds: int) -> Job:
    """So many commands that take so many seconds of a processor each."""
    return Job(name, at_s, (("/usr/bin/python3", "-S", "-E", "-c", _BURN, str(seconds)),) * count)


SLEEPING = [Job("sleep", 0.0, (("sleep", str(SLEEP_S)),)) for _ in range(SLEEPERS)]
BURNING = [burning("long", 0.0, 4, 5), burning("middle", 2.0, 2, 2), burning("short", 3.0, 1, 1)]


async def arrive(jobs: Sequence[Job], run: Run) -> list[float]:
    """How long each took from its arrival on, in seconds."""
    began = time.monotonic()

    async def one(job: Job) -> float:
        await asyncio.sleep(began + job.at_s - time.monotonic())
        await run(job)
        return time.monotonic() - began - job.at_s

    return await asyncio.gather(*map(one, jobs))


async def by_linux(job: Job) -> None:
    """All at once."""
    started = [await asyncio.create_subprocess_exec(*command) for command in job.commands]
    for process in started:
        await process.wait()


def by_penstock(socket: Path, directory: Path) -> Run:
    """``penstock submit`` of its job file."""
    for job in (*SLEEPING, *BURNING):
        tasks = (f'[[task]]\nname = "{at}"\ncommand = {json.dumps(each)}\n' for at, each in enumerate(job.commands))
        (directory / f"{job.name}.toml").write_text(f'name = "{job.name}"\n' + "".join(tasks), encoding="ascii")
    environment = os.environ | {"PENSTOCK_SOCKET": str(socket)}

    async def run(job: Job) -> None:
        command = [sys.executable, "-m", "penstock.cli.main", "submit", "--quiet", str(directory / f"{job.name}.toml")]
        process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=subprocess.DEVNULL)
        if await process.wait() != 0:
            raise RuntimeError(f"{job.name} failed")

    return run


def show(way: str, took: dict[str, list[float]]) -> None:
    """Print a row."""
    first, last = min(took["sleep"]), max(took["sleep"])
    print(f"{way:<14}{first:>8.1f}{last:>8.1f}" + "".join(f"{each:>9.1f}" for each in took["burn"]), flush=True)


def main() -> int:
    """Print the table; 1 where the short job takes longer than under plain Linux."""
    if len(os.sched_getaffinity(0)) < CORES:
        print(f"left out: {CORES} processors are needed")
        return 0
    names = "".join(f"{job.name:>9}" for job in BURNING)
    print(f"{'seconds':<14}{'first':>8}{'last':>8}{names}   (first and last: of the sleepers)")
    linux = {"sleep": asyncio.run(arrive(SLEEPING, by_linux)), "burn": asyncio.run(arrive(BURNING, by_linux))}
    show("plain Linux", linux)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        with node.running(directory, {"cores": str(CORES)}, {}) as up:
            run = by_penstock(up.socket, directory)
            ours = {"sleep": asyncio.run(arrive(SLEEPING, run))}
            for job in BURNING:
                asyncio.run(run(job))
            ours["burn"] = asyncio.run(arrive(BURNING, run))
    show("Penstock", ours)
    return int(ours["burn"][-1] > linux["burn"][-1])


if __name__ == "__main__":
    sys.exit(main())

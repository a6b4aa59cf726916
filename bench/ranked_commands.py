"""Do commands end sooner in the order of their ranks? Plain Linux and Penstock by turns, on the same commands.

Commands arrive by a Poisson process and compute for seconds drawn from a bounded Pareto distribution (0.3 to 12 CPU
seconds, shape 1.1), at a load of 0.9 of two processors: most are short, and the few long ones are most of the work.
Penstock gets no sizes. Each is one process, started on arrival: by plain Linux, or through an agent without a master,
as ``penstock run`` does. With cgroups the ranks are weights, elsewhere (as root) nice values.
"""

from __future__ import annotations

import asyncio
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import NamedTuple

from bench._agent import agent_process
from penstock.client import AgentClient
from penstock.model.container import ContainerSpec

JOBS, SEEDS = 24, (1, 2, 3)
SHORTEST_S, LONGEST_S, SHAPE = 0.3, 12.0, 1.1
LOAD, PROCESSORS = 0.9, 2
#: Commands of less CPU time than this are short.
SHORT_S = 1.0
_BURN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): pass"


class Job(NamedTuple):
    """When a command comes, in seconds from the beginning, and the CPU time that it wants."""

    at_s: float
    size_s: float


class Figures(NamedTuple):
    """Of one round, in seconds, but for the slowdown: time from arrival to end ÷ size, the mean of all."""

    makespan_s: float
    mean_s: float
    short_s: float
    slowdown: float


def jobs(seed: int) -> list[Job]:
    """The same for every way."""
    draw = random.Random(seed)
    low, high = SHORTEST_S**-SHAPE, LONGEST_S**-SHAPE
    sizes = [(low - draw.random() * (low - high)) ** (-1 / SHAPE) for _ in range(JOBS)]
    apart_s = statistics.fmean(sizes) / (LOAD * PROCESSORS)
    at_s, made = 0.0, []
    for size_s in sizes:
        made.append(Job(at_s, size_s))
        at_s += draw.expovariate(1 / apart_s)
    return made


async def measure(work: list[Job], run: Callable[[list[str]], Awaitable[object]]) -> Figures:
    """Run each command when it comes."""
    began = time.monotonic()

    async def one(job: Job) -> float:
        await asyncio.sleep(began + job.at_s - time.monotonic())
        await run(["/usr/bin/python3", "-S", "-E", "-c", _BURN, str(job.size_s)])
        return time.monotonic() - began - job.at_s

    took = await asyncio.gather(*map(one, work))
    short = [each for each, job in zip(took, work, strict=True) if job.size_s < SHORT_S]
    slowdown = statistics.fmean(each / job.size_s for each, job in zip(took, work, strict=True))
    return Figures(time.monotonic() - began, statistics.fmean(took), statistics.fmean(short), slowdown)


async def _plain(argv: list[str]) -> None:
    process = await asyncio.create_subprocess_exec(*argv)
    await process.wait()


async def rounds() -> list[tuple[str, Figures]]:
    """Each seed by plain Linux, then through Penstock."""
    done: list[tuple[str, Figures]] = []
    with tempfile.TemporaryDirectory() as name, agent_process(Path(name), cores=PROCESSORS) as socket:
        async with await AgentClient.connect(socket, "bench") as client:

            async def ranked(argv: list[str]) -> None:
                container = await client.launch(ContainerSpec(argv=tuple(argv)))
                await container.wait()

            for seed in SEEDS:
                done.append(("plain Linux", await measure(jobs(seed), _plain)))
                done.append(("ranked", await measure(jobs(seed), ranked)))
    return done


def main() -> int:
    """Print the means over all seeds; fail where ranked commands do not end sooner."""
    if len(os.sched_getaffinity(0)) < PROCESSORS:
        print(f"left out: {PROCESSORS} processors are needed")
        return 0
    done = asyncio.run(rounds())
    print(f"{JOBS} commands, load {LOAD}, seeds {', '.join(map(str, SEEDS))}; means over the seeds")
    print(f"{'':12} {'makespan s':>11} {'mean s':>8} {f'mean of those < {SHORT_S:g} s':>22} {'mean slowdown':>14}")
    means = {}
    for way in ("plain Linux", "ranked"):
        figures = [each for name, each in done if name == way]
        means[way] = Figures(*(statistics.fmean(column) for column in zip(*figures, strict=True)))
        makespan_s, mean_s, short_s, slowdown = means[way]
        print(f"{way:12} {makespan_s:11.1f} {mean_s:8.2f} {short_s:22.2f} {slowdown:14.2f}")
    ratio = means["ranked"].mean_s / means["plain Linux"].mean_s
    slower = means["ranked"].slowdown / means["plain Linux"].slowdown
    print(f"ranked ÷ plain Linux: mean {ratio:.2f}, slowdown {slower:.2f}")
    return int(ratio > 1)


if __name__ == "__main__":
    sys.exit(main())

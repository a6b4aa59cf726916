"""Slot freed → next grant, and submit → grant on an idle resource, as a framework on the same host sees them.

A real agent in a process of its own offers one CPU slot. Beside it the floor, measured in the same seconds: a bare
MessagePack echo. The loaded agent has four jobs with 2,500 queued monotasks each, whose priorities a master changes
fifty times a second, and samples its host five times a second.

How fast a shared host wakes a process changes from minute to minute, and with it all of these: so everything is
measured in rounds, each with processes of its own, and a ratio is the median of the rounds' ratios.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import _echo
from bench._agent import agent_process, process
from penstock.client import AgentClient, Job, Monotask

ROUNDS = 7
COUNT = 1500
WARM_UP = 500
JOBS, QUEUED = 4, 10_000
FLOOR = "bare echo (the floor)"
#: Beside the floor of the same loop: p50 and p99.
BAR_P50, BAR_P99 = 2.0, 4.0
_UNLOADED: dict[str, object] = {"lease_s": 0.0}
_LOADED: dict[str, object] = {"lease_s": 0.0, "sample_interval_s": 0.2}
_LOOPS: dict[str, Callable[[], asyncio.AbstractEventLoop] | None] = {"asyncio": None, "uvloop": uvloop.new_event_loop}


class Quantiles(NamedTuple):
    """Seconds."""

    p50: float
    p99: float

    @classmethod
    def of(cls, seconds: list[float]) -> Quantiles:
        """Of a sample."""
        ordered = sorted(seconds)
        return cls(ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])


class Gauge:
    """Holds the one slot, gives it back, and reads the clock when the next monotask has it."""

    def __init__(self) -> None:
        self._granted: asyncio.Future[Monotask] = asyncio.get_running_loop().create_future()

    def watch(self, monotask: Monotask) -> None:
        """It may be the next."""
        monotask.granted.add_done_callback(partial(self._is_granted, monotask))

    def _is_granted(self, monotask: Monotask, granted: asyncio.Future[None]) -> None:
        if not granted.cancelled() and not self._granted.done():  # at the end, jobs give back one after the other
            self._granted.set_result(monotask)

    async def holder(self) -> Monotask:
        """Return the monotask that is granted next."""
        return await self._granted

    async def next(self, holder: Monotask) -> tuple[float, Monotask]:
        """Return the seconds from giving the slot back to the next grant, and its monotask."""
        self._granted = asyncio.get_running_loop().create_future()
        began = time.perf_counter()
        holder.complete()
        monotask = await self._granted
        return time.perf_counter() - began, monotask


async def loaded(agent_socket: Path) -> list[float]:
    """At least 10,000 monotasks of four jobs wait behind the one that is granted, all the time."""
    async with _agent(agent_socket) as agent:
        jobs = [await agent.register_job(f"latency-{number}") for number in range(JOBS)]
        gauge = Gauge()
        for number in range(WARM_UP + COUNT + QUEUED):
            gauge.watch(jobs[number % JOBS].submit("cpu", 1 + number % 1000))
        holder = await gauge.holder()
        seconds = []
        for _ in range(WARM_UP + COUNT):
            took, holder = await gauge.next(holder)
            seconds.append(took)
        for job in jobs:
            await job.end()
        return seconds[WARM_UP:]


async def freed(agent_socket: Path) -> list[float]:
    """Give the slot back while only the next granted one waits."""
    async with _agent(agent_socket) as agent:
        job = await agent.register_job("latency")
        holder = job.submit("cpu", 1)
        await holder.granted
        seconds = []
        for _ in range(WARM_UP + COUNT):
            waiting = job.submit("cpu", 1)
            await job.tasks_done([])  # when this is answered, the one before it on the same connection is queued
            began = time.perf_counter()
            holder.complete()
            await waiting.granted
            seconds.append(time.perf_counter() - began)
            holder = waiting
        await job.end()
        return seconds[WARM_UP:]


async def submitted(agent_socket: Path) -> list[float]:
    """From the submission to the grant, where the slot is free."""
    async with _agent(agent_socket) as agent:
        job = await agent.register_job("latency")
        seconds = []
        for _ in range(WARM_UP + COUNT):
            seconds.append(await _granted(job))
            await job.tasks_done([])  # when this is answered, the slot is free again
        await job.end()
        return seconds[WARM_UP:]


async def _granted(job: Job) -> float:
    began = time.perf_counter()
    monotask = job.submit("cpu", 1)
    await monotask.granted
    took = time.perf_counter() - began
    monotask.complete()
    return took


@contextlib.asynccontextmanager
async def _agent(agent_socket: Path) -> AsyncIterator[AgentClient]:
    async with await AgentClient.connect(agent_socket, client="bench") as agent:
        yield agent


def measure(directory: Path) -> Iterator[tuple[str, str, Quantiles]]:
    """Return the client's loop, the name of the measurement, its quantiles; the floor first for each loop."""
    for loop, factory in _LOOPS.items():
        with asyncio.Runner(loop_factory=factory) as runner:
            echo = directory / f"{loop}.sock"
            with process([sys.executable, "-m", "bench._echo", str(echo), loop], echo):
                yield loop, FLOOR, Quantiles.of(runner.run(_echo.echoes(echo, COUNT, WARM_UP)))
            with agent_process(directory, **_UNLOADED) as agent_socket:
                yield loop, "submit → grant, idle", Quantiles.of(runner.run(submitted(agent_socket)))
                yield loop, "slot freed → next grant", Quantiles.of(runner.run(freed(agent_socket)))
            with (
                _master(directory) as master,
                agent_process(directory, master=str(master), **_LOADED) as loaded_by,
            ):
                yield loop, f"… with {QUEUED:,} queued", Quantiles.of(runner.run(loaded(loaded_by)))


@contextlib.contextmanager
def _master(directory: Path) -> Iterator[Path]:
    listen, ready = directory / "master.sock", directory / "master"
    for former in (listen, ready):
        former.unlink(missing_ok=True)
    with process([sys.executable, "-m", "bench._agent", str(listen), str(ready)], ready):
        yield listen


class Row(NamedTuple):
    """The medians of all rounds: seconds, and multiples of the floor."""

    took: Quantiles
    ratio: Quantiles


def rows(rounds: list[dict[tuple[str, str], Quantiles]]) -> Iterator[tuple[str, str, Row]]:
    """Return the names of measurements, in the order of the first round."""
    for loop, what in rounds[0]:
        took = [one[loop, what] for one in rounds]
        floors = [one[loop, FLOOR] for one in rounds]
        ratios = [Quantiles(a.p50 / b.p50, a.p99 / b.p99) for a, b in zip(took, floors, strict=True)]
        yield loop, what, Row(_median(took), _median(ratios))


def _median(quantiles: list[Quantiles]) -> Quantiles:
    return Quantiles(*(statistics.median(column) for column in zip(*quantiles, strict=True)))


def main(argv: list[str] | None = None) -> int:
    """Print the table; 1 where a bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.grant_latency")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help="of which the medians are shown")
    options = parser.parse_args(argv)
    rounds = []
    for _ in range(options.rounds):
        with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
            rounds.append({(loop, what): quantiles for loop, what, quantiles in measure(Path(directory))})
    print(f"{'client':<9}{'measured':<26}{'p50 µs':>9}{'p99 µs':>9}{'p50 / floor':>13}{'p99 / floor':>13}")
    missed = 0
    for loop, what, row in rows(rounds):
        missed += row.ratio.p50 > BAR_P50 or row.ratio.p99 > BAR_P99
        figures = f"{row.took.p50 * 1e6:>9.0f}{row.took.p99 * 1e6:>9.0f}{row.ratio.p50:>13.2f}{row.ratio.p99:>13.2f}"
        print(f"{loop:<9}{what:<26}{figures}", flush=True)
    print(f"bars: p50 ≤ {BAR_P50:g} × the floor, p99 ≤ {BAR_P99:g} ×: {f'{missed} missed' if missed else 'met'}")
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())

"""Slot freed → next grant: what a framework waits between giving a slot back and holding the next one.

A real agent in a process of its own offers one CPU slot; the client, in this process, completes the monotask that has
it and waits for the grant of the next. Beside it the floor, measured in the same minute: a bare MessagePack echo.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import uvloop

from bench import _echo
from penstock.client import AgentClient, Job, Monotask

COUNT = 2000
WARM_UP = 300
QUEUED = 1000
#: What the first release promised on its development machine, in seconds.
BAR_S = 200e-6
_START_TIMEOUT_S = 20.0
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


async def with_queue(socket: Path) -> list[float]:
    """At least ``QUEUED`` monotasks wait behind the one that is granted, all the time."""
    async with _job(socket) as job:
        monotasks = [job.submit("cpu", 1) for _ in range(WARM_UP + COUNT + QUEUED + 1)]
        await monotasks[0].granted
        seconds = [await _next(*pair) for pair in pairwise(monotasks[: WARM_UP + COUNT + 1])]
        return seconds[WARM_UP:]


async def without_queue(socket: Path) -> list[float]:
    """Nobody waits but the one that is granted next."""
    async with _job(socket) as job:
        seconds = []
        holder = job.submit("cpu", 1)
        await holder.granted
        for _ in range(WARM_UP + COUNT):
            waiting = job.submit("cpu", 1)
            await job.tasks_done([])  # when this is answered, the one before it on the same connection is queued
            seconds.append(await _next(holder, waiting))
            holder = waiting
        return seconds[WARM_UP:]


@contextlib.asynccontextmanager
async def _job(socket: Path) -> AsyncIterator[Job]:
    async with await AgentClient.connect(socket, client="bench") as agent:
        job = await agent.register_job("grant-latency")
        yield job
        await job.end()


async def _next(holder: Monotask, waiting: Monotask) -> float:
    began = time.perf_counter()
    holder.complete()
    await waiting.granted
    return time.perf_counter() - began


@contextlib.contextmanager
def agent_process(directory: Path) -> Iterator[Path]:
    """An agent with one CPU slot and no master; its socket."""
    environment = os.environ | {
        "PENSTOCK_RUNTIME_DIR": str(directory / "run"),
        "PENSTOCK_STATE_DIR": str(directory / "state"),
    }
    settings = ["cores=1", "http=127.0.0.1:0"]
    command = [sys.executable, "-m", "agent", "--port-file", str(directory / "ports"), "--log-level", "error"]
    command += [argument for setting in settings for argument in ("--set", setting)]
    with _process(command, directory / "ports", environment):
        yield directory / "run" / "agent.sock"


@contextlib.contextmanager
def _process(command: list[str], ready: Path, environment: dict[str, str] | None = None) -> Iterator[None]:
    """A process that is ready when a file of its appears."""
    process = subprocess.Popen(command, env=environment)
    try:
        give_up = time.monotonic() + _START_TIMEOUT_S
        while not ready.exists():
            if process.poll() is not None or time.monotonic() > give_up:
                raise RuntimeError(f"{' '.join(command[1:4])} did not start")
            time.sleep(0.01)
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(_START_TIMEOUT_S)


def measure(directory: Path) -> Iterator[tuple[str, str, Quantiles]]:
    """The client's loop, what was measured, its quantiles; the floor first for each loop."""
    with agent_process(directory) as socket:
        for loop, factory in _LOOPS.items():
            with asyncio.Runner(loop_factory=factory) as runner:
                echo = directory / f"{loop}.sock"
                with _process([sys.executable, "-m", "bench._echo", str(echo), loop], echo):
                    yield loop, "bare echo (the floor)", Quantiles.of(runner.run(_echo.echoes(echo, COUNT, WARM_UP)))
                yield loop, "slot freed → next grant", Quantiles.of(runner.run(without_queue(socket)))
                yield loop, f"… with {QUEUED:,} queued", Quantiles.of(runner.run(with_queue(socket)))


def main() -> int:
    """Print the table."""
    print(f"{'client':<9}{'measured':<26}{'p50 µs':>9}{'p99 µs':>9}{'p50 / floor':>13}")
    worst = floor = 0.0
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        for loop, what, quantiles in measure(Path(directory)):
            if "floor" in what:
                floor = quantiles.p50
            else:
                worst = max(worst, quantiles.p50)
            figures = f"{quantiles.p50 * 1e6:>9.0f}{quantiles.p99 * 1e6:>9.0f}{quantiles.p50 / floor:>13.1f}"
            print(f"{loop:<9}{what:<26}{figures}", flush=True)
    print(f"bar: p50 ≤ {BAR_S * 1e6:.0f} µs: {'met' if worst <= BAR_S else 'NOT met'} ({worst * 1e6:.0f} µs)")
    return 0


if __name__ == "__main__":
    sys.exit(main())

"""The cost of a watched status page for agent and master: percent of one core, watched and unwatched in turn, and the
bytes that it receives.

An agent with its master, both in processes of their own; 20 containers that sleep, 5 jobs with 2,000 queued monotasks.
A watcher is a connection that reads ``/events``, as the page does, of each daemon one.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import os
import statistics
import sys
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import NamedTuple

from bench._agent import agent_and_pid, process
from penstock.client import AgentClient
from penstock.model import ContainerSpec

CONTAINERS, JOBS, MONOTASKS = 20, 5, 2_000
WATCHERS = (0, 1, 4)
DAEMONS = ("agent", "master")
#: After watchers came or went: the first event of a page is everything.
SETTLE_S = 6.0
MIB = 2**20
#: The most for one core, beyond the cost without a watcher (issue 8).
BAR_PERCENT = 1.0
_SLEEP = ContainerSpec(argv=("sleep", "86400"), cpu_cores=0.01, memory_bytes=16 * MIB)


class Daemon(NamedTuple):
    """A process that has a page."""

    pid: int
    http: str

    def cpu_s(self) -> float:
        """Of all its threads, to the nanosecond (``schedstat``; ``stat`` has ticks of 10 ms)."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(each.read_text(encoding="ascii").split()[0]) for each in threads) / 1e9


class Cost(NamedTuple):
    """The cost of watching for a daemon, and the bytes that one page receives: in its first :data:`SETTLE_S`, and then
    a minute.
    """

    percent: float
    opening_bytes: float
    bytes_per_minute: float


@contextlib.contextmanager
def daemons(directory: Path) -> Iterator[tuple[Path, dict[str, Daemon]]]:
    """A master and an agent that is its node; the agent's socket."""
    ports = directory / "master-ports"
    command = [sys.executable, "-m", "master", "--port-file", str(ports), "--log-level", "error"]
    keys = {"listen": directory / "master.sock", "http": "127.0.0.1:0", "store": directory / "master.db"}
    command += [part for key, value in keys.items() for part in ("--set", f"{key}={value}")]
    with process(command, ports, os.environ | {"PENSTOCK_STATE_DIR": str(directory / "master")}) as master:
        at = json.loads(ports.read_text(encoding="utf-8"))
        with agent_and_pid(directory, cores=4, memory_bytes=8 * 1024 * MIB, master=at["listen"]) as (socket, agent):
            page = json.loads((directory / "ports").read_text(encoding="utf-8"))["http"]
            yield socket, {"agent": Daemon(agent, page), "master": Daemon(master, at["http"])}


@contextlib.asynccontextmanager
async def load(socket: Path) -> AsyncIterator[None]:
    """Make the content of the page."""
    async with await AgentClient.connect(socket, client="bench") as agent:
        containers = [await agent.launch(_SLEEP) for _ in range(CONTAINERS)]
        jobs = [await agent.register_job(f"job-{number}") for number in range(JOBS)]
        for number in range(MONOTASKS):
            jobs[number % JOBS].submit("network", 10**7)
        await jobs[0].tasks_done([])  # answered when the agent has read all of them
        yield
        for container in containers:
            await container.kill()
            await container.wait()


async def watch(http: str, came_bytes: Counter[str]) -> None:
    """Read events until cancelled, or the daemon ends; ``came_bytes``: by daemon."""
    host, port = http.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /events HTTP/1.1\r\nHost: {http}\r\nAccept: text/event-stream\r\n\r\n".encode())
    status = await reader.readline()
    if b" 200 " not in status:
        raise RuntimeError(f"{http}/events: {status.decode().strip()}")
    try:
        while data := await reader.read(1 << 16):
            came_bytes[http] += len(data)
    finally:
        writer.close()


async def cost(of: dict[str, Daemon], watchers: int, seconds: float) -> dict[str, Cost]:
    """Return the part of one core that each daemon takes, with so many watchers each, and the bytes that one of these
    receives.
    """
    came_bytes = Counter[str]()
    watching = [asyncio.create_task(watch(daemon.http, came_bytes)) for daemon in of.values() for _ in range(watchers)]
    await asyncio.sleep(SETTLE_S)
    opening_bytes, before = dict(came_bytes), {name: daemon.cpu_s() for name, daemon in of.items()}
    began = time.perf_counter()
    await asyncio.sleep(seconds)
    after, took = {name: daemon.cpu_s() for name, daemon in of.items()}, time.perf_counter() - began
    for task in watching:
        if task.done():
            raise RuntimeError("a watcher was sent away") from task.exception()
        task.cancel()
    if len(came_bytes) != (len(of) if watchers else 0):
        raise RuntimeError(f"events came from {sorted(came_bytes)} only")
    await asyncio.gather(*watching, return_exceptions=True)
    return {
        name: Cost(
            100 * (after[name] - before[name]) / took,
            opening_bytes.get(daemon.http, 0) / max(1, watchers),
            60 * (came_bytes[daemon.http] - opening_bytes.get(daemon.http, 0)) / took / max(1, watchers),
        )
        for name, daemon in of.items()
    }


async def measure(directory: Path, rounds: int, seconds: float) -> dict[tuple[str, int], list[Cost]]:
    """Return daemon and number of watchers → their cost, once a round."""
    figures: dict[tuple[str, int], list[Cost]] = {}
    with daemons(directory) as (socket, of):
        async with load(socket):
            for number in range(rounds):
                for watchers in WATCHERS:
                    for name, found in (await cost(of, watchers, seconds)).items():
                        figures.setdefault((name, watchers), []).append(found)
                        print(f"round {number + 1}  {watchers} watch  {name:<8}{found.percent:8.3f} %", flush=True)
    return figures


def main() -> int:
    """Print the table; 1 where the bar was missed."""
    parser = argparse.ArgumentParser(prog="python -m bench.page_cost", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60.0, help="of each measurement")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as directory:
        figures = asyncio.run(measure(Path(directory), options.rounds, options.seconds))
    most = 0.0
    print(f"\n{'% of a core, medians':<24}{'agent':>10}{'more':>10}{'master':>10}{'more':>10}")
    for watchers in WATCHERS:
        row = ""
        for name in DAEMONS:
            percent = statistics.median(each.percent for each in figures[name, watchers])
            more = percent - statistics.median(each.percent for each in figures[name, 0])
            most = max(most, more)
            row += f"{percent:>10.3f}{more:>10.3f}"
        print(f"{f'{watchers} watch':<24}{row}")
    for name in DAEMONS:
        opening_bytes = statistics.median(each.opening_bytes for each in figures[name, 1])
        per_minute = statistics.median(each.bytes_per_minute for each in figures[name, 1])
        print(
            f"a page of the {name} receives {opening_bytes / 1e3:.0f} kB in its first {SETTLE_S:g} s, "
            f"then {per_minute / 1e3:.0f} kB a minute"
        )
    met = most <= BAR_PERCENT
    print(f"bar: watched ≤ {BAR_PERCENT:g} % of a core more: {'met' if met else 'NOT met'}")
    return int(not met)


if __name__ == "__main__":
    sys.exit(main())

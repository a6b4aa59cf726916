"""What gating costs a trivial Dask task: the same tasks on two like clusters, one gated, by turns in one run.

The agent has more slots than there are threads, so that nobody waits for anybody: what is left is the way to the agent
and back. Once in Dask's default configuration and once with ``worker-saturation: inf``, where the scheduler hands out
all tasks at once and its own round trips no longer hide ours.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import dask
from distributed import Client, LocalCluster

from bench._agent import agent_process

PRELOAD = "penstock.engines.dask.preload"
THREADS = 2
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "worker-saturation inf": {"distributed.scheduler.worker-saturation": float("inf")},
}


class Cost(NamedTuple):
    """Of one task, in seconds: how long all took, and the CPU time of the worker's process."""

    wall_s: float
    cpu_s: float


class Round(NamedTuple):
    """On the cluster without and on the one with gates."""

    ungated: Cost
    gated: Cost


def increment(number: int) -> int:
    """As trivial as a task can be."""
    return number + 1


@contextlib.contextmanager
def cluster(preload: list[str]) -> Iterator[Client]:
    """One worker process with a few threads."""
    with (
        dask.config.set({"distributed.worker.preload": preload}),
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=1, threads_per_worker=THREADS, dashboard_address=None
        ) as local,
        Client(local) as client,  # type: ignore[no-untyped-call]
    ):
        yield client


def cost_of_a_task(client: Client, count: int) -> Cost:
    """Submit, run and gather that many."""
    cpu_before_s = sum(client.run(time.process_time).values())
    began = time.perf_counter()
    client.gather(client.map(increment, range(count), pure=False))  # type: ignore[no-untyped-call]
    wall_s = time.perf_counter() - began
    cpu_s = sum(client.run(time.process_time).values()) - cpu_before_s
    return Cost(wall_s / count, cpu_s / count)


def measure(socket: Path, count: int, rounds: int) -> Iterator[tuple[str, list[Round]]]:
    """The rounds of each configuration; who begins changes from round to round."""
    for name, configuration in CONFIGURATIONS.items():
        settings = {**configuration, "penstock.socket": str(socket)}
        with dask.config.set(settings), cluster([]) as ungated, cluster([PRELOAD]) as gated:
            for client in (ungated, gated):
                cost_of_a_task(client, count)  # warm
            found = []
            for number in range(rounds):
                first, second = (ungated, gated) if number % 2 == 0 else (gated, ungated)
                one, other = cost_of_a_task(first, count), cost_of_a_task(second, count)
                found.append(Round(one, other) if first is ungated else Round(other, one))
            yield name, found


def show(name: str, what: str, pairs: list[tuple[float, float]]) -> None:
    """One line of the table, from seconds without and with gates."""
    ungated, gated = (statistics.median(pair[side] for pair in pairs) * 1e6 for side in (0, 1))
    low, middle, high = statistics.quantiles([(with_s - without_s) * 1e6 for without_s, with_s in pairs], n=4)
    print(f"{name:<24}{what:<6}{ungated:>9.0f}{gated:>9.0f}{middle:>12.0f}  ({low:.0f} … {high:.0f})", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.dask_overhead")
    parser.add_argument("--count", type=int, default=2000, help="tasks in a round")
    parser.add_argument("--rounds", type=int, default=11, help="rounds; the medians are shown")
    options = parser.parse_args(argv)
    print(f"{options.rounds} rounds of {options.count} tasks by turns; medians, µs a task; quartiles of the difference")
    print(f"{'configuration':<24}{'':<6}{'ungated':>9}{'gated':>9}{'difference':>12}")
    with (
        tempfile.TemporaryDirectory(prefix="penstock-") as directory,
        agent_process(Path(directory), cores=8) as socket,
    ):
        for name, rounds in measure(socket, options.count, options.rounds):
            for side, what in enumerate(("wall", "cpu")):
                show(name, what, [(one.ungated[side], one.gated[side]) for one in rounds])
    return 0


if __name__ == "__main__":
    sys.exit(main())

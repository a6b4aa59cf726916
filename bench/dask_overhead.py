"""The cost of gating for a trivial Dask task: the same tasks on like clusters, two ungated and one gated, by turns.

The agent has more slots than there are threads, so that no task waits for another: the rest is the way to the agent and
back. Once in Dask's default configuration and once with ``worker-saturation: inf``, where the scheduler hands out all
tasks at once and its own round trips no longer hide ours.

Two like processes differ, too, and go on to differ as long as they live: by their hashes, and by the place of their
memory. So clusters are started anew for every set of rounds, and the difference between the two ungated ones is printed
beside the cost of gating: a smaller cost cannot be measured. With ``--same`` one worker is without Penstock, with it as
installed, and with ``penstock.cpu`` by turns instead, by registering the plugin and taking it away: nothing else
differs then.
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
from penstock.engines.dask.plugin import NAME, PenstockWorkerPlugin

PRELOAD = "penstock.engines.dask.preload"
THREADS = 2
CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "default": {},
    "worker-saturation inf": {"distributed.scheduler.worker-saturation": float("inf")},
}
#: Settings of the plugin; None: without it. "as installed" has no CPU monotasks.
WAYS: dict[str, dict[str, Any] | None] = {"without": None, "as installed": {}, "cpu": {"cpu": True}}


class Cost(NamedTuple):
    """Of one task, in seconds: how long all took, and the CPU time of the worker's process."""

    wall_s: float
    cpu_s: float


class Set(NamedTuple):
    """Medians of a set of rounds on fresh clusters: two without gates, one with."""

    ungated: Cost
    twin: Cost
    gated: Cost

    def difference(self, side: int) -> float:
        """Seconds that gating takes, against the mean of the other two."""
        return self.gated[side] - (self.ungated[side] + self.twin[side]) / 2


def increment(number: int) -> int:
    """As trivial as a task can be."""
    return number + 1


@contextlib.contextmanager
def cluster(preload: list[str]) -> Iterator[Client]:
    """One worker process with a few threads."""
    with (
        dask.config.set({"distributed.worker.preload": preload}),
        LocalCluster(  # type: ignore[no-untyped-call]
            n_workers=1, threads_per_worker=THREADS, dashboard_address=":0"
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


def measure(socket: Path, configuration: dict[str, Any], count: int, rounds: int) -> Set:
    """Measure one set; the first one changes from round to round."""
    settings = {**configuration, "penstock.socket": str(socket), "penstock.cpu": True}
    with dask.config.set(settings), cluster([]) as one, cluster([PRELOAD]) as gated, cluster([]) as other:
        clients = [one, other, gated]
        found: list[list[Cost]] = [[], [], []]
        for number in range(rounds + 1):
            for place in range(3):
                which = (number + place) % 3
                cost = cost_of_a_task(clients[which], count)
                if number:  # the first is to warm up
                    found[which].append(cost)
    medians = [Cost(*(statistics.median(column) for column in zip(*costs, strict=True))) for costs in found]
    return Set(*medians)


def measure_same(socket: Path, configuration: dict[str, Any], count: int, rounds: int) -> dict[str, list[Cost]]:
    """One worker in each of the ways by turns; which is first changes from round to round. The first round is to warm
    up."""
    found: dict[str, list[Cost]] = {way: [] for way in WAYS}
    names = list(WAYS)
    with dask.config.set({**configuration, "penstock.socket": str(socket)}), cluster([]) as client:
        for number in range(rounds + 1):
            for place in range(len(names)):
                way = names[(number + place) % len(names)]
                given = WAYS[way]
                if given is not None:
                    client.register_plugin(PenstockWorkerPlugin(socket=str(socket), **given), name=NAME)
                cost_of_a_task(client, count // 8)
                found[way].append(cost_of_a_task(client, count))
                if given is not None:
                    client.unregister_worker_plugin(NAME)  # type: ignore[no-untyped-call]
    return {way: costs[1:] for way, costs in found.items()}


def show_same(name: str, found: dict[str, list[Cost]]) -> None:
    """Two lines for each way: the mean, and with its standard error by how much a round takes longer than its peer."""
    for side, what in enumerate(("wall", "cpu")):
        without = [cost[side] * 1e6 for cost in found["without"]]
        mean = statistics.mean(without)
        for way in [way for way in found if way != "without"]:
            costs = [cost[side] * 1e6 - peer for cost, peer in zip(found[way], without, strict=True)]
            error, more = statistics.stdev(costs) / len(costs) ** 0.5, statistics.mean(costs)
            print(
                f"{name:<24}{way:<14}{what:<6}{mean:>9.0f}{more:>12.0f} ± {error:<6.0f}"
                f"{more / mean:>8.1%} ± {error / mean:<7.1%}{statistics.median(costs) / mean:>8.1%}",
                flush=True,
            )


def show(name: str, what: str, sets: list[Set], side: int) -> None:
    """One line of the table."""
    ungated = statistics.mean(cost[side] for one in sets for cost in (one.ungated, one.twin)) * 1e6
    costs = [one.difference(side) * 1e6 for one in sets]
    twins = [(one.twin[side] - one.ungated[side]) * 1e6 for one in sets]
    error = statistics.stdev(costs) / len(costs) ** 0.5
    line = f"{name:<24}{what:<6}{ungated:>9.0f}{statistics.mean(costs):>12.0f} ± {error:<6.0f}"
    print(f"{line}{min(costs):>7.0f} … {max(costs):<7.0f}{min(twins):>7.0f} … {max(twins):<7.0f}", flush=True)


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.dask_overhead")
    parser.add_argument("--count", type=int, default=1500, help="tasks in a round")
    parser.add_argument("--rounds", type=int, default=4, help="rounds of a set; their median counts")
    parser.add_argument("--sets", type=int, default=8, help="each on fresh clusters; at least two")
    parser.add_argument("--same", action="store_true", help="one worker by turns: rounds × sets each way")
    options = parser.parse_args(argv)
    with (
        tempfile.TemporaryDirectory(prefix="penstock-") as directory,
        agent_process(Path(directory), cores=8) as socket,
    ):
        (compare_same if options.same else compare)(socket, options)
    return 0


def compare_same(socket: Path, options: argparse.Namespace) -> None:
    """One worker for each configuration."""
    rounds = options.rounds * options.sets
    print(f"one worker, {rounds} rounds of {options.count} tasks each way, by turns; µs a task")
    print(f"{'configuration':<24}{'way':<14}{'':<6}{'without':>9}{'costs, mean':>15}{'':<10}{'':<10}{'median':>14}")
    for name, configuration in CONFIGURATIONS.items():
        show_same(name, measure_same(socket, configuration, options.count, rounds))


def compare(socket: Path, options: argparse.Namespace) -> None:
    """Fresh clusters for each set."""
    print(f"{options.sets} sets of {options.rounds} rounds of {options.count} tasks by turns; µs a task")
    print(f"{'configuration':<24}{'':<6}{'ungated':>9}{'gating, mean':>15}{'':<6}{'all sets':^17}{'two ungated':^17}")
    for name, configuration in CONFIGURATIONS.items():
        sets = [measure(socket, configuration, options.count, options.rounds) for _ in range(max(2, options.sets))]
        for side, what in enumerate(("wall", "cpu")):
            show(name, what, sets, side)


if __name__ == "__main__":
    sys.exit(main())

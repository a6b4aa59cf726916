"""``python -m bench.mix.turns``: the same few jobs in short rounds, the ways by turns in one machine.

Two rounds of a whole plan are minutes apart, and a shared host may be half as fast by then. Here each way has a round
in each turn, a quarter of a minute long, so that slow changes are the same for all of them, and each difference has a
standard error. The first turn is not counted: after it caches are warm, and Penstock has seen each application.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from statistics import fmean

from bench.mix import guest, host, link, slurm, through_penstock
from bench.mix.__main__ import add_host, in_machine, ways
from bench.mix.calibration import COSTS, costs_of
from bench.mix.ideal import told
from bench.mix.jobs import USERS, Cost, Job
from bench.mix.place import Place
from bench.mix.plan import Plan
from bench.mix.ways import CLAIRVOYANT, Start, master_settings
from demo import node
from demo.turns import mean_and_error
from tests.vm.__main__ import status_of

_WAYS = "plain,slices,slurm-shared,penstock"
#: Kind, units and arrival of each job: more work than the processors can do meanwhile, as in the busy part of a day.
_JOBS = (
    ("compress", 3.0, 0.0), ("sort", 1.0, 0.5), ("compress", 1.0, 1.0), ("compile", 1.0, 1.5), ("analytics", 0.5, 2.0),
    ("sort", 1.5, 2.5), ("query", 1.0, 3.0), ("copy", 1.0, 3.5), ("query", 1.0, 5.0), ("send", 1.0, 6.0),
    ("query", 1.0, 7.0), ("sort", 0.5, 9.0), ("query", 1.0, 10.0),
)  # fmt: skip
_DEFAULT_ORDER = "gittins"
#: The printed figures of a round: name, unit, and how many of the last digits matter.
_FIGURES = {"mean_s": "mean job, s", "median_s": "median, s", "mean_slowdown": "mean slowdown",
            "p95_of_queries_s": "slowest query, s", "makespan_s": "makespan, s", "host_cpu_s": "CPU time, s",
            "daemons_cpu_s": "daemons, s", "look_ms": "a look, ms"}  # fmt: skip
_Figures = Mapping[str, float]


def plan_of(of: Mapping[str, Cost]) -> Plan:
    """Return the jobs of a round, each of another user than the one before, all of them recurring."""
    jobs = tuple(
        Job(
            number, USERS[number % len(USERS)], kind, f"{kind}-{number}", True, units,
            of[kind].cpu_s(units), of[kind].alone_s(units), arrival_s,
        )
        for number, (kind, units, arrival_s) in enumerate(_JOBS)
    )  # fmt: skip
    return Plan(0, 1.0, float(os.cpu_count() or 1), (), jobs, jobs[0])


@contextlib.contextmanager
def ready(way: str, up: node.Node) -> Iterator[Start]:
    """Yield the function that starts a job in this way, inside the block."""
    if way in guest.BY_THE_KERNEL:
        yield guest.BY_THE_KERNEL[way]
    elif way in slurm.OVERSUBSCRIBE:
        with slurm.running(way):
            yield slurm.slurm
    else:
        order = master_settings(way).get("ordering", _DEFAULT_ORDER)
        ask = [through_penstock.COMMAND, "config", "set", "--daemon", "master", f"ordering={order}"]
        subprocess.run(ask, env=os.environ | {"PENSTOCK_SOCKET": str(up.socket)}, stdout=subprocess.DEVNULL, check=True)
        yield through_penstock.submit(up.socket, {}, clairvoyant=way.startswith(CLAIRVOYANT))


def table(made: Mapping[str, Sequence[_Figures]]) -> str:
    """Return a column for each way; below the figures, by how much its mean job takes longer than that of each other
    way in the same turn, in percent. Each with its standard error.
    """
    rows = [["figure", *made], ["---"] * (len(made) + 1)]
    for name, text in _FIGURES.items():
        each = [[turn[name] for turn in turns if name in turn] for turns in made.values()]
        rows.append([text, *("{:.3g} ± {:.2g}".format(*mean_and_error(some)) if some else "" for some in each)])
    for other, others in made.items():
        changes = [
            [100 * (ours["mean_s"] / theirs["mean_s"] - 1) for ours, theirs in zip(turns, others, strict=True)]
            for turns in made.values()
        ]
        rows.append(
            [f"mean job, to {other}", *("{:+.1f} ± {:.1f} %".format(*mean_and_error(some)) for some in changes)]
        )
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def measure(place: Place, names: Sequence[str], count: int, of: Mapping[str, Cost]) -> None:
    """Measure ``count`` turns, and print each round, then the table."""
    work, plan = place.work, plan_of(of)
    made: dict[str, list[_Figures]] = {name: [] for name in names}
    with link.limited(), node.running(work, {}, {}) as up:
        for turn in range(count + 1):
            first = turn % len(names)
            for name in [*names[first:], *names[:first]]:
                directory = work / f"{name}-{turn}"
                directory.mkdir()
                with ready(name, up) as start:
                    guest.settle()
                    before_s = sum(up.cpu_seconds().values())
                    figures, _ = guest.one_round(plan, start, directory, with_archive=False, inputs=place.inputs)
                    figures["daemons_cpu_s"] = sum(up.cpu_seconds().values()) - before_s
                print(json.dumps({"way": name, "turn": turn} | figures), flush=True)
                if turn:
                    made[name].append(figures)
    print(table(made))
    print(told(plan.jobs, plan.cores, fmean(turn["host_cpu_s"] for turns in made.values() for turn in turns)))


def main(arguments: Sequence[str]) -> int:
    """Boot the machine and measure; in the machine, or on a host, measure."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.turns", description=__doc__)
    parser.add_argument("--ways", type=ways, metavar="WAY,…", help=f"[{_WAYS}]")
    parser.add_argument("--turns", type=int, default=8, metavar="N", help="that count, 2 or more [8]")
    add_host(parser)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.turns < 2:
        parser.error(f"--turns {options.turns}: a standard error needs 2 or more")

    def use(place: Place, names: list[str]) -> int:
        # By these the ideal is computed, and the slowdown of each job: that of one host against another is the same.
        measure(place, names, options.turns, costs_of(COSTS.read_bytes()))
        return 0

    if options.here:
        return use(guest.prepare(), (options.ways or _WAYS).split(","))
    if options.host is not None:
        return host.measured(options.host, options.ways, _WAYS, use)
    return status_of(lambda: in_machine("bench.mix.turns", arguments))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

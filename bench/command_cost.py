"""CPU time of commands, as a multiple of an empty Python's: the cost of Penstock itself for short jobs.

Each command is run by turns with the others, against one agent and master. Only the command's own process counts: the
work that it starts is a child of the agent's launcher. ``python -m bench.command_cost CHECKOUT`` runs those of another
checkout by turns with ours.
"""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import bench
from demo import node

ROUNDS = 40
#: As a multiple of the median of an empty Python.
BARS = {"run": 5.0, "submit": 5.5}
EMPTY = "empty Python"
_JOB = 'name = "one"\n[[task]]\nname = "a"\ncommand = ["true"]\n'


class Cost(NamedTuple):
    """Of one process, in seconds."""

    cpu_s: float
    wall_s: float


def commands(job: Path) -> dict[str, list[str]]:
    """Name → arguments of ``penstock``."""
    return {
        "--help": ["--help"],
        "jobs": ["jobs"],
        "run": ["run", "--", "true"],
        "submit": ["submit", "--quiet", str(job)],
    }


def cost(argv: list[str], environment: Mapping[str, str]) -> Cost:
    """Return the CPU time of a command, whose output is dropped.

    Raises:
        RuntimeError: it failed.
    """
    null = [(os.POSIX_SPAWN_OPEN, descriptor, os.devnull, os.O_RDWR, 0) for descriptor in (0, 1)]
    began = time.monotonic()
    _, status, used = os.wait4(os.posix_spawn(argv[0], argv, environment, file_actions=null), 0)
    if status:
        raise RuntimeError(f"{' '.join(argv)} ended with status {os.waitstatus_to_exitcode(status)}")
    return Cost(used.ru_utime + used.ru_stime, time.monotonic() - began)


def measure(checkouts: Mapping[str, Path], directory: Path) -> dict[tuple[str, str], list[Cost]]:
    """(command, checkout) → its costs, by turns."""
    job = directory / "job.toml"
    job.write_text(_JOB, encoding="ascii")
    costs: dict[tuple[str, str], list[Cost]] = {}
    with node.running(directory, {"cores": "2"}, {}) as up:
        for turn in range(ROUNDS + 1):
            for name, checkout in checkouts.items():
                environment = {**os.environ, "PENSTOCK_SOCKET": str(up.socket), "PYTHONPATH": str(checkout)}
                ours = [sys.executable, "-P", "-m", "penstock.cli.main"]  # -P: nothing from the working directory
                wanted = {EMPTY: [sys.executable, "-c", "pass"]}
                wanted |= {each: ours + argv for each, argv in commands(job).items()}
                for command, argv in wanted.items():
                    one = cost(argv, environment)
                    if turn:  # the first one writes the byte code
                        costs.setdefault((command, name), []).append(one)
    return costs


def _row(costs: Sequence[Cost], empty_s: float) -> str:
    """Median and quartiles of the CPU time, those of the time, and the CPU time as a multiple of an empty Python's."""
    cells = []
    for values in ([each.cpu_s for each in costs], [each.wall_s for each in costs]):
        low, middle, high = (1e3 * value for value in statistics.quantiles(values, n=4))
        cells.append(f"{middle:>7.0f} ({low:.0f} to {high:.0f})".ljust(22))
    return "".join(cells) + f"{_multiple(costs, empty_s):>6.1f}"


def _multiple(costs: Sequence[Cost], empty_s: float) -> float:
    return statistics.median(each.cpu_s for each in costs) / empty_s


def main() -> int:
    """Print the table; 1 where a command is above its bar."""
    here = Path(bench.__file__).parent.parent
    checkouts = {"": here} | {f" of {name}": Path(name).absolute() for name in sys.argv[1:]}
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        costs = measure(checkouts, Path(name))
    empty_s = statistics.median(each.cpu_s for name in checkouts for each in costs[EMPTY, name])
    print(f"{ROUNDS} runs each, by turns; milliseconds: median (quartiles)")
    print(f"{'':<28}{'CPU time':>8}{'':<14}{'time':>7}{'':<13}  × empty Python")
    for command in dict.fromkeys(command for command, _ in costs):
        for checkout in checkouts:
            print(f"{command + checkout:<28}{_row(costs[command, checkout], empty_s)}")
    return int(any(_multiple(costs[command, ""], empty_s) > bar for command, bar in BARS.items()))


if __name__ == "__main__":
    sys.exit(main())

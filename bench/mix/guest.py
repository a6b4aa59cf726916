"""``python -m bench.mix.guest``: calibrate each kind of work, then run one plan in each way; in the machine."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from pathlib import Path

from bench.mix.figures import figures, table
from bench.mix.kinds import KINDS, command
from bench.mix.layer import INPUT
from bench.mix.plan import USERS, Cost, Plan, draw_plan
from bench.mix.round import run
from bench.mix.ways import make_slices, penstock, plain, slices
from demo import node

_CHECKOUT = Path(__file__).parents[2]
#: Each kind runs alone with these sizes; a line through the two CPU times is its cost.
_SMALL, _LARGE = 1.0, 6.0


def run_alone(kind: str, units: float, directory: Path) -> tuple[float, float]:
    """Return the CPU time of a job and the time that it took, in seconds.

    Raises:
        subprocess.CalledProcessError: the job failed.
        FileNotFoundError: it left no result.
    """
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    argv = ["sh", "-euc", command(kind, units, INPUT, directory)]
    began_s = time.monotonic()
    process = subprocess.Popen(argv)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began_s
    if status != 0:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), argv)
    (directory / "result").stat()
    return used.ru_utime + used.ru_stime, took_s


def fit(small_cpu_s: float, large_cpu_s: float) -> Cost:
    """Return the cost whose line goes through both CPU times; neither part of it is negative."""
    unit_cpu_s = max(0.0, (large_cpu_s - small_cpu_s) / (_LARGE - _SMALL))
    return Cost(max(0.0, small_cpu_s - unit_cpu_s * _SMALL), unit_cpu_s)


def calibrate(directory: Path) -> dict[str, Cost]:
    """Return the cost of each kind, each run alone; print a line of JSON for each."""
    run_alone("copy", 1.0, directory)  # reads the text once
    costs = {}
    for kind in KINDS:
        small_cpu_s, _ = run_alone(kind.name, _SMALL, directory)
        large_cpu_s, _ = run_alone(kind.name, _LARGE, directory)
        costs[kind.name] = cost = fit(small_cpu_s, large_cpu_s)
        print(json.dumps({"kind": kind.name} | dataclasses.asdict(cost)), flush=True)
    return costs


def measure(way: str, plan: Plan, directory: Path) -> dict[str, float]:
    """Run the plan in one way; return its figures. Penstock knows nothing of the jobs when it begins."""
    directory.mkdir()
    if way == "plain":
        return figures(asyncio.run(run(plan, plain, directory)))
    if way == "slices":
        make_slices()
        return figures(asyncio.run(run(plan, slices, directory)))
    with node.running(directory, {}, {}) as up:
        before_s = sum(up.cpu_seconds().values())
        made = figures(asyncio.run(run(plan, penstock(up.socket), directory)))
        return made | {"daemons_cpu_s": sum(up.cpu_seconds().values()) - before_s}


def compile_packages() -> None:
    """Compile the checkout's packages, as pip does: their users may not write there, and would do it for each job."""
    packages = [str(_CHECKOUT / name) for name in ("penstock", "agent", "master")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


def main(arguments: list[str]) -> int:
    """Calibrate, then measure each way on the same plan; the status is 1 if a job failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.guest", description=__doc__)
    parser.add_argument("--ways", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--window-s", type=float, required=True)
    options = parser.parse_args(arguments)
    for user in USERS:
        subprocess.run(["useradd", "--create-home", user], check=True)
    Path("/root").chmod(0o711)  # users run the checkout's commands
    compile_packages()
    work = Path("/srv/mix")
    work.mkdir()
    costs = calibrate(work / "alone")
    plan = draw_plan(options.seed, KINDS, costs, window_s=options.window_s, cores=float(os.cpu_count() or 1))
    print(f"{len(plan.jobs)} jobs, load {plan.load:.2f}, seed {plan.seed}, {platform.release()}", flush=True)
    measured = {}
    for way in options.ways.split(","):
        measured[way] = measure(way, plan, work / way)
        print(json.dumps({"way": way} | measured[way]), flush=True)
    for made in measured.values():
        made.setdefault("daemons_cpu_s", 0.0)
    print(table(measured))
    return int(any(made["failed"] for made in measured.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

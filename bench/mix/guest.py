"""``python -m bench.mix.guest``: calibrate each kind of work, then run plans in each way; in the machine."""

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

import psutil

from bench.mix import slurm
from bench.mix.figures import figures, mean_of, table
from bench.mix.kinds import KINDS, command
from bench.mix.layer import INPUT
from bench.mix.plan import USERS, Cost, Plan, draw_plan, first_pass
from bench.mix.round import run
from bench.mix.ways import Start, make_slices, master_settings, penstock, plain, slices, static
from demo import node

_CHECKOUT = Path(__file__).parents[2]
#: Each kind runs alone with these sizes; a line through the two CPU times is its cost.
_SMALL, _LARGE = 1.0, 6.0
_BY_THE_KERNEL: dict[str, Start] = {"plain": plain, "slices": slices, "static": static}


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


def measure(way: str, plan: Plan, costs: dict[str, Cost], directory: Path) -> dict[str, float]:
    """Run the plan in one way; return its figures.

    Penstock knows nothing of the jobs when it begins; ``known``: the recurring ones have run once.
    """
    directory.mkdir(parents=True)
    if way in _BY_THE_KERNEL:
        return _round(plan, _BY_THE_KERNEL[way], directory)
    if way in slurm.OVERSUBSCRIBE:
        with slurm.running(way):
            return _round(plan, slurm.slurm, directory)
    with node.running(directory, {}, master_settings(way)) as up:
        start = penstock(up.socket)
        if way.endswith("known"):
            asyncio.run(run(first_pass(plan, costs), start, directory))
        before_s = sum(up.cpu_seconds().values())
        made = _round(plan, start, directory)
        return made | {"daemons_cpu_s": sum(up.cpu_seconds().values()) - before_s}


def _round(plan: Plan, start: Start, directory: Path) -> dict[str, float]:
    """Return the figures of one round, with the CPU time that the whole machine took for it."""
    before = psutil.cpu_times()
    made = figures(asyncio.run(run(plan, start, directory)))
    now = psutil.cpu_times()
    return made | {"host_cpu_s": sum(now) - now.idle - now.iowait - (sum(before) - before.idle - before.iowait)}


def compile_packages() -> None:
    """Compile the checkout's packages, as pip does: their users may not write there, and would do it for each job."""
    packages = [str(_CHECKOUT / name) for name in ("penstock", "agent", "master")]
    subprocess.run([sys.executable, "-m", "compileall", "-q", *packages], check=True)


def main(arguments: list[str]) -> int:
    """Calibrate, then measure each way on the same plans; the status is 1 if a job failed."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.guest", description=__doc__)
    parser.add_argument("--ways", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--seeds", type=int, required=True)
    parser.add_argument("--window-s", type=float, required=True)
    options = parser.parse_args(arguments)
    for user in USERS:
        subprocess.run(["useradd", "--create-home", user], check=True)
    Path("/root").chmod(0o711)  # users run the checkout's commands
    compile_packages()
    work = Path("/srv/mix")
    work.mkdir()
    make_slices(os.cpu_count() or 1)
    costs = calibrate(work / "alone")
    measured: dict[str, list[dict[str, float]]] = {way: [] for way in options.ways.split(",")}
    for seed in range(options.seed, options.seed + options.seeds):
        plan = draw_plan(seed, KINDS, costs, window_s=options.window_s, cores=float(os.cpu_count() or 1))
        print(f"{len(plan.jobs)} jobs, load {plan.load:.2f}, seed {plan.seed}, {platform.release()}", flush=True)
        # The ways take turns, and each seed begins with another one.
        turned = list(measured)
        for way in turned[seed % len(turned) :] + turned[: seed % len(turned)]:
            made = measure(way, plan, costs, work / way / str(seed))
            measured[way].append(made)
            print(json.dumps({"way": way, "seed": seed} | made), flush=True)
    print(table({way: mean_of(rounds) for way, rounds in measured.items()}))
    return int(any(made["failed"] for rounds in measured.values() for made in rounds))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

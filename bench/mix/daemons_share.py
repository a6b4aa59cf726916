"""``python -m bench.mix.daemons_share``: the daemons' part of all cores beside the jobs of a plan, on this host itself.

In the machine in user mode a system call costs ten times what it does on hosts, and the daemons mostly make system
calls. Here each job of a plan only computes, for the CPU time that it has in the plan, and all is as installed. Where
the agent has no controllers of cgroup v2 (it says so) it ranks by nice values, which costs less than cgroups do.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from bench.mix.__main__ import costs as costs_file
from bench.mix.__main__ import minutes
from bench.mix.calibration import COSTS, costs_of
from bench.mix.jobs import Job
from bench.mix.kinds import KINDS
from bench.mix.plan import Plan, draw_plan
from bench.mix.through_penstock import COMMAND, job_file
from demo import node

#: Computes until the process has used so many seconds of CPU time.
_BURN = "import sys, time\nwhile time.process_time() < float(sys.argv[1]): sum(range(50_000))"


def submitted(job: Job, up: node.Node, directory: Path) -> subprocess.Popen[bytes]:
    """Submit a job that computes for the plan's CPU time, by a process that waits for its end."""
    file = directory / f"{job.number}.toml"
    command = f"exec {sys.executable} -ISc '{_BURN}' {job.cpu_s:.3f}"
    file.write_text(job_file(job, command, clairvoyant=False), encoding="ascii")
    environment = os.environ | {"PENSTOCK_SOCKET": str(up.socket)}
    argv = [COMMAND, "submit", "--quiet", str(file)]
    return subprocess.Popen(argv, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)


def play(plan: Plan, up: node.Node, directory: Path) -> float:
    """Submit each job at its arrival; return the time until the last one has ended, in seconds.

    Raises:
        RuntimeError: a job failed.
    """
    began = time.monotonic()
    waiting = []
    for job in plan.jobs:
        if job.cpu_s:  # the hog has none
            time.sleep(max(0.0, began + job.arrival_s - time.monotonic()))
            waiting.append(submitted(job, up, directory))
    if failed := sum(each.wait() != 0 for each in waiting):
        raise RuntimeError(f"{failed} jobs failed")
    return time.monotonic() - began


def report(plan: Plan, took_s: float, daemons_s: Mapping[str, float], commands_s: float) -> str:
    """A line for each daemon, and one for the command lines of users, which are not part of the sum."""
    available_s = plan.cores * took_s
    lines = [f"plan {plan.seed}: {len(plan.jobs)} jobs, load {plan.load:.2f}, {took_s:.0f} s on {plan.cores:g} cores"]
    of = {**daemons_s, "the daemons": sum(daemons_s.values()), "penstock submit": commands_s}
    lines += [f"  {name:<18} {used_s:7.2f} s  {100 * used_s / available_s:6.2f} %" for name, used_s in of.items()]
    return "\n".join(lines)


def main(arguments: Sequence[str]) -> int:
    """Print the parts for a plan."""
    parser = argparse.ArgumentParser(prog="python -m bench.mix.daemons_share", description=__doc__)
    parser.add_argument("--minutes", type=minutes, default=3.0, metavar="M", help="of arrivals, one or more [3]")
    parser.add_argument("--seed", type=int, default=2, metavar="N", help="of the plan [2]")
    parser.add_argument(
        "--costs", type=costs_file, default=str(COSTS), metavar="FILE", help="a run's `calibration` [%(default)s]"
    )
    options = parser.parse_args(arguments)
    cores = float(len(os.sched_getaffinity(0)))
    costs = costs_of(options.costs.encode())
    plan = draw_plan(options.seed, KINDS, costs, window_s=60 * options.minutes, cores=cores)
    with tempfile.TemporaryDirectory(prefix="penstock-bench-") as name:
        directory = Path(name)
        with node.running(directory, {}, {}) as up:
            before = up.cpu_seconds()
            children_before_s = _children_s()
            took_s = play(plan, up, directory)
            daemons_s = {each: used_s - before[each] for each, used_s in up.cpu_seconds().items()}
            print(report(plan, took_s, daemons_s, _children_s() - children_before_s))
    return 0


def _children_s() -> float:
    """CPU time of this process's children that have ended: those that submit, as jobs are the launcher's."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

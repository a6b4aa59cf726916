"""``python -m demo.turns``: the jobs of the demonstration under plain Linux and through Penstock, by turns.

The runs of one demonstration are minutes apart, and a shared host may be a fifth slower by then. Here each way has a
run in each turn, in another order than in the turn before, so slow changes are the same for both, and each difference
has a standard error. Penstock has seen the jobs in a run that is not counted.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import math
import shutil
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, stdev

from demo import node
from demo.__main__ import guarded
from demo.plan import Plan
from demo.progress import Progress
from demo.records import PENSTOCK
from demo.report import figures
from demo.run import Runner
from demo.show import Options, even_out, linked, prepared, work_directory
from penstock.client import AgentClient

#: The ways, and the executors of the demonstration that they are.
WAYS = {"plain Linux": "plain", "Penstock": "penstock"}
#: The printed figures, and how they are written.
_FIGURES = {
    "makespan": "{:.2f} ± {:.2f} s",
    "mean job completion time": "{:.2f} ± {:.2f} s",
    "CPU time of the jobs": "{:.2f} ± {:.2f} s",
    "CPU time of the jobs / of all cores": "{:.1f} ± {:.1f} %",
    "CPU time of Penstock itself": "{:.2f} ± {:.2f} s",
    "a fixed piece of work": "{:.2f} ± {:.2f} ms",
}
#: Those of which the change is printed, too.
_COMPARED = ("makespan", "mean job completion time", "CPU time of the jobs")


def mean_and_error(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean and its standard error; NaN for a single value."""
    return fmean(values), stdev(values) / math.sqrt(len(values)) if len(values) > 1 else math.nan


def table(found: Mapping[str, Sequence[Mapping[str, float]]]) -> list[str]:
    """Return a line for each figure: its mean and standard error in each way, then the changes beside the first way."""
    first, *others = found
    lines = [f"{'':36}" + "".join(f"{way:>18}" for way in found)]
    for name, written in _FIGURES.items():
        cells = [written.format(*mean_and_error([one[name] for one in runs])) for runs in found.values()]
        lines.append(f"{name:36}" + "".join(f"{cell:>18}" for cell in cells))
    for other in others:
        for name in _COMPARED:
            changes = [100 * (a[name] / b[name] - 1) for a, b in zip(found[other], found[first], strict=True)]
            lines.append("{} beside {}: {} {:+.1f} ± {:.1f} %".format(other, first, name, *mean_and_error(changes)))
    return lines


async def take_turns(plan: Plan, up: node.Node, turns: int, progress: Progress) -> dict[str, list[dict[str, float]]]:
    """Run each way once in each turn; return the figures of its runs."""
    found: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
    async with await AgentClient.connect(up.socket, client="demo") as agent:
        await linked(agent)
        plan = replace(plan, socket=up.socket, cpu_max_enforced="cpu" in agent.welcome.enforced)
        await _one(agent, plan, up, PENSTOCK[0], progress)
        for turn in range(turns):
            for way in list(WAYS)[:: -1 if turn % 2 else 1]:
                found[way].append(await _one(agent, plan, up, WAYS[way], progress))
    return found


async def _one(agent: AgentClient, plan: Plan, up: node.Node, executor: str, progress: Progress) -> dict[str, float]:
    """Run all jobs once, and remove what they wrote."""
    await asyncio.to_thread(even_out, plan)
    progress.phase(f"{executor}: all jobs")
    before_s = sum(up.cpu_seconds().values())
    run = await Runner(agent, plan, executor, progress.update).run()
    daemons_s = sum(up.cpu_seconds().values()) - before_s
    progress.done()
    shutil.rmtree(plan.directory / executor)
    made = figures(run, plan)
    values = (made.makespan_s, made.mean_completion_s, made.used, 100 * made.utilization, daemons_s, 1000 * run.look_s)
    return dict(zip(_FIGURES, values, strict=True))


def main(arguments: Sequence[str]) -> int:
    """Run the command; each error is one line."""
    parser = argparse.ArgumentParser(prog="python -m demo.turns", description="The demonstration's jobs, by turns.")
    parser.add_argument("--turns", type=int, metavar="N", default=8, help="default: 8, of half a minute each")
    parser.add_argument("--megabytes", type=int, metavar="N", default=None, help="as for python -m demo")
    options = parser.parse_args(arguments)
    if options.turns < 1:
        parser.error("--turns: must be at least 1")
    if options.megabytes is not None and options.megabytes < 1:
        parser.error("--megabytes: must be at least 1")
    return guarded("demo.turns", lambda: _measure(Options(None, options.megabytes, Path.cwd()), options.turns))


def _measure(options: Options, turns: int) -> int:
    progress = Progress()
    with contextlib.ExitStack() as stack:
        plan, _ = prepared(options, stack.enter_context(work_directory(options)), progress)
        # Sockets have short paths only, so they live in the system's directory for temporary files.
        private = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="penstock-demo-")))
        settings = {**plan.agent_settings, "http": options.http}
        up = stack.enter_context(node.running(private, settings, plan.master_settings))
        found = asyncio.run(take_turns(plan, up, turns, progress))
    for line in table(found):
        progress.line(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The command: ``check`` compares answers, ``compare`` runs jobs at once and prints the results."""

from __future__ import annotations

import argparse
import json
import math
import os
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import mean, median
from typing import Any

from bench.tpch.compare import WAYS, WITH_AGENT, Plan, RunFailed, run
from bench.tpch.data import prepare
from bench.tpch.queries import QUERIES
from bench.tpch.records import Figures
from penstock.model.units import parse_bytes


def main(arguments: Sequence[str]) -> int:
    """The exit status: 1 where an answer is wrong or a run failed."""
    options = _parse(arguments)
    data = prepare(options.scale, options.parts)
    return int(options.does(options, data))


def _parse(arguments: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.tpch", description=__doc__)
    which = parser.add_subparsers(required=True)
    checks = which.add_parser("check", help="every answer, held to DuckDB's")
    checks.set_defaults(does=check)
    compares = which.add_parser("compare", help="jobs at once, one way after the other, in turns")
    compares.set_defaults(does=compare)
    for each, scale, parts in ((checks, 0.05, 4), (compares, 1.0, 8)):
        each.add_argument(
            "--scale", type=float, default=scale, help="scale factor; 1 is about 1 GB (default: %(default)s)"
        )
        each.add_argument("--parts", type=int, default=parts, help="files of a large table (default: %(default)s)")
        each.add_argument(
            "--queries", type=_numbers, default=tuple(sorted(QUERIES)), help="such as 1,6,14 (default: all)"
        )
    compares.add_argument(
        "--at-once", action="store_true", help="each job submits all its queries in the beginning, so that all is known"
    )
    compares.add_argument(
        "--every", type=_seconds, default=0.0, metavar="S", help="a job begins so many seconds after the one before (0)"
    )
    compares.add_argument("--jobs", type=int, default=4)
    compares.add_argument("--rounds", type=int, default=5)
    compares.add_argument(
        "--ways", type=_ways, default=WAYS, help="such as static,penstock,penstock:srjf, which names an ordering"
    )
    compares.add_argument(
        "--unequal", action="store_true", help="jobs of different length: the first runs all queries, the last few"
    )
    compares.add_argument(
        "--set",
        type=_setting,
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a key of penstock in Dask's configuration, as network=False",
    )
    compares.add_argument(
        "--memory", type=parse_bytes, default=16 * 2**30, help="of all workers together (default: 16 GiB)"
    )
    compares.add_argument("--ordering", default="", help="the master's order of jobs (default: no master)")
    compares.add_argument("--timeout-s", type=float, default=3600.0, help="for one run (default: %(default)s)")
    compares.add_argument(
        "--keep",
        type=Path,
        metavar="DIRECTORY",
        help="keep the logs, in a directory there for each round (a short path)",
    )
    compares.add_argument("--json", type=Path, help="write every run to this file")
    return parser.parse_args(arguments)


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of seconds")
    return value


def _setting(text: str) -> str:
    if "=" not in text:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    return text


def _ways(text: str) -> tuple[str, ...]:
    ways = tuple(text.split(","))
    for way in ways:
        if way not in WAYS and not (":" in way and way.partition(":")[0] in WITH_AGENT):
            raise argparse.ArgumentTypeError(
                f"there is no way {way!r}; there are {', '.join(WAYS)}, penstock:ORDERING, gated:ORDERING"
            )
    return ways


def _numbers(text: str) -> tuple[int, ...]:
    numbers = tuple(int(part) for part in text.split(","))
    unknown = [number for number in numbers if number not in QUERIES]
    if unknown:
        raise argparse.ArgumentTypeError(f"TPC-H has no query {unknown[0]}")
    return numbers


# ---------------------------------------------------------------- check


def check(options: argparse.Namespace, data: Path) -> int:
    """Print a table of all answers."""
    import dask

    from bench.tpch.answers import differences
    from bench.tpch.frames import Tables
    from bench.tpch.reference import Reference

    configured: Any = dask.config
    tables = Tables.open(data, options.scale)
    reference = Reference(data, options.scale)
    wrong = 0
    print(f"TPC-H at scale {options.scale:g}, held to DuckDB's answers\n{'query':<42}{'rows':>7}{'s':>8}  answer")
    with configured.set(scheduler="threads"):
        for number in options.queries:
            query = QUERIES[number]
            began = time.perf_counter()
            rows = 0
            try:
                ours = query.answer(query.plan(tables).compute())
                rows = len(ours)
                found = differences(ours, reference.answer(number), query.order)
            except Exception as error:  # noqa: BLE001 - a query that fails is one line of the table; the others go on
                found = [f"{type(error).__name__}: {error}"]
            wrong += bool(found)
            title, took_s = f"{query.name} {query.title}", time.perf_counter() - began
            print(f"{title:<42}{rows:>7}{took_s:>8.2f}  {'; '.join(found) or 'equal'}", flush=True)
    reference.close()
    print(f"{len(options.queries) - wrong} of {len(options.queries)} equal")
    return 1 if wrong else 0


# ---------------------------------------------------------------- compare


def compare(options: argparse.Namespace, data: Path) -> int:
    """Alternate between the ways, each round beginning with another; print each run, then the medians."""
    made: dict[str, list[Figures]] = {way: [] for way in options.ways}
    job_s: dict[str, list[list[float]]] = {way: [] for way in options.ways}
    runs = []
    with tempfile.TemporaryDirectory(prefix="penstock-tpch-") as scratch:
        root = options.keep or Path(scratch)
        plan = Plan(
            data=data,
            directory=root,
            scale=options.scale,
            jobs=options.jobs,
            cores=len(os.sched_getaffinity(0)),
            queries=options.queries,
            memory_bytes=options.memory,
            ordering=options.ordering,
            timeout_s=options.timeout_s,
            unequal=options.unequal,
            at_once=options.at_once,
            every_s=options.every,
            settings=tuple(options.set),
        )
        arriving = f", one every {plan.every_s:g} s" if plan.every_s else ""
        print(f"{plan.jobs} jobs of {_lengths(plan)} queries at scale {plan.scale:g} on {plan.cores} cores{arriving}")
        print(_row("round", "way", *_COLUMNS))
        for number in range(options.rounds):
            plan = replace(plan, directory=root / f"round-{number + 1}")
            plan.directory.mkdir(parents=True, exist_ok=True)
            first = number % len(options.ways)
            for way in options.ways[first:] + options.ways[:first]:
                try:
                    done = run(plan, way)
                except RunFailed as failure:
                    print(f"{way}: {failure}\n{_logs(plan.directory, way)}", file=sys.stderr)
                    return 1
                made[way].append(Figures.of(done))
                runs.append({"round": number, **done._asdict(), "jobs": [job._asdict() for job in done.jobs]})
                print(_row(str(number + 1), way, *_shown(made[way][-1])), flush=True)
                job_s[way].append([job.job_s for job in done.jobs])
                if done.orders:
                    print(f"        in order: {'; then '.join(', '.join(order) for order in done.orders)}", flush=True)
                if options.json:
                    options.json.write_text(json.dumps({"scale": plan.scale, "runs": runs}), encoding="utf-8")
    for way, figures in made.items():
        print(_row("median", way, *_medians(figures)))
    for way, times in job_s.items():
        each = " ".join(f"{median(one):.1f}" for one in zip(*times, strict=True))
        print(f"jobs of {way}: {each} s")
    for way, figures in made.items():
        spread = [each.makespan_s for each in figures]
        print(f"makespan of {way}: {min(spread):.1f} to {max(spread):.1f} s, mean {mean(spread):.1f} s")
    return 0


def _lengths(plan: Plan) -> str:
    """How many queries the jobs have, each number once."""
    return "/".join(str(length) for length in dict.fromkeys(len(queries) for queries in plan.work()))


_COLUMNS = ("makespan s", "mean job s", "SE %", "UE %", "CPU used %", "in tasks s", "used s", "others s")


def _shown(figures: Figures) -> list[str]:
    return [
        f"{figures.makespan_s:.1f}",
        f"{figures.mean_job_s:.1f}",
        f"{100 * figures.se:.1f}",
        f"{100 * figures.ue:.1f}",
        f"{100 * figures.utilization:.1f}",
        f"{figures.task_cpu:.1f}",
        f"{figures.used:.1f}",
        f"{figures.others:.1f}",
    ]


def _medians(figures: list[Figures]) -> list[str]:
    columns = zip(*([float(text) for text in _shown(each)] for each in figures), strict=True)
    return [f"{median(column):.1f}" for column in columns]


def _row(number: str, way: str, *values: str) -> str:
    return f"{number:<8}{way:<16}" + "".join(f"{value:>12}" for value in values)


def _logs(directory: Path, way: str) -> str:
    """Return the end of the logs of the jobs of that way."""
    ends = []
    for path in sorted(directory.glob(f"{way}-*.log")):
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()[-8:]
        ends += [f"{path.name}: {line}" for line in lines]
    return "\n".join(ends)

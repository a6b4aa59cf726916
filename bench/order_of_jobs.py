"""Orders of jobs over many mixes of work: which are near the best everywhere, and the cost of thresholds of las_mq.

python -m bench.order_of_jobs --traces DIR           # the tables of docs/benchmarks/order-of-jobs.md
python -m bench.order_of_jobs --traces DIR --las-mq  # thresholds of las_mq

Every figure is of the simulator's ranked model (``penstock simulate order/heavy``) with the seeds 0 to 4: their mean
and standard deviation. DIR holds
``swim/FB-2010_samples_24_times_1hr_0.tsv`` and ``lumos/lumos_series.csv``; without it those mixes are left out.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from simulator.scenario import Run, load, run, shipped
from simulator.scenario.loader import Point
from simulator.scenario.runner import cores

SEEDS = range(5)
LOADS = (0.7, 0.9)


@dataclass(frozen=True)
class Mix:
    """A scenario of ``order/``; ``trace`` is the file that it needs, in the folder of the traces."""

    name: str
    scenario: str
    trace: str = ""
    settings: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Policy:
    """An order, with its settings."""

    name: str
    settings: dict[str, Any]


_SWIM, _LUMOS = "swim/FB-2010_samples_24_times_1hr_0.tsv", "lumos/lumos_series.csv"
MIXES = (
    Mix("heavy", "order/heavy"),
    Mix("recurring", "order/recurring"),
    Mix("light", "order/light"),
    Mix("mixed", "order/mixed"),
    Mix("swim", "order/swim", _SWIM),
    Mix("lumos, workloads", "order/lumos", _LUMOS),
    Mix("lumos, programs", "order/lumos", _LUMOS, {"workload.trace.application": "program"}),
)


def las_mq(first: float, step: float) -> Policy:
    """Return LAS_MQ with these thresholds, first come, first served in a queue."""
    settings = {"policy.name": "las_mq", "policy.first_threshold": first, "policy.step": step}
    return Policy(f"las_mq {first:g}, ×{step:g}", settings)


def named(name: str) -> Policy:
    """Return an order that has no settings."""
    return Policy(name, {"policy.name": name})


BEST = named("srpt")
POLICIES = (
    named("fifo"), named("fair"), las_mq(100, 10), las_mq(0.5, 2), named("las"), named("gittins"), BEST,
)  # fmt: skip
THRESHOLDS = (BEST, named("las"), *(las_mq(first, step) for first in (0.5, 2, 8, 32, 128) for step in (2, 4, 10)))


def point(mix: Mix, policy: Policy, at_load: float, seed: int, traces: Path | None) -> Point:
    """Return one run."""
    settings = mix.settings | policy.settings | {"server.load": at_load, "seed": seed}
    if mix.trace and traces is not None:
        settings["workload.trace.file"] = str(traces / mix.trace)
    [only] = load(shipped(mix.scenario), settings).points()
    return only


def figures(of: Run) -> tuple[float, float, float]:
    """Return the mean response time, the mean slowdown, and the 95th percentile of the smaller half's response."""
    return (
        of.report.mean_response_s,
        of.report.mean_slowdown or 0.0,
        of.report.measures["smaller_half_response_p95_s"],
    )


Found = dict[tuple[str, str, float], list[tuple[float, float, float]]]


def measured(mixes: Sequence[Mix], policies: Sequence[Policy], loads: Sequence[float], traces: Path | None) -> Found:
    """Run everything on all cores: (mix, policy, load) → figures, seed by seed."""
    keys = [(mix, policy, at, seed) for mix in mixes for policy in policies for at in loads for seed in SEEDS]
    runs = run([point(*key, traces) for key in keys], processes=cores())
    found: Found = {}
    for (mix, policy, at, _), one in zip(keys, runs, strict=True):
        found.setdefault((mix.name, policy.name, at), []).append(figures(one))
    return found


def spread(values: Sequence[float]) -> str:
    """Return the mean and the standard deviation over the seeds."""
    return f"{statistics.mean(values):.3g} ± {statistics.stdev(values):.2g}"


def table(title: str, mixes: Sequence[Mix], policies: Sequence[Policy], cell: Any) -> list[str]:
    """Return a table of Markdown: mixes × policies."""
    head = [f"| {title} | {' | '.join(policy.name for policy in policies)} |", "|---" * (len(policies) + 1) + "|"]
    rows = [f"| {mix.name} | {' | '.join(cell(mix.name, policy.name) for policy in policies)} |" for mix in mixes]
    return [*head, *rows, ""]


def ratios(found: Found, mix: str, policy: str, at: float, figure: int = 0) -> list[float]:
    """Return a figure ÷ that of the clairvoyant order with the same jobs, seed by seed."""
    pairs = zip(found[mix, policy, at], found[mix, BEST.name, at], strict=True)
    return [mine[figure] / best[figure] for mine, best in pairs]


def compared(mixes: Sequence[Mix], traces: Path | None) -> list[str]:
    """Return the tables that compare all orders."""
    found, lines = measured(mixes, POLICIES, LOADS, traces), []
    for at in LOADS:
        lines += table(
            f"load {at:g}: mean response ÷ srpt's", mixes, POLICIES, lambda m, p, at=at: spread(ratios(found, m, p, at))
        )
        for figure, title in ((1, "mean slowdown"), (2, "p95 of the smaller half, s")):
            lines += table(
                f"load {at:g}: {title}",
                mixes,
                POLICIES,
                lambda m, p, at=at, n=figure: spread([each[n] for each in found[m, p, at]]),
            )
    return lines


def thresholds(mixes: Sequence[Mix], traces: Path | None) -> list[str]:
    """Return the mean response of las_mq by its thresholds, and the worst of all mixes, at the larger load."""
    at = LOADS[-1]
    found = measured(mixes, THRESHOLDS, [at], traces)
    policies = [policy for policy in THRESHOLDS if policy is not BEST]
    lines = [
        f"| load {at:g}: mean response ÷ srpt's | {' | '.join(mix.name for mix in mixes)} | worst |",
        "|---" * (len(mixes) + 2) + "|",
    ]
    for policy in policies:
        means = [statistics.mean(ratios(found, mix.name, policy.name, at)) for mix in mixes]
        lines.append(f"| {policy.name} | {' | '.join(f'{mean:.2f}' for mean in means)} | {max(means):.2f} |")
    return [*lines, ""]


def main(argv: list[str] | None = None) -> None:
    """See the module."""
    parser = argparse.ArgumentParser(prog="python -m bench.order_of_jobs")
    parser.add_argument("--traces", type=Path, help="the folder with the public traces")
    parser.add_argument("--las-mq", action="store_true", help="thresholds of las_mq instead of all orders")
    given = parser.parse_args(argv)
    if given.traces is not None and not given.traces.is_dir():
        parser.error(f"--traces: {given.traces}: no such directory; leave it out to do without the traces")
    mixes = [
        mix for mix in MIXES if not mix.trace or (given.traces is not None and (given.traces / mix.trace).is_file())
    ]
    lines = thresholds(mixes, given.traces) if given.las_mq else compared(mixes, given.traces)
    sys.stdout.write("\n".join(lines))


if __name__ == "__main__":
    main()

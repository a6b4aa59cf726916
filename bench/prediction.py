"""How well runs foretell the next one: each third run of a lumos file, forecast from the two before it.

``python -m bench.prediction FILE``: usage recorded second by second (``lumos_series.csv``); nothing of it is kept.
``python -m bench.prediction --generated``: how the choice between the mean and the last run does on generated series.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from master.prediction import Errors, Predictor, Rules, Run, Settings, errors_of
from master.prediction.recent import forecast_of_latest, walk_forward
from master.prediction.runs import RESOURCES, Floats
from simulator.traces import lumos
from simulator.traces.lumos import LumosRun

_NEAR = 0.2
#: Of the logarithm of a generated level.
_SIGMA = 0.3


def slots_of(run: LumosRun, slot_s: float) -> Run:
    """Return the samples' means and peaks in each slot, the last one as long as samples were taken in it."""
    usage = np.array([each.amounts for each in run.samples])
    slots = (np.array([each.t_s for each in run.samples]) // slot_s).astype(int)

    def of(slot: int) -> Floats:
        within: Floats = usage[slots == slot]
        return within

    mean = np.array([of(slot).mean(axis=0) for slot in np.unique(slots)]).T
    peak = np.array([of(slot).max(axis=0) for slot in np.unique(slots)]).T
    ended_s = run.samples[-1].t_s + run.interval_s
    last_part = min(1.0, ended_s / slot_s - slots[-1])
    return Run(Settings(0, 8.0, 32 * 2**30), mean, peak, last_part=last_part)


def measure(runs: Sequence[LumosRun], slot_s: float) -> dict[str, Errors]:
    """Workload → how far the forecast of its third run was off."""
    by_workload: dict[str, list[Run]] = {}
    for run in runs:
        by_workload.setdefault(run.workload, []).append(slots_of(run, slot_s))
    found = {}
    for workload, (*before, last) in sorted(by_workload.items()):
        if len(before) >= 2:
            forecast = Predictor(Rules(runs=2)).predict(last.settings, before)
            found[workload] = errors_of(forecast, last)
    return found


def _levels(kind: str, runs: int, rng: np.random.Generator) -> Floats:
    """Return the level of usage of each of so many runs."""
    if kind == "independent":
        levels = np.exp(rng.normal(0, _SIGMA, runs))
    elif kind == "walk":
        levels = np.exp(np.cumsum(rng.normal(0, _SIGMA, runs)))
    else:
        levels = 2.0 ** (np.arange(runs) % 2) * np.exp(rng.normal(0, 0.05, runs))
    return np.asarray(levels, dtype=np.float64)


def generated(kind: str, known: int, *, series: int = 1000, seed: int = 1) -> dict[str, float]:
    """Return each forecast's mean error of the CPU's total in the run after ``known`` runs; above 1 counts as 1."""
    rng = np.random.default_rng(seed)
    errors: dict[str, list[float]] = {}
    for _ in range(series):
        usage = [np.full((len(RESOURCES), 1), level) for level in _levels(kind, known + 1, rng)]
        runs = [Run(Settings(0, 1.0, 1), each, each) for each in usage]
        forecasts, last = list(walk_forward(runs))[-1]
        for name, forecast in {**forecasts, "chosen": forecast_of_latest(runs[:-1])}.items():
            errors.setdefault(name, []).append(min(1.0, errors_of(forecast, last).total["cpu"]))
    return {name: statistics.mean(values) for name, values in errors.items()}


def _print_generated() -> None:
    print("mean error of the CPU's total in the next run")
    for kind in ("independent", "walk", "alternating"):
        for known in (3, 5, 10):
            cells = (f"{name} {error:.0%}" for name, error in generated(kind, known).items())
            print(f"{kind}, {known} runs known: {', '.join(cells)}")


def main(argv: list[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.prediction")
    parser.add_argument("file", type=Path, nargs="?", help="lumos_series.csv")
    parser.add_argument("--slot-s", type=float, default=3.0)
    parser.add_argument("--sampled-every-s", type=float, default=1.0, help="the runs that were sampled so often")
    parser.add_argument("--generated", action="store_true", help="forecast generated series instead")
    options = parser.parse_args(argv)
    if options.generated:
        _print_generated()
        return 0
    if options.file is None:
        print("needs a file that is not part of Penstock: python -m bench.prediction lumos_series.csv")
        return 0
    text = options.file.read_text(encoding="utf-8").splitlines()
    runs = [run for run in lumos(text, where=str(options.file)) if run.interval_s == options.sampled_every_s]
    found = measure(runs, options.slot_s)
    print("relative errors in percent: of all that was used / of the peak")
    print(f"{'workload':<34}{'length':>8}" + "".join(f"{name:>14}" for name in RESOURCES))
    for workload, errors in found.items():
        cells = (f"{errors.total[name]:>8.0%} /{errors.peak[name]:>4.0%}" for name in RESOURCES)
        print(f"{workload:<34}{errors.length:>8.0%}" + "".join(cells))
    for name in RESOURCES:
        near = [errors.total[name] <= _NEAR for errors in found.values()]
        peak = statistics.median(errors.peak[name] for errors in found.values())
        print(
            f"{name}: {sum(near)} of {len(near)} within {_NEAR:.0%} of the total; median error of the peak {peak:.0%}"
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())

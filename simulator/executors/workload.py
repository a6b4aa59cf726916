"""The applications of a scenario: given inline, drawn as in Elasecutor §V.A.1, or from recorded usage."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, exp
from pathlib import Path
from random import Random

import numpy as np

from master.placement.drr import Floats
from master.placement.executors import RESOURCES
from simulator.executors.shapes import TABLE_II, profile
from simulator.executors.spec import HiBench, Inline, Prediction, Spec, Trace
from simulator.traces.errors import TraceError, text_of
from simulator.traces.lumos import LumosRun, lumos


@dataclass(frozen=True, slots=True, eq=False)
class Application:
    """Executors with equal demand. ``profile`` (resources × slots) is the predicted demand of each.

    True demand is ``factor`` (one per resource) × the profile, over ``stretch`` × its duration. ``stages`` are the
    slots where stages end.
    """

    name: str
    at_s: float
    executors: int
    profile: Floats
    stages: tuple[int, ...]
    factor: Floats
    stretch: float = 1.0


def applications_of(spec: Spec, seed: int) -> list[Application]:
    """Return the applications in the order of submission.

    Raises:
        TraceError: the trace cannot be read or has no such workload.
    """
    rng = Random(seed)  # noqa: S311 - chance that must repeat
    workload, slot_s = spec.workload, spec.cluster.slot_s
    if workload.hibench is not None:
        made = _hibench(workload.hibench, spec.prediction, slot_s, rng)
    elif workload.trace is not None:
        made = _lumos(workload.trace, spec.prediction, slot_s, rng)
    else:
        made = [_inline(inline, spec.prediction, rng) for inline in workload.applications]
    return sorted(made, key=lambda application: application.at_s)


def _factor(prediction: Prediction, rng: Random, *, new: bool = False) -> Floats:
    errors = [prediction.new] * 4 if new else [getattr(prediction, name) for name in RESOURCES]
    return np.array([exp(rng.gauss(0.0, error)) if error else 1.0 for error in errors])


def _stretch(prediction: Prediction, rng: Random) -> float:
    return exp(rng.gauss(0.0, prediction.time)) if prediction.time else 1.0


def _even(slots: int, stages: int) -> tuple[int, ...]:
    """Return the ends of stages that are as equal as slots allow."""
    return tuple(sorted({max(1, round(slots * stage / stages)) for stage in range(1, stages + 1)}))


def _inline(inline: Inline, prediction: Prediction, rng: Random) -> Application:
    slots = max(map(len, inline.series()))
    series = [values or (0.0,) * slots for values in inline.series()]
    ends = tuple(int(end) for end in np.cumsum(inline.stages)) or (slots,)
    factor = _factor(prediction, rng)
    stretch = _stretch(prediction, rng)
    return Application(inline.name, inline.at_s, inline.executors, np.array(series), ends, factor, stretch)


def _hibench(asked: HiBench, prediction: Prediction, slot_s: float, rng: Random) -> list[Application]:
    """Return the applications of §V.A.1. The seed determines only their order and times."""
    names = list(TABLE_II)
    kinds = [
        (name, variant, runtime_s, cores)
        for variant in range(2)  # eight workloads, of which Table II describes four
        for name in names
        for runtime_s in asked.runtimes_s
        for cores in asked.cores
    ]
    chosen = [kinds[number % len(kinds)] for number in range(asked.applications)]
    rng.shuffle(chosen)
    made: list[Application] = []
    at_s = 0.0
    shapes: dict[tuple[str, int, int, float], Floats] = {}

    def add(kind: tuple[str, int, float, float], at_s: float, *, new: bool) -> None:
        name, variant, nominal_s, cores = kind
        runtime_s = nominal_s * (1 + rng.uniform(-asked.resized, asked.resized))
        slots = max(asked.stages, ceil(runtime_s / slot_s))
        key = (name, variant, slots, cores)
        if key not in shapes:
            layout = Random(f"{name} {variant} {nominal_s}")  # noqa: S311 - chance that must repeat
            shapes[key] = profile(name, slots, cores, 2e9 * cores, asked.pieces, layout)
        number, kind_of = len(made), "new" if new else "recurring"
        made.append(
            Application(
                f"{number:03}-{name}-{runtime_s:.0f}s-{cores:g}c-{kind_of}",
                at_s,
                asked.executors,
                shapes[key],
                _even(slots, asked.stages),
                _factor(prediction, rng, new=new),
                _stretch(prediction, rng),
            )
        )

    for kind in chosen:
        at_s += rng.expovariate(1 / asked.mean_interarrival_s) if asked.mean_interarrival_s else 0.0
        add(kind, at_s, new=False)
    for _ in range(asked.new_applications):
        add(rng.choice(kinds), rng.uniform(0, at_s), new=True)
    return made


def _lumos(asked: Trace, prediction: Prediction, slot_s: float, rng: Random) -> list[Application]:
    text = text_of(Path(asked.file))
    runs: dict[str, list[LumosRun]] = {}
    for run in lumos(text.splitlines(), where=asked.file):
        if run.workload.startswith(asked.prefix):
            runs.setdefault(run.workload, []).append(run)
    if not runs:
        raise TraceError(f"{asked.file}: has no workload whose name begins with {asked.prefix!r}")
    sets = {workload: [_slots(run, slot_s) for run in repeats] for workload, repeats in runs.items()}
    names = sorted(sets)
    chosen = [names[number % len(names)] for number in range(asked.applications)]
    rng.shuffle(chosen)
    made, at_s = [], 0.0
    for number, name in enumerate(chosen):
        at_s += rng.expovariate(1 / asked.mean_interarrival_s) if asked.mean_interarrival_s else 0.0
        repeats = sets[name]
        slots = min(each.shape[1] for each in repeats)
        mean: Floats = np.mean([each[:, :slots] for each in repeats], axis=0)
        truth = rng.choice(repeats)[:, :slots].sum(axis=1)
        total = mean.sum(axis=1)
        factor = np.divide(truth, total, out=np.ones(4), where=total > 0) * _factor(prediction, rng)
        stages = _even(slots, asked.stages)
        stretch = _stretch(prediction, rng)
        made.append(Application(f"{number:03}-{name}", at_s, asked.executors, mean, stages, factor, stretch))
    return made


def _slots(run: LumosRun, slot_s: float) -> Floats:
    """Return resources × slots: the means of the samples that begin within each slot."""
    samples = np.array([each.amounts for each in run.samples])
    slots = (np.array([each.t_s for each in run.samples]) // slot_s).astype(int)
    return np.array([samples[slots == slot].mean(axis=0) for slot in np.unique(slots)]).T

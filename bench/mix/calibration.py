"""Measure the cost of each kind of work alone on the machine."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import time
from pathlib import Path

import msgspec

from bench.mix.jobs import Cost
from bench.mix.kinds import KINDS, command
from bench.mix.place import Place

#: The costs of the kinds alone on the machine, as `python -m bench.mix` measured them on 28 November 2026.
COSTS = Path(__file__).with_name("costs.json")
#: Each kind runs alone with these sizes; a line through the two times is its cost.
_SMALL, _LARGE = 1.0, 4.0


def calibrate(place: Place) -> dict[str, Cost]:
    """Return the cost of each kind, each run alone; print a line of JSON for each.

    Raises:
        subprocess.CalledProcessError: a job failed.
        FileNotFoundError: it left no result.
    """
    run_alone("copy", 1.0, place)  # reads the text once
    costs = {}
    for kind in KINDS:
        small = run_alone(kind.name, _SMALL, place)
        large = run_alone(kind.name, _LARGE, place) if kind.sized else small
        costs[kind.name] = cost = fit(small, large)
        print(json.dumps({"kind": kind.name} | dataclasses.asdict(cost)), flush=True)
    return costs


def costs_of(kept: bytes) -> dict[str, Cost]:
    """Return the costs that a run has kept; plans of the same seed and the same costs are the same.

    Raises:
        msgspec.MsgspecError: these are no costs.
        ValueError: a kind has none.
    """
    costs = msgspec.json.decode(kept, type=dict[str, Cost])
    if missing := {kind.name for kind in KINDS} - costs.keys():
        raise ValueError(f"no cost of {', '.join(sorted(missing))}")
    return costs


def run_alone(kind: str, units: float, place: Place) -> tuple[float, float]:
    """Return the CPU time of a job and the time that it took, in seconds.

    Raises:
        subprocess.CalledProcessError: the job failed.
        FileNotFoundError: it left no result.
    """
    directory = place.work / "alone"
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir()
    argv = ["sh", "-euc", command(kind, units, place.inputs, directory)]
    began_s = time.monotonic()
    process = subprocess.Popen(argv, cwd=directory)
    _, status, used = os.wait4(process.pid, 0)
    took_s = time.monotonic() - began_s
    if status != 0:
        raise subprocess.CalledProcessError(os.waitstatus_to_exitcode(status), argv)
    (directory / "result").stat()
    return used.ru_utime + used.ru_stime, took_s


def fit(small: tuple[float, float], large: tuple[float, float]) -> Cost:
    """Return the cost whose lines go through both pairs of CPU time and time; no part of it is negative."""
    (base_cpu_s, unit_cpu_s), (base_s, unit_s) = map(_line, small, large)
    return Cost(base_cpu_s, unit_cpu_s, base_s, unit_s)


def _line(small: float, large: float) -> tuple[float, float]:
    """Return the fixed part, and the part of a unit."""
    unit = max(0.0, (large - small) / (_LARGE - _SMALL))
    return max(0.0, small - unit * _SMALL), unit

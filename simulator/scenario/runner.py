"""Run points on all cores. The order and the reports do not depend on the number of cores."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import Any

import msgspec

from simulator.report import Report
from simulator.scenario.errors import ScenarioError
from simulator.scenario.loader import Point
from simulator.scenario.models import MODELS


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one point."""

    settings: dict[str, Any]
    seed: int
    report: Report


def run(points: Sequence[Point], *, processes: int = 1, done: Callable[[], None] | None = None) -> list[Run]:
    """Run the points and return the runs in their order.

    Args:
        points: points of one or several scenarios.
        processes: the maximum number of processes; with 1, all points run in this process.
        done: called each time a point is done.

    Raises:
        ScenarioError: ``FILE: fault`` if a model cannot run its spec.
    """
    if min(processes, len(points)) <= 1:
        return [_tell(_run_one(point), done) for point in points]
    # Spawn, not fork: a fork would inherit threads and locks of this process, such as a progress bar's.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(min(processes, len(points)), mp_context=context) as pool:
        futures = [pool.submit(_run_one, point) for point in points]
        try:
            for future in as_completed(futures):
                _tell(future.result(), done)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
        return [future.result() for future in futures]


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0))


def _tell(run: Run, done: Callable[[], None] | None) -> Run:
    if done is not None:
        done()
    return run


def _run_one(point: Point) -> Run:
    try:
        report = MODELS[point.model].run(point.spec, point.seed)
    except ValueError as error:
        raise ScenarioError(f"{point.source}: {' '.join(str(error).split())}") from error
    return Run(settings=point.settings, seed=point.seed, report=report)

"""PURE. Quality measures of a plan (Rayon §6.3), except the time of planning, which the caller measures."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, pairwise
from math import sqrt

from master.reservations.gree import Placed
from master.reservations.plan import Plan, Steps
from master.reservations.rdl import Expression, alternatives, atoms_of


@dataclass(frozen=True, slots=True)
class Measures:
    """Measures of requests that were planned together.

    ``accepted`` of ``requests``; ``acceptance``: the same, weighted by the requested work. ``preemption``: the sum of
    all downward steps of the promises, each as a share of the cluster. ``uniformity``: standard deviation ÷ mean of the
    plan's utilization over time; lower is more even. Utilization is that of the fullest resource.
    """

    requests: int
    accepted: int
    acceptance: float
    preemption: float
    uniformity: float


def measure(
    requests: Mapping[str, Expression], placed: Mapping[str, Placed | None], plan: Plan, until: int
) -> Measures:
    """Measure the requests, in their normal form, their placements, and the plan with them over the steps [0,
    until).
    """
    work = {name: work_of(expression) for name, expression in requests.items()}
    accepted = [name for name, given in placed.items() if given is not None]
    asked = sum(work.values())
    utilization = _utilization(plan, until)
    mean = sum(n * share for n, share in utilization) / max(1, until)
    variance = sum(n * (share - mean) ** 2 for n, share in utilization) / max(1, until)
    return Measures(
        requests=len(requests),
        accepted=len(accepted),
        acceptance=sum(work[name] for name in accepted) / asked if asked else 1.0,
        preemption=sum(preemption(given, plan) for given in placed.values() if given is not None),
        uniformity=sqrt(variance) / mean if mean else 0.0,
    )


def work_of(expression: Expression) -> float:
    """Return the work of the first alternative, in bundle-steps times the bundle's cores (1 where it has none)."""
    first = (alternatives(expression, 1000) or [expression])[0]
    return sum(atom.work * (atom.bundle.cpu_cores or 1.0) for atom in atoms_of(first))


def preemption(placed: Placed, plan: Plan) -> float:
    """Return the sum of the downward steps of one request's promise, each as a share of the cluster."""
    held = Steps.sum_of(chain.from_iterable(placed))
    downs = 0.0
    for step, before, after in zip(held.starts[1:], held.rows, held.rows[1:], strict=False):
        shares = [
            (old - new) / has
            for old, new, has in zip(before, after, plan.capacity.at(step), strict=True)
            if has and old > new
        ]
        downs += max(shares, default=0.0)
    return downs


def _utilization(plan: Plan, until: int) -> list[tuple[int, float]]:
    """Return consecutive (steps, share of the fullest resource)."""
    found = []
    marks = sorted({*(step for step in (*plan.free.starts, *plan.capacity.starts) if step < until), until})
    for start, finish in pairwise(marks):
        pairs = zip(plan.free.at(start), plan.capacity.at(start), strict=True)
        found.append((finish - start, max((1 - free / has for free, has in pairs if has), default=0.0)))
    return found

"""A stacked plot of promises over time (like Rayon's Fig. 8 and 19)."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain
from pathlib import Path

import numpy as np

from master.reservations.gree import Placed
from master.reservations.plan import Plan
from penstock.model.units import counted

#: Number of reservations named in the plot; the others share one colour.
_NAMED = 15


def draw(plan: Plan, placed: Mapping[str, Placed], until: int, path: Path) -> None:
    """Plot the resource with the largest promised share, in the steps [0, until), below the line of the capacity.

    Raises: OSError, ValueError: the file cannot be written, or its suffix is not that of an image.
    """
    from matplotlib import pyplot as plt

    names, index = ("cores", "disk bytes/s", "network bytes/s", "memory bytes"), _busiest(plan)
    marks = sorted({0, until, *(step for step in (*plan.free.starts, *plan.capacity.starts) if step < until)})
    starts = np.array(marks[:-1])
    heights = [_held(given, starts, index) for given in placed.values()]
    labels = list(placed)
    if len(heights) > _NAMED:
        rest = np.sum(heights[_NAMED:], axis=0)
        heights, labels = [*heights[:_NAMED], rest], [*labels[:_NAMED], counted(len(placed) - _NAMED, "other")]
    figure, axis = plt.subplots(figsize=(12, 5))
    steps = np.array(marks)
    below = np.zeros(len(starts))
    for height, label in zip(heights, labels, strict=True):
        axis.stairs(below + height, steps, baseline=below, fill=True, label=label, alpha=0.85)
        below = below + height
    capacity = np.array([plan.capacity.at(step)[index] for step in marks[:-1]])
    axis.stairs(capacity, steps, color="black", linewidth=1.5, label="capacity")
    axis.set_xlabel("step")
    axis.set_ylabel(f"{names[index]} promised")
    axis.legend(fontsize="small", loc="upper right")
    figure.tight_layout()
    try:
        figure.savefig(path)
    finally:
        plt.close(figure)


def _busiest(plan: Plan) -> int:
    shares = [0.0, 0.0, 0.0, 0.0]
    for start, _, free in plan.free.runs():
        for index, (left, has) in enumerate(zip(free, plan.capacity.at(start), strict=True)):
            if has:
                shares[index] = max(shares[index], 1 - left / has)
    return shares.index(max(shares))


def _held(placed: Placed, starts: np.ndarray, index: int) -> np.ndarray:
    height = np.zeros(len(starts))
    for piece in chain.from_iterable(placed):
        height[(starts >= piece.start) & (starts < piece.finish)] += piece.amounts[index]
    return height

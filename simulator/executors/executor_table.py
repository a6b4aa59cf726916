"""Running executors as rows of one array, and the tables that the rows refer to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from master.placement.drr import Floats, Ints
from master.placement.executors import RESOURCES

_R = len(RESOURCES)
#: A running executor. ``position`` counts the completed slots of its profile; its plan (a row of the plans' table)
#: begins at slot ``origin`` of the profile and is ``at`` slots old.
#: ``factor`` is truth ÷ prediction, ``stretch`` the same for time, ``scale`` is plan ÷ prediction. ``watched``: it was
#: reprovisioned before, in any stage. ``stuck``: it was watched, is still held back (``bounded``) and is behind.
#: ``helped`` is the fraction of full speed that copies of its tasks elsewhere add.
FIELDS = np.dtype(
    [
        ("key", np.int64),
        ("machine", np.intp),
        ("part", np.intp),
        ("plan", np.intp),
        ("origin", np.intp),
        ("at", np.intp),
        ("position", np.float64),
        ("length", np.intp),
        ("stage", np.intp),
        ("stage_since_s", np.float64),
        ("reprovisioned", np.bool_),
        ("observed", np.bool_),
        ("bounded", np.bool_),
        ("watched", np.bool_),
        ("stuck", np.bool_),
        ("ended_at_s", np.float64),
        ("factor", np.float64, (_R,)),
        ("scale", np.float64, (_R,)),
        ("extra", np.float64, (_R,)),
        ("used", np.float64, (_R,)),
        ("seen_at", np.intp),
        ("stretch", np.float64),
        ("helped", np.float64),
    ]
)
Rows = NDArray[np.void]


def row(**values: Any) -> Rows:
    """Return the row of an executor that begins."""
    made = np.zeros(1, dtype=FIELDS)
    made["ended_at_s"] = np.inf
    made["scale"] = made["stretch"] = 1.0
    for name, value in values.items():
        made[name] = value
    return made


class Table:
    """Numbered matrices of slots × resources; numbers that are given back are used again."""

    def __init__(self, slots: int, fill: float = 0.0) -> None:
        self.values: Floats = np.full((8, slots, _R), fill)
        self._fill = fill
        self._used = 0
        self._free: list[int] = []

    def add(self, values: Floats) -> int:
        """Add a matrix (its own slots × resources) and return its number."""
        number = self._free.pop() if self._free else self._used
        if number == len(self.values):
            self.values = np.concatenate((self.values, np.full_like(self.values, self._fill)))
        self._used = max(self._used, number + 1)
        self.set(number, values)
        return number

    def set(self, number: int, values: Floats) -> None:
        """Replace a matrix."""
        self.values[number] = self._fill
        self.values[number, : len(values)] = values

    def give_back(self, number: int) -> None:
        """Free a number that no row refers to any more."""
        self._free.append(number)


class Parts:
    """The parts of executors' lives that are launched: whole lives or single stages, as predicted.

    ``profiles`` is n × slots × resources; ``ends`` is n × stages, the slots where stages end, padded with the last.
    """

    def __init__(self, slots: int, stages: int) -> None:
        self.profiles = Table(slots)
        self.ends: Ints = np.zeros((0, stages), dtype=np.intp)
        self.demands: list[int] = []
        self._numbers: dict[tuple[bytes, int, tuple[int, ...]], int] = {}

    def number(self, profile: Floats, ends: tuple[int, ...]) -> tuple[int, bool]:
        """Return the number of a part (``profile`` is resources × slots), and whether the part is new."""
        key = (profile.tobytes(), profile.shape[1], ends)
        if key in self._numbers:
            return self._numbers[key], False
        number = self.profiles.add(profile.T)
        padded = ends + (ends[-1],) * (self.ends.shape[1] - len(ends))
        self.ends = np.concatenate((self.ends, np.array([padded], dtype=np.intp)))
        self._numbers[key] = number
        return number, True

    def stage_of(self, parts: Ints, positions: Floats) -> Ints:
        """Return the stage of each position in its part."""
        stages: Ints = (self.ends[parts] <= positions[:, None]).sum(axis=1)
        return stages

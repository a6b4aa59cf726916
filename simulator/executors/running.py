"""The executors that run, as rows of one array, and the tables that the rows refer to."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from master.placement.drr import Floats, Ints
from master.placement.executors import RESOURCES

_R = len(RESOURCES)
#: A running executor. ``position`` counts the slots of its profile that are done; its plan (a row of the plans' table)
#: begins at slot ``origin`` of the profile and is ``at`` slots old.
#: ``factor`` is truth ÷ prediction, ``stretch`` the same of time, ``scale`` plan ÷ prediction. One that was
#: ``watched`` (reprovisioned before, in whatever stage), is held back all the same and is behind is ``stuck``;
#: ``helped`` is by how much copies of its tasks elsewhere speed it up.
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
    """One executor that begins."""
    made = np.zeros(1, dtype=FIELDS)
    made["ended_at_s"] = np.inf
    made["scale"] = made["stretch"] = 1.0
    for name, value in values.items():
        made[name] = value
    return made


class Table:
    """Matrices of slots × resources under numbers; a number that is given back is used again."""

    def __init__(self, slots: int, fill: float = 0.0) -> None:
        self.values: Floats = np.full((8, slots, _R), fill)
        self._fill = fill
        self._used = 0
        self._free: list[int] = []

    def add(self, values: Floats) -> int:
        """The number of a matrix (its own slots × resources)."""
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
        """Nobody refers to it any more."""
        self._free.append(number)


class Parts:
    """What executors are launched for: whole lives, or single stages. The truth, were predictions right.

    ``profiles`` is n × slots × resources; ``ends`` n × stages, the slots in which stages end, padded with the last.
    """

    def __init__(self, slots: int, stages: int) -> None:
        self.profiles = Table(slots)
        self.ends: Ints = np.zeros((0, stages), dtype=np.intp)
        self.demands: list[int] = []
        self._numbers: dict[tuple[bytes, int, tuple[int, ...]], int] = {}

    def number(self, profile: Floats, ends: tuple[int, ...]) -> tuple[int, bool]:
        """The number of a part (``profile`` resources × slots), and whether it is new."""
        key = (profile.tobytes(), profile.shape[1], ends)
        if key in self._numbers:
            return self._numbers[key], False
        number = self.profiles.add(profile.T)
        padded = ends + (ends[-1],) * (self.ends.shape[1] - len(ends))
        self.ends = np.concatenate((self.ends, np.array([padded], dtype=np.intp)))
        self._numbers[key] = number
        return number, True

    def stage_of(self, parts: Ints, positions: Floats) -> Ints:
        """In which stage a position of a part is."""
        stages: Ints = (self.ends[parts] <= positions[:, None]).sum(axis=1)
        return stages

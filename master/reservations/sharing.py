"""PURE. Sharing policies: bounds on the promises to one user or tenant (Rayon §5.2).

A policy compares an owner's present and new amounts with its bound. :mod:`master.reservations.quotas` stores the
owners' amounts, and passes limits to planners.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from master.reservations.plan import EPSILON, Piece, Steps

Floats = npt.NDArray[np.float64]
_NAMES = ("cpu", "disk", "network", "memory")
#: Tolerance for rounding, as a fraction of a limit: shares of bytes are not whole numbers.
ROUNDING = 1e-12
#: Formats the time of a step for messages.
Show = Callable[[int], str]


@dataclass(frozen=True, slots=True)
class Instantaneous:
    """Bounds an owner at any time to ``share`` of the cluster's present capacity of each resource."""

    share: float

    def too_much(self, capacity: Steps, owner: str, used: Steps, new: Iterable[Piece], show: Show) -> str:
        """Return why ``new`` pieces, already counted in ``used``, exceed the bound, in one line; empty if they do
        not.
        """
        for piece in new:
            for start, finish, has in capacity.between(piece.start, piece.finish):
                a, b = used.span(start, finish)
                for index, amount in enumerate(has):
                    if max(used.columns[index][a:b]) > self.share * amount * (1 + ROUNDING) + EPSILON:
                        return self._line(capacity, owner, used, start, finish, show)
        return ""

    def _line(self, capacity: Steps, owner: str, used: Steps, start: int, finish: int, show: Show) -> str:
        """Describe the first excess in [start, finish), over which the cluster's capacity is constant."""
        for step, _, row in used.between(start, finish):
            for name, amount, has in zip(_NAMES, row, capacity.at(step), strict=True):
                if amount > self.share * has * (1 + ROUNDING) + EPSILON:
                    got = f"{amount / has:.1%}" if has else "some"
                    return f"{owner} would have {got} of the {name} at {show(step)}, and may have {self.share:.1%}"
        raise AssertionError("found before")


@dataclass(frozen=True, slots=True)
class Integral:
    """Bounds an owner in any ``window`` of steps to ``share`` of the cluster's total of each resource in it."""

    share: float
    window: int

    def too_much(self, capacity: Steps, owner: str, used: Steps, new: Iterable[Piece], show: Show) -> str:
        """As :meth:`Instantaneous.too_much`, for the windows that overlap ``new`` pieces."""
        new = list(new)
        if not new:
            return ""
        first, last = min(piece.start for piece in new), max(piece.finish for piece in new)
        room = Windows(self, capacity, used, first, last)
        for index in sorted({index for piece in new for index, amount in enumerate(piece.bundle.amounts) if amount}):
            left = room.left(index)
            worst = int(np.argmin(left))
            if left[worst] < -EPSILON * self.window:
                begins, allowed = int(room.begins[worst]), room.allowed(index)[worst]
                got = f"{(1 - left[worst] / allowed) * self.share:.1%}" if allowed else "some"
                return (
                    f"{owner} would have {got} of the {_NAMES[index]} from {show(begins)} to "
                    f"{show(begins + self.window)}, and may have {self.share:.1%}"
                )
        return ""


class Windows:
    """The windows of an :class:`Integral` that overlap [first, last): their beginnings, and the rest in them.

    A sliding window's content is piecewise linear: it is largest where the window begins or ends at a step with a
    change, so only those windows are examined.
    """

    def __init__(self, policy: Integral, capacity: Steps, used: Steps, first: int, last: int) -> None:
        window = policy.window
        low, high = max(0, first - window + 1), last + window  # one that begins a step earlier ends at `first`
        self._share = policy.share
        self._window = window
        self._used = _Sums(used, low, high)
        self._has = _Sums(capacity, low, high)
        marks = np.concatenate((self._used.starts, self._has.starts))
        begins = np.concatenate((marks, marks - window, (low, first, last - 1)))
        begins = begins[(begins >= low) & (begins < last)]
        begins.sort()
        self.begins = begins

    def left(self, index: int) -> Floats:
        """Return the rest of a resource for an owner in each window, in amounts × steps."""
        left: Floats = self.allowed(index) - self._used.between(self.begins, self._window, index)
        return left

    def allowed(self, index: int) -> Floats:
        """Return an owner's bound of a resource in each window."""
        allowed: Floats = self._has.between(self.begins, self._window, index) * (self._share * (1 + ROUNDING))
        return allowed


class _Sums:
    """Sums of a step function over stretches of time within [low, high]."""

    def __init__(self, steps: Steps, low: int, high: int) -> None:
        a, b = steps.span(low, high)
        self._columns = [column[a:b] for column in steps.columns]
        starts = np.array(steps.starts[a:b], dtype=np.int64)
        starts[0] = low
        self.starts = starts
        self._ends = np.append(starts, high)
        self._lengths = np.diff(self._ends)

    def between(self, begins: npt.NDArray[np.int64], length: int, index: int) -> Floats:
        """Return the sum over each [begin, begin + length)."""
        if len(self.starts) == 1:
            flat: Floats = np.full(len(begins), self._columns[index][0] * length)
            return flat
        sums = np.zeros(len(self._ends))
        np.cumsum(self._lengths * np.array(self._columns[index]), out=sums[1:])
        found: Floats = np.interp(begins + length, self._ends, sums) - np.interp(begins, self._ends, sums)
        return found

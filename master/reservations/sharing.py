"""PURE. Sharing policies: how much of the cluster one user, or one tenant, may have promised (Rayon §5.2).

A policy looks at all that an owner would be promised and says what is too much, or nothing.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from master.reservations.plan import EPSILON, Piece, Plan, Steps

_NAMES = ("cpu", "disk", "network", "memory")


class SharingPolicy(Protocol):
    """Any number of them may be in force; the first that says something decides."""

    def too_much(self, plan: Plan, owner: str, pieces: Iterable[Piece]) -> str:
        """Why an owner may not be promised these pieces, all of them, in a line; empty if he may."""


@dataclass(frozen=True, slots=True)
class Instantaneous:
    """At no time more than ``share`` of what the cluster has then, of any resource."""

    share: float

    def too_much(self, plan: Plan, owner: str, pieces: Iterable[Piece]) -> str:
        """See :class:`SharingPolicy`."""
        used = _used(pieces)
        marks = sorted({*used.starts, *plan.capacity.starts})
        for step in marks:
            for name, amount, has in zip(_NAMES, used.at(step), plan.capacity.at(step), strict=True):
                if amount > self.share * has + EPSILON:
                    got = f"{amount / has:.1%}" if has else "some"
                    return f"{owner} would have {got} of the {name} at step {step}, and may have {self.share:.1%}"
        return ""


@dataclass(frozen=True, slots=True)
class Integral:
    """In no ``window`` of so many steps more than ``share`` of all that the cluster has in it, of any resource."""

    share: float
    window: int

    def too_much(self, plan: Plan, owner: str, pieces: Iterable[Piece]) -> str:
        """See :class:`SharingPolicy`.

        What a window holds rises and falls in straight lines as it slides: it is the most where the window begins or
        ends at a step in which something changes.
        """
        used = _Sums(_used(pieces))
        has = _Sums(plan.capacity)
        marks = {*used.starts, *has.starts}
        for start in sorted({max(0, each) for mark in marks for each in (mark, mark - self.window)}):
            for index, name in enumerate(_NAMES):
                amount = used.between(start, start + self.window, index)
                limit = self.share * has.between(start, start + self.window, index)
                if amount > limit + EPSILON * self.window:
                    got = f"{amount / limit * self.share:.1%}" if limit else "some"
                    return (
                        f"{owner} would have {got} of the {name} in the {self.window} steps from {start} on, "
                        f"and may have {self.share:.1%}"
                    )
        return ""


class _Sums:
    """Sums of a step function over any stretch of time."""

    def __init__(self, steps: Steps) -> None:
        self.starts = steps.starts
        self._rows = steps.rows
        lengths = [b - a for a, b in zip(self.starts, self.starts[1:], strict=False)]
        self._before = [
            list(accumulate((row[index] * n for row, n in zip(steps.rows, lengths, strict=False)), initial=0.0))
            for index in range(len(_NAMES))
        ]

    def between(self, start: int, finish: int, index: int) -> float:
        return self._until(finish, index) - self._until(start, index)

    def _until(self, step: int, index: int) -> float:
        row = bisect_right(self.starts, step) - 1
        return self._before[index][row] + self._rows[row][index] * (step - self.starts[row])


def _used(pieces: Iterable[Piece]) -> Steps:
    used = Steps((0.0, 0.0, 0.0, 0.0))
    for piece in pieces:
        used.add(piece.start, piece.finish, [piece.number * amount for amount in piece.bundle.amounts])
    return used

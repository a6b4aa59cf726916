"""PURE. The effort of planning one request: counted, not timed, so that equal requests get equal answers."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable

#: Largest effort of one request, about the microseconds that it takes: the master does nothing else meanwhile.
MOST_EFFORT = 1_000_000
#: Largest number of different questions to the solver for one request: it may take a second for one of them.
MOST_SOLUTIONS = 2
#: Efforts of an atom, of each of its pieces, of trying all allocations of a small one, and of each run that is read.
ATOM, PIECE, SMALL, RUN = 40.0, 30.0, 1500.0, 0.5

#: Bundles in each step; None: there is no answer.
Solution = list[int] | None


class Effort:
    """The effort left for the present request; there is no bound before the first :meth:`renew`."""

    def __init__(self) -> None:
        self._left = self._solutions_left = math.inf
        self._solutions: dict[Hashable, Solution] = {}

    def renew(self) -> None:
        """Begin the next request."""
        self._left, self._solutions_left = float(MOST_EFFORT), float(MOST_SOLUTIONS)
        self._solutions.clear()

    @property
    def exhausted(self) -> bool:
        """Return whether the request has taken all of it."""
        return self._left <= 0

    def spend(self, amount: float) -> None:
        """Subtract the effort of a step."""
        self._left -= amount

    def solved(self, question: Hashable, solve: Callable[[], Solution]) -> Solution:
        """Return the answer to a question to the solver: the turns of a request often ask the same. After too many
        questions there is none.
        """
        if question not in self._solutions:
            if self._solutions_left <= 0:
                return None
            self._solutions_left -= 1
            self._solutions[question] = solve()
        return self._solutions[question]

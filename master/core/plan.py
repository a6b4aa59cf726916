"""The first step of a round: what is promised now, by reservations made ahead of time.

There are no reservations yet, so nothing is promised; whoever has some gives the cluster another plan.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol


class Plan(Protocol):
    """Knows the reservations."""

    def promised(self, at: float) -> Mapping[str, float]:
        """Job → containers that it was promised at this time (Unix); jobs without a promise are not in it."""
        ...


class NothingPromised:
    """The plan of a cluster without reservations."""

    def promised(self, at: float) -> Mapping[str, float]:
        """None."""
        return {}

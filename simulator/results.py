"""What a run comes to: Ursa's measures (§5)."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Results:
    """Times in seconds.

    ``scheduling_efficiency`` is X/Y of Ursa §5 per kind: slot-time granted over slots × makespan. A simulated monotask
    uses its slot fully, so the utilization efficiency is 1 by construction and not reported.
    """

    makespan_s: float
    completion_s: dict[str, float]
    scheduling_efficiency: dict[str, float]
    placed_on: dict[tuple[str, str], str]

    @property
    def mean_completion_s(self) -> float:
        """Mean job completion time (JCT)."""
        return sum(self.completion_s.values()) / len(self.completion_s)

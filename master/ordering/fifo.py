"""Strictly by submission: no stage of a later job before one of an earlier job, however well it would fit."""

from __future__ import annotations


def stage_key(score: float, elapsed_s: float, weight_per_s: float) -> tuple[float, ...]:
    """The older job first; Algorithm 1's score orders the stages within a job."""
    return (elapsed_s, score)

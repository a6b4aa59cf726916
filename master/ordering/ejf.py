"""Earliest Job First (Ursa §4.2.2): W·T is added to the placement score of each stage."""

from __future__ import annotations


def stage_key(score: float, elapsed_s: float, weight_per_s: float) -> tuple[float, ...]:
    """``score`` is what Algorithm 1 returned; with W = 1/s a job that is 4 s older beats any fit (F is at most 4)."""
    return (score + weight_per_s * elapsed_s,)

"""The greatest gain by an order, by the length of the window."""

from __future__ import annotations

from statistics import fmean

from bench.mix import windows
from bench.mix.jobs import Cost
from bench.mix.kinds import KINDS

COSTS = {kind.name: Cost(0.2, 2.0, 0.2, 2.0) for kind in KINDS}


def test_an_ideal_order_never_loses_and_gains_more_in_a_longer_window() -> None:
    short, long = (windows.gains(COSTS, minutes, 1.0) for minutes in (1, 10))
    assert min(short) >= 0 and min(long) >= 0
    assert fmean(long) > fmean(short)

"""PURE. What owners had of reservations that are over, as it is written down: quotas over time count it."""

from __future__ import annotations

import msgspec


class KeptPast(msgspec.Struct, frozen=True, array_like=True):
    """What an owner had of turns that are over, from ``start`` to ``finish`` (Unix time): amounts as of a bundle."""

    start: float
    finish: float
    amounts: tuple[float, float, float, float]

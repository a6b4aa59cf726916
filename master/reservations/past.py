"""PURE. Owners' finished reservations in their stored form: quotas over time count them."""

from __future__ import annotations

import msgspec


class PastRecord(msgspec.Struct, frozen=True, array_like=True):
    """An owner's finished turns from ``start`` to ``finish`` (Unix time): amounts as of a bundle."""

    start: float
    finish: float
    amounts: tuple[float, float, float, float]

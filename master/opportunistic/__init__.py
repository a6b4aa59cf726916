"""PURE. Work on what others leave unused (UBIS, Algorithm 1)."""

from master.opportunistic.ubis import Amounts, Asked, Given, Slack, why_not

__all__ = ["Amounts", "Asked", "Given", "Slack", "why_not"]

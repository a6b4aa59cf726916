"""PURE. Work on what others leave unused (UBIS, Algorithm 1)."""

from master.opportunistic.ubis import Asked, Given, Slack, allocate

__all__ = ["Asked", "Given", "Slack", "allocate"]

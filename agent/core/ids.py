"""Ids of jobs and containers."""

from __future__ import annotations


class Ids:
    """A source of ids that no other job or container on any node ever has."""

    def __init__(self, instance: str) -> None:
        """``instance`` is random per start of the agent."""
        self._instance = instance
        self._count = 0

    def fresh(self, prefix: str) -> str:
        """Return an id that begins with ``prefix``."""
        self._count += 1
        return f"{prefix}{self._instance}-{self._count}"

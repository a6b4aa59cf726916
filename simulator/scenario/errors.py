"""The error of a faulty scenario."""

from __future__ import annotations


class ScenarioError(ValueError):
    """A fault of a scenario, in one line: ``FILE: key: fault, and the remedy``."""

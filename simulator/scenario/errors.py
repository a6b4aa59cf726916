"""What is wrong with a scenario."""

from __future__ import annotations


class ScenarioError(ValueError):
    """One line: ``FILE: key: what is wrong, and what would do``."""

"""The shipped scenarios, run for a claim."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simulator.scenario import Run, load, run, shipped


def runs_of(name: str, settings: Mapping[str, Any] | None = None) -> list[Run]:
    """All points of the shipped scenario ``name``, in this process: claims run beside each other already."""
    return run(load(shipped(name), settings).points())

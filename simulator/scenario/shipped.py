"""The scenarios that come with Penstock."""

from __future__ import annotations

from pathlib import Path

from penstock.model.near_names import did_you_mean
from simulator.scenario.errors import ScenarioError

_FOLDER = Path(__file__).parents[1] / "scenarios"


def shipped_names() -> list[str]:
    """Return the names, sorted: ``las_mq/fig01``, …."""
    return sorted(path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.toml"))


def shipped(name: str) -> Path:
    """Return the file of a shipped scenario. Raises ScenarioError if none has that name."""
    names = shipped_names()
    if name not in names:
        hint = did_you_mean(name, names, "`penstock simulate --list` shows those that are shipped")
        moved = "scenarios that only reproduce a paper's figure are in research/scenarios of a checkout"
        raise ScenarioError(f"{name}: no such file, and no shipped scenario of that name; {hint} ({moved})")
    return _FOLDER / f"{name}.toml"

"""The scenarios that claims run."""

from __future__ import annotations

from pathlib import Path

from simulator.scenario import shipped

#: Scenarios that only reproduce a figure or a table of a paper; the simulator is shipped without them.
FOLDER = Path(__file__).parents[1] / "scenarios"


def scenario_file(name: str) -> Path:
    """Return the file of a scenario (``ursa/setting1``) of :data:`FOLDER`, or else of those that are shipped.

    Raises:
        ScenarioError: neither has that name.
    """
    own = FOLDER / f"{name}.toml"
    return own if own.is_file() else shipped(name)

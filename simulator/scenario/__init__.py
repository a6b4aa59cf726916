"""Load, vary and run scenarios: TOML files that describe a simulation.

``load(shipped("las_mq/fig01"))`` → :class:`Scenario`; ``run(scenario.points())`` → one :class:`Run` per point.
"""

from simulator.scenario.errors import ScenarioError
from simulator.scenario.loader import Point, Scenario, load
from simulator.scenario.models import MODELS, Model
from simulator.scenario.runner import Run, run
from simulator.scenario.shipped import shipped, shipped_names

__all__ = ["MODELS", "Model", "Point", "Run", "Scenario", "ScenarioError", "load", "run", "shipped", "shipped_names"]

"""PURE. Which node a ready task goes to: Ursa's load-balanced, stage-aware placement."""

from master.placement.ursa import Placement, Stage, place
from master.placement.workers import Need, Workers

__all__ = ["Need", "Placement", "Stage", "Workers", "place"]

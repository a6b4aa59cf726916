"""PURE. Placement of ready tasks on nodes (Ursa's load-balanced, stage-aware placement), and of executors on
machines.
"""

from master.placement.executors import Demands, Launch, Machines, WaitingExecutors
from master.placement.executors_named import executor_policy
from master.placement.peaks import PeakPlacement, Peaks, Unreserved
from master.placement.scoring import Stage
from master.placement.singly import place_singly
from master.placement.tasks import AlgorithmOne, PlacementName, TaskPlacement, why_not
from master.placement.turns import ExecutorTurns, TaskTurns, place_in_turns
from master.placement.ursa import Placement, place
from master.placement.workers import Need, Workers

__all__ = [
    "Need",
    "Stage",
    "Workers",
    "place",
    "place_in_turns",
    "place_singly",
    "AlgorithmOne",
    "PeakPlacement",
    "Peaks",
    "Placement",
    "PlacementName",
    "TaskPlacement",
    "Unreserved",
    "why_not",
    "Demands",
    "ExecutorTurns",
    "TaskTurns",
    "Launch",
    "Machines",
    "WaitingExecutors",
    "executor_policy",
]

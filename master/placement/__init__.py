"""PURE. Placement of ready tasks on nodes (Ursa's load-balanced, stage-aware placement), and of executors on
machines.
"""

from master.placement.executors import Demands, ExecutorPolicy, Launch, Machines, WaitingExecutors
from master.placement.executors_named import EXECUTOR_POLICIES, executor_policy
from master.placement.peaks import PeakPlacement, Peaks, Unreserved
from master.placement.scoring import Stage
from master.placement.singly import place_singly
from master.placement.tasks import TASK_PLACEMENTS, AlgorithmOne, PlacementName, TaskPlacement, why_not
from master.placement.ursa import Placement, place
from master.placement.workers import Need, Workers

__all__ = [
    "Need",
    "Placement",
    "Stage",
    "Workers",
    "place",
    "place_singly",
    "TASK_PLACEMENTS",
    "AlgorithmOne",
    "PeakPlacement",
    "Peaks",
    "PlacementName",
    "TaskPlacement",
    "Unreserved",
    "why_not",
    "EXECUTOR_POLICIES",
    "Demands",
    "ExecutorPolicy",
    "Launch",
    "Machines",
    "WaitingExecutors",
    "executor_policy",
]

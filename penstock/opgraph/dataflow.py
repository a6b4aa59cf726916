"""PURE. Dataflows (Ursa §4.1): operations on one resource each, their monotasks, tasks and stages, their job manager.

They are separate from jobs of commands, so that the command line need not load them.
"""

from penstock.opgraph.collapsing import PlannedOp
from penstock.opgraph.dataflow_manager import (
    Abandon,
    DataflowManager,
    Drop,
    FlowCancelled,
    FlowEvent,
    FlowInstruction,
    FlowOver,
    FlowStarted,
    FlowTaskPlaced,
    MonotaskCompleted,
    MonotaskFailed,
    PlaceTasks,
    RunMonotask,
    TaskComplete,
    TaskDemand,
)
from penstock.opgraph.metadata import Made
from penstock.opgraph.ops import Data, Dependency, Op, OpGraph, OpGraphError, Take
from penstock.opgraph.planning import Plan, PlannedMonotask, plan

__all__ = [
    "Abandon",
    "Data",
    "DataflowManager",
    "Dependency",
    "Drop",
    "FlowCancelled",
    "FlowEvent",
    "FlowInstruction",
    "FlowOver",
    "FlowStarted",
    "FlowTaskPlaced",
    "Made",
    "MonotaskCompleted",
    "MonotaskFailed",
    "Op",
    "OpGraph",
    "OpGraphError",
    "PlaceTasks",
    "Plan",
    "PlannedMonotask",
    "PlannedOp",
    "RunMonotask",
    "Take",
    "TaskComplete",
    "TaskDemand",
    "plan",
]

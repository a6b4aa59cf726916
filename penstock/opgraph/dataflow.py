"""PURE. Dataflows (Ursa §4.1): operations on one resource each, their monotasks, tasks and stages, their job manager.

They are separate from jobs of commands, so that the command line need not load them.
"""

from penstock.opgraph.checking import Input, Version
from penstock.opgraph.collapsing import Edge, PlannedOp
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
from penstock.opgraph.metadata import DEFAULT_MEMORY_TO_INPUT, Made, Metadata
from penstock.opgraph.ops import Data, Dependency, Op, OpGraph, OpGraphError, Read, Take
from penstock.opgraph.planning import Link, Plan, PlannedMonotask, PlannedStage, PlannedTask, plan

__all__ = [
    "Abandon",
    "DEFAULT_MEMORY_TO_INPUT",
    "Data",
    "DataflowManager",
    "Dependency",
    "Drop",
    "Edge",
    "FlowCancelled",
    "FlowEvent",
    "FlowInstruction",
    "FlowOver",
    "FlowStarted",
    "FlowTaskPlaced",
    "Input",
    "Link",
    "Made",
    "Metadata",
    "MonotaskCompleted",
    "MonotaskFailed",
    "Op",
    "OpGraph",
    "OpGraphError",
    "PlaceTasks",
    "Plan",
    "PlannedMonotask",
    "PlannedOp",
    "PlannedStage",
    "PlannedTask",
    "Read",
    "RunMonotask",
    "Take",
    "TaskComplete",
    "TaskDemand",
    "Version",
    "plan",
]

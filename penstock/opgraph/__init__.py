"""PURE. Jobs as graphs, and the job manager's state: which tasks are ready, and when a job is over (Ursa §4.2).

This package exports jobs of commands; :mod:`penstock.opgraph.dataflow` exports dataflows (Ursa §4.1).
"""

from penstock.opgraph.graph import GraphError, TaskGraph, TaskNode
from penstock.opgraph.job_manager import (
    AdmissionAwaited,
    CancelRequested,
    CancelTasks,
    Event,
    Instruction,
    JobManager,
    JobOver,
    PlaceStage,
    Started,
    TaskEnded,
    TaskPlaced,
    TaskSettled,
    TaskState,
)

__all__ = [
    "AdmissionAwaited",
    "CancelRequested",
    "CancelTasks",
    "Event",
    "GraphError",
    "Instruction",
    "JobManager",
    "JobOver",
    "PlaceStage",
    "Started",
    "TaskEnded",
    "TaskGraph",
    "TaskNode",
    "TaskPlaced",
    "TaskSettled",
    "TaskState",
]

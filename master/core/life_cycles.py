"""The life cycles of nodes, jobs, tasks, and the copies of tasks on nodes: which event leads from which state to which.

The records in :mod:`master.core.node` and :mod:`master.core.job` change their state only through
:func:`~penstock.model.life_cycle.next_state`. Agents' messages are checked before, so an event that has no row in its
table is an error of the master itself. An executor is a task with copies; the agent has the states of its stages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

NodeState = Literal["expected", "connected", "away", "lost"]
NodeEvent = Literal["registers", "connection lost", "expires"]
#: A node is expected while only other nodes have reported it.
NODE: Mapping[tuple[NodeState, NodeEvent], NodeState] = {
    ("expected", "registers"): "connected",
    ("connected", "registers"): "connected",  # the loss of its earlier connection was not noticed
    ("away", "registers"): "connected",
    ("connected", "connection lost"): "away",
    ("expected", "expires"): "lost",
    ("connected", "expires"): "lost",  # silent for too long
    ("away", "expires"): "lost",
}

JobState = Literal["expected", "waiting", "admitted", "cancelled", "over"]
JobEvent = Literal["described", "described as admitted", "admitted", "cancelled", "over"]
#: A job is expected while only nodes that hold its tasks have reported it. Its origin describes it as admitted where a
#: former master admitted it: the memory stays reserved. A cancelled job is over once its origin confirms.
JOB: Mapping[tuple[JobState, JobEvent], JobState] = {
    ("expected", "described"): "waiting",
    ("waiting", "described"): "waiting",
    ("admitted", "described"): "admitted",
    ("cancelled", "described"): "cancelled",
    ("expected", "described as admitted"): "admitted",
    ("waiting", "described as admitted"): "admitted",
    ("admitted", "described as admitted"): "admitted",
    ("cancelled", "described as admitted"): "cancelled",
    ("waiting", "admitted"): "admitted",
    ("waiting", "cancelled"): "cancelled",
    ("admitted", "cancelled"): "cancelled",
    ("cancelled", "cancelled"): "cancelled",  # the request is repeated to nodes that are back
    ("expected", "over"): "over",
    ("waiting", "over"): "over",
    ("admitted", "over"): "over",
    ("cancelled", "over"): "over",
}

TaskState = Literal["ready", "placed", "ended"]
TaskEvent = Literal["placed", "found", "requeued", "ended"]
#: A task is placed by a round, or found on a node that reports it after a restart of the master or a lost message.
TASK: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    ("ready", "placed"): "placed",
    ("ready", "found"): "placed",
    ("placed", "found"): "placed",
    ("placed", "requeued"): "ready",
    ("ready", "ended"): "ended",
    ("placed", "ended"): "ended",
}

CopyState = Literal["new", "proposed", "accepted", "recalled", "leaving", "released"]
CopyEvent = Literal["proposed", "found", "accepted", "withdrawn", "released"]
#: A copy of a task on a node holds memory there in every state but the last. It is found in a report, of the node or of
#: its origin, after a restart of the master. A recalled copy is withdrawn before the node's answer to its proposal is
#: known.
COPY: Mapping[tuple[CopyState, CopyEvent], CopyState] = {
    ("new", "proposed"): "proposed",
    ("new", "found"): "accepted",
    ("proposed", "accepted"): "accepted",
    ("recalled", "accepted"): "leaving",
    ("proposed", "withdrawn"): "recalled",
    ("accepted", "withdrawn"): "leaving",
    ("proposed", "released"): "released",
    ("accepted", "released"): "released",
    ("recalled", "released"): "released",
    ("leaving", "released"): "released",
}

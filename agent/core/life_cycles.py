"""The life cycles of jobs, of tasks on their origin and on their node, and of executors: which event leads from which
state to which.

The records in :mod:`agent.core.records`, and the :class:`~agent.core.plans.Course` of an executor, change their state
only through :func:`~penstock.model.life_cycle.next_state`. Messages are checked before, so an event that has no row in
its table is an error of the agent itself. Containers have theirs in :mod:`agent.core.containers`, monotasks in
:mod:`agent.queues.monotask`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

JobState = Literal["waiting", "admitted", "over"]
JobEvent = Literal["admitted", "over"]
#: A job waits for the master to admit it; guests, and all jobs of a node without a master, are admitted from the start.
JOB: Mapping[tuple[JobState, JobEvent], JobState] = {
    ("waiting", "admitted"): "admitted",
    ("admitted", "admitted"): "admitted",  # by the next master
    ("waiting", "over"): "over",
    ("admitted", "over"): "over",
}

TaskState = Literal["asked for", "placed", "ended"]
TaskEvent = Literal["placed", "ended"]
#: A task on its origin, where a framework asked for a place for it. The master may place it again, after its node was
#: lost.
TASK: Mapping[tuple[TaskState, TaskEvent], TaskState] = {
    ("asked for", "placed"): "placed",
    ("placed", "placed"): "placed",
    ("asked for", "ended"): "ended",
    ("placed", "ended"): "ended",
}

HeldState = Literal["held", "waiting", "started", "ended"]
HeldEvent = Literal["waits", "started", "promoted", "found running", "found not running", "ended"]
#: A task on the node that it was placed on. It is held while it runs in its framework, or is a command in the queue of
#: its resource; "waiting" is an opportunistic command that waits for slack, "started" a command with a container,
#: "ended" one whose end the master has not acknowledged. Journaled tasks are found by the next agent; those of an agent
#: that kept no state are journaled as held.
HELD: Mapping[tuple[HeldState, HeldEvent], HeldState] = {
    ("held", "waits"): "waiting",
    ("held", "started"): "started",
    ("waiting", "started"): "started",
    ("held", "promoted"): "held",
    ("waiting", "promoted"): "held",
    ("started", "promoted"): "started",
    ("held", "found running"): "started",
    ("started", "found running"): "started",
    ("held", "found not running"): "held",
    ("waiting", "found not running"): "held",
    ("started", "found not running"): "held",
    ("held", "ended"): "ended",
    ("waiting", "ended"): "ended",
    ("started", "ended"): "ended",
    ("ended", "ended"): "ended",  # the next agent tells the master again
}

ExecutorState = Literal["on plan", "sated", "observed"]
ExecutorEvent = Literal["wants no more", "overdue", "corrected", "stage ended"]
#: An executor in a stage of its profile (Elasecutor §III.C). While it is on plan, it may be observed before it is late:
#: it is corrected then, or wants no more than it has. Once its stage is overdue it is observed and corrected, once in
#: each stage. Its container and its task have their own life cycles.
EXECUTOR: Mapping[tuple[ExecutorState, ExecutorEvent], ExecutorState] = {
    ("on plan", "wants no more"): "sated",
    ("on plan", "overdue"): "observed",
    ("sated", "overdue"): "observed",
    ("on plan", "corrected"): "on plan",
    ("observed", "corrected"): "observed",
    ("on plan", "stage ended"): "on plan",
    ("sated", "stage ended"): "on plan",
    ("observed", "stage ended"): "on plan",
}

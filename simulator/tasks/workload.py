"""The cluster's form of jobs: stages of tasks.

A task is a chain of monotasks of known size (Ursa §4.1.3), or a command with its use over time (UBIS §V).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.model import Executor, KindAmounts, ResourceKind
from penstock.model.work import Opportunistic


@dataclass(frozen=True, slots=True)
class SimulatedMonotask:
    """A monotask: one resource and a number of bytes."""

    kind: ResourceKind
    input_bytes: int


@dataclass(frozen=True, slots=True)
class Phase:
    """A command's demand for ``seconds`` at full speed; with less than its demand the phase takes longer.

    Memory changes linearly from its value at the end of the last phase to ``memory_bytes``.
    """

    seconds: float
    cpu_cores: float = 0.0
    memory_bytes: float = 0.0
    disk_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedCommand:
    """A command's requested promise, and its real use. ``kind`` is the kind of slot that it waits for.

    ``input_bytes`` is its announced size on a resource of this kind; 0: unknown. ``executor``: earlier runs of its
    application predict its use, which its promise and limits follow (Elasecutor §III).
    """

    phases: tuple[Phase, ...]
    cpu_cores: float = 1.0
    memory_bytes: int = 0
    kind: ResourceKind = ResourceKind.CPU
    input_bytes: int = 0
    executor: Executor | None = None

    @property
    def promise(self) -> tuple[float, int]:
        """The cores and bytes of memory that it asks for."""
        return self.cpu_cores, self.memory_bytes


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """A task: monotasks that run one after the other on the node where it is placed, or a command."""

    name: str
    monotasks: tuple[SimulatedMonotask, ...]
    memory_bytes: int = 0
    command: SimulatedCommand | None = None
    nodes: tuple[str, ...] = ()

    def usage(self) -> KindAmounts:
        """Return the estimate for the master: the sum over its monotasks (Ursa §4.2.1)."""
        total = dict.fromkeys(("cpu", "disk", "network"), 0.0)
        for monotask in self.monotasks:
            total[monotask.kind.value] += monotask.input_bytes
        if self.command is not None:
            total[self.command.kind.value] += self.command.input_bytes
        return KindAmounts(**total)


@dataclass(frozen=True, slots=True)
class SimulatedStage:
    """A stage. It is ready when every stage in ``after`` has ended (a *sync* dependency).

    ``opportunistic``: its tasks may run on slack (in UBIS §IV.D a job allows it for named stages).
    """

    name: str
    tasks: tuple[SimulatedTask, ...]
    after: tuple[str, ...] = ()
    opportunistic: Opportunistic = False


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """A job that is submitted at ``submitted_at_s`` through the agent of node number ``origin``.

    ``memory_bytes`` is M(j), which admission reserves (Ursa §4.2.2). With ``rdl`` it is a production job (Rayon §3): it
    requests that reservation at submission, and does not run if it is declined. ``deadline_s`` counts from submission.
    """

    name: str
    submitted_at_s: float
    stages: tuple[SimulatedStage, ...]
    memory_bytes: int = 0
    origin: int = 0
    rdl: str = ""
    deadline_s: float = math.inf
    user: str = "user"

"""Jobs as the cluster takes them: stages of tasks.

A task is a chain of monotasks of known size (Ursa §4.1.3), or a command with what it will use over time (UBIS §V).
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from penstock.model import KindAmounts, ResourceKind
from penstock.model.work import Opportunistic


@dataclass(frozen=True, slots=True)
class SimulatedMonotask:
    """One resource, so many bytes."""

    kind: ResourceKind
    input_bytes: int


@dataclass(frozen=True, slots=True)
class Phase:
    """What a command wants for ``seconds`` of its own time; with less than that it takes longer.

    Memory moves in a straight line from where the last phase left it to ``memory_bytes``.
    """

    seconds: float
    cpu_cores: float = 0.0
    memory_bytes: float = 0.0
    disk_bytes_per_s: float = 0.0


@dataclass(frozen=True, slots=True)
class SimulatedCommand:
    """What a command asks to be promised, and what it will really use. ``kind`` is the slot that it waits for."""

    phases: tuple[Phase, ...]
    cpu_cores: float = 1.0
    memory_bytes: int = 0
    kind: ResourceKind = ResourceKind.CPU


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """Its monotasks run one after the other on the node that it was placed on; or it is a command."""

    name: str
    monotasks: tuple[SimulatedMonotask, ...]
    memory_bytes: int = 0
    command: SimulatedCommand | None = None
    nodes: tuple[str, ...] = ()

    def usage(self) -> KindAmounts:
        """The estimate that goes to the master: the sum over its monotasks (Ursa §4.2.1)."""
        total = dict.fromkeys(("cpu", "disk", "network"), 0.0)
        for monotask in self.monotasks:
            total[monotask.kind.value] += monotask.input_bytes
        return KindAmounts(**total)


@dataclass(frozen=True, slots=True)
class SimulatedStage:
    """Ready when every stage that it names has ended (a *sync* dependency).

    ``opportunistic``: its tasks may run on slack (UBIS §IV.D lets a job allow it for named stages).
    """

    name: str
    tasks: tuple[SimulatedTask, ...]
    after: tuple[str, ...] = ()
    opportunistic: Opportunistic = False


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """Submitted at ``submitted_at_s`` through the agent of node number ``origin``.

    ``memory_bytes`` is M(j), which admission reserves (Ursa §4.2.2). With ``rdl`` it is a production job (Rayon §3): it
    asks for that when it is submitted, and goes away if it is declined. ``deadline_s`` counts from its submission.
    """

    name: str
    submitted_at_s: float
    stages: tuple[SimulatedStage, ...]
    memory_bytes: int = 0
    origin: int = 0
    rdl: str = ""
    deadline_s: float = math.inf

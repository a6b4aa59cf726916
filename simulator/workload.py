"""Jobs as the simulator takes them: stages of tasks, each a chain of monotasks of known size (Ursa §4.1.3)."""

from __future__ import annotations

from dataclasses import dataclass

from penstock.model import KindAmounts, ResourceKind


@dataclass(frozen=True, slots=True)
class SimulatedMonotask:
    """One resource, so many bytes."""

    kind: ResourceKind
    input_bytes: int


@dataclass(frozen=True, slots=True)
class SimulatedTask:
    """Its monotasks run one after the other on the node that the task was placed on."""

    name: str
    monotasks: tuple[SimulatedMonotask, ...]
    memory_bytes: int = 0

    def usage(self) -> KindAmounts:
        """The estimate that goes to the master: the sum over its monotasks (Ursa §4.2.1)."""
        total = KindAmounts()
        for monotask in self.monotasks:
            total = total + KindAmounts.single(monotask.kind, float(monotask.input_bytes))
        return total


@dataclass(frozen=True, slots=True)
class SimulatedStage:
    """Ready when every stage that it names has ended (a *sync* dependency)."""

    name: str
    tasks: tuple[SimulatedTask, ...]
    after: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulatedJob:
    """Submitted at ``submitted_at_s`` through the agent of ``origin``."""

    name: str
    submitted_at_s: float
    stages: tuple[SimulatedStage, ...]
    memory_bytes: int = 0
    origin: int = 0

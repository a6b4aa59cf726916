"""What a job's ready tasks want of slack, summed up as they come and go, so that exhausted slack is noticed quickly."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from penstock.model import TaskRequest
from penstock.model.work import Opportunistic

#: A stage, and the placement that its tasks allow.
Stage = tuple[str, Opportunistic]
#: The stated cores (None: no command), the kinds that a framework's task uses, and the nodes that it names (none: any).
_Kind = tuple[float | None, tuple[bool, bool, bool], tuple[str, ...]]


@dataclass(slots=True)
class SlackDemands:
    """By stage, the smallest request of each kind: smaller ones may have left, so no task wants less memory."""

    _least: dict[Stage, dict[_Kind, TaskRequest]] = field(default_factory=dict)

    def add(self, stage: Stage, request: TaskRequest) -> None:
        """Count a task that is ready."""
        command, usage = request.command, request.usage
        cores = None if command is None else command.cpu_cores
        used = (usage.cpu > 0, usage.disk > 0, usage.network > 0)
        least, kind = self._least.setdefault(stage, {}), (cores, used, tuple(request.nodes))
        if kind not in least or request.memory_bytes < least[kind].memory_bytes:
            least[kind] = request

    def remove(self, stage: Stage) -> None:
        """Drop a stage without ready tasks."""
        self._least.pop(stage, None)

    def anew(self, stage: Stage, requests: Iterable[TaskRequest]) -> None:
        """Sum up a stage again."""
        self.remove(stage)
        for request in requests:
            self.add(stage, request)

    def least(self, stage: Stage) -> Iterator[TaskRequest]:
        """Return the smallest requests of a stage, one of each kind."""
        return iter(self._least.get(stage, {}).values())

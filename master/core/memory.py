"""The memory of tasks that do not state it: min{r × M(j), m2i(t) × I(t)} (Ursa §4.2.1).

Frameworks that know the operators have better defaults of m2i: :mod:`penstock.opgraph` states the memory of its tasks
itself. Here m2i is 2, the paper's value for a filter, until a stage recurs whose commands' peaks have been measured.
"""

from __future__ import annotations

import msgspec

from master.core.job import Job, input_bytes
from penstock.model import KindAmounts, TaskRequest

_DEFAULT_M2I = 2.0
#: (user, name of the job, stage)
_Stage = tuple[str, str, str]


class MemoryEstimates:
    """Stores m2i of recurring stages; the least recently used entry is removed first."""

    def __init__(self, most: int = 4096) -> None:
        self._most = most
        self._learned: dict[_Stage, float] = {}

    def stated(self, job: Job, stage: str, requests: list[TaskRequest]) -> list[TaskRequest]:
        """Return these ready tasks with their memory. r is a task's share of the input of its job's ready tasks."""
        inputs = [input_bytes(request.usage) for request in requests]
        total = job.ready_input_bytes + sum(inputs)
        learned = self._learned.get((job.user, job.name, stage))
        return [
            self._estimated(request, job.memory_bytes * own / total, learned, own)
            if not request.memory_bytes and own > 0
            else request
            for request, own in zip(requests, inputs, strict=True)
        ]

    def learn(self, job: Job, stage: str, usage: KindAmounts, peak_bytes: int) -> None:
        """Learn from a command of this stage that succeeded: the largest ratio of its stage counts."""
        own = input_bytes(usage)
        if not own or not peak_bytes:
            return
        key = (job.user, job.name, stage)
        before = self._learned.pop(key, 0.0)
        if len(self._learned) >= self._most:
            self._learned.pop(next(iter(self._learned)))
        self._learned[key] = max(before, peak_bytes / own)

    def _estimated(self, request: TaskRequest, share: float, learned: float | None, own: float) -> TaskRequest:
        if request.command is not None and learned is None:
            return request  # the memory of an arbitrary program does not follow from its input
        by_input = (learned or _DEFAULT_M2I) * own
        wanted = min(share, by_input) if share else by_input  # without an M(j), use the second term
        return msgspec.structs.replace(request, memory_bytes=int(wanted))

"""The containers of the node: admission, their course from asked-for to ended, and why they ended."""

from __future__ import annotations

from collections import OrderedDict

from agent.core.events import ContainerExited
from agent.core.instructions import Instruction, KillContainer, Record, RemoveContainer, StartContainer
from agent.core.records import ContainerRecord, ContainerState
from penstock.model import Ended, EndedBy
from penstock.model.units import format_bytes

ROOM = "containers"


class Containers:
    """Live records by id, and the latest ended ones."""

    def __init__(self, keep_ended: int) -> None:
        self.live: dict[str, ContainerRecord] = {}
        self.ended: OrderedDict[str, ContainerRecord] = OrderedDict()
        self._keep_ended = keep_ended
        self._order = 0

    def find(self, container: str) -> ContainerRecord | None:
        """A live or remembered container."""
        return self.live.get(container) or self.ended.get(container)

    def add(self, record: ContainerRecord) -> list[Instruction]:
        """Start it. It is journaled before it is started: what runs is always known."""
        self._order += 1
        record.order = self._order
        self.live[record.container] = record
        start = StartContainer(record.container, record.user, record.spec)
        return [Record(ROOM, record.container, record), start]

    def take_back(self, record: ContainerRecord, pid: int) -> None:
        """It outlived an agent; the one that it was launched from is gone."""
        self._order = max(self._order, record.order)
        record.pid = pid
        if record.state is ContainerState.STARTING:
            record.state = ContainerState.RUNNING
        self.live[record.container] = record

    def started(self, container: str, pid: int, not_enforced: dict[str, str], at: float) -> list[Instruction]:
        """The launcher started it."""
        record = self.live[container]
        record.pid = pid
        record.started_at = at
        record.not_enforced = not_enforced
        if record.state is ContainerState.STARTING:
            record.state = ContainerState.RUNNING
            return [Record(ROOM, container, record)]
        return [KillContainer(container, record.stopping_reason)]  # it was unwanted before it had started

    def stop(self, container: str, by: EndedBy, reason: str) -> list[Instruction]:
        """Kill it, with a recorded reason; the first reason stands."""
        record = self.live.get(container)
        if record is None or record.state is ContainerState.STOPPING:
            return []
        starting = record.state is ContainerState.STARTING
        record.state = ContainerState.STOPPING
        record.stopping_by = by
        record.stopping_reason = reason
        instructions: list[Instruction] = [Record(ROOM, container, record)]
        if not starting:
            instructions.append(KillContainer(container, reason))
        return instructions

    def end(self, container: str, ended: Ended) -> list[Instruction]:
        """It is over; ``ended`` is kept for whoever asks."""
        record = self.live.pop(container)
        record.state = ContainerState.ENDED
        record.ended = ended
        self.ended[container] = record
        while len(self.ended) > self._keep_ended:
            self.ended.popitem(last=False)
        return [Record(ROOM, container, None), RemoveContainer(container)]


def how_it_ended(record: ContainerRecord, event: ContainerExited) -> Ended:
    """Who ended it and why. A kill of ours keeps the reason recorded when it was decided."""
    by, reason = EndedBy.EXIT, ""
    if record.stopping_by is not None:
        by, reason = record.stopping_by, record.stopping_reason
    elif event.exit_status is None:
        by, reason = EndedBy.LOST, "it ended while nobody could see how"
    elif event.oom_kills and event.signal == 9:
        limit = record.spec.limits.memory_max_bytes
        by = EndedBy.OOM
        reason = (
            f"killed by the kernel: more than memory.max ({format_bytes(limit)})" if limit else "killed by the kernel"
        )
    elif event.signal is not None:
        by, reason = EndedBy.SIGNAL, f"signal {event.signal}"
    elif event.oom_kills:
        reason = f"{event.oom_kills} of its processes were killed by the kernel for exceeding memory.max"
    return Ended(
        by=by,
        exit_status=event.exit_status,
        reason=reason,
        cpu_seconds=event.cpu_seconds,
        memory_peak_bytes=event.memory_peak_bytes,
        wall_seconds=max(0.0, event.ended_at - record.started_at) if record.started_at else 0.0,
    )

"""The containers of the node: admission, their course from asked-for to ended, and why they ended."""

from __future__ import annotations

import msgspec

from agent.core.confinement import worth_saying
from agent.core.ended_containers import EndedContainers
from agent.core.events import ContainerExited
from agent.core.instructions import (
    AdoptProcess,
    Freeze,
    Instruction,
    KillContainer,
    Record,
    RemoveContainer,
    Signal,
    StartContainer,
    WatchMemory,
    WatchOrphan,
)
from agent.core.records import ContainerRecord, ContainerState
from penstock.model import Ended, EndedBy
from penstock.model.units import format_bytes

ROOM = "containers"


class Containers:
    """Live records by id, and the latest ended ones of each user."""

    def __init__(self, keep_ended: int) -> None:
        self.live: dict[str, ContainerRecord] = {}
        self.ended = EndedContainers(keep_ended)
        self._order = 0
        self._watched = False

    def find(self, container: str) -> ContainerRecord | None:
        """A live or remembered container."""
        return self.live.get(container) or self.ended.by_id.get(container)

    def promised(self) -> list[str]:
        """Those that were promised memory and run."""
        return [
            record.container
            for record in self.live.values()
            if record.state is ContainerState.RUNNING and not record.opportunistic and record.spec.memory_bytes
        ]

    def add(self, record: ContainerRecord, adopt: AdoptProcess | None = None) -> list[Instruction]:
        """Start it, or adopt a process. It is journaled before it is started: what runs is always known."""
        self._order += 1
        record.order = self._order
        record.limits = record.spec.limits
        self.live[record.container] = record
        start = adopt or StartContainer(record.container, record.user, record.spec, record.rank_weight)
        return [Record(ROOM, record.container, record), start, *self.watch()]

    def watch(self) -> list[Instruction]:
        """Memory is worth looking at while some of it is held by opportunistic work."""
        wanted = any(record.opportunistic for record in self.live.values())
        if wanted == self._watched:
            return []
        self._watched = wanted
        return [WatchMemory(wanted)]

    def take_back(self, record: ContainerRecord, pid: int) -> None:
        """It outlived an agent; the one that it was launched from is gone."""
        self._order = max(self._order, record.order)
        record.pid = pid
        if record.state is not ContainerState.STOPPING:
            record.state = ContainerState.RUNNING
        self.live[record.container] = record

    def started(self, container: str, pid: int, not_enforced: dict[str, str], at: float) -> list[Instruction]:
        """The launcher started it."""
        record = self.live[container]
        record.pid = pid
        record.started_at = at
        self.confined(container, not_enforced)
        if record.state is ContainerState.STARTING:
            record.state = ContainerState.RUNNING
            return [Record(ROOM, container, record)]
        return [KillContainer(container, record.stopping_reason)]  # it was unwanted before it had started

    def orphan(self, container: str) -> list[Instruction]:
        """The launcher that started it died. It goes on; only its exit status will not be known."""
        record = self.live[container]
        record.orphaned = True
        return [Record(ROOM, container, record), WatchOrphan(container)]

    def confined(self, container: str, not_enforced: dict[str, str]) -> None:
        """The kernel was told what holds for it, as far as it goes."""
        record = self.live.get(container)
        if record is not None:
            record.not_enforced = worth_saying(
                not_enforced, record.spec, record.limits, opportunistic=record.opportunistic
            )

    def pause(self, container: str) -> list[Instruction]:
        """Freeze it. It is journaled before it is frozen: whoever comes after us lets it go on."""
        record = self.live[container]
        if record.state is not ContainerState.RUNNING:
            return []
        record.state = ContainerState.PAUSED
        return [Record(ROOM, container, record), Freeze(container, frozen=True)]

    def resume(self, container: str) -> list[Instruction]:
        """Let it go on where it was."""
        record = self.live[container]
        if record.state is not ContainerState.PAUSED:
            return []
        record.state = ContainerState.RUNNING
        return [Freeze(container, frozen=False), Record(ROOM, container, record)]

    def warn(self, container: str, signal: int) -> list[Instruction]:
        """Give notice that it will be ended; what is frozen could not heed it."""
        thaw = self.resume(container)
        self.live[container].state = ContainerState.WARNED
        return [*thaw, Signal(container, signal)]

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
        """Keep how it ended, here and in the journal, before anything of it is removed.

        The environment of the command is not kept: it may be large, or hold secrets, and nothing reads it any more.
        """
        record = self.live.pop(container)
        self._order += 1
        record.order = self._order
        record.state = ContainerState.ENDED
        record.ended = ended
        record.spec = msgspec.structs.replace(record.spec, env={})
        kept = Record(ROOM, container, record)
        dropped = _forget(self.ended.add(record))
        return [kept, RemoveContainer(container), *dropped, *self.watch()]

    def take_back_ended(self, records: list[ContainerRecord]) -> list[Instruction]:
        """Remember what an earlier agent saw end, as far as ``keep_ended`` allows."""
        dropped: list[str] = []
        for record in sorted(records, key=lambda record: record.order):
            self._order = max(self._order, record.order)
            dropped += self.ended.add(record)
        return _forget(dropped)

    def keep(self, keep_ended: int) -> list[Instruction]:
        """Remember the latest ``keep_ended`` of each user."""
        return _forget(self.ended.keep(keep_ended))


def _forget(containers: list[str]) -> list[Instruction]:
    return [Record(ROOM, container, None) for container in containers]


def how_it_ended(record: ContainerRecord, event: ContainerExited) -> Ended:
    """Who ended it and why. A kill of ours keeps the reason recorded when it was decided."""
    by, reason = EndedBy.EXIT, ""
    if record.stopping_by is not None:
        by, reason = record.stopping_by, record.stopping_reason
    elif event.exit_status is None and record.adopted and not record.orphaned:
        reason = "it was adopted: how it exited only its parent could see"
    elif event.exit_status is None:
        by, reason = EndedBy.LOST, "the launcher that could see its exit status died"
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

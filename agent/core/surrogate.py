"""The monitor surrogate of the node (Elasecutor §III.A): records what executors use, and reports it in pieces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import msgspec

from agent.core.profiling import Amounts, Recording, SlotUse
from agent.core.snapshot import Snapshot
from penstock.wire.master_api import ExecutorUse, SlotAmounts

#: An hour of slots of three seconds; runs that are longer are told in longer slots.
MOST_SLOTS = 1200
#: Of executors that ended, so many may wait for a master to tell it to; of the others the oldest are forgotten.
MOST_ENDED = 64
#: What is told of a run whose beginning nobody saw begins at a slot that no run has: it is not whole.
_MISSING = MOST_SLOTS + 1
#: The stages of so many jobs are remembered, for executors that begin later.
_MOST_JOBS = 1000
#: A slot on the wire is at most so long: its mean and its peak, four numbers each.
_SLOT_BYTES = 2 * (1 + 4 * 5)
#: cores/1000, KiB/s, KiB/s, MiB: as on the wire.
UNITS = (1e-3, 1024.0, 1024.0, float(2**20))

#: How late a container is, and whether nothing is left to give it: (ratio to the prediction, stuck).
Lateness = Callable[[str], tuple[float, bool]]


@dataclass(slots=True)
class _Told:
    """An executor, and what the present connection was told of it. ``whole``: recorded from its very start on."""

    job: str
    task: str
    recording: Recording
    whole: bool
    stages: int  # of its job that had ended when it was last looked at
    sampled: bool = False
    over: bool = False
    slots: int = 0
    slot_s: float = 0.0
    stages_told: int = 0
    lateness: tuple[float, bool] = (0.0, False)

    def again(self) -> None:
        """Whoever listens knows nothing of it."""
        self.slots = self.stages_told = 0
        self.lateness = (0.0, False)


class MonitorSurrogate:
    """The recordings of the node's executors, and what of them the master has still to be told."""

    def __init__(self, slot_s: float) -> None:
        self._slot_s = slot_s
        self._live: dict[str, _Told] = {}  # who was told of least recently is first
        self._over: list[_Told] = []
        self._stages: dict[str, int] = {}  # job → how many of its stages have ended, as the master said

    @property
    def owes(self) -> bool:
        """Whether an executor ended of which not all has been told."""
        return bool(self._over)

    def began(self, container: str, job: str, task: str, now: float, *, whole: bool = True) -> None:
        """An executor was started; not ``whole``: that was before this agent was."""
        recording = Recording(now, self._slot_s, MOST_SLOTS)
        self._live[container] = _Told(job, task, recording, whole, self._stages.get(job, 0), slot_s=self._slot_s)

    def sampled(self, snapshot: Snapshot) -> None:
        """What each used since the sample before. Of its CPU its first sample says nothing but what it took in all."""
        for container, told in self._live.items():
            use = snapshot.containers.get(container)
            if use is None:
                continue
            seconds = snapshot.at - told.recording.began
            if not told.sampled and told.whole and seconds > 0:
                use = replace(use, cpu_cores=max(use.cpu_cores, use.cpu_seconds / max(seconds, snapshot.interval_s)))
            told.sampled = True
            told.recording.sampled(use, snapshot.interval_s, snapshot.at)

    def stages_ended(self, job: str, ended: int) -> None:
        """So many of the job's stages have ended by now. The master says so before it assigns an executor, too."""
        self._stages.pop(job, None)
        self._stages[job] = ended
        if len(self._stages) > _MOST_JOBS:
            del self._stages[next(iter(self._stages))]
        for told in self._live.values():
            if told.job == job:
                for _ in range(ended - told.stages):
                    told.recording.stage_ended()
                told.stages = max(told.stages, ended)

    def ended(self, container: str) -> None:
        """Its container ended: what was not told yet is kept until it was."""
        told = self._live.pop(container, None)
        if told is None:
            return
        told.recording.ended()
        told.over = True
        self._over.append(told)
        del self._over[:-MOST_ENDED]

    def tell_all(self) -> None:
        """A new connection: all is told from the first slot on."""
        for told in (*self._live.values(), *self._over):
            told.again()

    def report(self, lateness: Lateness, room_bytes: int) -> list[ExecutorUse]:
        """What is new, in at most about ``room_bytes`` on the wire: the rest comes next time.

        Who ended comes first, then who was told of least recently.
        """
        uses: list[ExecutorUse] = []
        for told in list(self._over):
            room_bytes = self._tell(told, (0.0, False), room_bytes, uses)
            if uses and uses[-1].ended and uses[-1].task == told.task and uses[-1].job == told.job:
                self._over.remove(told)
        for container, told in list(self._live.items()):
            before = len(uses)
            room_bytes = self._tell(told, lateness(container), room_bytes, uses)
            if len(uses) > before:
                self._live[container] = self._live.pop(container)
        return uses

    def _tell(self, told: _Told, late: tuple[float, bool], room_bytes: int, uses: list[ExecutorUse]) -> int:
        """Appends what is new of one of them; returns the room that is left."""
        recording = told.recording
        if recording.slot_s != told.slot_s:  # two slots became one: they are others now
            told.again()
            told.slot_s = recording.slot_s
        slots, stages = (recording.slots, list(recording.stages)) if told.whole else ([], [])
        late = (round(late[0], 2), late[1])
        new = len(slots) - told.slots
        if not (new or told.over or late[1] != told.lateness[1] or len(stages) != told.stages_told):
            return room_bytes
        use = ExecutorUse(
            job=told.job,
            task=told.task,
            slot_s=recording.slot_s,
            first=told.slots if told.whole else _MISSING,
            stages=stages,
            behind=late[0],
            stuck=late[1],
        )
        room_bytes -= len(msgspec.msgpack.encode(use)) + 20  # 20: the names of the lists, "ended"
        fits = min(new, room_bytes // _SLOT_BYTES)
        if fits < 0 or (new and not fits):
            return 0
        until = told.slots + fits
        pieces = slots[told.slots : until]
        ended = told.over and fits == new
        uses.append(
            msgspec.structs.replace(use, mean=[_wire(slot.mean) for slot in pieces], peak=_peaks(pieces), ended=ended)
        )
        told.slots, told.stages_told, told.lateness = until, len(stages), late
        return room_bytes - fits * _SLOT_BYTES


def _peaks(slots: list[SlotUse]) -> list[SlotAmounts]:
    return [_wire(slot.peak) for slot in slots]


def _wire(amounts: Amounts) -> SlotAmounts:
    cores, disk, network, memory = (round(amount / unit) for amount, unit in zip(amounts, UNITS, strict=True))
    return (cores, disk, network, memory)

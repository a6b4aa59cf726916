"""The monitor surrogate of the node (Elasecutor §III.A): records executors' use, and reports it in pieces."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from agent.core.profiling import Recording, SlotUse, used_of
from agent.core.snapshot import ContainerUse, Snapshot
from penstock.model.resource_vector import NOTHING, ResourceVector
from penstock.wire.master_api import ExecutorUse, SlotAmounts

#: An hour of slots of 3 s; longer runs use longer slots.
MOST_SLOTS = 1200
#: Ended executors kept for a master to report to; beyond this number, the oldest are dropped.
MOST_ENDED = 64
#: The first slot in a report of an incomplete run: no run has this slot.
_MISSING = MOST_SLOTS + 1
#: While the agent restarts, nothing is measured. A run with a larger part unmeasured is incomplete.
MOST_UNSEEN = 0.1
#: A recording is journaled again after growing by this part, so that a long run costs few writes.
_GROWN = 0.05
#: Stages are kept for this many jobs, for executors that start later.
_MOST_JOBS = 1000
#: The maximum size of a slot on the wire: mean and peak, four numbers each.
_SLOT_BYTES = 2 * (1 + 4 * 5)
#: cores/1000, KiB/s, KiB/s, MiB: the units of the wire.
UNITS = (1e-3, 1024.0, 1024.0, float(2**20))

#: Maps a container to its lateness: (ratio to the prediction, whether it is stuck).
Lateness = Callable[[str], tuple[float, bool]]


class Recorded(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A recording as journaled, for the next agent to continue: complete slots, in the units of the wire.

    ``gaps`` are the numbers of slots not measured: ``mean`` and ``peak`` repeat the previous slot there. ``stages`` are
    the slots at whose end a stage ended, ``job_stages`` the number of the job's ended stages. ``unseen_s`` is the total
    time not measured. ``cpu_seconds`` is the CPU time up to the last slot's end (None: the sum of the slots).
    """

    slot_s: float
    mean: list[SlotAmounts]
    peak: list[SlotAmounts]
    gaps: list[int] = []
    cpu_seconds: float | None = None
    stages: list[int] = []
    job_stages: int = 0
    unseen_s: float = 0.0


@dataclass(slots=True)
class _Tracked:
    """An executor, and the part reported on the present connection. ``whole``: its start is known and, at its end,
    enough of it was measured. ``resumed``: another agent started it.
    """

    job: str
    task: str
    recording: Recording
    whole: bool
    stages: int  # of its job that had ended at the last update
    resumed: bool = False
    unseen_s: float = 0.0
    journaled: int = 0  # slots
    latest: tuple[ContainerUse, Snapshot] | None = None  # from the latest sample
    over: bool = False
    slots: int = 0
    slot_s: float = 0.0
    stages_reported: int = 0
    lateness: tuple[float, bool] = (0.0, False)

    def restart_report(self) -> None:
        """Report it from the beginning again."""
        self.slots = self.stages_reported = 0
        self.lateness = (0.0, False)


class MonitorSurrogate:
    """The recordings of the node's executors, and the parts to be reported to the master."""

    def __init__(self, slot_s: float) -> None:
        #: Whether the master reads gaps; otherwise the slot before each gap is sent again.
        self.gaps_read = False
        #: Whether the master reads the last slot's part, by its latest answer to a registration.
        self.last_parts_read = False
        self._usual_s = 0.0  # between two samples
        self._slot_s = slot_s
        self._live: dict[str, _Tracked] = {}  # least recently reported first
        self._over: list[_Tracked] = []
        self.stages: dict[str, int] = {}  # job → number of its ended stages, from the master

    @property
    def owes(self) -> bool:
        """Whether an ended executor has not been reported in full."""
        return bool(self._over)

    def began(self, container: str, job: str, task: str, now: float) -> None:
        """Start a recording."""
        recording = Recording(now, self._slot_s, MOST_SLOTS)
        self._live[container] = _Tracked(job, task, recording, True, self.stages.get(job, 0), slot_s=self._slot_s)

    def resumed(self, container: str, job: str, task: str, began: float | None, recorded: Recorded | None) -> None:
        """Continue the recording of an executor that outlived an agent; ``recorded`` None: no slot was complete.

        ``began`` None: its start is unknown, so the run cannot be learned from.
        """
        had = recorded or Recorded(slot_s=self._slot_s, mean=[], peak=[])
        each = enumerate(zip(had.mean, had.peak, strict=True))
        gaps = set(had.gaps)
        slots = [None if at in gaps else SlotUse(_amounts(mean), _amounts(peak)) for at, (mean, peak) in each]
        cpu_seconds = had.cpu_seconds
        if cpu_seconds is None:
            cpu_seconds = sum(cores for cores, *_ in had.mean) * UNITS[0] * had.slot_s
        recording = Recording(began or 0.0, had.slot_s, MOST_SLOTS, slots, list(had.stages), cpu_seconds)
        tracked = _Tracked(job, task, recording, began is not None, had.job_stages, resumed=True, slot_s=had.slot_s)
        tracked.unseen_s, tracked.journaled = had.unseen_s, len(slots)
        self._live[container] = tracked

    def sampled(self, snapshot: Snapshot, usual_s: float = 0.0) -> None:
        """Add each executor's use since the previous sample; samples come every ``usual_s`` seconds."""
        self._usual_s = usual_s
        for container, tracked in self._live.items():
            use = snapshot.containers.get(container)
            if use is None or not tracked.whole:
                continue
            interval_s = snapshot.interval_s
            if tracked.latest is None:
                use, interval_s = _first(tracked, use, snapshot)
            tracked.latest = use, snapshot
            tracked.recording.sampled(use, interval_s, snapshot.at, usual_s=usual_s)

    def to_journal(self) -> Iterator[tuple[str, Recorded]]:
        """Yield the recordings that have grown enough to be journaled: at most once per slot, later more rarely."""
        for container, tracked in self._live.items():
            slots = len(tracked.recording.slots)
            if slots == tracked.journaled or tracked.journaled < slots < tracked.journaled * (1 + _GROWN):
                continue
            tracked.journaled = slots
            yield (container, _recorded(tracked))

    def stages_ended(self, job: str, ended: int) -> None:
        """Set the number of a job's ended stages. The master also reports it before it assigns an executor."""
        self.stages.pop(job, None)
        self.stages[job] = ended
        if len(self.stages) > _MOST_JOBS:
            del self.stages[next(iter(self.stages))]
        for tracked in self._live.values():
            if tracked.job == job:
                for _ in range(ended - tracked.stages):
                    tracked.recording.stage_ended()
                tracked.stages = max(tracked.stages, ended)

    def ended(self, container: str, cpu_seconds: float, now: float) -> None:
        """End a recording; it is kept until it has been reported. ``cpu_seconds`` is the total; 0: unknown."""
        tracked = self._live.pop(container, None)
        if tracked is None:
            return
        if tracked.resumed and tracked.latest is None:
            tracked.unseen_s = math.inf
        _last(tracked, cpu_seconds, now, self._usual_s)
        tracked.recording.ended()
        tracked.over = True
        if tracked.unseen_s > MOST_UNSEEN * len(tracked.recording.slots) * tracked.recording.slot_s:
            tracked.whole = False
            tracked.restart_report()
        self._over.append(tracked)
        del self._over[:-MOST_ENDED]

    def report_all(self) -> None:
        """Report everything from the first slot on, on a new connection."""
        for tracked in (*self._live.values(), *self._over):
            tracked.restart_report()

    def report(self, lateness: Lateness, room_bytes: int) -> list[ExecutorUse]:
        """Return new use, in at most about ``room_bytes`` on the wire; the rest follows next time.

        Ended executors come first, then those least recently reported.
        """
        uses: list[ExecutorUse] = []
        for tracked in list(self._over):
            room_bytes = self._append_use(tracked, (0.0, False), room_bytes, uses)
            if uses and uses[-1].ended and uses[-1].task == tracked.task and uses[-1].job == tracked.job:
                self._over.remove(tracked)
        for container, tracked in list(self._live.items()):
            before = len(uses)
            room_bytes = self._append_use(tracked, lateness(container), room_bytes, uses)
            if len(uses) > before:
                self._live[container] = self._live.pop(container)
        return uses

    def _append_use(self, tracked: _Tracked, late: tuple[float, bool], room_bytes: int, uses: list[ExecutorUse]) -> int:
        """Append one executor's new use; return the room that is left."""
        recording = tracked.recording
        if recording.slot_s != tracked.slot_s:  # pairs of slots were merged: all have changed
            tracked.restart_report()
            tracked.slot_s = recording.slot_s
        slots, stages = (recording.slots, list(recording.stages)) if tracked.whole else ([], [])
        late = (round(late[0], 2), late[1])
        new = len(slots) - tracked.slots
        if not (new or tracked.over or late[1] != tracked.lateness[1] or len(stages) != tracked.stages_reported):
            return room_bytes
        use = ExecutorUse(
            job=tracked.job,
            task=tracked.task,
            slot_s=recording.slot_s,
            first=tracked.slots if tracked.whole else _MISSING,
            stages=stages,
            behind=late[0],
            stuck=late[1],
        )
        room_bytes -= len(msgspec.msgpack.encode(use)) + 40  # 40: the names of the lists, "ended", "last_part"
        fits = min(new, room_bytes // _SLOT_BYTES)
        if fits < 0 or (new and not fits):
            return 0
        until = tracked.slots + fits
        pieces = (slots if self.gaps_read else _filled(slots))[tracked.slots : until]
        mean = [_wire(slot.mean) if slot is not None else None for slot in pieces]
        peak = [_wire(slot.peak) if slot is not None else None for slot in pieces]
        ended = tracked.over and fits == new
        use = msgspec.structs.replace(use, mean=mean, peak=peak, ended=ended)
        if ended and tracked.whole and self.last_parts_read:
            # Only here: an older master refuses the field, and once set even its default would be sent.
            use = msgspec.structs.replace(use, last_part=round(recording.last_part, 4))
        uses.append(use)
        tracked.slots, tracked.stages_reported, tracked.lateness = until, len(stages), late
        return room_bytes - fits * _SLOT_BYTES


def _first(tracked: _Tracked, use: ContainerUse, snapshot: Snapshot) -> tuple[ContainerUse, float]:
    """Complete a first sample, which has no rates: the CPU rate since the last complete slot comes from CPU time.

    After a restart, disk and network are assumed to have continued at their former rates.
    """
    recording = tracked.recording
    seconds = max(snapshot.at - recording.until, snapshot.interval_s)
    cores = max(0.0, use.cpu_seconds - recording.cpu_seconds) / seconds if seconds > 0 else 0.0
    if not tracked.resumed:
        return msgspec.structs.replace(use, cpu_cores=max(use.cpu_cores, cores)), snapshot.interval_s
    tracked.unseen_s += seconds
    _, disk, network, _ = recording.latest.mean if recording.latest is not None else used_of(use)
    return msgspec.structs.replace(
        use, cpu_cores=cores, disk_bytes_per_s=disk, network_send_bytes_per_s=network
    ), seconds


def _last(tracked: _Tracked, cpu_seconds: float, now: float, usual_s: float) -> None:
    """Add the use since the latest sample: CPU from the total CPU time, the rest at its former rates.

    The kernel's memory peak is not used: it includes all page cache, which samples exclude.
    """
    if tracked.latest is None:
        return
    use, snapshot = tracked.latest
    seconds = now - snapshot.at
    if seconds > 0 and cpu_seconds >= use.cpu_seconds:  # less: unknown, or of its first process only
        use = msgspec.structs.replace(use, cpu_cores=(cpu_seconds - use.cpu_seconds) / seconds)
        tracked.recording.sampled(use, seconds, now, usual_s=usual_s, peak=seconds >= snapshot.interval_s / 2)


def _recorded(tracked: _Tracked) -> Recorded:
    recording = tracked.recording
    slots = _filled(recording.slots)
    return Recorded(
        slot_s=recording.slot_s,
        mean=[_wire(slot.mean) for slot in slots],
        peak=[_wire(slot.peak) for slot in slots],
        gaps=[at for at, slot in enumerate(recording.slots) if slot is None],
        cpu_seconds=round(recording.cpu_seconds, 6),
        stages=list(recording.stages),
        job_stages=tracked.stages,
        unseen_s=round(tracked.unseen_s, 3),
    )


def _filled(slots: Sequence[SlotUse | None]) -> list[SlotUse]:
    """Return the slots with each gap replaced by the slot before it, for readers without gaps."""
    before = next((slot for slot in slots if slot is not None), SlotUse(NOTHING, NOTHING))
    return [before := slot or before for slot in slots]


def _wire(amounts: ResourceVector) -> SlotAmounts:
    cores, disk, network, memory = (round(amount / unit) for amount, unit in zip(amounts, UNITS, strict=True))
    return (cores, disk, network, memory)


def _amounts(wire: SlotAmounts) -> ResourceVector:
    return ResourceVector._make(amount * unit for amount, unit in zip(wire, UNITS, strict=True))

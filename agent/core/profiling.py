"""The monitor surrogate (Elasecutor §III.A): each container's use, slot by slot, computed from the samples.

A slot has the mean and the peak of each resource. A sample that spans a boundary counts in both slots, in proportion to
the time. A slot that passed between a sample and a late one is a gap: it was not measured. Complete slots wait to be
reported to the master; a run so long that it would take too much memory continues with slots of twice the length.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.snapshot import ContainerUse
from penstock.model.resource_vector import NOTHING, ResourceVector

#: A slot measured for less than this part of its time is dropped: it is a run's last moment.
_LEAST_PART = 0.05
#: The minimum of a reported part of a slot.
_LEAST_TOLD = 1e-4
#: A sample is late if it comes after this many times the usual interval, or the slot's length if that is longer.
_LATE = 2.0
_ROUNDING = 1e-9


@dataclass(frozen=True, slots=True)
class SlotUse:
    """The mean and maximum use in one slot."""

    mean: ResourceVector
    peak: ResourceVector


def used_of(use: ContainerUse) -> ResourceVector:
    """Return the resources of a sample that a profile has."""
    return ResourceVector(use.cpu_cores, use.disk_bytes_per_s, use.network_send_bytes_per_s, float(use.memory_bytes))


@dataclass(slots=True)
class Recording:
    """The recording of one container from ``began`` on (monotonic seconds); ``slots`` are the complete ones.

    A slot that was not measured is None. ``cpu_seconds`` is the CPU time up to the end of the last complete slot,
    including gaps. ``stages`` are the slots at whose end a stage ended, as its framework reported. ``last_part`` is the
    part of the last slot that had passed when the container ended.
    """

    began: float
    slot_s: float
    most_slots: int
    slots: list[SlotUse | None] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    cpu_seconds: float = 0.0
    last_part: float = 1.0
    _sums: list[float] = field(default_factory=lambda: list(NOTHING))
    _peak: list[float] = field(default_factory=lambda: list(NOTHING))
    _seen_s: float = 0.0
    _sampled_at: float = 0.0

    @property
    def until(self) -> float:
        """The end of its last complete slot."""
        return self.began + len(self.slots) * self.slot_s

    @property
    def latest(self) -> SlotUse | None:
        """The last complete slot that was measured."""
        return next((slot for slot in reversed(self.slots) if slot is not None), None)

    def sampled(
        self, use: ContainerUse, interval_s: float, at: float, *, usual_s: float = 0.0, peak: bool = True
    ) -> None:
        """Count the means over the ``interval_s`` seconds before ``at``, without the time before the beginning.

        ``usual_s`` is the usual time between samples. Slots in which a late sample found no sample are gaps: its means
        do not show at which times the container used how much, and its memory is the present one. ``peak`` False: the
        interval is too short for its rates to be a peak.
        """
        used = used_of(use)
        self._sampled_at = at
        late = interval_s > _LATE * max(self.slot_s, usual_s)
        time = max(self.began, at - interval_s)
        while time < at - _ROUNDING:
            boundary = self.until + self.slot_s
            until = max(time, min(at, boundary))
            if late and not self._seen_s and boundary < at - _ROUNDING:
                self._sums[0] += used[0] * (until - time)
            elif until > time:
                self._count(used, until - time, peak=peak)
            time = until
            if time >= boundary - _ROUNDING:
                self._close()

    def stage_ended(self) -> None:
        """End a stage now: at the nearest slot boundary, at least one after the previous stage's."""
        nearest = len(self.slots) + (1 if self._seen_s >= self.slot_s / 2 else 0)
        self.stages.append(max(nearest, self.stages[-1] + 1 if self.stages else 1))

    def ended(self) -> None:
        """End the recording: the last slot ends with the last sample."""
        if self._seen_s > _LEAST_PART * self.slot_s or (not self.slots and self._seen_s > 0):
            self.last_part = min(1.0, max(_LEAST_TOLD, (self._sampled_at - self.until) / self.slot_s))
            self._close()
        while self.stages and self.stages[-1] >= len(self.slots):
            self.stages.pop()
        if self.stages:
            self.stages.append(len(self.slots))

    def _count(self, used: ResourceVector, seconds: float, *, peak: bool) -> None:
        for index, amount in enumerate(used):
            self._sums[index] += amount * seconds
            if peak:
                self._peak[index] = max(self._peak[index], amount)
        self._seen_s += seconds

    def _close(self) -> None:
        if self._seen_s:
            mean = ResourceVector._make(total / self._seen_s for total in self._sums)
            self.slots.append(SlotUse(mean, ResourceVector.highest([mean, ResourceVector._make(self._peak)])))
        else:
            self.slots.append(None)
        self.cpu_seconds += self._sums[0]
        self._sums, self._peak, self._seen_s = list(NOTHING), list(NOTHING), 0.0
        if len(self.slots) >= self.most_slots and len(self.slots) % 2 == 0 and self.last_part == 1.0:
            self._halve()

    def _halve(self) -> None:
        pairs = zip(self.slots[::2], self.slots[1::2], strict=True)
        self.slots = [_both(one, other) for one, other in pairs]
        self.slot_s *= 2
        ends = sorted({max(1, (end + 1) // 2) for end in self.stages})
        self.stages = ends


def _both(one: SlotUse | None, other: SlotUse | None) -> SlotUse | None:
    """Merge two slots: a gap counts in neither mean nor peak."""
    if one is None or other is None:
        return one or other
    mean = ResourceVector._make((a + b) / 2 for a, b in zip(one.mean, other.mean, strict=True))
    return SlotUse(mean, ResourceVector.highest([one.peak, other.peak]))

"""The monitor surrogate (Elasecutor §III.A): what each container used, slot by slot, from the samples of each tick.

A slot has the mean and the peak of each resource. A sample that reaches over a boundary counts in both slots, for its
part of the time. What is complete waits to be told to the master; a run so long that it would take too much memory is
told apart into slots of twice the length from then on.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.snapshot import ContainerUse

#: cores, disk bytes/s, bytes/s sent, bytes of memory: as a container is limited.
Amounts = tuple[float, float, float, float]
_NONE: Amounts = (0.0, 0.0, 0.0, 0.0)
#: A slot that was seen for less of its time says nothing of its own: it is a run's last moment.
_LEAST_PART = 0.05


@dataclass(frozen=True, slots=True)
class SlotUse:
    """What was used in one slot, on average and at most."""

    mean: Amounts
    peak: Amounts


def amounts(use: ContainerUse) -> Amounts:
    """What of a sample a profile has."""
    return (use.cpu_cores, use.disk_bytes_per_s, use.network_send_bytes_per_s, float(use.memory_bytes))


@dataclass(slots=True)
class Recording:
    """Of one container, from the moment ``began`` on (monotonic seconds); ``slots`` are those that are complete.

    ``stages`` are the slots at whose end a stage ended, as its framework said.
    """

    began: float
    slot_s: float
    most_slots: int
    slots: list[SlotUse] = field(default_factory=list)
    stages: list[int] = field(default_factory=list)
    _sums: list[float] = field(default_factory=lambda: list(_NONE))
    _peak: list[float] = field(default_factory=lambda: list(_NONE))
    _seen_s: float = 0.0

    @property
    def until(self) -> float:
        """The end of its last complete slot."""
        return self.began + len(self.slots) * self.slot_s

    @property
    def cpu_seconds(self) -> float:
        """That its complete slots have in all."""
        return sum(slot.mean[0] for slot in self.slots) * self.slot_s

    def sampled(self, use: ContainerUse, interval_s: float, at: float, *, peak: bool = True) -> None:
        """The means over the ``interval_s`` seconds before ``at``; what lies before the beginning does not count.

        ``peak`` False: too short a time for its rates to be a peak.
        """
        used = amounts(use)
        time = max(self.began, at - interval_s)
        while time < at - 1e-9:
            boundary = self.began + (len(self.slots) + 1) * self.slot_s
            until = min(at, boundary)
            if until > time:
                self._count(used, until - time, peak=peak)
                time = until
            if time >= boundary - 1e-9:
                self._close()

    def stage_ended(self) -> None:
        """A stage of its application ended now: at the nearest boundary of a slot, at least one after the last."""
        nearest = len(self.slots) + (1 if self._seen_s >= self.slot_s / 2 else 0)
        self.stages.append(max(nearest, self.stages[-1] + 1 if self.stages else 1))

    def ended(self) -> None:
        """The container ended: its last slot is as long as it was."""
        if self._seen_s > _LEAST_PART * self.slot_s or (not self.slots and self._seen_s > 0):
            self._close()
        while self.stages and self.stages[-1] >= len(self.slots):
            self.stages.pop()
        if self.stages:
            self.stages.append(len(self.slots))

    def _count(self, used: Amounts, seconds: float, *, peak: bool) -> None:
        for index, amount in enumerate(used):
            self._sums[index] += amount * seconds
            if peak:
                self._peak[index] = max(self._peak[index], amount)
        self._seen_s += seconds

    def _close(self) -> None:
        if self._seen_s:
            cores, disk, network, memory = (total / self._seen_s for total in self._sums)
            mean = (cores, disk, network, memory)
            self.slots.append(SlotUse(mean, _most(mean, _four(self._peak))))
        else:  # nobody sampled it: the monitor was late by more than a slot
            self.slots.append(self.slots[-1] if self.slots else SlotUse(_NONE, _NONE))
        self._sums, self._peak, self._seen_s = list(_NONE), list(_NONE), 0.0
        if len(self.slots) >= self.most_slots and len(self.slots) % 2 == 0:
            self._halve()

    def _halve(self) -> None:
        pairs = zip(self.slots[::2], self.slots[1::2], strict=True)
        merged = [SlotUse(_mean(one.mean, other.mean), _most(one.peak, other.peak)) for one, other in pairs]
        self.slots = merged
        self.slot_s *= 2
        ends = sorted({max(1, (end + 1) // 2) for end in self.stages})
        self.stages = ends


def _four(values: list[float]) -> Amounts:
    cores, disk, network, memory = values
    return (cores, disk, network, memory)


def _mean(one: Amounts, other: Amounts) -> Amounts:
    return _four([(a + b) / 2 for a, b in zip(one, other, strict=True)])


def _most(one: Amounts, other: Amounts) -> Amounts:
    return _four([max(a, b) for a, b in zip(one, other, strict=True)])

"""Track the allocation and use of each resource of the cluster over time (Ursa §5: SE and UE)."""

from __future__ import annotations

from collections.abc import Mapping

from simulator.report import ResourceReport, Timeline


class Level:
    """A quantity that changes in steps: its integral, and its means over steps of ``step_s`` (0: none kept)."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now = 0.0
        self.integral = 0.0
        self.peak = 0.0
        self.bins: list[float] = []
        self._step_s = step_s
        self._at_s = 0.0

    def change(self, now_s: float, delta: float) -> None:
        """Add ``delta`` to the quantity from ``now_s`` on."""
        if now_s > self._at_s:
            self.advance(now_s)
        self.now += delta
        self.peak = max(self.peak, self.now)

    def advance(self, now_s: float) -> None:
        """Integrate the quantity until ``now_s``."""
        self.integral += self.now * (now_s - self._at_s)
        step_s = self._step_s
        while step_s and self._at_s < now_s:
            number = int(self._at_s / step_s + 1e-9)
            until_s = min(now_s, (number + 1) * step_s)
            while len(self.bins) <= number:
                self.bins.append(0.0)
            self.bins[number] += self.now * (until_s - self._at_s)
            self._at_s = until_s
        self._at_s = now_s


class Usage:
    """Levels per resource of the whole cluster: cores, bytes of memory, busy disks, bytes/s of the links."""

    def __init__(self, capacity: Mapping[str, float], step_s: float) -> None:
        self.capacity = dict(capacity)
        self.used = {resource: Level(step_s) for resource in capacity}
        self.allocated = {resource: Level() for resource in capacity}
        self._step_s = step_s

    def change_memory(self, now_s: float, delta_bytes: int) -> None:
        """Allocate so much more memory from ``now_s`` on; it counts as used, too."""
        if delta_bytes:
            self.allocated["memory"].change(now_s, delta_bytes)
            self.used["memory"].change(now_s, delta_bytes)

    def resources(self, end_s: float, makespan_s: float) -> dict[str, ResourceReport]:
        """Return utilization, SE = allocated ÷ capacity and UE = used ÷ allocated over the makespan, if not all 0."""
        reports: dict[str, ResourceReport] = {}
        for resource, capacity in self.capacity.items():
            used, allocated = self.used[resource], self.allocated[resource]
            used.advance(end_s)
            allocated.advance(end_s)
            whole = capacity * makespan_s
            if whole <= 0 or not (used.integral or allocated.integral):
                continue
            known = allocated.integral > 0
            reports[resource] = ResourceReport(
                utilization=used.integral / whole,
                scheduling_efficiency=allocated.integral / whole if known else None,
                utilization_efficiency=used.integral / allocated.integral if known else None,
            )
        return reports

    def timeline(self) -> Timeline | None:
        """Return utilization over time; call it after :meth:`resources`. None if no step is set."""
        if not self._step_s:
            return None
        used = {
            resource: [round(value / (self._step_s * self.capacity[resource]), 6) for value in level.bins]
            for resource, level in self.used.items()
            if level.integral
        }
        return Timeline(step_s=self._step_s, used=used)

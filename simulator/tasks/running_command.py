"""A command that runs on a simulated node: its demand now, its kernel settings, and its use so far."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.core.confinement import Confinement
from simulator.tasks.workload import Phase, SimulatedCommand

_NOTHING = Phase(0.0)
_NEVER = float("inf")
#: Rounding of times within a phase.
_ROUNDING_S = 1e-6


@dataclass(slots=True, eq=False)
class RunningCommand:
    """A running command. ``speed`` is the fraction of full speed: 1 if it gets all that it wants.

    ``most_speed`` is the speed that its limits allow now, and ``lacks`` the resource with the limit that holds it back
    (empty: none does). At ``memory.high`` a command stalls if its memory grows, as without swap nothing can be
    reclaimed.
    """

    command: SimulatedCommand
    settings: Confinement
    promised_cores: float = field(init=False)  # an executor's follow its profile
    frozen: bool = False
    phase: int = 0
    passed_s: float = 0.0  # in the phase, at full speed
    speed: float = 0.0
    most_speed: float = 1.0
    lacks: str = ""
    cores: float = 0.0
    disk_bytes_per_s: float = 0.0
    cpu_seconds: float = 0.0
    disk_bytes: float = 0.0
    seen: bool = False  # by a sample
    wants: Phase = _NOTHING  # the current phase

    def __post_init__(self) -> None:
        self.promised_cores = self.command.cpu_cores
        self.enter(0)

    @property
    def opportunistic(self) -> bool:
        """Whether it runs only on slack (cpu.idle)."""
        return self.settings.opportunistic

    @property
    def wanted_cores(self) -> float:
        """The cores that it uses at the speed that its limits allow."""
        return self.wants.cpu_cores * self.most_speed

    @property
    def wanted_disk_bytes_per_s(self) -> float:
        """The same of the disks."""
        return self.wants.disk_bytes_per_s * self.most_speed

    def enter(self, phase: int) -> None:
        """Begin a phase; after the last phase the command wants nothing."""
        phases = self.command.phases
        self.phase, self.passed_s = phase, 0.0
        self.wants = phases[phase] if phase < len(phases) else _NOTHING

    def limit(self) -> None:
        """Set ``most_speed`` and ``lacks`` by its limits: cpu.max, io.max and memory.high."""
        wants, told = self.wants, self.settings
        self.most_speed, self.lacks = 1.0, ""
        if told.cpu_cores is not None and wants.cpu_cores > told.cpu_cores:
            self.most_speed, self.lacks = told.cpu_cores / wants.cpu_cores, "cpu"
        disk = told.disk_read_bytes_per_s
        if disk is not None and self.wanted_disk_bytes_per_s > disk:
            self.most_speed, self.lacks = disk / wants.disk_bytes_per_s, "disk"
        if self.passed_s >= self._full_at_s() - _ROUNDING_S:
            self.most_speed, self.lacks = 0.0, "memory"

    def next_change_s(self) -> float:
        """Return the seconds until its phase ends or its memory reaches its limit, at the present speed."""
        if self.speed <= 0:
            return _NEVER
        full_at_s = self._full_at_s()
        until_s = min(self.wants.seconds, full_at_s if full_at_s > self.passed_s else _NEVER)
        return (until_s - self.passed_s) / self.speed

    def memory_bytes(self) -> int:
        """Return its memory: interpolated linearly between the ends of the last phase and of this one."""
        phases = self.command.phases
        if self.phase >= len(phases):
            return int(phases[-1].memory_bytes)
        before = self._memory_before()
        here = phases[self.phase]
        part = self.passed_s / here.seconds if here.seconds else 1.0
        return int(before + (here.memory_bytes - before) * part)

    def _memory_before(self) -> float:
        return self.command.phases[self.phase - 1].memory_bytes if self.phase else 0.0

    def _full_at_s(self) -> float:
        """Return the time in the phase at which its memory reaches ``memory.high``; infinity: never."""
        high_bytes = self.settings.memory_high_bytes
        if high_bytes is None or self.phase >= len(self.command.phases):
            return _NEVER
        before, after = self._memory_before(), self.wants.memory_bytes
        if after <= max(before, high_bytes):
            return _NEVER
        return self.wants.seconds * (high_bytes - before) / (after - before)

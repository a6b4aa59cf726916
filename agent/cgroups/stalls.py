"""``*.pressure``: for how long work was stalled on a resource (Documentation/accounting/psi.rst, 4.20)."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.cgroups.files import Interface


@dataclass(frozen=True, slots=True)
class Stall:
    """Percent of the last 10, 60 and 300 s, and the µs since the cgroup was created."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


@dataclass(frozen=True, slots=True)
class Stalls:
    """``some``: at least one task was stalled; ``full``: all of them (None for CPU before 5.13)."""

    some: Stall = field(default_factory=Stall)
    full: Stall | None = None


class PressureFile(Interface):
    """Two lines, ``some avg10=0.00 avg60=0.00 avg300=0.00 total=0`` and ``full …``; writing sets a trigger."""

    readonly = True  # triggers have a descriptor each: agent.cgroups.pressure

    def sanitize_get(self, value: str) -> Stalls:
        """Parse the kernel's text."""
        lines = {}
        for line in value.splitlines():
            kind, *pairs = line.split()
            fields = dict(pair.split("=") for pair in pairs)
            avg10, avg60, avg300 = (float(fields[key]) for key in ("avg10", "avg60", "avg300"))
            lines[kind] = Stall(avg10, avg60, avg300, int(fields["total"]))
        return Stalls(lines["some"], lines.get("full"))


class StalledTime(Interface):
    """Only the total of ``some`` in the same file, in µs, for reads of hundreds of cgroups each second."""

    readonly = True

    def sanitize_get(self, value: str) -> int:
        """Parse the kernel's text."""
        return int(value.partition("total=")[2].partition("\n")[0])

"""``*.pressure``: how long work stood still for want of a resource (Documentation/accounting/psi.rst, 4.20)."""

from __future__ import annotations

from dataclasses import dataclass, field

from agent.cgroups.files import Interface


@dataclass(frozen=True, slots=True)
class Stall:
    """Percent of the last 10, 60 and 300 s, and the µs since the cgroup was made."""

    avg10: float = 0.0
    avg60: float = 0.0
    avg300: float = 0.0
    total_us: int = 0


@dataclass(frozen=True, slots=True)
class Stalls:
    """``some``: at least one task stood still; ``full``: all of them (None for CPU before 5.13)."""

    some: Stall = field(default_factory=Stall)
    full: Stall | None = None


class PressureFile(Interface):
    """Two lines, ``some avg10=0.00 avg60=0.00 avg300=0.00 total=0`` and ``full …``; what is written is a trigger."""

    readonly = True  # triggers have a descriptor each: agent.cgroups.pressure

    def sanitize_get(self, value: str) -> Stalls:
        """From the kernel."""
        lines = {}
        for line in value.splitlines():
            kind, *pairs = line.split()
            fields = dict(pair.split("=") for pair in pairs)
            avg10, avg60, avg300 = (float(fields[key]) for key in ("avg10", "avg60", "avg300"))
            lines[kind] = Stall(avg10, avg60, avg300, int(fields["total"]))
        return Stalls(lines["some"], lines.get("full"))


class StalledTime(Interface):
    """Of the same file only the total of ``some``, in µs: what is wanted of hundreds of cgroups each second."""

    readonly = True

    def sanitize_get(self, value: str) -> int:
        """From the kernel."""
        return int(value.partition("total=")[2].partition("\n")[0])

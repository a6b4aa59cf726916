"""The read of the containers' CPU time between two samples: the instruction, and the event that answers it.

A node asks for it when a job comes. By the numbers of the last sample, a second old, jobs that have just begun would go
before the new one, though they have run for long by now.
"""

from __future__ import annotations

from dataclasses import dataclass

from agent.core.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class LookAtCpu:
    """Read the CPU time of the containers, and send CpuLooked."""


@dataclass(frozen=True, slots=True)
class CpuLooked:
    """The CPU time was read; in ``snapshot`` nothing but ``cpu_seconds`` is newer than the last sample."""

    snapshot: Snapshot

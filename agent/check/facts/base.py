"""The type of a fact, and the host that facts are about."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from agent import cgroup_root, network
from agent.cgroups import Disk, Placement, Reason, disks_of, limited_disks, whole_disks
from agent.cgroups.weight import io_weight_works


class Fact(msgspec.Struct, frozen=True):
    """Whether this host can enforce something; ``why`` explains it, ``remedy`` is empty if nothing is to be fixed."""

    ok: bool
    why: str
    remedy: str = ""

    @classmethod
    def no(cls, reason: Reason) -> Fact:
        """Return a negative fact for a reason."""
        return cls(False, reason.why, reason.remedy)

    @classmethod
    def unavailable(cls, why: str) -> Fact:
        """Return a negative fact from the text of a reason."""
        reason, _, remedy = why.partition("; remedy: ")
        return cls(False, reason, remedy)


@dataclass(frozen=True, slots=True)
class Host:
    """The host that the facts are about; tests supply another one."""

    pressure: Path = Path("/proc/pressure")
    status: Path = Path("/proc/self/status")
    swaps: Path = Path("/proc/swaps")
    cgroup2_mount: Callable[[], Path | None] = cgroup_root.cgroup2_mount
    own_cgroup: Callable[[Path], Path] = cgroup_root.own_cgroup
    is_delegated: Callable[[Path], bool] = cgroup_root.is_delegated
    disks: Callable[[], Sequence[Disk]] = limited_disks
    disks_of: Callable[[Path], Placement] = disks_of
    hardware: Callable[[], Sequence[Disk]] = whole_disks
    weight_works: Callable[[Disk, Path], Reason | None] = io_weight_works
    network_why_not: Callable[[], str | None] = network.probe
    links: Callable[[], Sequence[network.LinkOut]] = network.links_out
    euid: Callable[[], int] = os.geteuid
    tick_s: Callable[[], float] = field(default=lambda: time.get_clock_info("monotonic").resolution)

    def may(self, capability: int) -> bool:
        """Return whether this process has a capability, by its number (linux/capability.h)."""
        for line in self.status.read_text(encoding="ascii").splitlines():
            if line.startswith("CapEff:"):
                return bool(int(line.split()[1], 16) >> capability & 1)
        return False


HOST = Host()

"""Everything that the kernel is told of one container: limits, and what its class makes of promise and slack.

A regular container has its promise protected: CPU by its weight, memory by ``memory.low``, the network by the rate of
its HTB class. An opportunistic one gets only what is left: ``cpu.idle``, no protected memory, the lowest weight on
disks, the last turn on the network (UBIS §IV.A; docs/kernel.md says what each of these is worth). A container never
moves from one cgroup to another: its class is settings, so promotion (UBIS §IV.D) is a change in place.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import msgspec

from penstock.model import ContainerSpec, Limits

#: cpu.weight of one promised core. Weights go from 1 to 10,000, so a hundred cores can still be told apart.
WEIGHT_PER_CORE = 100
#: Of a regular container that was promised no CPU: ten of them take less than one core that was promised.
UNPROMISED_WEIGHT = 10
#: io.weight (bfq takes up to 1000): ten opportunistic containers together get a hundredth of what a regular one gets.
DISK_WEIGHT, OPPORTUNISTIC_DISK_WEIGHT = 1000, 1
#: … of a regular one by the rank of its job, a factor of 16 as with cpu.weight; the last is that of all further ranks.
RANKED_DISK_WEIGHTS = (DISK_WEIGHT, 62, 10)
#: From here on ranks are alike on disks and on the network.
LAST_RANK = len(RANKED_DISK_WEIGHTS) - 1


class Promise(msgspec.Struct, frozen=True, kw_only=True):
    """What is protected of a container whose promise moves: an executor's follows its plan (Elasecutor §III.B)."""

    cpu_cores: float
    memory_bytes: int
    network_bytes_per_s: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Confinement:
    """One field per kernel setting; where a field is a limit it has the limit's name (penstock.model.Limits).

    ``None`` is the kernel's default, no limit. ``network_rate_bytes_per_s`` is the promised rate of the HTB class, 0
    for none; its ceiling is ``network_egress_bytes_per_s``.
    """

    opportunistic: bool = False
    cpu_cores: float | None = None  # cpu.max
    cpu_burst_s: float | None = None  # cpu.max.burst
    cpu_weight: int = 100  # cpu.weight; without effect while opportunistic (cpu.idle)
    cpus: str | None = None  # cpuset.cpus
    memory_min_bytes: int = 0  # memory.min
    memory_low_bytes: int = 0  # memory.low
    memory_high_bytes: int | None = None  # memory.high
    memory_max_bytes: int | None = None  # memory.max
    oom_group: bool = False  # memory.oom.group
    disk_weight: int = 100  # io.weight or io.bfq.weight, where one of them does anything
    disk_read_bytes_per_s: int | None = None  # io.max rbps …
    disk_write_bytes_per_s: int | None = None
    disk_read_ops_per_s: int | None = None
    disk_write_ops_per_s: int | None = None
    network_rate_bytes_per_s: int = 0
    network_egress_bytes_per_s: int | None = None
    network_ingress_bytes_per_s: int | None = None
    pids_max: int | None = None  # pids.max
    rank: int = 0  # of its job on the network: HTB's priority
    borrowed: bool = False  # it was started outside: what holds for every container by default does not hold for it


def worth_saying(
    not_enforced: Mapping[str, str], spec: ContainerSpec, limits: Limits, *, opportunistic: bool
) -> dict[str, str]:
    """Of what is not enforced, what somebody asked for: limits, the class, a share of the network. What else protects
    a promise on this host, and what does not, `penstock check` says once for all."""
    asked = {name for name in limits.__struct_fields__ if getattr(limits, name) is not None}
    if opportunistic:
        asked.add("opportunistic")
    if spec.network_bytes_per_s:
        asked.add("network_rate_bytes_per_s")
    return {name: why for name, why in not_enforced.items() if name.split(" ")[0] in asked}


def confine(
    spec: ContainerSpec,
    limits: Limits,
    *,
    opportunistic: bool,
    promise: Promise | None = None,
    rank_weight: int = 0,
    rank: int = 0,
    borrowed: bool = False,
) -> Confinement:
    """What the kernel is to be told of a container whose limits are ``limits`` now.

    ``promise`` is what is protected instead of what ``spec`` asked for, where that moves. ``rank_weight`` is the weight
    of one that was promised no CPU (:mod:`agent.core.ranks`); 0: it has no rank yet. ``rank`` is that of its job, 0 for
    the first and for what has none, :data:`LAST_RANK` at most.
    """
    promised = not opportunistic
    protected: ContainerSpec | Promise = promise or spec
    weight = rank_weight or limits.cpu_weight or UNPROMISED_WEIGHT
    if protected.cpu_cores:
        weight = min(10_000, max(1, round(WEIGHT_PER_CORE * protected.cpu_cores)))
    ranked = rank if promised and not protected.cpu_cores else 0
    return Confinement(
        opportunistic=opportunistic,
        cpu_cores=limits.cpu_cores,
        cpu_burst_s=limits.cpu_burst_s,
        cpu_weight=weight,
        cpus=limits.cpus,
        memory_low_bytes=protected.memory_bytes if promised else 0,
        memory_high_bytes=limits.memory_high_bytes,
        memory_max_bytes=limits.memory_max_bytes,
        oom_group=spec.oom_group,
        disk_weight=RANKED_DISK_WEIGHTS[ranked] if promised else OPPORTUNISTIC_DISK_WEIGHT,
        disk_read_bytes_per_s=limits.disk_read_bytes_per_s,
        disk_write_bytes_per_s=limits.disk_write_bytes_per_s,
        disk_read_ops_per_s=limits.disk_read_ops_per_s,
        disk_write_ops_per_s=limits.disk_write_ops_per_s,
        network_rate_bytes_per_s=protected.network_bytes_per_s if promised else 0,
        network_egress_bytes_per_s=limits.network_egress_bytes_per_s,
        network_ingress_bytes_per_s=limits.network_ingress_bytes_per_s,
        pids_max=limits.pids_max,
        rank=ranked,
        borrowed=borrowed,
    )
